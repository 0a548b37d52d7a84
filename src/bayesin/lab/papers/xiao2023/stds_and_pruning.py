"""Figure 5: what the stds are, before and after rebasin, and networks pruned by them. Xiao et al. 2023.

A mask made from one posterior's stds prunes another's mean only in one reference frame, so every posterior, and
every single network, is first matched by activations to HMC's reference. Accuracies are those of the test set, of
networks that keep the share f of weights with the lowest stds, ranked over weights and biases.

The lowest stds of an ensemble are those of its dead weights, which the prior has drawn to zero in every member. What
is kept by the lowest std is then first of all what matters least, and so the largest |mean| / std stands beside it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ....compact import compact, prune
from ....evaluation.metrics import accuracy
from ....matching import match_activations
from ....posteriors import Samples
from ....randomness import seed_key
from ....symmetry import hidden_activations, permute
from ....trees import Tree, flatten
from ...campaign import Task, TaskContext, seeded
from .. import drawing
from ..reproduction import Finding, Record, Reproduction, Verdict, of_kind
from ..verdicts import format_mean_std, mean_above
from .method_trio import NAMES, SEEDS, Posteriors, TrioTask, judged_if_mixed, method_trio
from .table1 import probabilities

FRACTIONS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.01)
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
KEPT = 0.2  # share of weights at which pruning is judged
DEAD = 1e-6  # a std that no weight has which the data or the draws have moved
CURVES = {
    "hmc mean by hmc": "HMC mean by HMC's stds",
    "ensemble mean by ensemble": "ensemble mean by its own stds",
    "ensemble mean by hmc": "ensemble mean by HMC's stds",
    "ensemble mean by vi": "ensemble mean by VI's stds",
    "vi mean by vi": "VI mean by its own stds",
    "ensemble last by hmc": "one ensemble member by HMC's stds",
    "ensemble mean by hmc |mean|/std": "ensemble mean by HMC's |mean|/std",
    "ensemble mean by vi |mean|/std": "ensemble mean by VI's |mean|/std",
}


@dataclass(frozen=True)
class StdsAndPruning(TrioTask):
    """Histograms of stds before and after rebasin, and the accuracy of every network in every order of pruning."""

    match: str = "activations"
    reference: str = "first"
    key: int = 0

    kind = "spread"

    @property
    def title(self) -> str:
        matched = f"matched by {self.match} to the {self.reference}"
        return f"stds and pruning on {self.runs.hmc.data}, {matched}{seeded(self.key)}"

    def perform(self, folder: Path, context: TaskContext) -> dict[str, Any]:
        return stds_and_pruning(self.load(context), seed_key(self.key), self.match, self.reference)


def stds_and_pruning(
    posteriors: Posteriors, key: jax.Array, match: Any = "activations", reference: str = "first", bins: int = 100
) -> dict[str, Any]:
    """Returns histograms of stds before and after rebasin, and pruning curves of every network in every order.

    Args:
        posteriors: HMC samples, ensemble and VI; matched on the training set, tested on the test set.
        key: decides visiting orders.
        match, reference: how samples of one method are matched, and to what, as for `compact`.
        bins: of the histograms.
    """
    hmc, ensemble, vi, model, data, spec = posteriors
    options: dict[str, Any] = {"key": key, "match": match, "reference": reference}
    folded = {
        name: compact(members, spec, **options, apply=model.apply, x=data.x_train)
        for name, members in (("hmc", hmc), ("ensemble", ensemble))
    }
    histograms = std_histograms(
        {f"{name} before": method.direct.std for name, method in folded.items()}
        | {f"{name} after": method.posterior.std for name, method in folded.items()}
        | {"vi": vi.std},
        bins,
    )
    # Into HMC's frame: each network is matched to the reference, and stds move with their mean.
    home, at_home, away = folded["hmc"].reference, folded["hmc"].posterior, folded["ensemble"].posterior
    visitors = {"ensemble mean": away.mean, "vi mean": vi.mean, "hmc last": hmc[-1], "ensemble last": ensemble[-1]}
    activations = hidden_activations(model.apply, home, np.asarray(data.x_train[:8]), spec, key=key)
    stack = Samples.stack(list(visitors.values()))
    each = match_activations(home, stack, spec, activations, data.x_train, correlation=False).perms
    perms = {name: {group: perm[k] for group, perm in each.items()} for k, name in enumerate(visitors)}
    networks = {"hmc mean": at_home.mean}
    networks |= {name: permute(network, spec, perms[name]) for name, network in visitors.items()}
    stds = {
        "hmc": at_home.std,
        "ensemble": permute(away.std, spec, perms["ensemble mean"]),
        "vi": permute(vi.std, spec, perms["vi mean"]),
    }
    relative = {f"{name} |mean|/std": relative_std(networks[f"{name} mean"], std) for name, std in stds.items()}

    def pruned_accuracy(network: Tree, order: Tree, fraction: float) -> float:
        return accuracy(probabilities(prune(network, order, fraction), model, data.x_test), data.y_test)

    curves = {
        f"{name} by {by}": [pruned_accuracy(network, order, fraction) for fraction in FRACTIONS]
        for name, network in networks.items()
        for by, order in (stds | relative).items()
    }
    pruning = {"fractions": list(FRACTIONS), "accuracy": curves}
    return {"match": match, "reference": reference, "stds": histograms, "pruning": pruning}


def relative_std(mean: Tree, std: Tree) -> Tree:
    """Returns std / |mean|, lowest for what is most surely not zero: a dead weight has a tiny mean and comes last.

    Example:
        >>> relative_std({"w": np.array([2.0, 0.0])}, {"w": np.array([0.5, 1e-30])})["w"]
        array([0.25, 1.  ])
    """
    return jax.tree.map(lambda m, s: np.asarray(s) / np.maximum(np.abs(np.asarray(m)), 1e-30), mean, std)


def std_histograms(stds: Mapping[str, Tree], bins: int = 100) -> dict[str, Any]:
    """Returns counts over common bins, means and quantiles of the stds of every posterior.

    Example:
        >>> histograms = std_histograms({"q": {"w": np.array([0.5, 1.5, 1.5])}}, bins=2)
        >>> histograms["counts"]["q"], histograms["edges"]
        ([1, 2], [0.0, 0.75, 1.5])
    """
    flat = {name: np.concatenate([np.ravel(leaf) for leaf in flatten(std).values()]) for name, std in stds.items()}
    edges = np.linspace(0, max(float(values.max()) for values in flat.values()), bins + 1)
    quantiles = {name: np.quantile(values, QUANTILES) for name, values in flat.items()}
    return {
        "edges": edges.tolist(),
        "counts": {name: np.histogram(values, edges)[0].tolist() for name, values in flat.items()},
        "mean": {name: float(values.mean(dtype=np.float64)) for name, values in flat.items()},
        "quantiles": {
            name: {f"{q:g}": float(value) for q, value in zip(QUANTILES, values, strict=True)}
            for name, values in quantiles.items()
        },
    }


def tasks(scale: str) -> list[Task]:
    return [StdsAndPruning(method_trio(scale, seed), key=seed) for seed in range(SEEDS[scale])]


def judge_stds(records: Sequence[Record]) -> list[Finding]:
    findings = []
    if seeds := [record["numbers"]["stds"] for record in of_kind(records, "spread")]:
        for name in ("hmc", "ensemble"):
            before, after = ([seed["mean"][f"{name} {when}"] for seed in seeds] for when in ("before", "after"))
            least = float(np.mean([seed["quantiles"][f"{name} after"]["0.01"] for seed in seeds]))
            dead = f"; one weight in a hundred is dead, its std {least:.0e} or less" if least < DEAD else ""
            finding = Finding(
                f"rebasin makes the stds of the {NAMES[name]} samples smaller",
                "shown as histograms; values unknown",
                f"mean std {format_mean_std(before, 4)} → {format_mean_std(after, 4)}{dead}",
                _smaller(np.array(after) / np.array(before)),
                "smaller: by two per cent or more",
            )
            findings.append(judged_if_mixed(finding, records) if name == "hmc" else finding)
    return findings


def _smaller(shares: np.ndarray) -> Verdict:
    clearly = mean_above(0.98 - shares)
    if clearly is not False:
        return "not decided" if clearly is None else "confirmed"
    return "partly" if mean_above(1 - shares) else "not confirmed"


def judge_pruning(records: Sequence[Record]) -> list[Finding]:
    seeds = [record["numbers"]["pruning"] for record in of_kind(records, "spread")]
    if not seeds:
        return []
    fractions = seeds[0]["fractions"]
    judged_at = min(range(len(fractions)), key=lambda i: abs(fractions[i] - KEPT))

    def right(curve: str, place: int = judged_at) -> list[float]:
        return [100 * seed["accuracy"][curve][place] for seed in seeds]

    by_hmc, whole = right("ensemble mean by hmc"), right("ensemble mean by hmc", 0)
    own, by_vi = right("ensemble mean by ensemble"), right("ensemble mean by vi")
    single, single_whole = right("ensemble last by hmc"), right("ensemble last by hmc", 0)
    relative = [
        f"{format_mean_std(right(curve), 2)} by {NAMES[name]}'s"
        for name in ("hmc", "vi")
        if (curve := f"ensemble mean by {name} |mean|/std") in seeds[0]["accuracy"]
    ]
    by_relative = f"; by |mean|/std {', '.join(relative)}" if relative else ""
    efficient = mean_above(2 + np.array(by_hmc) - np.array(whole))  # per cent
    partly: Verdict = "partly" if mean_above(np.array(by_hmc) - np.array(own)) else "not confirmed"
    finding = Finding(
        "HMC's stds prune networks trained without a Bayesian framework efficiently",
        "claimed in the abstract; accuracies unknown",
        f"ensemble mean with {fractions[judged_at]:.0%} of its weights: {format_mean_std(by_hmc, 2)} % by HMC's "
        f"stds, {format_mean_std(own, 2)} by its own, {format_mean_std(by_vi, 2)} by VI's, "
        f"{format_mean_std(whole, 2)} with all; a single member {format_mean_std(single, 2)}, "
        f"{format_mean_std(single_whole, 2)} with all{by_relative}",
        "not decided" if efficient is None else "confirmed" if efficient else partly,
        "efficient: less than two points lost",
    )
    return [judged_if_mixed(finding, records)]


def draw_stds(figure: Any, records: Sequence[Record]) -> None:
    axes = figure.subplots(1, 3)
    seeds = [record["numbers"]["stds"] for record in of_kind(records, "spread")]
    colours = {"before": drawing.ORANGE, "after": drawing.BLUE}
    for axis, name in zip(axes, NAMES, strict=True):
        for number, seed in enumerate(seeds):  # the first is filled, the others are drawn as lines above it
            for when, colour in colours.items() if name != "vi" else [("", colours["after"])]:
                look = {"fill": False, "lw": 0.6} if number else {"fill": True, "alpha": 0.45, "label": when or None}
                axis.stairs(seed["counts"][f"{name} {when}".strip()], seed["edges"], color=colour, **look)
        axis.set(title=NAMES[name], xlabel="std of a weight", yscale="log")
        axis.set_ylim(bottom=0.8)
    axes[0].set_ylabel("weights")
    drawing.legend_inside(axes[0])


def draw_pruning(figure: Any, records: Sequence[Record]) -> None:
    axis = figure.subplots()
    if seeds := [record["numbers"]["pruning"] for record in of_kind(records, "spread")]:
        kept = [100 * fraction for fraction in seeds[0]["fractions"]]
        measured = {name: label for name, label in CURVES.items() if name in seeds[0]["accuracy"]}
        for (name, label), mark in zip(measured.items(), "osD^vxP*", strict=False):
            right = 100 * np.array([seed["accuracy"][name] for seed in seeds])
            (line,) = axis.plot(kept, right.mean(0), marker=mark, label=label)
            axis.fill_between(kept, right.min(0), right.max(0), color=line.get_color(), alpha=0.15, lw=0)
    axis.set(xscale="log", xlabel="weights kept (%)", ylabel="test accuracy (%)", ylim=(0, 101))
    axis.set_xticks([1, 5, 10, 20, 50, 100], ["1", "5", "10", "20", "50", "100"])
    axis.minorticks_off()
    drawing.legend_inside(axis, loc="center left", bbox_to_anchor=(1, 0.5))


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
