"""The folder that a verb fills with results: one process at a time, and known to be unfinished until it is whole."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import ConfigError
from ..files import remove_leftovers, write_bytes
from ..lab.runs import LOCK
from ..locks import locked

UNFINISHED = ".unfinished"  # there while files are written; a killed process leaves it behind


@contextmanager
def result_folder(folder: Path, names: Sequence[str], inputs: Sequence[Path], *, force: bool) -> Iterator[list[Path]]:
    """Holds the folder while its files are made; yields where they go.

    A whole result is replaced with `force` alone; what a killed process left is replaced as a matter of course.

    Raises:
        ConfigError: no folder, a result is there already, or one of `inputs` would be overwritten.
        LockedError: another process works in the folder.
    """
    places = [folder / name for name in names]
    _check(folder, places, inputs, force)
    there = folder.is_dir()
    try:
        with locked(folder / LOCK):
            _check(folder, places, inputs, force)
            remove_leftovers(folder)
            yield places
            (folder / UNFINISHED).unlink(missing_ok=True)
    finally:
        if not there:
            with suppress(OSError):  # goes where nothing was written
                folder.rmdir()


def begin_writing(places: Sequence[Path]) -> None:
    """Marks the folder as unfinished and takes an older result away, so that old and new files are never mixed."""
    write_bytes(places[0].with_name(UNFINISHED), b"")
    for place in reversed(places):
        place.unlink(missing_ok=True)


def _check(folder: Path, places: Sequence[Path], inputs: Sequence[Path], force: bool) -> None:
    if folder.suffix == ".safetensors" or folder.is_file():
        raise ConfigError(f"--out {folder} must be a folder; the files in it get their names from bayesin")
    for place in places:
        if any(place.resolve() == path.resolve() for path in inputs):
            raise ConfigError(f"--out {folder} would overwrite the input {place}; choose another folder")
        if place.exists() and not force and not (folder / UNFINISHED).exists():
            raise ConfigError(f"{place} exists; choose another folder, or --force to replace it")
