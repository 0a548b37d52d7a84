"""Interpolation curves: the loss between posteriors, without and after alignment, on both sets.

Rossi et al. 2023, section 5.1.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...campaign import Task
from .. import drawing
from ..reproduction import Finding, Record, Reproduction, grouped, of_kind, runs_with_pairs
from ..verdicts import (
    BARRIER_NATS,
    barrier_values,
    barriers_of,
    findings_of_rescaled,
    heights,
    verdict_of_nearly_zero,
    verdict_of_zero,
)
from .variational_pairs import case_of, pairs, posteriors, resnet_pairs

MLP_DATA = ("mnist", "fashion-mnist", "cifar10")
SAID = {
    "MLP on MNIST": "zero after alignment",
    "MLP on Fashion-MNIST": "among the data sets; its result is not known to us",
    "MLP on CIFAR-10": "zero after alignment",
    "ResNet20 on CIFAR-10": "nearly zero after alignment",
}


ROWS = (  # of the figure: set, column of the curve, factor, label
    ("test", "nll", 1, "test loss (nats)"),
    ("test", "calibrated_nll", 1, "calibrated (nats)"),
    ("train", "nll", 1, "training loss (nats)"),
    ("test", "accuracy", 100, "test accuracy (%)"),
    ("test", "ece", 1, "calibration error"),
)


def tasks(scale: str) -> list[Task]:
    data_sets = MLP_DATA[:1] if scale == "smoke" else MLP_DATA
    mlps = pairs(scale, [posteriors(scale, data) for data in data_sets], train_set=True)
    return [*mlps, *resnet_pairs(scale, members=3 if scale == "cpu" else 4)]


def judge(records: Sequence[Record]) -> list[Finding]:
    measured = of_kind(records, "pair")
    findings = _always_a_barrier(barrier_values(measured, "naive"))
    stds = {case_of(run): _said_of_stds(run) for run, of_run in runs_with_pairs(records) if of_run}
    for title, of_case in grouped(measured, case_of).items():
        rule = verdict_of_nearly_zero if "ResNet20" in title else verdict_of_zero
        for part in ("test", "train"):
            barriers = barriers_of(of_case, part)
            if barriers.naive:
                claim = f"{title}, {part} set: no barrier after alignment"
                ours = heights(barriers, 4) + (stds.get(title, "") if part == "test" else "")
                said = SAID.get(title, "zero after alignment")
                findings.append(Finding(claim, said, ours, *rule(barriers)))
    return findings + findings_of_rescaled(grouped(measured, case_of))


def _said_of_stds(run: Record) -> str:
    """In which regime the barrier was measured: how far the stds have moved from where they began."""
    now = float(np.mean([member["std_mean"] for member in run["numbers"]["members"]]))
    return f"; mean std {now:.4f}, {run['settings']['config']['training']['initial_std']:g} at the start"


def _always_a_barrier(naive: Sequence[float]) -> list[Finding]:
    if not naive:
        return []
    least, most = min(naive), max(naive)
    verdict = "confirmed" if least > BARRIER_NATS else "partly" if most > BARRIER_NATS else "not confirmed"
    ours = f"{least:.3f} to {most:.3f} nats over {len(naive)} pairs"
    return [Finding("without alignment there is always a barrier", "a barrier always appears", ours, verdict)]


def draw(figure: Any, records: Sequence[Record]) -> None:
    cases = grouped(of_kind(records, "pair"), case_of)
    rows = [row for row in ROWS if _measured(records, *row[:2])] or [*ROWS]
    axes = figure.subplots(len(rows), max(1, len(cases)), sharex=True, squeeze=False)
    for column, (title, of_case) in enumerate(cases.items()):
        for axis, (part, name, scale, _) in zip(axes[:, column], rows, strict=True):
            drawing.curves(axis, of_case, part, name, scale)
            axis.set_xlabel("")
            if not axis.lines:
                axis.text(0.5, 0.5, "not measured", transform=axis.transAxes, ha="center")
        axes[0, column].set_title(title)
        axes[-1, column].set_xlabel("position on the path, τ")
    for axis, (*_, label) in zip(axes[:, 0], rows, strict=True):
        axis.set_ylabel(label)
    drawing.legend(figure, axes[0, 0])


def _measured(records: Sequence[Record], part: str, name: str) -> bool:
    return any(pair["numbers"]["naive"].get(part, {}).get(name) is not None for pair in of_kind(records, "pair"))


BARRIERS = Reproduction(
    name="barriers",
    source="Rossi et al. 2023, interpolation curves (section 5.1)",
    claim="posteriors have a barrier between them, and none after alignment",
    tasks=tasks,
    judge=judge,
    draw=draw,
    minutes={"smoke": 0.3, "cpu": 19, "paper": 10},
    choices=(
        "stds stay near where they begin; how it is where they have grown: `presets`, `regime`, `remedies`",
        "gradient descent 0.05, momentum 0.9, cosine, 100 epochs (ResNet20: 40, warm-up, clipping, bfloat16)",
        "the paper states 1,000 epochs for MNIST, a rate that means 0.006 on the mean loss (after 500 epochs that is "
        "far from no barrier), and 128 draws for every network",
        "ResNet20 with 64 features (the paper's base is 16; `conditions` compares) and LayerNorm; the paper's norm "
        "is unknown",
        "ResNet20 barriers from 8 draws (training set 4) on 9 τ; MLPs 128 draws (training set 32) on 25 τ",
    ),
    size=(8.6, 8.2),
)
