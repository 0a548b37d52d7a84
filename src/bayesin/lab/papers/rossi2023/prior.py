"""Barriers against the prior variance. Rossi et al. 2023, section 5."""

from collections.abc import Sequence
from typing import Any

from ...campaign import Task
from ..reproduction import Finding, Record, Reproduction, of_kind
from .robustness import draw_robustness, finding_of_robustness
from .variational_pairs import pairs, posteriors

VARIANCES = {
    "smoke": (0.01, 0.05, 0.2),
    "cpu": (0.001, 0.0025, 0.01, 0.04),
    "paper": (0.0005, 0.001, 0.0025, 0.01, 0.04, 0.1),
}


def tasks(scale: str) -> list[Task]:
    return pairs(scale, [posteriors(scale, "mnist", prior_variance=variance) for variance in VARIANCES[scale]])


def judge(records: Sequence[Record]) -> list[Finding]:
    return [finding_of_robustness(of_kind(records, "pair"), _variance_of, "prior variance")]


def draw(figure: Any, records: Sequence[Record]) -> None:
    draw_robustness(figure, {"": of_kind(records, "pair")}, _variance_of, "prior variance", {})


def _variance_of(pair: Record) -> float:
    return float(pair["settings"]["config"]["training"]["prior_variance"])


PRIOR = Reproduction(
    name="prior",
    source="Rossi et al. 2023, prior variance (section 5)",
    claim="the conclusions hold for every prior variance",
    tasks=tasks,
    judge=judge,
    draw=draw,
    minutes={"smoke": 0.3, "cpu": 9, "paper": 1.7},
    choices=("MLP on MNIST, variances 0.0005 to 0.1; the paper's grid is unknown",),
    size=(6.8, 2.8),
)
