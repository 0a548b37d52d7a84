"""Barriers against width. Rossi et al. 2023, section 5.1."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...campaign import Task
from .. import drawing
from ..reproduction import Finding, Record, Reproduction, Verdict, grouped, of_kind
from ..verdicts import (
    BARRIER_NATS,
    NO_BARRIER,
    barrier_values,
    barriers_of,
    format_mean_std,
    trend,
)
from .variational_pairs import MLP_WIDTHS, case_of, pairs, posteriors, resnet_pairs_by_width, width_of


def tasks(scale: str) -> list[Task]:
    data_sets = ("mnist", "cifar10") if scale == "paper" else ("mnist",)
    mlps = [posteriors(scale, data, width=width) for data in data_sets for width in MLP_WIDTHS[scale]]
    return pairs(scale, mlps) + [pair for of_width in resnet_pairs_by_width(scale) for pair in of_width]


def judge(records: Sequence[Record]) -> list[Finding]:
    findings = []
    for case, of_case in grouped(of_kind(records, "pair"), case_of).items():
        by_width = _by_width(of_case)
        untrained = max(barrier_values(of_case, "naive"), default=0.0) < BARRIER_NATS
        barriers = {width: barriers_of(of_width) for width, of_width in by_width.items()}
        for kind, words in (("naive", "without alignment"), ("aligned", "after alignment")):
            values = {width: getattr(of_width, kind) for width, of_width in barriers.items()}
            errors = [b.naive_error if kind == "naive" else b.nats_error for b in barriers.values()]
            falls = "MLP" in case or kind == "aligned"  # what the paper claims
            findings.append(
                Finding(
                    f"{case}: barriers fall with width {words}" if falls else f"{case}: no fall {words}",
                    "wider means lower" if falls else "for ResNet20 only after alignment",
                    ", ".join(f"{width:g}: {format_mean_std(of_width)}" for width, of_width in values.items()),
                    *_verdict_of_trend(values, errors, falls, untrained),
                )
            )
    return findings


def _verdict_of_trend(
    values: Mapping[float, Sequence[float]], errors: Sequence[float], falls: bool, untrained: bool
) -> tuple[Verdict, str]:
    """Whether barriers fall with width, or do not, as claimed; and why."""
    if untrained:
        return "not measured", NO_BARRIER
    means = [float(np.mean(of_width)) for of_width in values.values()]
    return trend([*values], means, errors, what="width and barrier", claim="fall" if falls else "no fall")


def draw(figure: Any, records: Sequence[Record]) -> None:
    cases = grouped(of_kind(records, "pair"), case_of)
    for axis, of_case in drawing.panels(figure, cases):
        by_width = _by_width(of_case)
        drawing.barriers_against(axis, by_width)
        axis.set(xlabel="width", xticks=list(by_width), xticklabels=[f"{w:g}" for w in by_width])
        axis.minorticks_off()
    drawing.legend(figure, figure.axes[0])


def _by_width(records: Sequence[Record]) -> dict[float, list[Record]]:
    return grouped(sorted(records, key=width_of), width_of)


WIDTH = Reproduction(
    name="width",
    source="Rossi et al. 2023, barriers against width (section 5.1)",
    claim="barriers fall with width: MLPs with and without alignment, ResNet20 only after alignment",
    tasks=tasks,
    judge=judge,
    draw=draw,
    minutes={"smoke": 0.4, "cpu": 17, "paper": 47},
    choices=(
        "MLP widths 64 to 2048, ResNet20 1 to 16 times 16 features; the paper's are unknown",
        "five pairs (ResNet20 three)",
    ),
    size=(7.6, 2.8),
)
