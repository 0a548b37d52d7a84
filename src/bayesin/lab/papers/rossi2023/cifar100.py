"""Figure A3: CIFAR-100, where alignment was not enough. Rossi et al. 2023, appendix C.

Beyond the paper: how far more starts of the alignment and wider networks move it.
"""

from collections.abc import Sequence
from typing import Any

from ...campaign import Task
from .. import drawing
from ..reproduction import Finding, Record, Reproduction, Verdict, grouped, of_kind
from ..verdicts import (
    accuracies,
    barriers_of,
    findings_of_rescaled,
    format_mean_std,
    heights,
    verdict_of_nearly_zero,
    verdict_of_zero,
)
from .variational_pairs import network_of, pairs, posteriors, resnet_pairs

WIDTHS = {"smoke": (1, 2), "cpu": (1, 2), "paper": (1, 4)}
RESTARTS = {"smoke": 2, "cpu": 4, "paper": 8}


def tasks(scale: str) -> list[Task]:
    mlps = pairs(scale, [posteriors(scale, "cifar100", width=width) for width in WIDTHS[scale]])
    restarted = pairs(scale, [posteriors(scale, "cifar100")], restarts=RESTARTS[scale])
    # What two cores can train of ResNet20 in minutes has no barrier to begin with.
    return [*mlps, *restarted, *(resnet_pairs(scale, "cifar100") if scale == "paper" else ())]


def judge(records: Sequence[Record]) -> list[Finding]:
    findings = []
    cases = grouped(of_kind(records, "pair"), _case_of)
    for title, of_case in cases.items():
        barriers = barriers_of(of_case)
        zero, reason = verdict_of_zero(barriers)
        findings.append(
            Finding(
                f"{title}: a barrier stays",
                "training converges well, no zero-barrier solution",
                f"{heights(barriers)}, test accuracy {format_mean_std(accuracies(of_case), 2)} %",
                _stays(zero, verdict_of_nearly_zero(barriers)[0]),
                reason,
            )
        )
    return findings + findings_of_rescaled(cases)


def _stays(zero: Verdict, nearly: Verdict) -> Verdict:
    """The opposite claim: one that is nearly zero, and no more than nearly, stays in part."""
    if zero in ("not measured", "not decided"):
        return zero
    if zero == "confirmed":
        return "not confirmed"
    return {"confirmed": "partly", "not decided": "not decided"}.get(nearly, "confirmed")  # pyright: ignore


def draw(figure: Any, records: Sequence[Record]) -> None:
    drawing.curves_of_cases(figure, grouped(of_kind(records, "pair"), _case_of), one_scale=False)


def _case_of(pair: Record) -> str:
    starts = pair["settings"]["restarts"]
    width = pair["settings"]["config"]["model"]["width"]
    return f"{network_of(pair)}, width {width}" + (f", {starts} starts" if starts > 1 else "")


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
