"""Where the files of a data set are, and whether they are what they should be.

One order of search for every verb: `root`, `$BAYESIN_DATA`, `./data`, the user's cache, then the folders of system
packages. In each of the first four the files may lie in a customary sub-folder or directly, gzipped or not.

A file is accepted by what it contains, not by how it is compressed or what it is called: it is unzipped within a
bound, and its content compared by SHA-256 with the published file. What does not fit is named: another known
file, a truncated one, a corrupted one.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..errors import ArtifactError, DataError
from ..files import cache_folder, read_bytes
from .formats import gunzip
from .sources import SOURCES, File, Source


class Found(NamedTuple):
    """The files of a data set in one folder; not yet checked."""

    folder: Path
    paths: dict[str, Path]  # by the file's published name; absent files are left out

    def missing(self, source: Source) -> list[str]:
        """Names of the files that are not there."""
        return [file.name for file in source.files if file.name not in self.paths]

    @property
    def bytes(self) -> int:
        """What the files take on the disk."""
        return sum(path.stat().st_size for path in self.paths.values())


def locate(source: Source, root: Path | str | None = None) -> Found | None:
    """Returns the first folder that holds the data set, or None; the content is not looked at.

    A folder with all files wins over one with some. A given `root` that holds some of the files wins over
    every other place, so that what is wrong there is said rather than passed over.

    Raises:
        DataError: `root` is given and is not a folder.
    """
    partial = None
    for folder, explicit, own in _folders(source, root):
        found = Found(folder, {f.name: path for f in source.files if (path := _path(folder, f))})
        if not found.missing(source) or (explicit and found.paths):
            return found
        if found.paths and own and partial is None:  # `train.bin` alone, in a folder of all sorts, says nothing
            partial = found
    return partial


def searched(source: Source, root: Path | str | None = None) -> list[Path]:
    """The places that `locate` looks in, without their customary sub-folders."""
    return [base for base, _ in _roots(root)] + [Path(folder) for folder in source.system]


def is_own(source: Source, folder: Path) -> bool:
    """Whether a folder bears one of the data set's customary names, so that its files belong to it alone."""
    parts = folder.absolute().parts
    return str(folder) in source.system or any(
        parts[-len(n.split("/")) :] == (*n.split("/"),) for n in source.folders
    )


def home(root: Path | str | None = None) -> Path:
    """The folder below which `fetch` puts files: `root`, `$BAYESIN_DATA`, or the user's cache."""
    folder = root or os.environ.get("BAYESIN_DATA") or cache_folder("data")
    if folder is None:
        raise DataError("this user has no home folder to keep data in; name one with --root or $BAYESIN_DATA")
    return _expand(folder)


def read_checked(path: Path, source: Source, file: File) -> bytes:
    """Returns the decompressed content of `path`, which must be the published `file`.

    Raises:
        DataError: the file cannot be read, or holds something else; the message says what.
    """
    limit = max(known.size for other in (source, *SOURCES.values()) for known in other.files)
    try:
        content = read_bytes(path, limit + (1 << 20))  # gzip adds a few bytes to what it cannot compress
    except ArtifactError as error:
        raise DataError(str(error)) from None
    content = gunzip(content, path, limit)
    if len(content) == file.size and hashlib.sha256(content).hexdigest() == file.sha256:
        return content
    wrong = _what_is_wrong(content, source, file)
    mend = f"move it away, or mend it with 'bayesin data fetch {source.name}' (--root where {path.name} lies)"
    raise DataError(f"{path} {wrong}; {mend}")


def _folders(source: Source, root: Path | str | None) -> Iterator[tuple[Path, bool, bool]]:
    """Folder, whether the user named it now, whether its name is the data set's own."""
    for base, explicit in _roots(root):
        for folder in source.folders:
            yield base / folder, explicit, True
        yield base, explicit, is_own(source, base)
    for folder in source.system:
        yield Path(folder), False, True


def _roots(root: Path | str | None) -> list[tuple[Path, bool]]:
    roots = []
    if root is not None:
        root = _expand(root)
        if not os.path.isdir(root):
            raise DataError(f"the data folder {root} is not a folder; leave root out to search the usual places")
        roots.append((root, True))
    if os.environ.get("BAYESIN_DATA"):
        roots.append((_expand(os.environ["BAYESIN_DATA"]), False))
    cache = cache_folder("data")
    return [*roots, (Path("data"), False), *([(cache, False)] if cache is not None else [])]


def _expand(folder: Path | str) -> Path:
    return Path(os.path.expanduser(folder))


def _path(folder: Path, file: File) -> Path | None:
    dotted = file.name.replace("-idx", ".idx")  # how some unpackers write train-images.idx3-ubyte
    for name in dict.fromkeys((file.name, f"{file.name}.gz", dotted, f"{dotted}.gz")):
        path = folder / name
        if os.path.isfile(path):  # False, not an error, where a folder cannot be entered
            return path
    return None


def _what_is_wrong(content: bytes, source: Source, file: File) -> str:
    wanted = f"the {file.role} of {source.title}"
    known = {f.sha256: (s, f) for s in (*SOURCES.values(), source) for f in s.files if f.size == len(content)}
    other = known.get(hashlib.sha256(content).hexdigest()) if known else None
    if other:
        return f"is swapped: it holds the {other[1].role} of {other[0].title}, not {wanted}"
    if not content:
        return f"is empty, expected {wanted}"
    if len(content) < file.size:
        return f"is truncated: {len(content):,} of the {file.size:,} bytes of {wanted}"
    if len(content) > file.size:
        return f"is not {wanted}: {len(content):,} bytes instead of {file.size:,}"
    return f"is corrupted: as long as {wanted}, but its SHA-256 differs"
