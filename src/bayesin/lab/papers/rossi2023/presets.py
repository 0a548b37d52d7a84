"""The two presets on every data set: accuracy, stds, barriers. Ours, after the settings of Rossi et al. 2023."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...campaign import Task
from .. import drawing
from ..reproduction import Finding, Record, Reproduction, runs_with_pairs
from ..verdicts import (
    barrier_values,
    barriers_of,
    findings_of_rescaled,
    format_mean_std,
    heights,
    lost_on_the_way,
    verdict_of_zero,
)
from .variational_pairs import DATA, PRESET_OF, case_of, pairs, posteriors, preset_of, resnet_pairs

# Test accuracies that a prototype reached, as shares.
FLOORS = {
    ("MLP on MNIST", "paper"): 0.98,
    ("MLP on MNIST", "converged"): 0.98,
    ("MLP on Fashion-MNIST", "paper"): 0.87,
    ("MLP on Fashion-MNIST", "converged"): 0.87,
    ("MLP on CIFAR-10", "paper"): 0.56,
    ("MLP on CIFAR-10", "converged"): 0.49,
    ("ResNet20 on CIFAR-10", "paper"): 0.72,
}


def tasks(scale: str) -> list[Task]:
    data_sets = list(DATA)[:1] if scale == "smoke" else DATA
    configs = [posteriors(scale, data, named=named) for data in data_sets for named in PRESET_OF.values()]
    if scale == "cpu":  # eight settings take their time, and ResNet20 trained in minutes says nothing of a preset
        return [pairs(scale, [config])[0] for config in configs]
    return [*pairs(scale, configs, train_set=True), *resnet_pairs(scale)]


def judge(records: Sequence[Record]) -> list[Finding]:
    findings = []
    for (case, named, compute), row in _rows(records).items():
        floor = FLOORS.get((case, named)) if row["whole"] else None
        right = format_mean_std([100 * share for share in row["accuracy"]], 2)
        barriers = f"; barrier {format_mean_std(row['naive'])} → {format_mean_std(row['aligned'], 4)}"
        reached = "confirmed" if floor is not None and np.mean(row["accuracy"]) >= floor else "not confirmed"
        findings.append(
            Finding(
                f"{case}, {named}{compute}" + ("" if floor is None else f": at least {floor:.0%}"),
                "accuracies unknown to us",
                f"test accuracy {right} %, mean std {np.mean(row['std']):.4f}{barriers if row['naive'] else ''}",
                "not measured" if floor is None else reached,
                "nothing to compare with" if floor is None else "the floor is a prototype's",
            )
        )
    converged = {
        f"{case}, {named}{compute}": row["pairs"]
        for (case, named, compute), row in _rows(records).items()
        if named == "converged" and row["pairs"]
    }
    for title, of_run in converged.items():
        barriers = barriers_of(of_run)
        ours = f"{heights(barriers, 4)}, points of accuracy lost {lost_on_the_way(of_run)}"
        claim = f"{title}: no barrier after alignment"
        findings.append(Finding(claim, "not studied", ours, *verdict_of_zero(barriers)))
    return findings + findings_of_rescaled(converged)


def draw(figure: Any, records: Sequence[Record]) -> None:
    rows = _rows(records)
    axes = figure.subplots(1, 3, sharey=True)
    colours = [drawing.SLATE if named == "paper" else drawing.OCHRE for _, named, _ in rows]
    columns = (
        ("test accuracy (%)", [100 * np.mean(row["accuracy"]) for row in rows.values()]),
        ("mean std", [np.mean(row["std"]) for row in rows.values()]),
        ("barrier after alignment (nats)", [np.mean(row["aligned"] or [np.nan]) for row in rows.values()]),
    )
    for axis, (label, values) in zip(axes, columns, strict=True):
        axis.barh(np.arange(len(rows)), values, color=colours, height=0.66)
        axis.set_xlabel(label)
    drawing.bar_labels(axes[0], [f"{case}, {named}{compute}" for case, named, compute in rows])


def _rows(records: Sequence[Record]) -> dict[tuple[str, str, str], dict[str, Any]]:
    """What was measured of each run, by case, preset and precision."""
    rows = {}
    for run, of_run in runs_with_pairs(records):
        members, training = run["numbers"]["members"], run["settings"]["config"]["training"]
        compute = "" if training["compute"] == "float32" else f", {training['compute']}"
        rows[case_of(run), preset_of(run), compute] = {
            "whole": run["settings"]["config"]["data"]["limit"] is None,  # floors are of the whole data sets
            "accuracy": [member["test_accuracy"] for member in members],
            "std": [member["std_mean"] for member in members],
            "pairs": of_run,
            "naive": barrier_values(of_run, "naive"),
            "aligned": barrier_values(of_run, "aligned"),
        }
    return rows


PRESETS = Reproduction(
    name="presets",
    source="Ours; the presets after Rossi et al. 2023",
    claim="both presets train well on every data set; the regimes differ in how far the stds move",
    tasks=tasks,
    judge=judge,
    draw=draw,
    minutes={"smoke": 0.3, "cpu": 23, "paper": 13},
    choices=("100 epochs (ResNet20: 40); prior variances of the paper where it says them",),
    size=(8.6, 3.4),
)
