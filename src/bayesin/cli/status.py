"""`bayesin status`: how campaigns stand."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from ..errors import ArtifactError, ConfigError
from ..lab.campaign import CampaignStatus, ledgers, read_campaign
from .main import Common
from .output import SHORT_UNITS, Output, duration


@dataclass(frozen=True)
class Status(Common):
    """Show what is done, running, failed and left of every campaign in a folder of runs, and the time left.

    It reads files and disturbs nothing, so that it can be asked while a campaign runs, here or on a cluster.
    """

    runs: Annotated[Path, tyro.conf.Positional] = Path("runs")
    """Folder of runs."""

    def run(self, out: Output) -> dict[str, Any]:
        if not ledgers(self.runs):
            raise ConfigError(
                f"{self.runs} holds no campaign; 'bayesin reproduce NAME --runs {self.runs}' starts one"
            )
        campaigns, damaged = [], []
        for path in ledgers(self.runs):
            try:
                campaigns.append(read_campaign(path))
            except ArtifactError as error:  # the others can still be read
                damaged.append(str(error))
                out.warn(str(error))
        columns = ["campaign", "done", "runs", "failed", "stopped", "left", "spent", "to go"]
        out.table("", columns, [_row(campaign) for campaign in campaigns])
        for campaign in campaigns:
            for entry in campaign.entries:
                if entry.status.state == "failed":
                    out.line(f"{campaign.name}: {entry.title} failed: {entry.status.error} ({entry.name})")
        return {"campaigns": [*map(_plain, campaigns)], "damaged": damaged, "exit_code": 1 if damaged else 0}


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
