"""What a campaign consists of, written down before it starts, so that its state can be read by anyone at any time."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from ...errors import ArtifactError
from ...json_files import read_json, write_json
from ..runs import RunConfig
from .perform import State, TaskStatus, task_status
from .task import Task, topological_order

FOLDER = "campaigns"  # in the folder of runs
FORMAT = {"format": "bayesin-campaign", "version": 1}
SCHEMA = FORMAT | {"name": str, "tasks": [{"name": str, "kind": str, "title": str, "cost?": [str]}]}


@dataclass(frozen=True)
class Entry:
    """One task of a campaign and how it stands."""

    name: str
    cost: tuple[str, ...]  # kind, network, width and data: what decides how long it takes, the weightiest first
    title: str
    status: TaskStatus


@dataclass(frozen=True)
class CampaignStatus:
    """How a campaign stands."""

    name: str
    entries: tuple[Entry, ...]

    @property
    def counts(self) -> dict[str, int]:
        """Tasks by state."""
        counts = Counter(entry.status.state for entry in self.entries)
        return {state: counts[state] for state in get_args(State)}

    @property
    def seconds_spent(self) -> float:
        """Of what is done."""
        return sum(entry.status.seconds or 0.0 for entry in self.entries)

    @property
    def seconds_left(self) -> float | None:
        """What is open takes as long as what was done that is most like it; None where nothing of a kind was done."""
        times: dict[tuple[str, ...], list[float]] = defaultdict(list)
        for entry in self.entries:
            if entry.status.state == "done" and entry.status.seconds is not None:
                for length in range(1, len(entry.cost) + 1):
                    times[entry.cost[:length]].append(entry.status.seconds)
        left = 0.0
        for entry in self.entries:
            if entry.status.state in ("done", "failed"):
                continue
            # The longest common prefix of the cost is the likeness: same kind, then network, width, data.
            prefixes = (entry.cost[:length] for length in range(len(entry.cost), 0, -1))
            alike = next((times[prefix] for prefix in prefixes if prefix in times), None)
            if alike is None:
                return None
            left += sum(alike) / len(alike)
        return left


def write_ledger(name: str, tasks: Iterable[Task], runs: Path) -> Path:
    """Writes the list of a campaign's tasks."""
    listed = [
        {"name": task.name, "kind": task.kind, "title": task.title, "cost": _cost(task)}
        for task in topological_order(tasks)
    ]
    return write_json(runs / FOLDER / f"{name}.json", FORMAT | {"name": name, "tasks": listed})


def ledgers(runs: Path | str) -> list[Path]:
    """The ledgers of all campaigns of a folder of runs, by name."""
    return sorted((Path(runs) / FOLDER).glob("*.json"))


def read_campaign(ledger: Path) -> CampaignStatus:
    """Reads how one campaign stands, from its ledger and the folders of its tasks beside it.

    Raises:
        ArtifactError: the ledger is damaged.
    """
    content = read_json(ledger, SCHEMA)
    for task in content["tasks"]:
        name = task["name"]
        if Path(name).name != name or name in ("", ".", "..") or len(name) > 200 or not name.isprintable():
            raise ArtifactError(f"{ledger}: a task is named {name!r:.80}, which no folder beside it can be")
    return CampaignStatus(content["name"], tuple(_entry(task, ledger.parents[1]) for task in content["tasks"]))


def _cost(task: Task) -> list[str]:
    """Network, width and data of a task on one run; nothing for others."""
    config = getattr(task, "config", None)
    return [config.model, str(config.width), config.data] if isinstance(config, RunConfig) else []


def _entry(task: dict[str, Any], runs: Path) -> Entry:
    cost = (task["kind"], *task.get("cost", ()))  # older ledgers have none
    return Entry(task["name"], cost, task["title"], task_status(runs / task["name"]))
