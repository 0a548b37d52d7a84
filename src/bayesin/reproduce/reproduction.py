"""What a reproduction is: tasks, a drawing of their numbers, and a verdict on each claim.

Everything after the tasks works on records, the plain data that tasks left behind, so that a figure is drawn and
judged again from its file without a run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ..experiments.campaign import Standing, Task

Record = Mapping[str, Any]  # name, title, settings, state, error, seconds, numbers
Verdict = Literal["confirmed", "partly", "not confirmed", "not measured"]


@dataclass(frozen=True)
class Finding:
    """One claim, and what was found."""

    claim: str
    paper: str  # what the paper says
    ours: str  # what was measured, with spread
    verdict: Verdict
    reason: str = ""

    def to_json(self) -> dict[str, str]:
        """Plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Reproduction:
    """One figure or table of a paper."""

    name: str
    source: str  # where it is in the papers
    claim: str  # in one line
    tasks: Callable[[str], Sequence[Task]]  # by scale
    judge: Callable[[Sequence[Record]], list[Finding]]
    draw: Callable[[Any, Sequence[Record]], None]  # on a matplotlib figure
    minutes: Mapping[str, float]  # by scale, about: smoke and cpu on two cores, paper on one H200
    choices: tuple[str, ...] = ()  # ours, where the papers are silent
    size: tuple[float, float] = (7.0, 3.0)  # of the figure, in inches
    table: Callable[[Sequence[Record]], list[list[str]]] | None = (
        None  # all numbers as text, the first row names them
    )


def record(task: Task, found: Standing) -> dict[str, Any]:
    """A task and how it stands, as plain data."""
    return {
        "name": task.name,
        "title": task.title,
        "settings": task.to_json(),
        "state": found.state,
        "error": found.error,
        "seconds": found.seconds,
        "numbers": found.numbers,
    }


def of_kind(records: Sequence[Record], kind: str) -> list[Record]:
    """The records of one kind of task that are done."""
    return [one for one in records if one["settings"]["kind"] == kind and one["state"] == "done"]


def with_pairs(records: Sequence[Record]) -> list[tuple[Record, list[Record]]]:
    """Every training run that is done, with the pairs of its members that are."""
    pairs: dict[str, list[Record]] = {}
    for one in of_kind(records, "pair"):
        pairs.setdefault(one["settings"]["config"]["hash"], []).append(one)
    return [(run, pairs.get(run["settings"]["config"]["hash"], [])) for run in of_kind(records, "train")]


def undone(records: Sequence[Record]) -> list[Record]:
    """What failed or is left."""
    return [one for one in records if one["state"] != "done"]
