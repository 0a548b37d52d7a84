"""`fetch`: a data set from its public mirrors to where `load` finds it, whole or not at all.

Everything arrives, is unpacked and is compared with the published content in a temporary folder beside
its place; only then the files take their names, each in one step.
"""

import os
import shutil
import tarfile
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from ..errors import DataError
from ..files import TEMPORARY, held
from .content import read_checked
from .downloads import download
from .locate import Found, home, is_own, locate
from .sources import Download, File, Source, source_of

LEFTOVER_AGE = 5  # seconds from making a folder to holding it, at the very most

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
    """
    if name == "digits":
        raise DataError("the digits come with scikit-learn; there is nothing to fetch")
    source = name if isinstance(name, Source) else source_of(name)
    folder, bad = _target(source, root)
    if not bad:
        return Fetched(folder, ())
    wanted = [d for d in source.downloads if d.name.endswith(".tar.gz") or d.name.removesuffix(".gz") in bad]
    try:
        beside = next(path for path in (folder, *folder.absolute().parents) if path.is_dir())
        _remove_leftovers(beside)
        with tempfile.TemporaryDirectory(prefix=f"{TEMPORARY}fetch-", dir=beside) as work, held(work):
            fresh = _download_all(source, wanted, mirrors or source.mirrors, Path(work), timeout, on_progress)
            folder.mkdir(parents=True, exist_ok=True)
            for file in source.files:
                if file.name in bad:
                    _place(fresh[file.name], folder, bad[file.name])
    except OSError as error:
        raise DataError(f"cannot write {folder}: {error.strerror or error}; choose another --root") from None
    return Fetched(folder, tuple(d.name for d in wanted))


def _target(source: Source, root: str | Path | None) -> tuple[Path, dict[str, Path | None]]:
    """The folder to fill, and the files it lacks: None where absent, the damaged file where there is one."""
    if home(root).exists() and not home(root).is_dir():
        raise DataError(f"{home(root)} is a file, not a folder to fetch to; choose another --root")
    fresh = Found(home(root) / source.folders[0], {})
    found = locate(source, root if root is not None and os.path.isdir(Path(root).expanduser()) else None)
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
                if file is None or file.name in fresh or not member.isreg():
                    continue
                if member.size != file.size:
                    raise DataError(f"{archive.name}: {file.name} has {member.size:,} bytes, not {file.size:,}")
                content = tar.extractfile(member)
                with open(work / file.name, "wb") as target:
                    if content is not None:
                        shutil.copyfileobj(content, target)
                fresh[file.name] = work / file.name
    except (tarfile.TarError, zlib.error, EOFError) as error:
        raise DataError(f"{archive.name} is not a whole tarball: {error}") from None
    if missing := [file.name for file in source.files if file.name not in fresh]:
        raise DataError(f"{archive.name} lacks {', '.join(missing)}")
    return fresh


def _place(fresh: Path, folder: Path, damaged: Path | None) -> None:
    """Gives a checked file its name; a damaged one steps aside first, since it may be of use elsewhere."""
    with open(fresh, "rb") as file:
        os.fsync(file.fileno())
    if damaged is not None:
        os.replace(damaged, damaged.with_name(f"{damaged.name}.bad"))
    os.replace(fresh, folder / fresh.name)


def _remove_leftovers(folder: Path) -> None:
    """Removes what killed processes left; the folder of a living one is held by it."""
    for path in folder.glob(f"{TEMPORARY}fetch-*"):
        if path.is_dir() and time.time() - path.stat().st_mtime > LEFTOVER_AGE:
            with held(path, wait=False) as mine:
                if mine:
                    shutil.rmtree(path, ignore_errors=True)
