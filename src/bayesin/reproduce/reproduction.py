"""What a reproduction is: tasks, a drawing of their numbers, and a verdict on each claim.

Everything after the tasks works on records, the plain data that tasks left behind, so that a figure is drawn and
judged again from its file without a run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ..errors import ArtifactError
from ..experiments.campaign import Standing, Task
from .scales import SCALES

FORMAT = "bayesin-reproduction"
Record = Mapping[str, Any]  # name, title, settings, state, error, seconds, numbers; commit and device where known
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
        "error": None if found.error is None else str(found.error),
        "seconds": found.seconds,
        "numbers": found.numbers,
    } | _origin(found.provenance or {})


def _origin(provenance: Mapping[str, Any]) -> dict[str, str]:
    """Commit and device of one task: those of a figure may come from several machines."""
    found = {name: provenance.get(name) for name in ("commit", "device")}
    if isinstance(commit := found["commit"], str):
        found["commit"] = commit.rstrip("+")[:10] + ("+" if commit.endswith("+") else "")
    return {name: value for name, value in found.items() if isinstance(value, str)}


def check_result(result: Any, where: str) -> None:
    """Raises `ArtifactError` unless the value is what `reproduce` writes, but for the numbers of its tasks."""
    if not isinstance(result, Mapping) or result.get("format") != FORMAT or result.get("version") != 1:
        raise ArtifactError(f"{where} is not a file of 'bayesin reproduce', which says format {FORMAT} and version 1")
    _check(result, _RESULT, where)
    _require(result["scale"] in SCALES, where, "scale", f"one of {', '.join(SCALES)}")
    _require(all(isinstance(one, str) for one in result["devices"]), where, "devices", "a list of names")
    _require(isinstance(result.get("remarks", []), list), where, "remarks", "a list")
    if not result["records"]:
        raise ArtifactError(f"{where} holds no record of a task; 'bayesin reproduce {result['name']}' makes them")
    for number, one in enumerate(result["records"]):
        place = f"{where}, record {number}"
        if not isinstance(one, Mapping):
            raise ArtifactError(f"{place} must be an object")
        _check(one, _RECORD, place)
        _require("numbers" in one, place, "numbers", "given")
        _require(isinstance(one["settings"].get("kind"), str), place, "settings.kind", "text")


_RESULT = {"name": str, "scale": str, "devices": list, "provenance": dict, "compute_seconds": float, "records": list}
_RECORD = {"name": str, "title": str, "settings": dict, "state": str, "error": str | None}
_WORDS = {str: "text", list: "a list", dict: "an object", float: "a number", str | None: "text or null"}


def _check(value: Mapping[str, Any], kinds: Mapping[str, Any], where: str) -> None:
    for name, kind in kinds.items():
        known = int | float if kind is float else kind
        _require(name in value and isinstance(value[name], known), where, name, _WORDS[kind])


def _require(holds: bool, where: str, name: str, what: str) -> None:
    if not holds:
        raise ArtifactError(f"{where}: '{name}' must be {what}")


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
