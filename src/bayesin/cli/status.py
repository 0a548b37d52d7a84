"""`bayesin status`: how campaigns stand."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.markup import escape

from ..errors import ArtifactError, ConfigError
from ..experiments.campaign import CampaignStatus
from ..experiments.campaign.ledger import FOLDER, ledgers, read_campaign
from .main import Common
from .output import Output
from .words import SHORT, duration


@dataclass(frozen=True)
class Status(Common):
    """Show what is done, running, failed and left of every campaign in a folder of runs, and the time left.

    It reads files and disturbs nothing, so that it can be asked while a campaign runs, here or on a cluster.
    """

    runs: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUNS")] = Path("runs")
    """Folder of runs."""

    def run(self, out: Output) -> dict[str, Any]:
        if not (self.runs / FOLDER).is_dir():
            raise ConfigError(
                f"{self.runs} holds no campaign; 'bayesin reproduce NAME --runs {self.runs}' starts one"
            )
        found, damaged = [], []
        for path in ledgers(self.runs):
            try:
                found.append(read_campaign(path, self.runs))
            except ArtifactError as error:  # the others can still be read
                damaged.append(str(error))
                out.warn(escape(str(error)))
        columns = ["campaign", "done", "runs", "failed", "stopped", "left", "spent", "to go"]
        out.table("", columns, [_row(one) for one in found])
        for one in found:
            for entry in one.entries:
                if entry.standing.state == "failed":
                    out.line(escape(f"{one.name}: {entry.title} failed: {entry.standing.error} ({entry.name})"))
        return {"campaigns": [_plain(one) for one in found], "damaged": damaged, "exit_code": 1 if damaged else 0}


def _row(one: CampaignStatus) -> list[Any]:
    counts = one.counts
    left = "unknown" if one.seconds_left is None else duration(one.seconds_left, SHORT) if one.seconds_left else "–"
    numbers = [counts[state] for state in ("done", "running", "failed", "interrupted", "left")]
    return [escape(one.name), *numbers, duration(one.seconds_spent, SHORT), left]


def _plain(one: CampaignStatus) -> dict[str, Any]:
    failed = [
        {"task": entry.name, "title": entry.title, "error": entry.standing.error}
        for entry in one.entries
        if entry.standing.state == "failed"
    ]
    times = {"seconds_spent": one.seconds_spent, "seconds_left": one.seconds_left}
    return {"name": one.name} | one.counts | times | {"failures": failed}
