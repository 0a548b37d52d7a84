"""Sets of files that are of one making, and are replaced together.

Everything new is written beside the old, into a folder of its own, and takes the old names once all of it is on the
disk. Taking the names is a matter of moments, but not one step: before it begins, a mark says by their hashes what
the files will be, and it goes when they are. A process that is killed in between leaves a folder that is known to be
mixed. The mark is believed as far as the files bear it out, and never by its being there: planted beside a whole
result it says nothing.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from .errors import ArtifactError
from .files import file_hash, remove_leftovers, sync_folder, temporary_folder
from .json_files import read_json, write_json
from .locks import held

UNFINISHED = ".unfinished"  # the mark
_FORMAT = {"format": "bayesin-unfinished", "version": 1}
_SCHEMA = _FORMAT | {"files": {str: str}, "gone": [str]}


@contextmanager
def replaced_together(folder: Path | str, *, gone: Iterable[str] = ()) -> Iterator[Path]:
    """Yields an empty folder to write a result into; on leaving, its files take their places in `folder`.

    Where the block raises, or there is no room, `folder` stays as it was.

    Args:
        folder: where the files belong; made where needed.
        gone: names of an earlier result that go where the new one does not have them.

    Raises:
        ArtifactError: a file could not be put in its place.
    """
    folder = Path(folder)
    with _stage(folder) as stage:
        begun = os.stat(stage.parent)
        try:
            yield stage
        except ArtifactError as error:
            raise named_by(stage, folder, error) from error
        with _said_in_one_line(folder):
            _check_place(stage.parent, begun, folder)
            # One set after the other: the files of two that were ready in the same moment would be mixed for good.
            with held(folder.resolve()):
                _take_their_places(stage, folder, gone)


def replaced_already(folder: Path | str) -> frozenset[str]:
    """The files that a killed process had put in their places while others were still to come; mostly none."""
    done, left = _progress(Path(folder))
    return done if left else frozenset()


def remove_fulfilled_mark(folder: Path | str) -> None:
    """Removes the mark of a process that was killed when all of its files had taken their places."""
    done, left = _progress(Path(folder))
    if done and not left:
        with suppress(OSError):
            (Path(folder) / UNFINISHED).unlink()


def check_one_making(folder: Path | str) -> None:
    """Raises `ArtifactError` where the files of a folder are partly of one result, partly of another."""
    if replaced_already(folder):
        raise ArtifactError(
            f"{folder} holds files of two results: a process was killed while it replaced one by the other; "
            "run its command again"
        )


def named_by(stage: Path, folder: Path, error: BaseException) -> BaseException:
    """The error with the files of a result called by the names that they were to have."""
    return ArtifactError(str(error).replace(str(stage), str(folder))) if type(error) is ArtifactError else error


@contextmanager
def _stage(folder: Path) -> Iterator[Path]:
    """A folder beside the files it will replace."""
    with ExitStack() as stack:
        remove_leftovers(folder, "result")
        with _said_in_one_line(folder):
            outer = stack.enter_context(temporary_folder(folder, "result"))
            stage = outer / (folder.resolve().name or "result")  # pages may call a result by its folder's name
            stage.mkdir()
        yield stage


def _check_place(outer: Path, begun: os.stat_result, folder: Path) -> None:
    """Raises where the folder is another one by now, by a move or a link: what is in that is not to be replaced."""
    try:
        same = os.path.samestat(os.stat(outer), begun)
    except OSError:
        same = False
    if not same:
        raise ArtifactError(f"{folder} was moved or replaced while its files were made; run the same command again")


def _take_their_places(stage: Path, folder: Path, gone: Iterable[str]) -> None:
    names = sorted(path.relative_to(stage).as_posix() for path in stage.rglob("*") if path.is_file())
    stale = [name for name in gone if name not in names and (folder / name).is_file()]
    for name in names:
        if (folder / name).is_dir():
            raise ArtifactError(f"{folder / name} is a folder; remove it, a file of this name goes there")
    mark, several = folder / UNFINISHED, len(names) + len(stale) > 1
    if several:
        write_json(mark, _FORMAT | {"files": {name: file_hash(stage / name) for name in names}, "gone": stale})
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(stage / name, folder / name)
    for name in stale:
        (folder / name).unlink(missing_ok=True)
    for parent in {(folder / name).parent for name in [*names, *stale]}:
        sync_folder(parent)
    mark.unlink(missing_ok=True)


def _progress(folder: Path) -> tuple[frozenset[str], bool]:
    """The files that have taken their places, by the mark, and whether anything is left to do."""
    mark = folder / UNFINISHED
    if not mark.is_file():
        return frozenset(), False
    try:
        wanted = read_json(mark, _SCHEMA)
    except ArtifactError:  # not what a process of ours leaves
        return frozenset(), False
    done = frozenset(name for name, digest in wanted["files"].items() if _hash_of(folder / name) == digest)
    return done, len(done) < len(wanted["files"]) or any(os.path.lexists(folder / name) for name in wanted["gone"])


def _hash_of(path: Path) -> str | None:
    try:
        return file_hash(path)
    except ArtifactError:
        return None


@contextmanager
def _said_in_one_line(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ArtifactError(f"cannot write {folder}: {error.strerror or error}") from error
