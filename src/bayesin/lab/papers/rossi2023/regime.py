"""How the barrier depends on how far the stds have moved, between the presets `paper` and `converged`. Ours.

Adam with growing learning rates takes the stds from where they begin (0.01) towards the prior's (0.1), while gradient
descent leaves them where they are.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...campaign import Task
from .. import drawing
from ..reproduction import Finding, Record, Reproduction, runs_with_pairs
from ..verdicts import barrier_values, barriers_of, format_mean_std, trend
from .variational_pairs import pairs, posteriors

RATES = {
    "smoke": (1e-4, 1e-3),
    "cpu": (3e-5, 1e-4, 3e-4, 1e-3),
    "paper": (1e-5, 3e-5, 1e-4, 2e-4, 3e-4, 5e-4, 1e-3),
}
LOOKS = {
    "sgd": {"marker": "D", "color": drawing.OCHRE, "label": "paper"},
    "adam": {"marker": "o", "color": drawing.PURPLE, "label": "Adam, growing rates"},
}


def tasks(scale: str) -> list[Task]:
    adam = [posteriors(scale, "mnist", named="converged", learning_rate=rate) for rate in RATES[scale]]
    return pairs(scale, [posteriors(scale, "mnist"), *adam])


def judge(records: Sequence[Record]) -> list[Finding]:
    rows = _rows(records)
    if not rows:
        return []
    stds, errors = [row["std"] for row in rows], [row["error"] for row in rows]
    verdict = trend(
        stds, [float(np.mean(row["aligned"])) for row in rows], errors, what="mean std and aligned barrier"
    )
    parts = (f"{r['optimiser']} {r['rate']:g}, std {r['std']:.4f}: {format_mean_std(r['aligned'], 4)}" for r in rows)
    return [
        Finding(
            "the barrier left after alignment grows as the stds move",
            "not studied",
            "; ".join(parts),
            *verdict,
        )
    ]


def draw(figure: Any, records: Sequence[Record]) -> None:
    axes = figure.subplots(1, 3)
    rows = _rows(records)
    columns = {
        "aligned": "barrier after alignment (nats)",
        "naive": "barrier without (nats)",
        "accuracy": "test accuracy (%)",
    }
    for optimiser, look in LOOKS.items():
        chosen = [row for row in rows if row["optimiser"] == optimiser]
        for axis, column in zip(axes, columns, strict=True):
            axis.plot([row["std"] for row in chosen], [np.mean(row[column]) for row in chosen], **look)
    for axis, label in zip(axes, columns.values(), strict=True):
        axis.set(xscale="log", xlabel="mean std of the weights", ylabel=label)
    drawing.barrier_scale(axes[0], max((float(np.mean(row["aligned"])) for row in rows), default=0.0))
    axes[1].set_ylim(bottom=0)
    axes[0].legend()


def _rows(records: Sequence[Record]) -> list[dict[str, Any]]:
    """What was measured of each run that has pairs, by the mean of its stds."""
    rows = []
    for run, of_run in runs_with_pairs(records):
        if of_run:
            members, training = run["numbers"]["members"], run["settings"]["config"]["training"]
            rows.append(
                {
                    "optimiser": training["optimiser"],
                    "rate": training["learning_rate"],
                    "std": float(np.mean([member["std_mean"] for member in members])),
                    "accuracy": 100 * float(np.mean([member["test_accuracy"] for member in members])),
                    "naive": barrier_values(of_run, "naive"),
                    "aligned": barrier_values(of_run, "aligned"),
                    "error": barriers_of(of_run).nats_error,
                }
            )
    return sorted(rows, key=lambda row: row["std"])


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
