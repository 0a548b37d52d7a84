"""What is measured on long chains: Gaussians fitted on half of them and scored on the other half, mixing, pruning.

A Gaussian for a short while of a chain needs no matching, as its units stay what they are, and some of them are a
mixture; the more of them, the fewer draws each, and the nearer they are to the draws themselves.

The network itself holds a control. A pixel that is zero in every training image leaves its weights as the prior has
them, N(0, 1) to the letter; the stds of these *dead* weights show how far apart stds lie that are truly equal.

Weights have an R-hat modulo symmetry, after all draws were moved into one order of units.

Reference: Xiao et al. 2023, table 1 and figure 5; Vehtari et al. 2021 (R-hat).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ....compact import Compact, best_scale, compact, prune, rebase, shrunk
from ....data import Dataset
from ....evaluation.metrics import accuracy, agreement, ece, nll, total_variation
from ....inference import effective_sample_size, iid_rhats, rhat_bound, split_rhat
from ....models import Model
from ....posteriors import LowRankGaussian, Posterior, Samples
from ....randomness import generator, seed_key
from ....trees import Tree, flatten
from ...campaign import TaskContext, seeded
from ..reproduction import Finding
from .long_chains import LongTrioTask
from .method_trio import Posteriors
from .stds_and_pruning import relative_std
from .table1 import CHOSEN_ON, CHOSEN_WITH, PAPER_FOLDING, SHRINKING, Folding, probabilities

FOLDINGS: tuple[Folding, ...] = (PAPER_FOLDING, ("correlations", "mean"), ("weights", "mean"))
WINDOWS = (2, 4, 8, 16, 32)  # into which the draws are cut, in the order in which they were drawn
FEWEST = 3  # draws that a Gaussian of their covariance is fitted to
WEIGHTS = 20_000  # weights whose R-hat is computed, drawn at random
FRACTIONS = (1.0, 0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01)
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)

Column = dict[str, Any]


@dataclass(frozen=True)
class HeldOut(LongTrioTask):
    """Everything that is measured on the long chains."""

    draws: int = 200
    key: int = 0

    kind = "chains"

    @property
    def title(self) -> str:
        return f"held-out chains of {self.runs.hmc.data}, {self.drawn}{seeded(self.key)}"

    def perform(self, folder: Path, context: TaskContext) -> dict[str, Any]:
        posteriors, key = self.load(context), seed_key(self.key)
        hmc, _, _, _, data, spec = posteriors
        chains = self.runs.hmc.training.chains  # pyright: ignore[reportAttributeAccessIssue]
        context.tell("held-out table")
        numbers: dict[str, Any] = {"examples": len(data.x_test)}
        numbers["table"] = held_out_table(posteriors, chains, key, self.draws)
        context.tell("one order of units for all draws")
        folded = _folded(hmc, PAPER_FOLDING, posteriors, key)
        context.tell("R-hat modulo symmetry")
        numbers |= mixing(posteriors, rebase(hmc, spec, folded.perms), chains, key)
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
            parts = [LowRankGaussian.from_samples(fitted[int(window[0]) : int(window[-1]) + 1]) for window in windows]
            add(f"as they came, one low rank for each of {count} stretches", *parts)
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


def mixing(posteriors: Posteriors, moved: Samples, chains: int, key: jax.Array) -> dict[str, Any]:
    """Returns the number of draws, and R-hat of weights and predictions; `moved` is HMC in one order of units."""
    hmc, _, _, model, data, _ = posteriors
    return {
        "chains": chains,
        "draws": len(hmc),
        "rhat": weight_rhats({"as they came": hmc, "one order of units": moved}, chains, key),
        "prediction rhat": prediction_rhats(hmc, chains, model, data, key),
    }


def independent_rhat(numbers: Mapping[str, Any], summary: Mapping[str, Any]) -> float:
    """What the largest R-hat of as many independent draws and quantities exceeds one time in twenty."""
    return rhat_bound(numbers["chains"], numbers["draws"] // numbers["chains"], summary["quantities"])


def has_mixed(numbers: Mapping[str, Any], summary: Mapping[str, Any]) -> bool:
    """Whether the largest R-hat is one that independent draws may have."""
    return summary["rhat_max"] <= independent_rhat(numbers, summary)


def judged_if_mixed(finding: Finding, numbers: Mapping[str, Any], what: str) -> Finding:
    """The finding; without a verdict where the "weights" or "predictions" that it rests on have not mixed."""
    summary = numbers["prediction rhat"] if what == "predictions" else numbers["rhat"]["one order of units"]
    if has_mixed(numbers, summary):
        return finding
    limit = independent_rhat(numbers, summary)
    reason = f"not judged: {what} have not mixed (R-hat {summary['rhat_max']:.3f}, limit {limit:.3f})"
    return replace(finding, verdict="not judged", reason=f"{reason}; {finding.reason}")


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
