"""What a reproduction is: tasks, a drawing of their numbers, and a verdict on each claim.

Everything after the tasks works on records, the plain data that tasks left behind, so that a figure is drawn and
judged again from its file without a run.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar

from ..campaign import Task

SCALES = ("smoke", "cpu", "paper")  # digits in under a minute; real data on two cores; the papers' sizes on a GPU

Record = Mapping[str, Any]  # name, title, settings, state, error, seconds, numbers; commit and device where known
Verdict = Literal["confirmed", "partly", "not confirmed", "not decided", "not judged", "not measured"]
Group = TypeVar("Group")
Item = TypeVar("Item")


@dataclass(frozen=True)
class Finding:
    """One claim, and what was found."""

    claim: str
    paper: str  # what the paper says
    ours: str  # what was measured, with its standard deviation
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
    table: Callable[[Sequence[Record]], list[list[str]]] | None = None  # all numbers as text, names in the first row


def of_kind(records: Iterable[Record], kind: str) -> list[Record]:
    """The records of one kind of task that are done."""
    return [record for record in records if record["settings"]["kind"] == kind and record["state"] == "done"]


def grouped(records: Iterable[Item], group_of: Callable[[Item], Group]) -> dict[Group, list[Item]]:
    """Records, or what was made of them, by what `group_of` says of each, in the order in which groups appear."""
    groups: dict[Group, list[Item]] = {}
    for record in records:
        groups.setdefault(group_of(record), []).append(record)
    return groups


def runs_with_pairs(records: Sequence[Record]) -> list[tuple[Record, list[Record]]]:
    """Every training run that is done, with the pairs of its members that are."""
    pairs = grouped(of_kind(records, "pair"), run_hash)
    return [(run, pairs.get(run_hash(run), [])) for run in of_kind(records, "train")]


def run_hash(record: Record) -> str:
    """What names the training run that a record is of."""
    return record["settings"]["config"]["hash"]
