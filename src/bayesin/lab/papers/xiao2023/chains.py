"""HMC with as many draws as the paper had: Gaussians fitted on half of the chains, scored on the other half.

Scoring a Gaussian against the samples that it was fitted to flatters it, and stds of a hundred draws are mostly
Monte-Carlo noise. So four chains give 1,000 draws; the first two are folded, the last two are the judges, and what
the two halves say of each other is the best that any posterior fitted to one of them could be asked for.

R-hat is judged by its distribution for independent draws: the largest of many quantities exceeds 1 by chance, the
more so the fewer the draws. Nothing is judged that rests on predictions, or on weights, that have not mixed.

Reference: Xiao et al. 2023, table 1 and figure 5; Vehtari et al. 2021 (R-hat).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...campaign import Task
from ..reproduction import Finding, Record, Reproduction, Verdict, of_kind
from ..verdicts import above
from .held_out import Column, HeldOut, has_mixed, independent_rhat, judged_if_mixed
from .long_chains import PARTS, long_trio
from .method_trio import NAMES
from .table1 import NEAR, PAPER_FOLDING, PAPER_NUMBERS, RISE

KEPT, LOST = 0.2, 0.02  # share of weights at which pruning is judged, as in `pruning`, and accuracy that may go
PRUNED_BY = ("hmc's std", "hmc's |mean|/std", "vi's std", "vi's |mean|/std", "ensemble's |mean|/std")
MNIST = 10_000  # test images, of results that do not say how many
GOAL = {"agreement": 0.985, "total_variation": 0.03, "accuracy": 0.975}  # of one posterior, on chains it has not seen


def tasks(scale: str) -> list[Task]:
    return [HeldOut(long_trio(scale), parts, 50 if scale == "smoke" else 200) for parts in PARTS[scale]]


def longest(records: Sequence[Record]) -> dict[str, Any] | None:
    """The numbers of the longest chains that have been measured."""
    done = [one["numbers"] for one in of_kind(records, "chains")]
    return max(done, key=lambda numbers: numbers["draws"], default=None)


def judge(records: Sequence[Record]) -> list[Finding]:
    numbers = longest(records)
    if numbers is None:
        return []
    rhat, ordered = numbers["prediction rhat"], numbers["rhat"]["one order of units"]
    limits = [independent_rhat(numbers, summary) for summary in (rhat, ordered)]
    mixed = [has_mixed(numbers, summary) for summary in (rhat, ordered)]
    chains_mix = Finding(
        "the chains mix",
        "R-hat unknown",
        f"{numbers['draws']} draws of {numbers['chains']} chains; largest R-hat of {rhat['quantities']} "
        f"predictions {rhat['rhat_max']:.3f}{_effective(rhat)}; of {ordered['quantities']:,} weights "
        f"in one order of units {ordered['rhat_max']:.3f}, at 99 % {ordered['rhat']['0.99']:.3f}"
        f"{_effective(ordered)}",
        "confirmed" if all(mixed) else "partly" if mixed[0] else "not confirmed",
        "R-hat at most what the largest of as many independent draws exceeds one time in twenty: of predictions "
        f"{limits[0]:.3f}, of weights {limits[1]:.3f}; partly: predictions alone",
    )
    return [
        *(judged_if_mixed(finding, numbers, "predictions") for finding in _of_predictions(numbers)),
        chains_mix,
        *(judged_if_mixed(finding, numbers, "weights") for finding in _of_weights(numbers)),
    ]


def _of_predictions(numbers: Mapping[str, Any]) -> list[Finding]:
    table, examples = numbers["table"], numbers.get("examples", MNIST)
    chosen = _likeliest(table)
    best, vi, ceiling = table[chosen], table["VI"], table["the other chains"]
    direct, rebased = table["direct, diagonal"], table["{} to the {}, diagonal".format(*PAPER_FOLDING)]
    return [
        Finding(
            "HMC agrees with HMC: two chains against two others",
            "not stated",
            _said(ceiling),
            _all_of([_surely_more(ceiling["agreement"], best["agreement"], examples)], otherwise="partly"),
            "the ceiling: what a posterior fitted to half of the chains can be asked for",
        ),
        Finding(
            "rebasin lets one diagonal Gaussian represent HMC, on chains it was not fitted to",
            "agreement 0.1212 → 0.8249, TV 0.8641 → 0.6570, accuracy 11.11 → 82.34 %, on its own samples",
            f"{_said(direct)} → {_said(rebased)}",
            _represents(direct, rebased, examples),
            "agreement rises by 0.2 or more, TV falls, and both come within 0.05 of the paper's or beyond",
        ),
        Finding(
            f"one posterior represents chains it was not fitted to ({chosen})",
            "a diagonal Gaussian, scored on its own samples: agreement 0.8249, TV 0.6570, accuracy 82.34 %",
            _said(best),
            _all_of(
                [_surely_more(best[name], GOAL[name], examples) for name in ("agreement", "accuracy")]
                + [_surely_more(GOAL["total_variation"], best["total_variation"], examples)],
                otherwise="partly" if best["agreement"] > 0.8249 else "not confirmed",
            ),
            "goal: agreement 0.985, TV 0.03, accuracy 97.5 %; chosen by the likelihood of training labels",
        ),
        Finding(
            "mean-field VI, beside it",
            "agreement 0.9885, TV 0.0235, accuracy 98.11 %",
            _said(vi),
            _all_of([_surely_more(vi["agreement"], 0.98, examples)], otherwise="partly"),
            "agreement 0.98 or more",
        ),
    ]


def _of_weights(numbers: Mapping[str, Any]) -> list[Finding]:
    live, dead = (numbers["stds"]["after"][name] for name in ("live", "dead"))
    kept, curves = numbers["pruning"]["fractions"].index(KEPT), numbers["pruning"]["accuracy"]
    whole, examples = curves["ensemble by hmc's std"][0], numbers.get("examples", MNIST)
    pruned = {by: curves[f"ensemble by {by}"][kept] for by in PRUNED_BY}
    return [
        Finding(
            "stds after rebasin say more than Monte-Carlo noise",
            "shown as histograms",
            f"middle half of the stds: live weights {_middle(live)}, dead weights {_middle(dead)}",
            "confirmed"
            if live["quantiles"]["0.25"] < dead["quantiles"]["0.01"]
            else "partly"
            if live["quantiles"]["0.5"] < dead["quantiles"]["0.05"]
            else "not confirmed",
            "dead weights belong to pixels that never vary: their posterior is the prior, and their stds are noise",
        ),
        Finding(
            "HMC's stds prune networks trained without a Bayesian framework efficiently",
            "claimed in the abstract; accuracies unknown",
            f"ensemble mean with {KEPT:.0%} of its weights, {100 * whole:.2f} % with all: "
            + ", ".join(f"by {by} {100 * value:.2f} %" for by, value in pruned.items()),
            _all_of([_surely_more(pruned["hmc's std"], whole - LOST, examples)], otherwise="not confirmed"),
            "efficient: less than two points lost; |mean|/std beside it, which keeps what is surely not zero",
        ),
    ]


def _surely_more(mean: float, limit: float, examples: int, least: float = 0.0) -> bool | None:
    """Whether a mean over test examples exceeds a limit by `least`, with its error; None where that is not decided.

    Agreement, accuracy and total variation of one example lie between 0 and 1, so that none varies more than so many
    ones and zeros of the same mean.
    """
    return above(mean - limit, float(np.sqrt(max(mean * (1 - mean), limit * (1 - limit)) / examples)), least)


def _all_of(held: Sequence[bool | None], *, otherwise: Verdict) -> Verdict:
    return otherwise if False in held else "not decided" if None in held else "confirmed"


def _effective(summary: Mapping[str, Any]) -> str:
    """Effective draws in words; nothing where probabilities were so small that their variances vanished."""
    if not summary["ess_min"]:
        return ""
    return f" (effective draws at least {summary['ess_min']:.0f}, in the median {summary['ess_median']:.0f})"


def _represents(direct: Column, rebased: Column, examples: int) -> Verdict:
    """By the rule of `table1`."""
    agreement, tv = (PAPER_NUMBERS["hmc activations/first diagonal"][place] for place in (0, 1))
    better = _surely_more(rebased["agreement"], direct["agreement"], examples, RISE)
    lower = _surely_more(direct["total_variation"], rebased["total_variation"], examples)
    near = [
        _surely_more(rebased["agreement"], agreement - NEAR, examples),
        _surely_more(tv + NEAR, rebased["total_variation"], examples),
    ]
    return _all_of([better, lower, *near], otherwise="partly" if better or lower else "not confirmed")


def _likeliest(table: Mapping[str, Column]) -> str:
    losses = {name: column["training_nll"] for name, column in table.items() if "training_nll" in column}
    return min(losses, key=lambda name: losses[name])


def _said(column: Column) -> str:
    return (
        f"agreement {column['agreement']:.4f}, TV {column['total_variation']:.4f}, accuracy "
        f"{100 * column['accuracy']:.2f} %, NLL {column['nll']:.3f}, ECE {column['ece']:.3f}"
    )


def _middle(part: Mapping[str, Any]) -> str:
    return f"{part['quantiles']['0.25']:.3f} to {part['quantiles']['0.75']:.3f}"


def table(records: Sequence[Record]) -> list[list[str]]:
    """Every posterior as a row."""
    numbers = longest(records)
    if numbers is None:
        return []
    names = ["prediction of", "agreement", "total variation", "accuracy %", "NLL", "ECE", "scale"]
    rows = [
        [
            name,
            f"{column['agreement']:.4f}",
            f"{column['total_variation']:.4f}",
            f"{100 * column['accuracy']:.2f}",
            f"{column['nll']:.3f}",
            f"{column['ece']:.3f}",
            f"{column['scale']:g}" if "scale" in column else "–",
        ]
        for name, column in numbers["table"].items()
    ]
    return [names, *rows]


def draw(figure: Any, records: Sequence[Record]) -> None:
    numbers = longest(records)
    if numbers is None:
        return
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.2, 1, 1))
    columns = {name: column for name, column in numbers["table"].items() if name != "held-out chains themselves"}
    left.barh(range(len(columns)), [column["agreement"] for column in columns.values()], color="#0072B2", alpha=0.7)
    left.set_yticks(range(len(columns)), list(columns), fontsize=5)
    left.invert_yaxis()
    left.axvline(numbers["table"]["the other chains"]["agreement"], color="#D55E00", lw=0.8)
    left.set(xlim=(0, 1.01), xlabel="agreement with held-out chains")
    stds = numbers["stds"]["after"]
    for name, colour in (("dead", "#999999"), ("live", "#0072B2"), ("other", "#009E73")):
        if name in stds:
            counts = np.array(stds[name]["histogram"]) / stds[name]["count"]
            look: dict[str, Any] = {"color": colour, "fill": name == "dead", "alpha": 0.6}
            middle.stairs(counts, stds["edges"], label=f"{name} weights", **look)
    middle.set(xlabel="std of a weight after rebasin", ylabel="share of weights", xlim=(0.5, 1.3))
    middle.legend(fontsize=6)
    kept = [100 * fraction for fraction in numbers["pruning"]["fractions"]]
    curves = {n: v for n, v in numbers["pruning"]["accuracy"].items() if n.startswith("ensemble by ")}
    for (name, values), mark in zip(curves.items(), "osD^vx", strict=False):
        method, what = name.removeprefix("ensemble by ").split("'")
        label = f"{NAMES[method]}'{what}"
        right.plot(kept, 100 * np.array(values), marker=mark, markersize=3, lw=0.8, label=label)
    right.set(xscale="log", xlabel="weights kept, ensemble mean (%)", ylabel="accuracy (%)", ylim=(0, 101))
    right.legend(fontsize=5, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))  # lines fill the whole square


LONG_CHAINS = Reproduction(
    name="chains",
    source="Xiao et al. 2023, table 1 and figure 5, with as many draws",
    claim="one posterior represents HMC, on chains it has not seen",
    tasks=tasks,
    judge=judge,
    draw=draw,
    minutes={"smoke": 1, "cpu": 25, "paper": 25},
    choices=(
        "four chains of 20 + 250 iterations of 1,000 leapfrog steps of 0.001 (the paper: one of 10,000 × 500, every "
        "ninth kept), gradients of 16 bits, energies in float32; in five parts, measured after each: the table "
        "is that of the longest",
        "fitted on two chains, scored on the two others; the test set chooses nothing",
        "one seed",
    ),
    size=(9.6, 4.2),
    table=table,
)
