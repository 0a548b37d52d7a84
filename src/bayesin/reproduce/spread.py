"""Figure 5: stds before and after rebasin, and pruning by them. Xiao et al. 2023."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..experiments.campaign import Task
from . import drawing
from .reproduction import Finding, Record, Reproduction, of_kind
from .samples import NAMES, SEEDS, Spread, three
from .words import spread

KEPT = 0.2  # share of weights at which pruning is judged
CURVES = (
    ("hmc mean by hmc", "HMC mean by HMC's stds"),
    ("ensemble mean by ensemble", "ensemble mean by its own stds"),
    ("ensemble mean by hmc", "ensemble mean by HMC's stds"),
    ("ensemble mean by vi", "ensemble mean by VI's stds"),
    ("vi mean by vi", "VI mean by its own stds"),
    ("ensemble last by hmc", "one ensemble member by HMC's stds"),
)


def tasks(scale: str) -> list[Task]:
    return [Spread(three(scale, seed), key=seed) for seed in range(SEEDS[scale])]


def judge_stds(records: Sequence[Record]) -> list[Finding]:
    seeds = [one["numbers"]["stds"]["mean"] for one in of_kind(records, "spread")]
    if not seeds:
        return []
    findings = []
    for name in ("hmc", "ensemble"):
        before, after = ([means[f"{name} {when}"] for means in seeds] for when in ("before", "after"))
        share = np.mean(after) / np.mean(before)
        findings.append(
            Finding(
                f"rebasin makes the stds of the {NAMES[name]} samples smaller",
                "shown as histograms; values unknown",
                f"mean std {spread(before, 4)} → {spread(after, 4)}",
                "confirmed" if share < 0.98 else "partly" if share < 1 else "not confirmed",
            )
        )
    return findings


def judge_pruning(records: Sequence[Record]) -> list[Finding]:
    seeds = [one["numbers"]["pruning"] for one in of_kind(records, "spread")]
    if not seeds:
        return []
    fractions = seeds[0]["fractions"]
    at = min(range(len(fractions)), key=lambda i: abs(fractions[i] - KEPT))

    def right(curve: str, place: int = at) -> list[float]:
        return [100 * found["accuracy"][curve][place] for found in seeds]

    by_hmc, whole = right("ensemble mean by hmc"), right("ensemble mean by hmc", 0)
    own = right("ensemble mean by ensemble")
    efficient = np.mean(by_hmc) > np.mean(whole) - 2
    return [
        Finding(
            "HMC's stds prune networks trained without a Bayesian framework efficiently",
            "claimed in the abstract; accuracies unknown",
            f"ensemble mean with {fractions[at]:.0%} of its weights: {spread(by_hmc, 2)} % by HMC's stds, "
            f"{spread(own, 2)} by its own, {spread(right('ensemble mean by vi'), 2)} by VI's, "
            f"{spread(whole, 2)} with all; a single member {spread(right('ensemble last by hmc'), 2)}, "
            f"{spread(right('ensemble last by hmc', 0), 2)} with all",
            "confirmed" if efficient else "partly" if np.mean(by_hmc) > np.mean(own) else "not confirmed",
            "efficient: less than two points lost",
        )
    ]


def draw_stds(figure: Any, records: Sequence[Record]) -> None:
    axes = figure.subplots(1, 3)
    seeds = [one["numbers"]["stds"] for one in of_kind(records, "spread")]
    looks = {"before": "#D55E00", "after": "#0072B2"}
    for axis, name in zip(axes, NAMES, strict=True):
        for number, found in enumerate(seeds):  # the first is filled, the others are drawn as lines above it
            for when, colour in looks.items() if name != "vi" else [("", looks["after"])]:
                label = (when or None) if number == 0 else None
                look = {"fill": True, "alpha": 0.45} if number == 0 else {"fill": False, "lw": 0.6}
                counts = found["counts"][f"{name} {when}".strip()]
                axis.stairs(counts, found["edges"], color=colour, label=label, **look)
        axis.set(title=NAMES[name], xlabel="std of a weight", yscale="log")
        axis.set_ylim(bottom=0.8)
    axes[0].set_ylabel("weights")
    drawing.inside(axes[0])


def draw_pruning(figure: Any, records: Sequence[Record]) -> None:
    axis = figure.subplots()
    seeds = [one["numbers"]["pruning"] for one in of_kind(records, "spread")]
    if seeds:
        kept = [100 * fraction for fraction in seeds[0]["fractions"]]
        for (name, label), mark in zip(CURVES, "osD^vx", strict=True):
            right = 100 * np.array([found["accuracy"][name] for found in seeds])
            (line,) = axis.plot(kept, right.mean(0), marker=mark, label=label)
            axis.fill_between(kept, right.min(0), right.max(0), color=line.get_color(), alpha=0.15, lw=0)
    axis.set(xscale="log", xlabel="weights kept (%)", ylabel="test accuracy (%)", ylim=(0, 101))
    axis.set_xticks([1, 5, 10, 20, 50, 100], ["1", "5", "10", "20", "50", "100"])
    axis.minorticks_off()
    drawing.inside(axis, loc="center left", bbox_to_anchor=(1, 0.5))


STDS = Reproduction(
    name="stds",
    source="Xiao et al. 2023, figure 5, left",
    claim="rebasin makes the stds of samples smaller",
    tasks=tasks,
    judge=judge_stds,
    draw=draw_stds,
    minutes={"smoke": 0.5, "cpu": 13, "paper": 17},
    choices=("the runs are those of `table1`; matched by activations to the first sample, as in the paper",),
    size=(7.6, 2.6),
)
PRUNING = Reproduction(
    name="pruning",
    source="Xiao et al. 2023, figure 5, right",
    claim="HMC's stds prune networks that were trained without a Bayesian framework",
    tasks=tasks,
    judge=judge_pruning,
    draw=draw_pruning,
    minutes={"smoke": 0.5, "cpu": 13, "paper": 17},
    choices=("every network is moved into the frame of the mask, and every curve begins with a fresh copy",),
    size=(6.4, 3.0),
)
