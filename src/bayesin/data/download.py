"""`fetch`: a data set from its public mirrors to where `load` finds it, whole or not at all.

Everything arrives, is unpacked and is compared with the published content in a temporary folder beside its place;
only then the files take their names, each in one step. When a connection breaks, what arrived is kept and the same
mirror is asked for the rest (a `Range` request); a mirror that sends nothing, too little, too much or something
else is left for the next one. (pooch would only compare the checksum here, and can neither resume nor see a stall.)
"""

import hashlib
import os
import shutil
import tarfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import DataError, first_line
from ..files import remove_leftovers, sync_file, temporary_folder
from .folders import Found, home, is_own, locate, read_checked
from .sources import Download, File, Source, source_of

ATTEMPTS = 3  # connections to one mirror; after the first only if it had sent something
BLOCK = 1 << 16
SLOWEST = 1 << 10  # bytes a second; less, over one timeout, is a stall and not a slow line

OnProgress = Callable[[int, int, str], None]  # bytes so far, bytes in all, the file that is coming


class Fetched(NamedTuple):
    """Where a data set is now, and what had to be downloaded for it."""

    folder: Path
    downloaded: tuple[str, ...]


def fetch(
    name: str | Source,
    root: str | Path | None = None,
    *,
    mirrors: Sequence[str] | None = None,
    timeout: float = 30.0,
    on_progress: OnProgress | None = None,
) -> Fetched:
    """Downloads what is missing or damaged of a data set and returns where it is.

    Args:
        name: `mnist`, `fashion-mnist`, `cifar10` or `cifar100`.
        root: folder to put it below; by default where a copy is already, else `$BAYESIN_DATA`, else the
            user's cache. Damaged files found there are kept beside the new ones as `NAME.bad`.
        mirrors: addresses to try in order instead of the public ones.
        timeout: seconds without data after which a mirror has stalled.
        on_progress: called with bytes so far, bytes in all and the name of the file.

    Raises:
        DataError: no mirror delivered the published files (the message says what each of them did), or
            the place cannot be written. Nothing half-written is left.

    Example:
        >>> fetch("minst")
        Traceback (most recent call last):
            ...
        bayesin.errors.DataError: there is no data set 'minst' ...; did you mean 'mnist'?
    """
    if name == "digits":
        raise DataError("the digits come with scikit-learn; there is nothing to fetch")
    source = name if isinstance(name, Source) else source_of(name)
    folder, bad = _target(source, root)
    if not bad:
        return Fetched(folder, ())
    wanted = [d for d in source.downloads if d.name.endswith(".tar.gz") or d.name.removesuffix(".gz") in bad]
    try:
        there = [path for path in (folder, *folder.absolute().parents) if path.is_dir()]
        for path in there[: len(source.folders[0].split("/")) + 1]:  # one may have been killed before it made them
            remove_leftovers(path, "fetch")
        with temporary_folder(there[0], "fetch") as work:
            fresh = _download_all(source, wanted, mirrors or source.mirrors, work, timeout, on_progress)
            folder.mkdir(parents=True, exist_ok=True)
            for file in source.files:
                if file.name in bad:
                    _place(fresh[file.name], folder, bad[file.name])
    except OSError as error:
        raise DataError(f"cannot write {folder}: {error.strerror or error}; choose another --root") from None
    return Fetched(folder, tuple(d.name for d in wanted))


def download(
    wanted: Download,
    mirrors: Sequence[str],
    folder: Path,
    timeout: float,
    on_bytes: Callable[[int], None],
    *,
    headers: Mapping[str, str] | None = None,
) -> Path:
    """Returns the downloaded file in `folder`, its checksum compared.

    Args:
        wanted: name, size and checksum of what the mirrors offer.
        mirrors: addresses that the name completes, tried in this order.
        folder: where the file goes.
        timeout: seconds without an answer, or without a fair amount of data, after which a mirror has stalled.
        on_bytes: called with the bytes of this file that have arrived.
        headers: of the requests, such as one that says who asks.

    Raises:
        DataError: no mirror delivered; the message says what each of them did.
    """
    try:
        from requests import RequestException
    except ImportError:
        raise DataError("downloads need requests: pip install requests; or put the files in place yourself") from None
    path, reasons = folder / wanted.name, []
    for mirror in mirrors:
        address = f"{mirror.rstrip('/')}/{wanted.name}"
        try:
            _collect(address, path, wanted, timeout, on_bytes, headers or {})
            sync_file(path)
            return path
        except (_Refused, _Broken) as reason:
            reasons.append(f"{address}: {reason}")
        except RequestException as error:
            reasons.append(f"{address}: {_in_words(error, timeout)}")
    raise DataError(f"cannot download {wanted.name}: {'; '.join(reasons) or 'no mirror is named'}")


class _Refused(Exception):
    """Why one mirror did not deliver; the next one is tried."""


class _Broken(Exception):
    """A connection that ended early; the same mirror may have the rest."""


def _target(source: Source, root: str | Path | None) -> tuple[Path, dict[str, Path | None]]:
    """The folder to fill, and the files it lacks: None where absent, the damaged file where there is one."""
    if home(root).exists() and not home(root).is_dir():
        raise DataError(f"{home(root)} is a file, not a folder to fetch to; choose another --root")
    fresh = Found(home(root) / source.folders[0], {})
    found = locate(source, root if root is not None and home(root).is_dir() else None)
    if found is None or (root is not None and found.folder != home(root) and home(root) not in found.folder.parents):
        found = fresh
    bad = _bad(source, found)
    if bad and not is_own(source, found.folder):  # MNIST and Fashion-MNIST share file names: spoil neither
        return fresh.folder, _bad(source, fresh)
    return found.folder, bad


def _bad(source: Source, found: Found) -> dict[str, Path | None]:
    paths = {file: found.paths.get(file.name) for file in source.files}
    return {file.name: path for file, path in paths.items() if path is None or not _is_good(path, source, file)}


def _is_good(path: Path, source: Source, file: File) -> bool:
    try:
        read_checked(path, source, file)
    except DataError:
        return False
    return True


def _download_all(
    source: Source,
    wanted: list[Download],
    mirrors: Sequence[str],
    work: Path,
    timeout: float,
    on_progress: OnProgress | None,
) -> dict[str, Path]:
    """Downloads and unpacks into `work`; returns the checked files by name."""
    total, done = sum(d.size for d in wanted), 0
    fresh: dict[str, Path] = {}
    for item in wanted:

        def report(arrived: int, before: int = done, name: str = item.name) -> None:
            if on_progress:
                on_progress(before + arrived, total, name)

        path = download(item, mirrors, work, timeout, report)
        done += item.size
        if item.name.endswith(".tar.gz"):
            fresh |= _unpack(path, source, work)
        else:
            fresh[item.name.removesuffix(".gz")] = path
    for file in source.files:
        if file.name in fresh and not _is_good(fresh[file.name], source, file):
            raise DataError(f"{file.name} arrived, but is not the published file by its content; nothing was kept")
    return fresh


def _unpack(archive: Path, source: Source, work: Path) -> dict[str, Path]:
    """Takes the expected files, and nothing else, out of a tarball; paths in it are never followed."""
    expected = {f"{source.folders[0]}/{file.name}": file for file in source.files}
    fresh: dict[str, Path] = {}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                file = expected.get(member.name.removeprefix("./"))
                content = tar.extractfile(member) if file is not None and member.isreg() else None
                if file is None or content is None or file.name in fresh:
                    continue
                if member.size != file.size:
                    raise DataError(f"{archive.name}: {file.name} has {member.size:,} bytes, not {file.size:,}")
                fresh[file.name] = work / file.name
                with open(fresh[file.name], "wb") as target:
                    shutil.copyfileobj(content, target)
    except (tarfile.TarError, zlib.error, EOFError) as error:
        raise DataError(f"{archive.name} is not a whole tarball: {error}") from None
    if missing := [file.name for file in source.files if file.name not in fresh]:
        raise DataError(f"{archive.name} lacks {', '.join(missing)}")
    return fresh


def _place(fresh: Path, folder: Path, damaged: Path | None) -> None:
    """Gives a checked file its name; a damaged one steps aside first, since it may be of use elsewhere."""
    sync_file(fresh)
    if damaged is not None:
        os.replace(damaged, damaged.with_name(f"{damaged.name}.bad"))
    os.replace(fresh, folder / fresh.name)


def _collect(
    url: str,
    path: Path,
    wanted: Download,
    timeout: float,
    on_bytes: Callable[[int], None],
    headers: Mapping[str, str],
) -> None:
    """Fills `path` from one mirror, coming back for the rest when a connection breaks."""
    path.write_bytes(b"")
    for attempt in range(1, ATTEMPTS + 1):
        before = path.stat().st_size
        try:
            _connect(url, path, before, wanted, timeout, on_bytes, headers)
            break
        except _Broken:
            if attempt == ATTEMPTS or path.stat().st_size <= before:
                raise
    with open(path, "rb") as file:
        if wanted.sha256 not in (None, hashlib.file_digest(file, "sha256").hexdigest()):
            raise _Refused("sent wrong bytes: the SHA-256 is not that of the published file")


def _connect(
    url: str,
    path: Path,
    start: int,
    wanted: Download,
    timeout: float,
    on_bytes: Callable[[int], None],
    headers: Mapping[str, str],
) -> None:
    import requests

    headers = {"User-Agent": "bayesin", **headers, "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    with requests.get(url, stream=True, timeout=timeout, headers=headers) as response:
        if response.status_code not in (200, 206):
            raise _Refused(f"HTTP {response.status_code} {response.reason or ''}".strip())
        rest = f"bytes {start}-{wanted.size - 1}/{wanted.size}"
        if response.status_code == 200 or response.headers.get("Content-Range") != rest:
            start = 0  # the server starts over, so we do too
        length = response.headers.get("Content-Length", "")
        if length.isdigit() and int(length) + start != wanted.size:
            raise _Refused(f"offers {int(length) + start:,} bytes instead of {wanted.size:,}")
        with open(path, "r+b" if start else "wb") as file:
            file.seek(start)
            for block in _blocks(response.raw, timeout):
                file.write(block)
                if file.tell() > wanted.size:
                    raise _Refused(f"sent more than the {wanted.size:,} bytes of the file")
                on_bytes(file.tell())
            arrived = file.tell()
    if arrived < wanted.size:
        raise _Broken(f"sent {arrived:,} of {wanted.size:,} bytes")


def _blocks(raw: Any, timeout: float) -> Iterator[bytes]:
    """What arrives, as it arrives; a line that only drips is taken for a stall."""
    from urllib3.exceptions import HTTPError

    read = getattr(raw, "read1", raw.read)  # urllib3 before 2.1 has no read1
    since, arrived = time.monotonic(), 0
    while True:
        try:
            block = read(BLOCK)
        except (HTTPError, OSError) as error:
            raise _Broken(_in_words(error, timeout)) from None
        if not block:
            return
        yield block
        arrived += len(block)
        passed = time.monotonic() - since
        if passed > timeout:
            if arrived < SLOWEST * passed:
                raise _Refused(f"stalled: {arrived:,} bytes in {passed:.0f} s")
            since, arrived = time.monotonic(), 0


def _in_words(error: Exception, timeout: float) -> str:
    """An error of the network in a few words, without the objects that urllib3 prints."""
    text = f"{type(error).__name__} {error}".lower()
    known = {
        ("timeout", "timed out"): f"stalled: nothing came for {timeout:g} s",
        ("incompleteread", "connection broken"): "broke off in the middle of the file",
        ("resolve", "name or service"): "host not found, or no network",
        ("refused",): "connection refused",
        ("certificate", "ssl"): "its TLS certificate is not accepted",
    }
    for signs, reason in known.items():
        if any(sign in text for sign in signs):
            return reason
    return f"{type(error).__name__}: {first_line(error, 120)}"
