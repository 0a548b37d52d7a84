"""The folder that a verb fills with results: one process at a time, and whole only with its last file."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import ConfigError
from ..experiments.lock import locked
from ..files import remove_leftovers


@contextmanager
def result_folder(folder: Path, names: Sequence[str], inputs: Sequence[Path], *, force: bool) -> Iterator[list[Path]]:
    """Holds the folder while its files are made; yields where they go, in the order they must be written in.

    The last file says that the others are there and belong to it. Without it they are what a killed process
    left, and are replaced; with it they are a result, which only `force` replaces.

    Raises:
        ConfigError: no folder, a result is there already, or one of `inputs` would be overwritten.
        LockedError: another process works in the folder.
    """
    places = [folder / name for name in names]
    _check(folder, places, inputs, force)
    there = folder.is_dir()
    try:
        with locked(folder):
            _check(folder, places, inputs, force)
            remove_leftovers(folder)
            yield places
    finally:
        if not there:
            with suppress(OSError):  # goes where nothing was written
                folder.rmdir()


def unmake(places: Sequence[Path]) -> None:
    """Takes the mark of a whole result away, just before its files are replaced."""
    places[-1].unlink(missing_ok=True)


def _check(folder: Path, places: Sequence[Path], inputs: Sequence[Path], force: bool) -> None:
    if folder.suffix == ".safetensors" or folder.is_file():
        raise ConfigError(f"--out {folder} must be a folder; the files in it get their names from bayesin")
    for place in places:
        if any(place.resolve() == path.resolve() for path in inputs):
            raise ConfigError(f"--out {folder} would overwrite the input {place}; choose another folder")
    if places[-1].exists() and not force:
        raise ConfigError(f"{places[-1]} exists; choose another folder, or --force to replace it")
