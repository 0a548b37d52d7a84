"""HMC with as many draws as the paper had: Gaussians fitted on half of the chains, scored on the other half.

Scoring a Gaussian against the samples that it was fitted to flatters it, and stds of a hundred draws are mostly
Monte-Carlo noise. So four chains give 1,000 draws; the first two are folded, the last two are the judges, and what
the two halves say of each other is the best that any posterior fitted to one of them could be asked for.

A Gaussian for a short while of a chain needs no matching, as its units stay what they are, and some of them are a
mixture; the more of them, the fewer draws each, and the nearer they are to the draws themselves.

The network itself holds a control. A pixel that is zero in every training image leaves its weights as the prior has
them, N(0, 1) to the letter; the stds of these *dead* weights show how far apart stds lie that are truly equal.

R-hat is judged by its distribution for independent draws: the largest of many quantities exceeds 1 by chance, the
more so the fewer the draws. Weights have one modulo symmetry, after all draws were moved into one order of units.

Reference: Xiao et al. 2023, table 1 and figure 5; Vehtari et al. 2021 (R-hat).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ....compact import Compact, best_scale, compact, prune, rebase, shrunk
from ....data import Dataset
from ....evaluation.metrics import accuracy, agreement, ece, nll, total_variation
from ....inference import HMC, effective_sample_size, iid_rhats, rhat_bound, split_rhat
from ....models import Model
from ....posteriors import LowRankGaussian, Posterior, Samples
from ....randomness import generator, seed_key
from ....store import load_posterior
from ....trees import Tree, flatten
from ...campaign import Task, TaskContext, TrainTask, seeded
from ..reproduction import Finding, Record, Reproduction, Verdict, of_kind
from ..verdicts import above
from .long_chains import chain_parts, joined_draws
from .method_trio import Posteriors, TrioTask, method_trio
from .stds_and_pruning import relative_std
from .table1 import (
    CHOSEN_ON,
    CHOSEN_WITH,
    NEAR,
    PAPER_FOLDING,
    PAPER_NUMBERS,
    RISE,
    SHRINKING,
    Folding,
    probabilities,
)

CHAINS = {  # of one part
    "smoke": HMC(samples=5, chains=4, burn_in=10, step_size=5e-3, steps=40, chunk=2_000),
    "cpu": HMC(samples=20, chains=4, burn_in=20, step_size=2e-3, steps=500, chunk=2_000),
    # Free weights of neighbouring draws correlate by cos 1 = 0.54; twenty iterations forget the start to 5e-6.
    "paper": HMC(
        samples=50,
        chains=4,
        burn_in=20,
        step_size=1e-3,
        steps=1_000,
        precision="bf16x3",
        chunk=60_000,
        draws_per_file=10,
    ),
}
PARTS = {"smoke": (2,), "cpu": (2,), "paper": (1, 2, 3, 4, 5)}  # after how many parts the chains are measured
FOLDINGS: tuple[Folding, ...] = (PAPER_FOLDING, ("correlations", "mean"), ("weights", "mean"))
WINDOWS = (2, 4, 8, 16, 32)  # into which the draws are cut, in the order in which they were drawn
FEWEST = 3  # draws that a Gaussian of their covariance is fitted to
WEIGHTS = 20_000  # weights whose R-hat is computed, drawn at random
FRACTIONS = (1.0, 0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01)
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
KEPT, LOST = 0.2, 0.02  # share of weights at which pruning is judged, as in `pruning`, and accuracy that may go
PRUNED_BY = ("hmc's std", "hmc's |mean|/std", "vi's std", "vi's |mean|/std", "ensemble's |mean|/std")
GOAL = {"agreement": 0.985, "total_variation": 0.03, "accuracy": 0.975}  # of one posterior, on chains it has not seen

Column = dict[str, Any]


@dataclass(frozen=True)
class HeldOut(TrioTask):
    """Everything that is measured on the long chains."""

    parts: int = 1
    draws: int = 200
    key: int = 0

    kind = "chains"

    @property
    def title(self) -> str:
        hmc: Any = self.runs.hmc.training
        count = f"{hmc.chains} × {hmc.samples * self.parts} draws"
        return f"held-out chains of {self.runs.hmc.data}, {count}{seeded(self.key)}"

    @property
    def needs(self) -> tuple[Task, ...]:
        trained = TrainTask(self.runs.ensemble), TrainTask(self.runs.vi)
        return *trained, *chain_parts(self.runs.hmc, self.parts)

    def load(self, context: TaskContext) -> Posteriors:
        """The draws of all parts, and the posteriors of the two other methods."""
        ensemble, vi = (
            load_posterior(context.runs / need.name / "posterior-0.safetensors") for need in self.needs[:2]
        )
        data, model = context.prepared(self.runs.hmc)
        hmc = joined_draws(chain_parts(self.runs.hmc, self.parts), context)
        return Posteriors(hmc, ensemble, vi, model, data, context.spec(self.runs.hmc))  # pyright: ignore

    def perform(self, folder: Path, context: TaskContext) -> dict[str, Any]:
        posteriors, key = self.load(context), seed_key(self.key)
        hmc, _, _, model, data, spec = posteriors
        chains = self.runs.hmc.training.chains  # pyright: ignore[reportAttributeAccessIssue]
        context.tell("held-out table")
        numbers: dict[str, Any] = {"chains": chains, "draws": len(hmc), "examples": len(data.x_test)}
        numbers["table"] = held_out_table(posteriors, chains, key, self.draws)
        context.tell("one order of units for all draws")
        folded = _folded(hmc, PAPER_FOLDING, posteriors, key)
        moved = rebase(hmc, spec, folded.perms)
        context.tell("R-hat modulo symmetry")
        numbers["rhat"] = weight_rhats({"as they came": hmc, "one order of units": moved}, chains, key)
        numbers["prediction rhat"] = prediction_rhats(hmc, chains, model, data, key)
        context.tell("stds and pruning")
        stds = {"before": folded.direct.std, "after": folded.posterior.std}
        numbers["stds"] = {name: live_and_dead(std, data) for name, std in stds.items()}
        numbers["pruning"] = pruning(folded, posteriors, key)
        return numbers


def held_out_table(posteriors: Posteriors, chains: int, key: jax.Array, draws: int) -> dict[str, Column]:
    """Returns every posterior's prediction on the test set against that of the chains it was not fitted to."""
    hmc, ensemble, vi, model, data, spec = posteriors
    half, each = chains // 2, len(hmc) // chains
    alone = [probabilities(hmc[start : start + each], model, data.x_test) for start in range(0, chains * each, each)]
    seen, truth = np.mean(alone[:half], 0), np.mean(alone[half:], 0)
    columns: dict[str, Column] = {
        "held-out chains themselves": _scores(truth, truth, data),
        "the other chains": _scores(seen, truth, data) | {"splits": _splits(alone, data)},
        "one other chain": _scores(alone[0], truth, data),
        "ensemble": _scores(probabilities(ensemble, model, data.x_test), truth, data),
    }
    networks = Samples(vi.sample(jax.random.fold_in(key, 2), draws))
    columns["VI"] = _scores(probabilities(networks, model, data.x_test), truth, data)

    def add(name: str, *gaussians: Posterior) -> None:
        """A Gaussian, or several with equal weights: as it is, and scaled to make training labels likeliest."""
        components = [
            (Samples(jax.tree.map(np.asarray, q.sample(jax.random.fold_in(key, n), draws // len(gaussians)))), q.mean)
            for n, q in enumerate(gaussians)
        ]
        columns[name] = _scores(probabilities(_scaled(components, 1.0), model, data.x_test), truth, data)
        few = [(networks[: max(1, CHOSEN_WITH // len(components))], mean) for networks, mean in components]
        x, y = data.x_train[:CHOSEN_ON], data.y_train[:CHOSEN_ON]
        scale, losses = best_scale(lambda s: _nll(probabilities(_scaled(few, s), model, x), y), SHRINKING)
        narrow = probabilities(_scaled(components, scale), model, data.x_test)
        chosen = {"scale": scale, "training_nll": losses[scale]}
        columns[f"{name}, scaled"] = _scores(narrow, truth, data) | chosen

    fitted = hmc[: each * half]
    for count in WINDOWS:
        windows = np.array_split(np.arange(len(fitted)), count)
        if len(windows[-1]) >= FEWEST:  # draws in their own order: those of a short while need no matching
            parts = [fitted[int(window[0]) : int(window[-1]) + 1] for window in windows]
            add(f"as they came, one low rank for each of {count} whiles", *map(LowRankGaussian.from_samples, parts))
    for folding in FOLDINGS:
        folded = _folded(fitted, folding, posteriors, key)
        moved = rebase(fitted, spec, folded.perms)
        if "direct, diagonal" not in columns:
            add("direct, diagonal", folded.direct)
            add("direct, low rank", LowRankGaussian.from_samples(fitted))
        name = "{} to the {}".format(*folding)
        add(f"{name}, diagonal", folded.posterior)
        add(f"{name}, low rank", LowRankGaussian.from_samples(moved))
        parts = [moved[start : start + each] for start in range(0, half * each, each)]
        add(f"{name}, one low rank a chain", *map(LowRankGaussian.from_samples, parts))
    return columns


def _folded(members: Samples, folding: Folding, posteriors: Posteriors, key: jax.Array) -> Compact:
    match, reference = folding
    options: dict[str, Any] = {"match": match, "apply": posteriors.model.apply, "x": posteriors.data.x_train}
    return compact(members, posteriors.spec, key=key, reference=reference, **options)


def _scaled(components: Sequence[tuple[Samples, Tree]], scale: float) -> Samples:
    parts = [shrunk(networks, mean, scale).params for networks, mean in components]
    return Samples(jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts))


def _nll(probs: np.ndarray, y: np.ndarray) -> float:
    return nll(np.log(np.maximum(probs, 1e-12)), y)


def _scores(probs: np.ndarray, truth: np.ndarray, data: Dataset) -> Column:
    return {
        "agreement": agreement(probs, truth),
        "total_variation": total_variation(probs, truth),
        "accuracy": accuracy(probs, data.y_test),
        "nll": _nll(probs, data.y_test),
        "ece": ece(probs, data.y_test),
    }


def _splits(alone: Sequence[np.ndarray], data: Dataset) -> list[Column]:
    """The same for every way to halve the chains: how much the ceiling itself varies."""
    if len(alone) != 4:
        return []
    halves = [((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2))]
    return [
        _scores(np.mean([alone[i] for i in one], 0), np.mean([alone[i] for i in other], 0), data)
        for one, other in halves
    ]


def weight_rhats(samples: Mapping[str, Samples], chains: int, key: jax.Array) -> dict[str, Any]:
    """Returns quantiles of R-hat and effective sample size over weights drawn at random, by order of units."""
    summaries: dict[str, Any] = {}
    for name, draws in samples.items():
        some = [_some_weights(leaf, path, key) for path, leaf in flatten(draws.params).items()]
        values = np.concatenate(some, 1).reshape(chains, len(draws) // chains, -1)
        summaries[name] = _rhat_summary(values)
        summaries["iid"] = summaries.get("iid") or iid_rhats(*values.shape, key)
    return summaries


def _some_weights(leaf: Any, path: str, key: jax.Array) -> np.ndarray:
    """A share of a leaf's weights, the same ones whatever the order of the draws, at least one."""
    flat = np.asarray(leaf).reshape(len(leaf), -1)
    count = min(flat.shape[1], max(1, WEIGHTS * flat.shape[1] // 400_000))
    return flat[:, np.sort(generator(key, path).choice(flat.shape[1], count, replace=False))]


def prediction_rhats(hmc: Samples, chains: int, model: Model, data: Dataset, key: jax.Array) -> dict[str, Any]:
    """Returns the same of the log-probabilities of all classes of 64 test images, of every draw by itself."""
    x = data.x_test[:: max(1, len(data.x_test) // 64)][:64]
    log_probs = jax.jit(lambda params: jax.nn.log_softmax(model.apply(params, x)))
    values = np.stack([np.asarray(log_probs(params)) for params in hmc]).reshape(chains, len(hmc) // chains, -1)
    return _rhat_summary(values) | {"iid": iid_rhats(*values.shape, key)}


def _rhat_summary(values: np.ndarray) -> dict[str, Any]:
    rhat, ess = split_rhat(values), effective_sample_size(values)
    rhat, ess = rhat[np.isfinite(rhat)], ess[np.isfinite(ess)]
    return {
        "quantities": int(rhat.size),
        "rhat": {f"{q:g}": float(np.quantile(rhat, q)) for q in QUANTILES},
        "rhat_max": float(rhat.max()),
        "above 1.01": float((rhat > 1.01).mean()),
        "ess_min": float(ess.min()),
        "ess_median": float(np.median(ess)),
    }


def live_and_dead(std: Tree, data: Dataset) -> dict[str, Any]:
    """Returns quantiles of the stds of weights of pixels that vary, of pixels that never do, and of the rest."""
    pixels = np.asarray(data.x_train).reshape(len(data.x_train), -1)
    dead = pixels.max(0) == pixels.min(0)
    flat = {path: np.asarray(leaf) for path, leaf in flatten(std).items()}
    first = next(path for path, leaf in flat.items() if leaf.ndim == 2 and leaf.shape[0] == len(dead))
    parts = {"live": flat[first][~dead], "dead": flat[first][dead]}
    parts["other"] = np.concatenate([leaf.reshape(-1) for path, leaf in flat.items() if path != first])
    edges = np.linspace(0, 2, 101)
    return {
        name: {
            "count": int(values.size),
            "mean": float(values.mean(dtype=np.float64)),
            "quantiles": {f"{q:g}": float(np.quantile(values, q)) for q in QUANTILES},
            "histogram": np.histogram(values, edges)[0].tolist(),
        }
        for name, values in parts.items()
        if values.size
    } | {"edges": edges.tolist()}


def pruning(folded: Compact, posteriors: Posteriors, key: jax.Array) -> dict[str, Any]:
    """Returns accuracies of mean networks that keep the weights of lowest std, or of highest |mean| / std.

    Ensemble and VI are first brought into the order of units of HMC's reference.
    """
    _, ensemble, vi, model, data, spec = posteriors
    options: dict[str, Any] = {"match": "activations", "apply": model.apply, "x": data.x_train}
    members = _folded(ensemble, PAPER_FOLDING, posteriors, key).posterior
    visitors = Samples.stack([members.mean, vi.mean])
    perms = compact(visitors, spec, key=key, reference=folded.reference, **options).perms
    gaussians: dict[str, Posterior] = {"hmc": folded.posterior}
    for number, (name, visitor) in enumerate((("ensemble", members), ("vi", vi))):
        gaussians[name] = visitor.permute(spec, {group: perm[number] for group, perm in perms.items()})
    orders = {f"{name}'s std": gaussian.std for name, gaussian in gaussians.items()}
    orders |= {
        f"{name}'s |mean|/std": relative_std(gaussian.mean, gaussian.std) for name, gaussian in gaussians.items()
    }
    curves = {
        f"{name} by {by}": [
            accuracy(probabilities(prune(gaussian.mean, order, fraction), model, data.x_test), data.y_test)
            for fraction in FRACTIONS
        ]
        for name, gaussian in gaussians.items()
        for by, order in orders.items()
    }
    return {"fractions": list(FRACTIONS), "accuracy": curves}


def tasks(scale: str) -> list[Task]:
    trio = method_trio(scale)
    long = dataclasses.replace(trio, hmc=dataclasses.replace(trio.hmc, training=CHAINS[scale]))
    return [HeldOut(long, parts, 50 if scale == "smoke" else 200) for parts in PARTS[scale]]


def longest(records: Sequence[Record]) -> dict[str, Any] | None:
    """The numbers of the longest chains that have been measured."""
    done = [one["numbers"] for one in of_kind(records, "chains")]
    return max(done, key=lambda numbers: numbers["draws"], default=None)


def judge(records: Sequence[Record]) -> list[Finding]:
    numbers = longest(records)
    if numbers is None:
        return []
    table, examples = numbers["table"], numbers.get("examples", 10_000)  # those of MNIST
    chosen = _likeliest(table)
    best, vi, ceiling = table[chosen], table["VI"], table["the other chains"]
    direct, rebased = table["direct, diagonal"], table["{} to the {}, diagonal".format(*PAPER_FOLDING)]
    rhat, ordered = numbers["prediction rhat"], numbers["rhat"]["one order of units"]
    draws = numbers["chains"], numbers["draws"] // numbers["chains"]
    limits = [rhat_bound(*draws, one["quantities"]) for one in (rhat, ordered)]
    mixed = [one["rhat_max"] <= limit for one, limit in zip((rhat, ordered), limits, strict=True)]
    kept, curves = numbers["pruning"]["fractions"].index(KEPT), numbers["pruning"]["accuracy"]
    whole = curves["ensemble by hmc's std"][0]
    pruned = {by: curves[f"ensemble by {by}"][kept] for by in PRUNED_BY}
    live, dead = (numbers["stds"]["after"][name] for name in ("live", "dead"))
    of_predictions = [
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
    of_weights = [
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
    return [
        *(_judged_if(mixed[0], finding, "predictions", rhat, limits[0]) for finding in of_predictions),
        chains_mix,
        *(_judged_if(mixed[1], finding, "weights", ordered, limits[1]) for finding in of_weights),
    ]


def _judged_if(mixed: bool, finding: Finding, what: str, found: Mapping[str, Any], limit: float) -> Finding:
    """The finding; without a verdict where what it rests on has not mixed."""
    if mixed:
        return finding
    reason = f"not judged: {what} have not mixed (R-hat {found['rhat_max']:.3f}, limit {limit:.3f}); {finding.reason}"
    return dataclasses.replace(finding, verdict="not judged", reason=reason)


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
        label = name.removeprefix("ensemble by ")
        right.plot(kept, 100 * np.array(values), marker=mark, markersize=3, lw=0.8, label=label)
    right.set(xscale="log", xlabel="weights kept, ensemble mean (%)", ylabel="accuracy (%)", ylim=(0, 101))
    right.legend(fontsize=5)


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
