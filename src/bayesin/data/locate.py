"""Where the files of a data set are: one order of search for every verb.

`root`, `$BAYESIN_DATA`, `./data`, the user's cache, then the folders of system packages. In each of the
first four the files may lie in a customary sub-folder or directly, gzipped or not.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..errors import DataError
from .sources import File, Source


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
    return Path(root or os.environ.get("BAYESIN_DATA") or _cache()).expanduser()


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
        root = Path(root).expanduser()
        if not os.path.isdir(root):
            raise DataError(f"the data folder {root} is not a folder; leave root out to search the usual places")
        roots.append((root, True))
    if os.environ.get("BAYESIN_DATA"):
        roots.append((Path(os.environ["BAYESIN_DATA"]).expanduser(), False))
    return [*roots, (Path("data"), False), (_cache(), False)]


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "bayesin" / "data"


def _path(folder: Path, file: File) -> Path | None:
    dotted = file.name.replace("-idx", ".idx")  # how some unpackers write train-images.idx3-ubyte
    for name in dict.fromkeys((file.name, f"{file.name}.gz", dotted, f"{dotted}.gz")):
        path = folder / name
        if os.path.isfile(path):  # False, not an error, where a folder cannot be entered
            return path
    return None
