"""HMC, ensemble and VI in one weight space, before rebasin and after. Xiao et al. 2023, the scatter plots of means.

Each method is one diagonal Gaussian. Before, that of its networks as they came. After, HMC's and the ensemble's
networks are folded in their own order first; then the ensemble's mean and VI's are matched to HMC's reference, and
their stds move along. Two methods are compared by

    W₂² = |m₁ − m₂|² + |s₁ − s₂|²,

means and stds by themselves, and by the correlation of their means over all weights, which knows no scale. The two
halves of the HMC draws, each folded by itself, are compared in the same way: what one method says twice.

The plane is that of the two largest principal components of all networks, centred, before and after by themselves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ....compact import Compact, compact, rebase
from ....matching import match_activations
from ....posteriors import Gaussian, Samples
from ....randomness import seed_key
from ....symmetry import hidden_activations
from ....trees import Tree, flatten
from ...campaign import Task, TaskContext, seeded
from ..reproduction import Finding, Record, Reproduction, Verdict, of_kind
from ..verdicts import format_mean_std, mean_above
from .held_out import judged_if_mixed, mixing
from .long_chains import PARTS, LongTrioTask, long_trio
from .method_trio import NAMES, SEEDS, Posteriors

SHOWN = 40  # HMC draws in the plane, evenly spaced over all chains
CLOSER = (
    0.1  # declared before anything was measured: the distance of means falls by a tenth, the correlation rises so
)
COLOURS = {"hmc": "#0072B2", "ensemble": "#D55E00", "vi": "#009E73"}
HALVES = ("hmc first half", "hmc second half")
PAIRS = [*combinations(NAMES, 2), HALVES]


@dataclass(frozen=True)
class WeightSpace(LongTrioTask):
    """Distances between the three methods before and after rebasin, and their networks in a plane."""

    key: int = 0

    kind = "weight-space"

    @property
    def title(self) -> str:
        return f"HMC, ensemble and VI in one weight space on {self.runs.hmc.data}, {self.drawn}{seeded(self.key)}"

    def perform(self, folder: Path, context: TaskContext) -> dict[str, Any]:
        chains = self.runs.hmc.training.chains  # pyright: ignore[reportAttributeAccessIssue]
        return weight_space(self.load(context), chains, seed_key(self.key))


def weight_space(posteriors: Posteriors, chains: int, key: jax.Array) -> dict[str, Any]:
    """Returns distances of all `PAIRS` and places of all networks in the plane, "before" and "after", and the mixing.

    Args:
        posteriors: HMC samples, ensemble and VI; matched on the training set.
        chains: of HMC, one after the other.
        key: decides visiting orders.
    """
    hmc, ensemble, vi, model, data, spec = posteriors

    def fold(members: Samples) -> Compact:
        options: dict[str, Any] = {"match": "activations", "reference": "first", "apply": model.apply}
        return compact(members, spec, key=key, x=data.x_train, **options)

    middle = len(hmc) // 2
    members = dict(zip(("hmc", *HALVES, "ensemble"), (hmc, hmc[:middle], hmc[middle:], ensemble), strict=True))
    folded = {name: fold(networks) for name, networks in members.items()}
    visitors = {name: one.posterior for name, one in folded.items() if name != "hmc"} | {"vi": vi}
    activations = hidden_activations(model.apply, folded["hmc"].reference, data.x_train[:8], spec, key=key)
    means = Samples.stack([visitor.mean for visitor in visitors.values()])
    each = match_activations(folded["hmc"].reference, means, spec, activations, data.x_train, correlation=False).perms
    perms = {name: {group: perm[k] for group, perm in each.items()} for k, name in enumerate(visitors)}

    before = {name: one.direct for name, one in folded.items()} | {"vi": vi}
    after = {name: visitor.permute(spec, perms[name]) for name, visitor in visitors.items()}
    after["hmc"] = folded["hmc"].posterior
    some = np.unique(np.linspace(0, len(hmc) - 1, SHOWN).astype(int))
    moved = rebase(hmc, spec, folded["hmc"].perms)
    at_home = rebase(ensemble, spec, folded["ensemble"].perms).permute(spec, perms["ensemble"])
    networks = {
        "before": {"hmc": hmc, "ensemble": ensemble},
        "after": {"hmc": moved, "ensemble": at_home},
    }
    gaussians: dict[str, Mapping[str, Any]] = {"before": before, "after": after}
    return {
        "distances": {
            when: {f"{one} and {other}": compared(those[one], those[other]) for one, other in PAIRS}
            for when, those in gaussians.items()
        },
        "plane": {
            when: plane(
                {
                    "hmc": _rows(jax.tree.map(lambda leaf: np.asarray(leaf)[some], networks[when]["hmc"].params)),
                    "ensemble": _rows(networks[when]["ensemble"].params),
                }
                | {f"{name} mean": _flat(those[name].mean)[None] for name in NAMES}
            )
            for when, those in gaussians.items()
        },
    } | mixing(posteriors, moved, chains, key)


def compared(one: Gaussian, other: Gaussian) -> dict[str, float]:
    """Returns how far two diagonal Gaussians are apart, and how their means and stds correlate over the weights.

    Example:
        >>> near = Gaussian({"w": np.array([1.0, 2.0])}, {"w": np.ones(2)})
        >>> far = Gaussian({"w": np.array([4.0, 6.0])}, {"w": np.full(2, 1.5)})
        >>> found = compared(near, far)
        >>> found["means"], round(found["stds"], 3), round(found["w2"], 3)
        (5.0, 0.707, 5.05)
    """
    (m1, s1), (m2, s2) = ((_flat(each.mean), _flat(each.std)) for each in (one, other))
    means, stds = float(np.linalg.norm(m1 - m2)), float(np.linalg.norm(s1 - s2))
    return {
        "w2": float(np.hypot(means, stds)),
        "means": means,
        "stds": stds,
        "correlation of means": _correlation(m1, m2),
        "correlation of stds": _correlation(s1, s2),
    }


def plane(rows: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Returns the places of all rows in the plane of their two largest principal components.

    Also the "share" of their squared distances from the centre that lies in it.
    """
    whole = np.concatenate(list(rows.values()))
    whole = whole - whole.mean(0)
    values, vectors = np.linalg.eigh(whole @ whole.T)
    places = vectors[:, :-3:-1] * np.sqrt(np.maximum(values[:-3:-1], 0))
    parts = np.split(places, np.cumsum([len(part) for part in rows.values()])[:-1])
    named = {name: part.tolist() for name, part in zip(rows, parts, strict=True)}
    return {"places": named, "share": float(values[:-3:-1].sum() / values.sum())}


def _rows(params: Tree) -> np.ndarray:
    leaves = [np.asarray(leaf, np.float64) for leaf in flatten(params).values()]
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], 1)


def _flat(tree: Tree) -> np.ndarray:
    return np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in flatten(tree).values()])


def _correlation(one: np.ndarray, other: np.ndarray) -> float:
    scale = one.std() * other.std()
    return float(((one - one.mean()) * (other - other.mean())).mean() / scale) if scale else 0.0


def tasks(scale: str) -> list[Task]:
    return [WeightSpace(long_trio(scale, seed), max(PARTS[scale]), seed) for seed in range(SEEDS[scale])]


def judge(records: Sequence[Record]) -> list[Finding]:
    measured = [record["numbers"] for record in of_kind(records, "weight-space")]
    findings = []
    for one, other in PAIRS if measured else ():
        pair = f"{one} and {other}"
        halves = (one, other) == HALVES  # the same ones in all seeds, which share the chains
        seeds = [numbers["distances"] for numbers in (measured[:1] if halves else measured)]
        said, gained = [], []
        for name, digits in (("means", 1), ("stds", 1), ("correlation of means", 3)):
            was, now = (np.array([seed[when][pair][name] for seed in seeds]) for when in ("before", "after"))
            said.append(f"{name} {format_mean_std(was, digits)} → {format_mean_std(now, digits)}")
            if name != "stds":
                gained.append(1 - now / was if name == "means" else now - was)
        names = "two halves of the HMC draws" if halves else f"{NAMES[one]} and {NAMES[other]}"
        finding = Finding(
            f"rebasin brings {names} into one weight space",
            "not stated" if halves else "shown as scatter plots; values unknown",
            "; ".join(said),
            _closer(*gained),
            f"the distance of the means falls by {CLOSER:.0%} or more, their correlation rises by {CLOSER:g} or more"
            + ("; one pair has no spread" if len(seeds) == 1 else ""),
        )
        findings.append(judged_if_mixed(finding, measured[0], "weights") if "hmc" in one else finding)
    return findings


def _closer(shares: np.ndarray, rises: np.ndarray) -> Verdict:
    clearly = [mean_above(gains - CLOSER) for gains in (shares, rises)]
    if False in clearly:
        return "partly" if any(mean_above(gains) for gains in (shares, rises)) else "not confirmed"
    return "not decided" if None in clearly else "confirmed"


def draw(figure: Any, records: Sequence[Record]) -> None:
    done = of_kind(records, "weight-space")
    if not done:
        return
    numbers = done[0]["numbers"]
    *planes, right = figure.subplots(1, 3)
    for axis, when in zip(planes, ("before", "after"), strict=True):
        found = numbers["plane"][when]
        for size, (name, colour) in zip((9, 6, 3), COLOURS.items(), strict=True):  # means may lie on each other
            if name in found["places"]:
                axis.plot(*np.array(found["places"][name]).T, ".", color=colour, markersize=3, alpha=0.6)
            centre = np.array(found["places"][f"{name} mean"][0])
            axis.plot(*centre, "o", color=colour, markersize=size, markeredgecolor="black", label=NAMES[name])
        axis.set(title=f"{when} rebasin", xlabel=f"two components, {100 * found['share']:.0f} % of the spread")
        axis.set_aspect("equal", adjustable="datalim")
        axis.tick_params(labelsize=6)
    planes[0].legend(fontsize=6, title="mean of", title_fontsize=6)
    pairs = [f"{one} and {other}" for one, other in PAIRS]
    labels = ["two halves of HMC" if pair == HALVES else " and ".join(NAMES[name] for name in pair) for pair in PAIRS]
    for shift, when, colour in ((-0.18, "before", "#999999"), (0.18, "after", "#0072B2")):
        found = [one["numbers"]["distances"][when] for one in done]
        values = [np.mean([seed[pair]["correlation of means"] for seed in found]) for pair in pairs]
        right.barh(np.arange(len(pairs)) + shift, values, 0.34, color=colour, label=when)
    right.set_yticks(range(len(pairs)), labels, fontsize=6)
    right.invert_yaxis()
    right.set(xlabel="correlation of means over weights", xlim=(min(0.0, right.get_xlim()[0]), 1))
    right.legend(fontsize=6)


def table(records: Sequence[Record]) -> list[list[str]]:
    """Every pair of methods as a row."""
    done = [record["numbers"]["distances"] for record in of_kind(records, "weight-space")]
    if not done:
        return []
    names = ("w2", "means", "stds", "correlation of means", "correlation of stds")
    rows = [
        [pair, when, *(f"{np.mean([one[when][pair][name] for one in done]):.3f}" for name in names)]
        for pair in done[0]["before"]
        for when in ("before", "after")
    ]
    return [["methods", "rebasin", *names], *rows]


WEIGHT_SPACE = Reproduction(
    name="weights",
    source="Xiao et al. 2023, the comparison of methods in weight space",
    claim="rebasin makes HMC, ensemble and VI comparable in weight space",
    tasks=tasks,
    judge=judge,
    draw=draw,
    minutes={"smoke": 0.5, "cpu": 13, "paper": 20},
    choices=(
        "the chains are those of `chains`, the longest of them; seeds are of ensemble and VI",
        "HMC and ensemble are matched by activations to their first network, then the means of ensemble and VI to "
        "HMC's reference",
        "the paper's scatter plots have the average of the samples as they came for a reference, which is no network",
    ),
    size=(9.6, 3.0),
    table=table,
)
