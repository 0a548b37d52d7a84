"""Figure A3: CIFAR-100, where alignment was not enough. Rossi et al. 2023, appendix C.

Beyond the paper: how far more starts of the alignment and wider networks move it.
"""

from collections.abc import Sequence
from typing import Any

from ..experiments.campaign import Task, neighbours
from . import drawing
from .barriers import NETWORKS, resnet
from .reproduction import Finding, Record, Reproduction, Verdict, of_kind
from .scales import measured, posteriors
from .words import accuracies, heights, spread, verdict_of_nearly_zero, verdict_of_zero

WIDTHS = {"smoke": (1, 2), "cpu": (1, 2), "paper": (1, 4)}
RESTARTS = {"smoke": 2, "cpu": 4, "paper": 8}


def tasks(scale: str) -> list[Task]:
    options = measured(scale, train_samples=0)
    found: list[Task] = []
    for width in WIDTHS[scale]:
        found += neighbours(posteriors(scale, "cifar100", width=width), **options)
    found += neighbours(posteriors(scale, "cifar100"), **options, restarts=RESTARTS[scale])
    # What two cores can train of ResNet20 in minutes has no barrier to begin with.
    return found + (resnet(scale, "cifar100") if scale == "paper" else [])


def judge(records: Sequence[Record]) -> list[Finding]:
    findings = []
    for title, pairs in _cases(of_kind(records, "pair")).items():
        naive, aligned = heights(pairs, "naive"), heights(pairs, "aligned")
        zero, reason = verdict_of_zero(naive, aligned)
        nearly = verdict_of_nearly_zero(naive, aligned)[0] == "confirmed"
        stays: Verdict = "not confirmed" if zero == "confirmed" else "partly" if nearly else "confirmed"
        right = spread(accuracies(pairs), 2)
        findings.append(
            Finding(
                f"{title}: a barrier stays",
                "training converges well, no zero-barrier solution",
                f"{spread(naive)} → {spread(aligned)} nats, test accuracy {right} %",
                zero if zero == "not measured" else stays,
                reason,
            )
        )
    return findings


def draw(figure: Any, records: Sequence[Record]) -> None:
    cases = _cases(of_kind(records, "pair"))
    axes = figure.subplots(1, max(1, len(cases)), squeeze=False, sharey=False)[0]
    for axis, (title, pairs) in zip(axes, cases.items(), strict=False):
        drawing.curves(axis, pairs)
        axis.set_title(title)
    axes[0].set_ylabel("test loss (nats)")
    drawing.legend(figure, axes[0])


def _cases(pairs: Sequence[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for pair in pairs:
        model, starts = pair["settings"]["config"]["model"], pair["settings"]["restarts"]
        title = f"{NETWORKS[model['name']]}, width {model['width']}" + (f", {starts} starts" if starts > 1 else "")
        found.setdefault(title, []).append(pair)
    return found


CIFAR100 = Reproduction(
    name="cifar100",
    source="Rossi et al. 2023, figure A3",
    claim="on CIFAR-100 alignment leaves a barrier",
    tasks=tasks,
    judge=judge,
    draw=draw,
    minutes={"smoke": 0.3, "cpu": 23, "paper": 7},
    choices=("settings as on CIFAR-10; architecture, width and values of the paper's figure are unknown",),
    size=(8.6, 2.8),
)
