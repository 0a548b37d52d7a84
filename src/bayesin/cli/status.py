"""`bayesin status`: how campaigns and runs stand."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from ..errors import ArtifactError, ConfigError
from ..lab.campaign import CampaignStatus, RunFolder, ledgers, read_campaign, run_folders
from .main import Common
from .output import SHORT_UNITS, Output, duration


@dataclass(frozen=True)
class Status(Common):
    """Show every campaign and every run in a folder: what is done, running, failed and left, and the time left.

    Runs are what train, align, barrier, try, merge, compact, evaluate, demo and reproduce left in it and below it.
    It reads files and disturbs nothing, so that it can be asked while work goes on, here or on a cluster.
    """

    runs: Annotated[Path, tyro.conf.Positional] = Path("runs")
    """Folder of runs."""

    def run(self, out: Output) -> dict[str, Any]:
        campaigns, damaged = [], []
        for path in ledgers(self.runs):
            try:
                campaigns.append(read_campaign(path))
            except ArtifactError as error:  # the others can still be read
                damaged.append(str(error))
                out.warn(str(error))
        tasks = {entry.name for campaign in campaigns for entry in campaign.entries}
        found = [*run_folders(self.runs, leave_out=tasks)]
        if not (campaigns or damaged or found):
            raise ConfigError(
                f"{self.runs} holds no run and no campaign; 'bayesin train --out {self.runs}/first' makes one, and "
                f"'bayesin reproduce NAME --runs {self.runs}' starts a campaign"
            )
        if campaigns:
            columns = ["campaign", "done", "runs", "failed", "stopped", "left", "spent", "to go"]
            out.table("", columns, [_row(campaign) for campaign in campaigns])
        for campaign in campaigns:
            for entry in campaign.entries:
                if entry.status.state == "failed":
                    out.line(f"{campaign.name}: {entry.title} failed: {entry.status.error} ({entry.name})")
        if found:
            out.table("", ["run", "kind", "state", "what"], [_run_row(one, self.runs) for one in found])
        for one in found:
            if one.error is not None:
                out.line(f"{one.path}: {one.error}")
        shown = {"campaigns": [*map(_plain, campaigns)], "runs": [*map(_plain_run, found)], "damaged": damaged}
        return shown | {"exit_code": 1 if damaged else 0}


def _run_row(found: RunFolder, root: Path) -> list[str]:
    name = str(found.path.relative_to(root))
    state = "stopped" if found.state == "interrupted" else found.state
    return [str(found.path) if name == "." else name, found.kind, state, found.says]


def _plain_run(found: RunFolder) -> dict[str, Any]:
    return {**found._asdict(), "path": str(found.path)}


def _row(campaign: CampaignStatus) -> list[Any]:
    counts = campaign.counts
    left = "unknown" if campaign.seconds_left is None else "–"
    if campaign.seconds_left:
        left = duration(campaign.seconds_left, SHORT_UNITS)
    numbers = [counts[state] for state in ("done", "running", "failed", "interrupted", "left")]
    return [campaign.name, *numbers, duration(campaign.seconds_spent, SHORT_UNITS), left]


def _plain(campaign: CampaignStatus) -> dict[str, Any]:
    failed = [
        {"task": entry.name, "title": entry.title, "error": entry.status.error}
        for entry in campaign.entries
        if entry.status.state == "failed"
    ]
    times = {"seconds_spent": campaign.seconds_spent, "seconds_left": campaign.seconds_left}
    return {"name": campaign.name} | campaign.counts | times | {"failures": failed}
