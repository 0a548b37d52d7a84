"""What lies in a folder of runs beside campaigns: every folder that a verb filled or fills, told by its files."""

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ...errors import ArtifactError, BayesinError
from ...file_sets import UNFINISHED
from ...json_files import expect, read_json
from ...locks import is_locked
from ...store import describe
from ..runs import LOCK, RunConfig
from .perform import State, task_status

DEPTH = 3  # folders below the one that is asked for
DEMO = "aligned.safetensors"  # no other verb writes it
Says = Callable[[Path], str]


class RunFolder(NamedTuple):
    """A folder with a run or a result in it, and how it stands."""

    path: Path
    kind: str
    state: State
    says: str  # what is in it, in a few words
    error: str | None = None  # why it failed


def run_folders(root: Path | str, leave_out: Collection[str] = ()) -> Iterator[RunFolder]:
    """Finds every run and every result in a folder and below, by name; nothing is locked or written.

    A folder whose files cannot be read is yielded with the reason as its error.

    Args:
        root: the folder.
        leave_out: names of folders in it that are shown elsewhere: the tasks of campaigns.
    """
    yield from _below(Path(root), leave_out, DEPTH)


def _below(folder: Path, leave_out: Collection[str], depth: int) -> Iterator[RunFolder]:
    if (found := _look(folder)) is not None:
        yield found
        return
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
    except OSError:  # not a folder, or none that we may read
        return
    for name in names if depth else ():
        if not name.startswith(".") and name not in leave_out:
            yield from _below(folder / name, (), depth - 1)


def _look(folder: Path) -> RunFolder | None:
    """What this one folder is; None where it is no run."""
    trained = (folder / "provenance.json").is_file() and not (folder / DEMO).is_file()
    kind, says = ("train", _run) if trained else _kind(folder)
    working = is_locked(folder / LOCK)
    if not kind:
        return RunFolder(folder, "–", "running", "a first result") if working else None
    state: State = "interrupted" if (folder / UNFINISHED).is_file() else "done"
    status = task_status(folder) if trained else None
    try:
        text, error = says(folder), status.error if status else None
    except BayesinError as problem:
        text, error = "", str(problem)
    return RunFolder(folder, kind, status.state if status else "running" if working else state, text, error)


def _kind(folder: Path) -> tuple[str, Says]:
    for name, (kind, says) in RESULTS.items():
        if (folder / name).is_file():
            return kind, says
    return "", str


def _run(folder: Path) -> str:
    content = read_json(folder / "config.json", dict)
    if "title" in content:  # a task of a campaign whose ledger is gone
        return str(content["title"])
    config = RunConfig.from_json(content, str(folder / "config.json"))
    width = f" of width {config.width}" if config.width else ""
    text = f"{config.method}: {config.model}{width} on {config.data}"
    with suppress(ArtifactError):  # not done yet
        members = read_json(folder / "results.json", {"members": [{"test_accuracy?": float | None}]})["members"]
        right = [one["test_accuracy"] for one in members if one.get("test_accuracy") is not None]
        text += f", accuracy {min(right):.1%}" + (" or more" if len(right) > 1 else "") if right else ""
    return text


def _curves(folder: Path) -> str:
    path = folder / "barrier.json"
    content = read_json(path, dict)
    curves = {str: {str: {"value": float}}}
    expect(content, {"sets": curves} if "sets" in content else curves, str(path))
    name, kinds = next(iter(content.get("sets", content).items()), ("no", {}))
    return f"{name} set: " + ", ".join(f"{kind} {curve['value']:.3f}" for kind, curve in kinds.items()) + " nats"


def _alignment(folder: Path) -> str:
    path = folder / "alignment.safetensors"
    about = describe(path).metadata
    if "w2_after" in about:
        expect(about, {"w2_before": float, "w2_after": float, "source": str, "target": str}, str(path))
        reached = f"W2 {about['w2_before']:.4g} to {about['w2_after']:.4g}"
    else:  # from file to file
        expect(about, {"objective": float, "source": str, "target": str}, str(path))
        reached = f"objective {about['objective']:.4g}"
    return f"{about['source']} to {about['target']}, {reached}"


def _compact(folder: Path) -> str:
    numbers = read_json(folder / "compact.json", {"samples": int, "of": str})
    return f"{numbers['samples']:,} samples of {numbers['of']}"


def _merge(folder: Path) -> str:
    scores = read_json(folder / "merge.json", {"scores": {str: {str: float | None}}})["scores"]
    name, score = next(reversed(scores.items()), ("no scores", {}))
    known = [f"{measure} {number:.4f}" for measure, number in score.items() if number is not None]
    return f"{name}: " + ", ".join(known[:2])


def _evaluation(folder: Path) -> str:
    numbers = read_json(folder / "evaluation.json", {"data": str, "scores": dict})
    return f"scores of {len(numbers['scores'])} on {numbers['data']}"


def _page(folder: Path) -> str:
    return read_json(folder / "report.json", {"title": str})["title"]


# By the file that tells them, the most telling first: the demo has curves and an alignment, and every verb a page.
RESULTS: dict[str, tuple[str, Says]] = {
    DEMO: ("demo", _curves),
    "compact.json": ("compact", _compact),
    "merge.json": ("merge", _merge),
    "evaluation.json": ("evaluate", _evaluation),
    "barrier.json": ("barrier", _curves),
    "alignment.safetensors": ("align", _alignment),
    "report.json": ("page", _page),
}
