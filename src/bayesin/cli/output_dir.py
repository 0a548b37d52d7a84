"""The folder that a verb fills with results: one process at a time, and all of the old result or all of the new."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import BayesinError, ConfigError
from ..file_sets import UNFINISHED, named_by, remove_fulfilled_mark, replaced_already, replaced_together
from ..files import TEMPORARY, remove_leftovers
from ..lab.runs import LOCK
from ..locks import locked
from .output import Output
from .signals import made

PAGE_NUMBERS = "report.json"  # all that a page shows


@contextmanager
def result_folder(
    folder: Path,
    names: Sequence[str],
    inputs: Sequence[Path],
    *,
    force: bool,
    gone: Iterable[str] = (),
    again: Callable[[Path], bool] = lambda folder: False,
) -> Iterator[Path]:
    """Holds the folder while its files are made; yields where to write them, from where they take their places.

    A result is replaced with `force` alone, when the new one is whole; what a killed process put there while the rest
    was still to come is replaced as a matter of course.

    Args:
        folder: of the result.
        names: of its files.
        inputs: what must not be overwritten.
        force: replace an earlier result.
        gone: names of an earlier result that go where the new one does not have them: its page. They may be of
            another verb's result in the same folder, and so are replaced with `force` alone, too.
        again: whether a result that is there is this command's own, and to be gone on with.

    Raises:
        ConfigError: no folder, a result is there already, or one of `inputs` would be overwritten.
        LockedError: another process works in the folder.
    """
    gone = tuple(gone)
    try:
        _check(folder, names, gone, inputs, force, again)
    except ConfigError:
        _tidy(folder)
        raise
    there = folder.is_dir()
    try:
        with locked(folder / LOCK):
            _check(folder, names, gone, inputs, force, again)
            remove_leftovers(folder)
            with replaced_together(folder, gone=gone) as place:
                yield place
            made.append(str(folder))
    finally:
        if not there:
            with suppress(OSError):  # goes where nothing was written
                folder.rmdir()


def _tidy(folder: Path) -> None:
    """Removes what a process that was killed when its result was whole has left beside it; a living one's stays."""
    if (folder / LOCK).is_file() or (folder / UNFINISHED).is_file() or any(folder.glob(f"{TEMPORARY}*")):
        with suppress(BayesinError), locked(folder / LOCK):
            remove_leftovers(folder)
            remove_fulfilled_mark(folder)


def numbers_without_page(place: Path, draw: Callable[[], str]) -> tuple[str | None, BaseException | None]:
    """Draws the page of a result whose numbers are written; returns its name, or what went wrong.

    Numbers may have taken hours and do not wait for a page: where there is none, what was drawn of it goes, the
    result is kept with the numbers of the page, and `tell_of_missing_page` raises the reason once it is.
    """
    before = {*place.rglob("*"), place / PAGE_NUMBERS}
    try:
        return draw(), None
    except (Exception, KeyboardInterrupt) as error:
        for path in sorted({*place.rglob("*")} - before, reverse=True):  # what is in a folder before the folder
            path.rmdir() if path.is_dir() else path.unlink()
        return None, named_by(place, place.parents[1], error)


def tell_of_missing_page(out: Output, failure: BaseException | None, remedy: str) -> None:
    """Says what is kept of a result whose page could not be drawn and how to get the page, and raises the reason."""
    if failure is not None:
        out.warn(f"the numbers are kept without a page; {remedy}")
        raise failure


def _check(
    folder: Path,
    names: Sequence[str],
    gone: Sequence[str],
    inputs: Sequence[Path],
    force: bool,
    again: Callable[[Path], bool],
) -> None:
    if folder.suffix == ".safetensors" or folder.is_file():
        raise ConfigError(f"--out {folder} must be a folder; the files in it get their names from bayesin")
    places = {name: folder / name for name in names}
    for place in places.values():
        if any(place.resolve() == path.resolve() for path in inputs):
            raise ConfigError(f"--out {folder} would overwrite the input {place}; choose another folder")
    there = [name for name in (*names, *gone) if (folder / name).exists()]
    # All of the names are a result, whatever a mark says.
    complete = bool(there) and {*names} <= {*there}
    stands = complete or not replaced_already(folder).issuperset(there)
    if there and not force and stands and not again(folder):
        raise ConfigError(f"{folder / there[0]} exists; choose another folder, or --force to replace it")
