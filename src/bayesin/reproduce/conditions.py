"""Under which settings ResNet20 has a barrier of nearly zero: width, epochs, norm, prior, precision. Ours.

The first paper says "nearly zero", its base being 16 features, and neither norm nor epochs. One setting is changed at
a time; the widths are those of `width`. Smaller scales vary the epochs of an MLP alone.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..experiments.campaign import Task, neighbours
from .barriers import resnet
from .grids import resnets
from .reproduction import Finding, Record, Reproduction, of_kind
from .scales import measured, posteriors
from .words import NEARLY_SHARE, accuracies, heights, spread, verdict_of_nearly_zero

WIDTH = 2  # times the base: small enough to train many
EPOCHS = {"smoke": (10, 40, 80), "cpu": (10, 40, 80), "paper": (10, 80)}
NORMS = {"layernorm": "", "frn": ", FilterResponseNorm"}
CENTRES = {"initial": "", "zero": ", gains drawn to zero"}


def tasks(scale: str) -> list[Task]:
    changed: list[dict[str, Any]] = [{"epochs": epochs} for epochs in EPOCHS[scale]]
    if scale != "paper":  # what a CPU can train of ResNet20 in minutes has no barrier to begin with
        configs = [posteriors(scale, "mnist", **change) for change in changed]
        return [pair for config in configs for pair in neighbours(config, **measured(scale, train_samples=0))]
    changed += [{"run": {"norm": "frn"}}, {"prior_centre": "zero"}, {"compute": "float32"}]
    found: list[Task] = [pair for pairs in resnets(scale)[:-1] for pair in pairs]  # the widest takes as long as all
    for change in changed:
        run = {"test_samples": 16} | change.pop("run", {})
        found += resnet(scale, width=WIDTH, run=run, **change)
    return found


def judge(records: Sequence[Record]) -> list[Finding]:
    return [
        Finding(
            f"{title}: nearly no barrier after alignment",
            "nearly zero; its norm, epochs and schedule are unknown to us",
            f"{spread(heights(pairs, 'naive'))} → {spread(heights(pairs, 'aligned'))} nats, "
            f"test accuracy {spread(accuracies(pairs), 1)} %",
            *verdict_of_nearly_zero(heights(pairs, "naive"), heights(pairs, "aligned")),
        )
        for title, pairs in _cases(records).items()
    ]


def draw(figure: Any, records: Sequence[Record]) -> None:
    cases = _cases(records)
    axes = figure.subplots(1, 3, sharey=True)
    naive, aligned = ([heights(pairs, kind) for pairs in cases.values()] for kind in ("naive", "aligned"))
    ends = list(zip(naive, aligned, strict=True))
    right = [accuracies(pairs) for pairs in cases.values()]
    columns = (  # a bar for the mean, a point for every pair
        ("left after alignment (%)", _shares(np.mean, ends), _shares(np.asarray, ends)),
        ("barrier after alignment (nats)", [np.mean(found) for found in aligned], aligned),
        ("test accuracy (%)", [np.mean(found) for found in right], right),
    )
    for axis, (label, bars, points) in zip(axes, columns, strict=True):
        axis.barh(range(len(cases)), bars, color="#0072B2", height=0.66, alpha=0.6)
        for place, found in enumerate(points):
            axis.plot(found, [place] * len(found), linestyle="", marker=".", color="#003a5c")
        axis.set_xlabel(label)
    axes[0].axvline(100 * NEARLY_SHARE, color="#7a7a7a", linestyle=":", lw=1)
    axes[0].set_yticks(range(len(cases)), list(cases))
    axes[0].invert_yaxis()


def _cases(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Pairs by what tells their settings apart, in words."""
    found: dict[str, list[Record]] = {}
    for pair in of_kind(records, "pair"):
        model, training = (pair["settings"]["config"][part] for part in ("model", "training"))
        residual = model["name"] == "resnet20"
        title = f"{model['width']} {'features' if residual else 'units'}, {training['epochs']} epochs"
        title += NORMS[model["norm"]] + CENTRES[training["prior_centre"]] if residual else ""
        title += ", float32" if residual and training["compute"] == "float32" else ""
        found.setdefault(title, []).append(pair)
    return found


def _shares(summary: Callable[[Any], Any], ends: Sequence[tuple[list[float], list[float]]]) -> list[Any]:
    """What alignment leaves, in per cent, of a summary of all pairs."""
    return [100 * summary(aligned) / summary(naive) for naive, aligned in ends]


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
