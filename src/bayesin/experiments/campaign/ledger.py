"""What a campaign consists of, written down before it starts, so that its state can be read by anyone at any time."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import ArtifactError
from ...files import read_json, write_json
from ..config import RunConfig
from .perform import Standing, standing
from .task import Task, everything

FOLDER, FORMAT = "campaigns", "bayesin-campaign"
STATES = ("done", "running", "failed", "interrupted", "left")


@dataclass(frozen=True)
class Entry:
    """One task of a campaign and how it stands."""

    name: str
    cost: tuple[str, ...]  # kind, network, width and data: what decides how long it takes, the weightiest first
    title: str
    standing: Standing


@dataclass(frozen=True)
class CampaignStatus:
    """How a campaign stands."""

    name: str
    entries: tuple[Entry, ...]

    @property
    def counts(self) -> dict[str, int]:
        """Tasks by state."""
        found = Counter(entry.standing.state for entry in self.entries)
        return {state: found[state] for state in STATES}

    @property
    def seconds_spent(self) -> float:
        """Of what is done."""
        return sum(entry.standing.seconds or 0.0 for entry in self.entries)

    @property
    def seconds_left(self) -> float | None:
        """What is open takes as long as what was done that is most like it; None where nothing of a kind was done."""
        times: dict[tuple[str, ...], list[float]] = defaultdict(list)
        for entry in self.entries:
            if entry.standing.state == "done" and entry.standing.seconds is not None:
                for length in range(1, len(entry.cost) + 1):
                    times[entry.cost[:length]].append(entry.standing.seconds)
        left = 0.0
        for entry in self.entries:
            if entry.standing.state in ("done", "failed"):
                continue
            like = (entry.cost[:length] for length in range(len(entry.cost), 0, -1))
            found = next((times[one] for one in like if one in times), None)
            if found is None:
                return None
            left += sum(found) / len(found)
        return left


def write_ledger(name: str, tasks: Iterable[Task], runs: Path) -> Path:
    """Writes the list of a campaign's tasks."""
    listed = [
        {"name": task.name, "kind": task.kind, "title": task.title, "cost": _cost(task)} for task in everything(tasks)
    ]
    return write_json(runs / FOLDER / f"{name}.json", {"format": FORMAT, "version": 1, "name": name, "tasks": listed})


def _cost(task: Task) -> list[str]:
    """Network, width and data of a task on one run; nothing for others."""
    config = getattr(task, "config", None)
    return [config.model, str(config.width), config.data] if isinstance(config, RunConfig) else []


def ledgers(runs: Path | str) -> list[Path]:
    """The ledgers of all campaigns of a folder, by name."""
    return sorted((Path(runs) / FOLDER).glob("*.json"))


def read_campaigns(runs: Path | str) -> list[CampaignStatus]:
    """Reads how all campaigns of a folder stand, by name.

    Raises:
        ArtifactError: a ledger that is damaged.
    """
    return [read_campaign(path, Path(runs)) for path in ledgers(runs)]


def read_campaign(ledger: Path, runs: Path) -> CampaignStatus:
    """Reads how one campaign stands.

    Raises:
        ArtifactError: the ledger is damaged.
    """
    found = read_json(ledger)
    try:
        if found["format"] != FORMAT or found["version"] != 1:
            raise ArtifactError(f"{ledger} is not the ledger of a campaign")
        entries = [_entry(one, runs) for one in found["tasks"]]
        return CampaignStatus(str(found["name"]), tuple(entries))
    except (KeyError, TypeError):
        raise ArtifactError(f"{ledger} is not the ledger of a campaign") from None


def _entry(one: dict[str, Any], runs: Path) -> Entry:
    name = str(one["name"])
    if Path(name).name != name or name in ("", ".", "..") or len(name) > 200 or not name.isprintable():
        raise TypeError  # a name that leaves the folder, or that none can have
    cost = (str(one["kind"]), *map(str, one.get("cost", ())))  # older ledgers have none
    return Entry(name, cost, str(one["title"]), standing(runs / name))
