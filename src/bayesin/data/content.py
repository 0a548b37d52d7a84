"""Files accepted by what they contain, not by how they are compressed or what they are called.

A file is read whole, unzipped within a bound, and its content compared by SHA-256 with the published
file. What does not fit is named: another known file, a truncated one, a corrupted one.
"""

import hashlib
import zlib
from pathlib import Path

from ..errors import DataError
from .sources import SOURCES, File, Source

GZIP = b"\x1f\x8b"  # neither idx (zeros) nor CIFAR binary (a class below 20) starts like this


def read_checked(path: Path, source: Source, file: File) -> bytes:
    """Returns the decompressed content of `path`, which must be the published `file`.

    Raises:
        DataError: the file cannot be read, or holds something else; the message says what.
    """
    limit = max(known.size for other in (source, *SOURCES.values()) for known in other.files)
    content = gunzip(_read(path, limit), path, limit)
    if len(content) == file.size and hashlib.sha256(content).hexdigest() == file.sha256:
        return content
    raise DataError(f"{path} {_what_is_wrong(content, source, file)}; {remedy(source, path)}")


def gunzip(content: bytes, path: Path, limit: int) -> bytes:
    """Returns the content, unzipped where it is gzip; at most `limit` bytes are ever made of it."""
    if not content.startswith(GZIP):
        return content
    parts, room = [], limit
    while content:
        machine = zlib.decompressobj(wbits=31)
        try:
            part = machine.decompress(content, room + 1)
        except zlib.error as error:
            raise DataError(f"{path} is corrupted: its gzip stream is broken ({error}); get it again") from None
        parts.append(part)
        room -= len(part)
        if room < 0:
            raise DataError(f"{path} unpacks to more than {limit:,} bytes, so it is no file of a known data set")
        if not machine.eof:
            done = limit - room
            raise DataError(f"{path} is truncated: its gzip stream stops after {done:,} bytes; get it again")
        content = machine.unused_data.lstrip(b"\0")  # several members are one file, and zeros may pad it
    return parts[0] if len(parts) == 1 else b"".join(parts)


def remedy(source: Source, path: Path) -> str:
    """What to do about a bad file of a data set."""
    return f"move it away, or mend it with 'bayesin data fetch {source.name}' (--root where {path.name} lies)"


def _read(path: Path, limit: int) -> bytes:
    try:
        if not path.is_file():
            raise DataError(f"{path} is not a file")
        size = path.stat().st_size
        if size > limit + (1 << 20):  # gzip adds a few bytes at most to what it cannot compress
            raise DataError(f"{path} has {size:,} bytes, more than any file of a known data set")
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None


def _what_is_wrong(content: bytes, source: Source, file: File) -> str:
    wanted = f"the {file.role} of {source.title}"
    known = {f.sha256: (s, f) for s in (*SOURCES.values(), source) for f in s.files if f.size == len(content)}
    found = known.get(hashlib.sha256(content).hexdigest()) if known else None
    if found:
        return f"is swapped: it holds the {found[1].role} of {found[0].title}, not {wanted}"
    if not content:
        return f"is empty, expected {wanted}"
    if len(content) < file.size:
        return f"is truncated: {len(content):,} of the {file.size:,} bytes of {wanted}"
    if len(content) > file.size:
        return f"is not {wanted}: {len(content):,} bytes instead of {file.size:,}"
    return f"is corrupted: as long as {wanted}, but its SHA-256 differs"
