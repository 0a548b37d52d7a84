"""Interpolation curves: the loss between posteriors, without and after alignment, on both sets.

Rossi et al. 2023, section 5.1.
"""

from collections.abc import Sequence
from typing import Any

from ...campaign import Task
from .. import drawing
from ..reproduction import Finding, Record, Reproduction, grouped, of_kind
from ..verdicts import (
    BARRIER_NATS,
    barrier_values,
    barriers_of,
    format_mean_std,
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


def tasks(scale: str) -> list[Task]:
    data_sets = MLP_DATA[:1] if scale == "smoke" else MLP_DATA
    mlps = pairs(scale, [posteriors(scale, data) for data in data_sets], train_set=True)
    return [*mlps, *resnet_pairs(scale, members=3 if scale == "cpu" else 4)]


def judge(records: Sequence[Record]) -> list[Finding]:
    measured = of_kind(records, "pair")
    findings = _always_a_barrier(barrier_values(measured, "naive"))
    for title, of_case in grouped(measured, case_of).items():
        rule = verdict_of_nearly_zero if "ResNet20" in title else verdict_of_zero
        for part in ("test", "train"):
            barriers = barriers_of(of_case, part)
            if barriers.naive:
                claim = f"{title}, {part} set: no barrier after alignment"
                ours = f"{format_mean_std(barriers.naive)} → {format_mean_std(barriers.aligned, 4)} nats"
                said = SAID.get(title, "zero after alignment")
                findings.append(Finding(claim, said, ours, *rule(barriers)))
    return findings


def _always_a_barrier(naive: Sequence[float]) -> list[Finding]:
    if not naive:
        return []
    least, most = min(naive), max(naive)
    verdict = "confirmed" if least > BARRIER_NATS else "partly" if most > BARRIER_NATS else "not confirmed"
    ours = f"{least:.3f} to {most:.3f} nats over {len(naive)} pairs"
    return [Finding("without alignment there is always a barrier", "a barrier always appears", ours, verdict)]


def draw(figure: Any, records: Sequence[Record]) -> None:
    cases = grouped(of_kind(records, "pair"), case_of)
    axes = figure.subplots(2, max(1, len(cases)), sharex=True, squeeze=False)
    for column, (title, of_case) in enumerate(cases.items()):
        for row, part in enumerate(("test", "train")):
            drawing.curves(axes[row, column], of_case, part)
            axes[row, column].set_xlabel("")
        axes[0, column].set_title(title)
        axes[1, column].set_xlabel("position on the path, τ")
        if not barrier_values(of_case, "naive", "train"):
            axes[1, column].text(0.5, 0.5, "not measured", transform=axes[1, column].transAxes, ha="center")
    axes[0, 0].set_ylabel("test loss (nats)")
    axes[1, 0].set_ylabel("training loss (nats)")
    drawing.legend(figure, axes[0, 0])


BARRIERS = Reproduction(
    name="barriers",
    source="Rossi et al. 2023, interpolation curves (section 5.1)",
    claim="posteriors have a barrier between them, and none after alignment",
    tasks=tasks,
    judge=judge,
    draw=draw,
    minutes={"smoke": 0.3, "cpu": 19, "paper": 10},
    choices=(
        "gradient descent 0.05, momentum 0.9, cosine, 100 epochs (ResNet20: 40, warm-up, clipping, bfloat16)",
        "the paper states 1,000 epochs for MNIST, a rate that means 0.006 on the mean loss (after 500 epochs that is "
        "far from no barrier), and 128 draws for every network",
        "ResNet20 with 64 features (the paper's base is 16; `conditions` compares) and LayerNorm; the paper's norm "
        "is unknown",
        "ResNet20 barriers from 8 draws (training set 4) on 9 τ; MLPs 128 draws (training set 32) on 25 τ",
    ),
    size=(8.6, 4.2),
)
