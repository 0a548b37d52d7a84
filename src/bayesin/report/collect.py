"""From results to the sections of a report: plain numbers, chosen so that a page stays small.

Each function makes one section of `report.json` (see `document`) and needs nothing but the results
themselves; a verb puts together the sections that it has.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ..data import Dataset
from ..evaluation.barrier import Barrier
from ..evaluation.plane import Plane
from ..matching import Alignment
from ..paths import geodesic, wasserstein
from ..posteriors import Gaussian
from ..symmetry import PermutationSpec, transpositions
from ..trees import Tree, flatten
from .units import largest, pruned_units, unit_correlation, unit_vectors

UNITS = 96  # rows of a similarity matrix: as many as a figure of the page has room to show
CELLS = 250_000  # of all similarity matrices together, about a megabyte
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
BINS = 40  # of the histogram of stds


def barrier_section(barriers: Mapping[str, Mapping[str, Barrier]]) -> dict[str, Any]:
    """Curves along τ from `{"test": {"naive": …, "aligned": …}, "train": …}`."""
    return {"sets": {name: {kind: _curve(one) for kind, one in kinds.items()} for name, kinds in barriers.items()}}


def walk_section(
    barriers: Mapping[str, Barrier], data: Dataset, class_names: Sequence[str] | None = None
) -> dict[str, Any] | None:
    """What the slider shows at each τ, from test-set barriers; None where they are not of a classifier."""
    first = next(iter(barriers.values()))
    if first.confusion is None or first.calibration is None:
        return None
    names = class_names or [str(label) for label in range(first.confusion.shape[-1])]
    section: dict[str, Any] = {"classes": list(names), "taus": first.taus}
    section |= {kind: [_step(one, at) for at in range(len(one.taus))] for kind, one in barriers.items()}
    if first.kept is not None and len(data.input_shape) == 3 and data.input_shape[-1] in (1, 3):
        section["images"] = _images(first.kept, data)
    return section


def plane_section(
    plane: Plane, examples: int, losses: Sequence[float], names: Sequence[str], *, posterior: bool = False
) -> dict[str, Any]:
    """Loss per example on the plane, and the three corners: target, source, aligned.

    With `posterior` the log-posterior too, per example and relative to its best: only where the plane was
    computed on the training set, since no other likelihood belongs to that posterior.

    The scale ends a little above the highest loss of the straight way from the first corner to the second:
    beyond it the plane runs off to losses that would leave no colours for the basins.
    """
    loss = -plane.log_likelihood / examples
    roles = ("target", "source", "aligned")
    points = [
        {"name": name, "role": role, "x": x, "y": y, "nll": nll, "distance": float(np.hypot(x, y))}
        for name, role, (x, y), nll in zip(names, roles, plane.corners, losses, strict=True)
    ]
    row = int(np.argmin(np.abs(plane.v)))
    between = (plane.u >= 0) & (plane.u <= plane.corners[1, 0])
    ridge = float(loss[row, between].max()) if between.any() else float(loss.max())
    section = {"x": plane.u, "y": plane.v, "nll": loss, "points": points, "cut": 1.25 * ridge}
    if posterior:
        section["log_posterior"] = (plane.log_posterior - plane.log_posterior.max()) / examples
    return section


def alignment_section(
    target: Gaussian, source: Gaussian, alignment: Alignment, spec: PermutationSpec, *, exclude: Collection[str] = ()
) -> dict[str, Any]:
    """The search, the units it moved, and how alike matched units are before and after."""
    swaps, most = transpositions(alignment.perms), _units_shown(spec)
    similarity, correlation = {}, {}
    for group in spec.sizes:
        ends = (target, source, alignment.posterior)
        own, before, after = (unit_vectors(one.mean, spec, group, exclude) for one in ends)
        shown = largest(own, most[group])
        matrices = {"before": unit_correlation(own, before), "after": unit_correlation(own, after)}
        correlation[group] = {name: np.round(np.diag(matrix), 3) for name, matrix in matrices.items()}
        similarity[group] = {name: np.round(matrix[np.ix_(shown, shown)], 2) for name, matrix in matrices.items()}
    groups = [
        {"name": group, "size": size, "moved": alignment.moved[group], "transpositions": swaps[group]}
        for group, size in spec.sizes.items()
    ]
    section = {
        "start": alignment.start,
        "history": alignment.history,
        "groups": groups,
        "similarity": similarity,
        "correlation": correlation,
    }
    stds = std_section(target, source, alignment.posterior, exclude)
    if stds is not None:
        section["stds"] = stds
    if alignment.cost == "wasserstein":
        section["unaligned"] = wasserstein(target, source, exclude=exclude) ** 2
    return section


def std_section(
    first: Gaussian, second: Gaussian, aligned: Gaussian, exclude: Collection[str] = ()
) -> dict[str, Any] | None:
    """Histograms of the stds of both posteriors and of the middle of both paths; None for points."""
    middles = [geodesic(first, end)(0.5) for end in (second, aligned)]
    roles = ("first", "second", "naive", "aligned")
    names = ("first", "second", "middle, not aligned", "middle, aligned")
    return std_histograms(names, roles, (first, second, *middles), exclude)


def std_histograms(
    names: Sequence[str], roles: Sequence[str], posteriors: Sequence[Gaussian], exclude: Collection[str] = ()
) -> dict[str, Any] | None:
    """Shares of weights by their std, on common edges; None where every std is zero."""
    stds = [_weights(one.std, exclude) for one in posteriors]
    positive = np.concatenate([one[one > 0] for one in stds])
    if not positive.size:
        return None
    low, high = np.quantile(positive, [0.001, 0.999])
    scale = "log" if high > 20 * low else "linear"
    space = np.geomspace if scale == "log" else np.linspace
    edges = space(positive.min() * 0.999, positive.max() * 1.001, BINS + 1)
    curves = [
        {"name": name, "role": role, "shares": np.histogram(one, edges)[0] / max(one.size, 1)}
        for name, role, one in zip(names, roles, stds, strict=True)
    ]
    return {"scale": scale, "centres": (edges[1:] + edges[:-1]) / 2, "curves": curves}


def posterior_section(
    posteriors: Mapping[str, Gaussian],
    spec: PermutationSpec,
    *,
    prior_variance: float | None = None,
    exclude: Collection[str] = (),
) -> dict[str, Any]:
    """Stds and signal-to-noise of every tensor, and the pruned units of every group."""
    every = list(posteriors.values())
    layers = [
        {"name": path, **{kind: [_quantiles(one, path, kind) for one in every] for kind in ("std", "snr")}}
        for path in flatten(every[0].mean)
        if path not in exclude
    ]
    units = [
        {"name": group, "size": size, "pruned": [_pruned(one, spec, group, exclude) for one in every]}
        for group, size in spec.sizes.items()
    ]
    section: dict[str, Any] = {"names": list(posteriors), "layers": layers, "units": units}
    if prior_variance is not None:
        section["prior_std"] = float(np.sqrt(prior_variance))
    return section


def _curve(one: Barrier) -> dict[str, Any]:
    return {
        "taus": one.taus,
        "nll": one.nll,
        "nll_error": one.standard_errors,
        "accuracy": one.accuracy if one.accuracy is not None else [],
        "accuracy_error": [] if one.accuracy is None else np.sqrt(one.accuracy * (1 - one.accuracy) / one.examples),
        "ece": one.ece if one.ece is not None else [],
        "ece_error": [] if one.calibration is None else [_ece_error(bins) for bins in one.calibration],
        "brier": one.brier if one.brier is not None else [],
        "value": one.value,
        "error": one.standard_error,
        "at": one.argmax,
        "value_over_mean": one.value_over_mean,
        "samples": one.samples,
        "examples": one.examples,
    }


def _ece_error(bins: np.ndarray) -> float:
    """Standard error of ECE = Σ n_b/N |right_b − sure_b| from the number of examples, given how sure it is of each.

    The n_b examples of a bin are right independently: Var = Σ (n_b/N)² right_b (1 − right_b) / n_b.
    """
    _, right, count = bins
    return float(np.sqrt((count * right * (1 - right)).sum()) / count.sum())


def _step(one: Barrier, at: int) -> dict[str, Any]:
    confidence, accuracy, count = one.calibration[at]  # pyright: ignore[reportOptionalSubscript]
    return {
        "nll": one.nll[at],
        "accuracy": one.accuracy[at],  # pyright: ignore[reportOptionalSubscript]
        "ece": one.ece[at],  # pyright: ignore[reportOptionalSubscript]
        "confidence": float((confidence * count).sum() / count.sum()),
        "calibration": [
            {"confidence": c, "accuracy": a, "count": int(n)}
            for c, a, n in zip(confidence, accuracy, count, strict=True)
        ],
        "confusion": one.confusion[at].astype(int),  # pyright: ignore[reportOptionalSubscript]
        "probabilities": np.round(one.probabilities[at], 4) if one.probabilities is not None else [],
    }


def _images(kept: np.ndarray, data: Dataset) -> dict[str, Any]:
    """Pixels of the kept test examples as bytes, undoing the normalisation."""
    pixels = data.x_test[kept]
    if data.normalise == "standard":
        pixels = pixels * data.std + data.mean
    rows = np.clip(np.round(255 * pixels), 0, 255).astype(int).reshape(len(kept), -1)
    return {"shape": list(data.input_shape), "pixels": rows, "labels": data.y_test[kept].astype(int)}


def _units_shown(spec: PermutationSpec) -> dict[str, int]:
    """How many units of each group its matrices show, so that all of them together stay small."""
    fair = int(np.sqrt(CELLS / (2 * max(len(spec.sizes), 1))))
    return {group: min(size, UNITS, fair) for group, size in spec.sizes.items()}


def _weights(tree: Tree, exclude: Collection[str]) -> np.ndarray:
    leaves = [np.asarray(leaf, np.float64).reshape(-1) for path, leaf in flatten(tree).items() if path not in exclude]
    return np.concatenate(leaves) if leaves else np.zeros(0)


def _quantiles(posterior: Gaussian, path: str, kind: str) -> Any:
    std = np.asarray(flatten(posterior.std)[path], np.float64).reshape(-1)
    if kind == "std":
        return np.quantile(std, QUANTILES)
    mean = np.abs(np.asarray(flatten(posterior.mean)[path], np.float64).reshape(-1))
    known = std > 0
    return np.quantile(mean[known] / std[known], QUANTILES) if known.any() else [None] * len(QUANTILES)


def _pruned(posterior: Gaussian, spec: PermutationSpec, group: str, exclude: Collection[str]) -> int:
    mean, std = (unit_vectors(tree, spec, group, exclude) for tree in (posterior.mean, posterior.std))
    return int(pruned_units(mean, std).sum())
