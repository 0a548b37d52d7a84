"""What a campaign consists of, written down before it starts, so that its state can be read by anyone at any time."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import ArtifactError
from ...files import read_json, write_json
from .perform import Standing, standing
from .task import Task, everything

FOLDER, FORMAT = "campaigns", "bayesin-campaign"
STATES = ("done", "running", "failed", "interrupted", "left")


@dataclass(frozen=True)
class Entry:
    """One task of a campaign and how it stands."""

    name: str
    kind: str
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
        """What is open takes as long as what was done of its kind; None where nothing of a kind was done yet."""
        times: dict[str, list[float]] = defaultdict(list)
        for entry in self.entries:
            if entry.standing.state == "done" and entry.standing.seconds is not None:
                times[entry.kind].append(entry.standing.seconds)
        open_ones = [entry for entry in self.entries if entry.standing.state not in ("done", "failed")]
        if any(entry.kind not in times for entry in open_ones):
            return None
        return sum(sum(times[entry.kind]) / len(times[entry.kind]) for entry in open_ones)


def write_ledger(name: str, tasks: Iterable[Task], runs: Path) -> Path:
    """Writes the list of a campaign's tasks."""
    listed = [{"name": task.name, "kind": task.kind, "title": task.title} for task in everything(tasks)]
    return write_json(runs / FOLDER / f"{name}.json", {"format": FORMAT, "version": 1, "name": name, "tasks": listed})


def read_campaigns(runs: Path | str) -> list[CampaignStatus]:
    """Reads how all campaigns of a folder stand, by name.

    Raises:
        ArtifactError: a ledger that is damaged.
    """
    runs = Path(runs)
    return [_status(path, runs) for path in sorted((runs / FOLDER).glob("*.json"))]


def _status(path: Path, runs: Path) -> CampaignStatus:
    ledger = read_json(path)
    try:
        if ledger["format"] != FORMAT or ledger["version"] != 1:
            raise ArtifactError(f"{path} is not the ledger of a campaign")
        entries = [_entry(one, runs) for one in ledger["tasks"]]
        return CampaignStatus(str(ledger["name"]), tuple(entries))
    except (KeyError, TypeError):
        raise ArtifactError(f"{path} is not the ledger of a campaign") from None


def _entry(one: dict[str, Any], runs: Path) -> Entry:
    name = str(one["name"])
    if Path(name).name != name or name in ("", ".", "..") or len(name) > 200 or not name.isprintable():
        raise TypeError  # a name that leaves the folder, or that none can have
    return Entry(name, str(one["kind"]), str(one["title"]), standing(runs / name))
