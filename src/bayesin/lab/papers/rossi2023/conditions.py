"""Under which settings ResNet20 has a barrier of nearly zero: width, epochs, norm, prior, precision. Ours.

The first paper says "nearly zero", its base being 16 features, and neither norm nor epochs. One setting is changed at
a time; the widths are those of `width`. Smaller scales vary the epochs of an MLP alone.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...campaign import Task
from .. import drawing
from ..reproduction import Finding, Record, Reproduction, grouped, of_kind
from ..verdicts import (
    NEARLY_SHARE,
    accuracies,
    barrier_values,
    barriers_of,
    findings_of_rescaled,
    format_mean_std,
    heights,
    verdict_of_nearly_zero,
)
from .variational_pairs import pairs, posteriors, resnet_pairs, resnet_pairs_by_width

WIDTH = 2  # times the base: small enough to train many
EPOCHS = {"smoke": (10, 40), "cpu": (10, 40, 80), "paper": (10, 80)}
NORMS = {"layernorm": "", "frn": ", FilterResponseNorm"}
CENTRES = {"initial": "", "zero": ", gains drawn to zero"}


def tasks(scale: str) -> list[Task]:
    if scale != "paper":  # what a CPU can train of ResNet20 in minutes has no barrier to begin with
        return pairs(scale, [posteriors(scale, "mnist", epochs=epochs) for epochs in EPOCHS[scale]])
    by_width = resnet_pairs_by_width(scale)[:-1]  # the widest takes as long as all others
    changes: list[dict[str, Any]] = [{"epochs": epochs} for epochs in EPOCHS[scale]]
    changes += [{"run": {"norm": "frn"}}, {"prior_centre": "zero"}, {"compute": "float32"}]
    changed = []
    for change in changes:
        run = {"test_samples": 16} | change.pop("run", {})
        changed += resnet_pairs(scale, width=WIDTH, run=run, **change)
    return [*(pair for of_width in by_width for pair in of_width), *changed]


def judge(records: Sequence[Record]) -> list[Finding]:
    findings, said = [], "nearly zero; its norm, epochs and schedule are unknown to us"
    cases = grouped(of_kind(records, "pair"), _case_of)
    for title, of_case in cases.items():
        barriers = barriers_of(of_case)
        ours = f"{heights(barriers)}, test accuracy {format_mean_std(accuracies(of_case), 1)} %"
        claim = f"{title}: nearly no barrier after alignment"
        findings.append(Finding(claim, said, ours, *verdict_of_nearly_zero(barriers)))
    return findings + findings_of_rescaled(cases, verdict_of_nearly_zero)


def draw(figure: Any, records: Sequence[Record]) -> None:
    cases = grouped(of_kind(records, "pair"), _case_of)
    axes = figure.subplots(1, 3, sharey=True)
    naive, aligned = (
        [np.array(barrier_values(of_case, kind)) for of_case in cases.values()] for kind in ("naive", "aligned")
    )
    right = [np.array(accuracies(of_case)) for of_case in cases.values()]
    ends = list(zip(naive, aligned, strict=True))
    columns = (  # a bar for the mean (of the share: that of the means), a point for every pair
        ("left after alignment (%)", [100 * a.mean() / n.mean() for n, a in ends], [100 * a / n for n, a in ends]),
        ("barrier after alignment (nats)", [values.mean() for values in aligned], aligned),
        ("test accuracy (%)", [values.mean() for values in right], right),
    )
    for axis, (label, means, values) in zip(axes, columns, strict=True):
        drawing.bars(axis, means, values)
        axis.set_xlabel(label)
    axes[0].axvline(100 * NEARLY_SHARE, color=drawing.GREY, linestyle=":", lw=1)
    drawing.bar_labels(axes[0], list(cases))


def _case_of(pair: Record) -> str:
    """What tells the settings of pairs apart, in words."""
    model, training = (pair["settings"]["config"][part] for part in ("model", "training"))
    if model["name"] != "resnet20":
        return f"{model['width']} units, {training['epochs']} epochs"
    precision = ", float32" if training["compute"] == "float32" else ""
    norm_and_prior = NORMS[model["norm"]] + CENTRES[training["prior_centre"]]
    return f"{model['width']} features, {training['epochs']} epochs{norm_and_prior}{precision}"


CONDITIONS = Reproduction(
    name="conditions",
    source="Ours; after Rossi et al. 2023, ResNet20 on CIFAR-10",
    claim="what alignment leaves of the barrier of ResNet20 depends on its width, training and norm",
    tasks=tasks,
    judge=judge,
    draw=draw,
    minutes={"smoke": 0.3, "cpu": 6, "paper": 25},
    choices=("one setting changed at a time, at twice the base width; 8 draws on 9 τ",),
    size=(8.6, 3.6),
)
