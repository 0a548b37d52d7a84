"""One file over HTTP: mirrors in turn, a resumed connection, a watch on stalls, pooch's checksum.

pooch calls a downloader with a temporary file, compares the checksum and only then gives the file its name.
Ours keeps what arrived when a connection breaks and asks the same mirror for the rest (a `Range` request);
a mirror that sends nothing, too little, too much or something else is left for the next one.
"""

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import DataError
from .sources import Download

ATTEMPTS = 3  # connections to one mirror; after the first only if it had sent something
BLOCK = 1 << 16
SLOWEST = 1 << 10  # bytes a second; less, over one timeout, is a stall and not a slow line

OnBytes = Callable[[int], None]  # bytes of this file so far


def download(
    wanted: Download, mirrors: Sequence[str], folder: Path, timeout: float, on_bytes: OnBytes | None = None
) -> Path:
    """Returns the downloaded file in `folder`, its checksum compared; nothing is left there on failure.

    Args:
        wanted: name, size and checksum of what the mirrors offer.
        mirrors: addresses that the name completes, tried in this order.
        folder: where the file goes.
        timeout: seconds without an answer, or without a fair amount of data, after which a mirror has stalled.
        on_bytes: called with the bytes that have arrived.

    Raises:
        DataError: no mirror delivered; the message says what each of them did.
    """
    reasons = []
    for mirror in mirrors:
        address = f"{mirror.rstrip('/')}/{wanted.name}"
        try:
            return _from_mirror(address, wanted, folder, timeout, on_bytes or (lambda _: None))
        except _Refused as reason:
            reasons.append(f"{address}: {reason}")
    raise DataError(f"cannot download {wanted.name}: {'; '.join(reasons) or 'no mirror is named'}")


class _Refused(Exception):
    """Why one mirror did not deliver; the next one is tried."""


class _Broken(Exception):
    """A connection that ended early; the same mirror may have the rest."""


def _from_mirror(address: str, wanted: Download, folder: Path, timeout: float, on_bytes: OnBytes) -> Path:
    try:
        import pooch
        from requests import RequestException
    except ImportError:
        raise DataError("downloads need pooch: pip install pooch; or put the files in place yourself") from None
    part = folder / f"{wanted.name}.part"

    def downloader(url: str, output_file: Any, _: Any) -> None:
        _collect(url, part, wanted, timeout, on_bytes)
        os.replace(part, output_file)

    try:
        retrieve: Any = pooch.retrieve
        with _quiet(pooch.get_logger()):
            return Path(retrieve(address, f"sha256:{wanted.sha256}", wanted.name, folder, downloader=downloader))
    except _Broken as error:
        raise _Refused(str(error)) from None
    except RequestException as error:
        raise _Refused(_plain(error, timeout)) from None
    except OSError as error:
        raise DataError(f"cannot write to {folder}: {error.strerror or error}") from None
    except ValueError:  # pooch, when the checksum differs
        raise _Refused("sent wrong bytes: the SHA-256 is not that of the published file") from None
    finally:
        part.unlink(missing_ok=True)


def _collect(url: str, part: Path, wanted: Download, timeout: float, on_bytes: OnBytes) -> None:
    """Fills `part`, coming back for the rest when a connection breaks."""
    part.unlink(missing_ok=True)
    for attempt in range(1, ATTEMPTS + 1):
        before = part.stat().st_size if part.exists() else 0
        try:
            return _connect(url, part, before, wanted, timeout, on_bytes)
        except _Broken:
            if attempt == ATTEMPTS or part.stat().st_size <= before:
                raise


def _connect(url: str, part: Path, start: int, wanted: Download, timeout: float, on_bytes: OnBytes) -> None:
    import requests

    headers = {"Accept-Encoding": "identity", "User-Agent": "bayesin"}
    if start:
        headers["Range"] = f"bytes={start}-"
    with requests.get(url, stream=True, timeout=timeout, headers=headers) as response:
        if response.status_code not in (200, 206):
            raise _Refused(f"HTTP {response.status_code} {response.reason or ''}".strip())
        if response.status_code == 200 or not _continues(response.headers.get("Content-Range"), start, wanted.size):
            start = 0  # the server starts over, so we do too
        _check_length(response.headers.get("Content-Length"), start, wanted.size)
        with open(part, "r+b" if start else "wb") as file:
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
            raise _Broken(_plain(error, timeout)) from None
        if not block:
            return
        yield block
        arrived += len(block)
        passed = time.monotonic() - since
        if passed > timeout:
            if arrived < SLOWEST * passed:
                raise _Refused(f"stalled: {arrived:,} bytes in {passed:.0f} s")
            since, arrived = time.monotonic(), 0


def _continues(content_range: str | None, start: int, size: int) -> bool:
    return content_range == f"bytes {start}-{size - 1}/{size}"


def _check_length(text: str | None, start: int, size: int) -> None:
    if text is not None and text.isdigit() and int(text) + start != size:
        raise _Refused(f"offers {int(text) + start:,} bytes instead of {size:,}")


def _plain(error: Exception, timeout: float) -> str:
    """An error of the network in a few words, without the objects that urllib3 prints."""
    words = f"{type(error).__name__} {error}".lower()
    if "timeout" in words or "timed out" in words:
        return f"stalled: nothing came for {timeout:g} s"
    if "incompleteread" in words or "connection broken" in words:
        return "broke off in the middle of the file"
    if "resolve" in words or "name or service" in words:
        return "host not found, or no network"
    if "refused" in words:
        return "connection refused"
    if "certificate" in words or "ssl" in words:
        return "its TLS certificate is not accepted"
    return f"{type(error).__name__}: {str(error).splitlines()[0][:120] if str(error) else 'no reason given'}"


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """pooch's own lines would break the bar; its logger is as it was afterwards."""
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
