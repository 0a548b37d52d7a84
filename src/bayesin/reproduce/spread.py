"""Figure 5: stds before and after rebasin, and pruning by them. Xiao et al. 2023."""

from collections.abc import Sequence
from typing import Any

from ..experiments.campaign import Task
from . import drawing
from .reproduction import Finding, Record, Reproduction, of_kind
from .samples import Spread, three

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
    return [Spread(three(scale))]


def judge_stds(records: Sequence[Record]) -> list[Finding]:
    findings = []
    for one in of_kind(records, "spread"):
        means = one["numbers"]["stds"]["mean"]
        for name in ("hmc", "ensemble"):
            before, after = means[f"{name} before"], means[f"{name} after"]
            findings.append(
                Finding(
                    f"rebasin makes the stds of the {name} samples smaller",
                    "shown as histograms; values unknown",
                    f"mean std {before:.4f} → {after:.4f}",
                    "confirmed" if after < 0.98 * before else "partly" if after < before else "not confirmed",
                )
            )
    return findings


def judge_pruning(records: Sequence[Record]) -> list[Finding]:
    findings = []
    for one in of_kind(records, "spread"):
        found = one["numbers"]["pruning"]
        at = min(range(len(found["fractions"])), key=lambda i: abs(found["fractions"][i] - KEPT))
        own, by_hmc, by_vi = (found["accuracy"][f"ensemble mean by {std}"][at] for std in ("ensemble", "hmc", "vi"))
        whole = found["accuracy"]["ensemble mean by hmc"][0]
        lone = found["accuracy"]["ensemble last by hmc"]
        findings.append(
            Finding(
                "HMC's stds prune networks trained without a Bayesian framework efficiently",
                "claimed in the abstract; accuracies unknown",
                f"ensemble mean with {found['fractions'][at]:.0%} of its weights: {by_hmc:.2%} by HMC's stds, "
                f"{own:.2%} by its own, {by_vi:.2%} by VI's, {whole:.2%} with all; a single member {lone[at]:.2%}, "
                f"{lone[0]:.2%} with all",
                "confirmed" if by_hmc > whole - 0.02 else "partly" if by_hmc > own else "not confirmed",
                "efficient: less than two points lost",
            )
        )
    return findings


def draw_stds(figure: Any, records: Sequence[Record]) -> None:
    axes = figure.subplots(1, 3)
    for one in of_kind(records, "spread"):
        found = one["numbers"]["stds"]
        for axis, name in zip(axes, ("hmc", "ensemble", "vi"), strict=True):
            for label, colour in (("before", "#D55E00"), ("after", "#0072B2")):
                key = f"{name} {label}" if name != "vi" else "vi"
                if name == "vi" and label == "before":
                    continue
                axis.stairs(
                    found["counts"][key],
                    found["edges"],
                    color=colour,
                    fill=True,
                    alpha=0.45,
                    label=label if name != "vi" else None,
                )
            axis.set(
                title={"hmc": "HMC", "ensemble": "ensemble", "vi": "VI"}[name], xlabel="std of a weight", yscale="log"
            )
            axis.set_ylim(bottom=0.8)
        axes[0].set_ylabel("weights")
        axes[0].legend()


def draw_pruning(figure: Any, records: Sequence[Record]) -> None:
    axis = figure.subplots()
    for one in of_kind(records, "spread"):
        found = one["numbers"]["pruning"]
        kept = [100 * fraction for fraction in found["fractions"]]
        for (name, label), mark in zip(CURVES, "osD^vx", strict=True):
            axis.plot(kept, [100 * right for right in found["accuracy"][name]], marker=mark, label=label)
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
    minutes={"smoke": 0.5, "cpu": 18, "paper": 6},
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
    minutes={"smoke": 0.5, "cpu": 18, "paper": 6},
    choices=("every network is moved into the frame of the mask, and every curve begins with a fresh copy",),
    size=(6.4, 3.0),
)
