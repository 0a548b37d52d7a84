"""How the barrier depends on how far the stds have moved, between the presets `paper` and `converged`. Ours.

Adam with growing learning rates takes the stds from where they begin (0.01) towards the prior's (0.1), while gradient
descent leaves them where they are.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..experiments.campaign import Task, neighbours
from . import drawing
from .reproduction import Finding, Record, Reproduction, with_pairs
from .scales import measured, posteriors
from .words import heights, rank_correlation, spread, verdict_of_rise

RATES = {
    "smoke": (1e-4, 1e-3),
    "cpu": (3e-5, 1e-4, 3e-4, 1e-3),
    "paper": (1e-5, 3e-5, 1e-4, 2e-4, 3e-4, 5e-4, 1e-3),
}


def tasks(scale: str) -> list[Task]:
    options = measured(scale, train_samples=0)
    configs = [posteriors(scale, "mnist")]
    configs += [posteriors(scale, "mnist", named="converged", learning_rate=rate) for rate in RATES[scale]]
    return [pair for config in configs for pair in neighbours(config, **options)]


def judge(records: Sequence[Record]) -> list[Finding]:
    rows = _rows(records)
    if not rows:
        return []
    moved = [row["std"] for row in rows]
    aligned = [float(np.mean(row["aligned"])) for row in rows]
    trend = rank_correlation(moved, aligned)
    parts = "; ".join(
        f"{row['optimiser']} {row['rate']:g}, std {row['std']:.4f}: {spread(row['aligned'], 4)}"
        for row in sorted(rows, key=lambda r: r["std"])
    )
    return [
        Finding(
            "the barrier left after alignment grows as the stds move",
            "not studied",
            parts,
            verdict_of_rise(trend),
            f"rank correlation of mean std and aligned barrier {trend:+.2f}",
        )
    ]


def draw(figure: Any, records: Sequence[Record]) -> None:
    axes = figure.subplots(1, 3)
    rows = sorted(_rows(records), key=lambda row: row["std"])
    for optimiser, look in (("sgd", ("D", "#D55E00")), ("adam", ("o", "#0072B2"))):
        chosen = [row for row in rows if row["optimiser"] == optimiser]
        stds = [row["std"] for row in chosen]
        for axis, values in zip(
            axes,
            (
                [np.mean(r["aligned"]) for r in chosen],
                [np.mean(r["naive"]) for r in chosen],
                [r["accuracy"] for r in chosen],
            ),
            strict=True,
        ):
            axis.plot(
                stds,
                values,
                marker=look[0],
                color=look[1],
                label={"sgd": "paper", "adam": "Adam, growing rates"}[optimiser],
            )
    for axis, label in zip(
        axes, ("barrier after alignment (nats)", "barrier without (nats)", "test accuracy (%)"), strict=True
    ):
        axis.set(xscale="log", xlabel="mean std of the weights", ylabel=label)
    drawing.barrier_scale(axes[0], max((float(np.mean(row["aligned"])) for row in rows), default=0.0))
    axes[1].set_ylim(bottom=0)
    axes[0].legend()


def _rows(records: Sequence[Record]) -> list[dict[str, Any]]:
    rows = []
    for run, pairs in with_pairs(records):
        if pairs:
            members, training = run["numbers"]["members"], run["settings"]["config"]["training"]
            rows.append(
                {
                    "optimiser": training["optimiser"],
                    "rate": training["learning_rate"],
                    "std": float(np.mean([member["std_mean"] for member in members])),
                    "accuracy": 100 * float(np.mean([member["test_accuracy"] for member in members])),
                    "naive": heights(pairs, "naive"),
                    "aligned": heights(pairs, "aligned"),
                }
            )
    return rows


REGIME = Reproduction(
    name="regime",
    source="Ours; between the presets of Rossi et al. 2023",
    claim="what is left of the barrier grows as the stds move away from where they began",
    tasks=tasks,
    judge=judge,
    draw=draw,
    minutes={"smoke": 0.3, "cpu": 11, "paper": 1.6},
    choices=("MLP on MNIST, 100 epochs, Adam at seven learning rates",),
    size=(8.0, 2.7),
)
