"""The two presets on every data set: accuracy, stds, barriers. Ours, after the settings of Rossi et al. 2023."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..experiments.campaign import Task, neighbours
from .barriers import case_of, resnet
from .reproduction import Finding, Record, Reproduction, with_pairs
from .scales import measured, posteriors
from .words import heights, spread

DATA = ("mnist", "fashion-mnist", "cifar10", "cifar100")
NAMED = {"sgd": "paper", "adam": "converged"}
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
    found: list[Task] = []
    for data in DATA[:1] if scale == "smoke" else DATA:
        for named in NAMED.values():
            config = posteriors(scale, data, named=named)
            if scale == "cpu":  # eight settings take their time
                found += neighbours(config, **measured(scale, train_samples=0))[:1]
            else:
                found += neighbours(config, **measured(scale))
    # What two cores can train of ResNet20 in minutes says nothing of a preset.
    return found + (resnet(scale) if scale == "paper" else [])


def judge(records: Sequence[Record]) -> list[Finding]:
    findings = []
    for (case, named, compute), run in _rows(records).items():
        floor = FLOORS.get((case, named)) if run["whole"] else None
        right = run["accuracy"]
        barriers = f"; barrier {spread(run['naive'])} → {spread(run['aligned'], 4)}" if run["naive"] else ""
        findings.append(
            Finding(
                f"{case}, {named}{compute}" + ("" if floor is None else f": at least {floor:.0%}"),
                "accuracies unknown to us",
                f"test accuracy {spread([100 * share for share in right], 2)} %, mean std "
                f"{np.mean(run['std']):.4f}{barriers}",
                "not measured" if floor is None else "confirmed" if np.mean(right) >= floor else "not confirmed",
                "nothing to compare with" if floor is None else "the floor is a prototype's",
            )
        )
    return findings


def draw(figure: Any, records: Sequence[Record]) -> None:
    rows = _rows(records)
    axes = figure.subplots(1, 3, sharey=True)
    places = np.arange(len(rows))
    colours = ["#0072B2" if named == "paper" else "#E69F00" for _, named, _ in rows]
    columns = (
        ("test accuracy (%)", [100 * np.mean(row["accuracy"]) for row in rows.values()]),
        ("mean std", [np.mean(row["std"]) for row in rows.values()]),
        (
            "barrier after alignment (nats)",
            [np.mean(row["aligned"]) if row["aligned"] else np.nan for row in rows.values()],
        ),
    )
    for axis, (label, values) in zip(axes, columns, strict=True):
        axis.barh(places, values, color=colours, height=0.66)
        axis.set_xlabel(label)
    axes[0].set_yticks(places, [f"{case}, {named}{compute}" for case, named, compute in rows])
    axes[0].invert_yaxis()


def _rows(records: Sequence[Record]) -> dict[tuple[str, str, str], dict[str, Any]]:
    rows = {}
    for run, pairs in with_pairs(records):
        config = run["settings"]["config"]
        members = run["numbers"]["members"]
        compute = "" if config["training"]["compute"] == "float32" else f", {config['training']['compute']}"
        rows[case_of(run), NAMED[config["training"]["optimiser"]], compute] = {
            "whole": config["data"]["limit"] is None,  # floors are of the whole data sets
            "accuracy": [member["test_accuracy"] for member in members],
            "std": [member["std_mean"] for member in members],
            "naive": heights(pairs, "naive"),
            "aligned": heights(pairs, "aligned"),
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
