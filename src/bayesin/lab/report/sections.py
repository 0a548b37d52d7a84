"""From results to the sections of a report: plain numbers, chosen so that a page stays small.

Each function makes one section of `report.json` (see `document`) from results alone; a report puts together those
that it has. Units are seen as vectors there: all weights that a unit touches, into it and out of it.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ...data import SOURCES, Dataset
from ...evaluation import Barrier, Plane
from ...matching import Alignment
from ...paths import as_gaussian, geodesic, wasserstein
from ...posteriors import Gaussian, LowRankGaussian
from ...symmetry import Perms, PermutationSpec, layouts, permute, transpositions
from ...trees import Tree, flatten

UNITS = 96  # rows of a similarity matrix: as many as a figure of the page has room to show
CELLS = 250_000  # of all similarity matrices together, about a megabyte
FRAMES = 10  # sweeps that are shown between the first and the last matrix
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
BINS = 40  # of the histogram of stds


def barrier_section(barriers: Mapping[str, Mapping[str, Barrier]]) -> dict[str, Any]:
    """Curves along τ from `{"test": {"naive": …, "aligned": …}, "train": …}`."""
    return {
        "sets": {name: {kind: _curve(curve) for kind, curve in kinds.items()} for name, kinds in barriers.items()}
    }


def walk_section(barriers: Mapping[str, Barrier], data: Dataset) -> dict[str, Any] | None:
    """What the slider shows at each τ, from test-set barriers; None where they are not of a classifier."""
    first = next(iter(barriers.values()))
    if first.confusion is None or first.calibration is None:
        return None
    names = class_names(data, first.confusion.shape[-1])
    section: dict[str, Any] = {"classes": names, "taus": first.taus}
    section |= {kind: [_step(curve, at) for at in range(len(curve.taus))] for kind, curve in barriers.items()}
    if first.kept is not None and _is_image(data.input_shape):
        section["images"] = _images(first.kept, data)
    return section


def class_names(data: Dataset, count: int) -> list[str]:
    """What the labels mean, where the data set is a known one with names; their numbers otherwise."""
    known = SOURCES[data.name].class_names if data.name in SOURCES else ()
    return list(known) if len(known) == count else [str(label) for label in range(count)]


def plane_section(plane: Plane, examples: int, losses: Sequence[float], names: Sequence[str]) -> dict[str, Any]:
    """Loss per example on the plane, and the three corners: target, source, aligned.

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
    return {"x": plane.u, "y": plane.v, "nll": loss, "points": points, "cut": 1.25 * ridge}


def alignment_section(
    target: Gaussian,
    source: Gaussian,
    moved: Gaussian,
    alignment: Alignment,
    spec: PermutationSpec,
    *,
    sweeps: Sequence[Perms] = (),
    exclude: Collection[str] = (),
) -> dict[str, Any]:
    """The search, the units it moved, and how alike matched units are before, after, and between its sweeps."""
    between = [permute(source.mean, spec, perms) for perms in _spread(sweeps[:-1], FRAMES)]
    swaps, most = transpositions(alignment.perms), _units_shown(spec, 2 + len(between))
    similarity, correlation = {}, {}
    for group in spec.sizes:
        own, before, after = (unit_vectors(end.mean, spec, group, exclude) for end in (target, source, moved))
        shown = largest(own, most[group])
        matrices = {"before": unit_correlation(own, before), "after": unit_correlation(own, after)}
        correlation[group] = {name: np.round(np.diag(matrix), 3) for name, matrix in matrices.items()}
        similarity[group] = {name: np.round(matrix[np.ix_(shown, shown)], 2) for name, matrix in matrices.items()}
        swept = (unit_vectors(mean, spec, group, exclude)[shown] for mean in between)
        similarity[group]["between"] = [np.round(unit_correlation(own[shown], vectors), 2) for vectors in swept]
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
    stds = std_section(target, source, moved, exclude)
    if stds is not None:
        section["stds"] = stds
    if alignment.cost == "wasserstein":
        section["unaligned"] = float(wasserstein(target, source, exclude=exclude)) ** 2
    return section


def std_section(
    first: Gaussian, second: Gaussian, aligned: Gaussian, exclude: Collection[str] = ()
) -> dict[str, Any] | None:
    """Histograms of the stds of both posteriors and of the middle of both paths; None for points."""
    middles = [marginal(geodesic(first, end)(0.5)) for end in (second, aligned)]
    roles = ("first", "second", "naive", "aligned")
    names = ("first", "second", "middle, not aligned", "middle, aligned")
    return std_histograms(names, roles, (first, second, *middles), exclude)


def std_histograms(
    names: Sequence[str], roles: Sequence[str], posteriors: Sequence[Gaussian], exclude: Collection[str] = ()
) -> dict[str, Any] | None:
    """Shares of weights by their std, on common edges; None where every std is zero."""
    stds = [_weights(posterior.std, exclude) for posterior in posteriors]
    positive = np.concatenate([values[values > 0] for values in stds])
    if not positive.size:
        return None
    low, high = np.quantile(positive, [0.001, 0.999])
    scale = "log" if high > 20 * low else "linear"
    space = np.geomspace if scale == "log" else np.linspace
    edges = space(positive.min() * 0.999, positive.max() * 1.001, BINS + 1)
    curves = [
        {"name": name, "role": role, "shares": np.histogram(values, edges)[0] / max(values.size, 1)}
        for name, role, values in zip(names, roles, stds, strict=True)
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
        {
            "name": path,
            **{kind: [_quantiles(posterior, path, kind) for posterior in every] for kind in ("std", "snr")},
        }
        for path in flatten(every[0].mean)
        if path not in exclude
    ]
    units = [
        {"name": group, "size": size, "pruned": [_pruned(posterior, spec, group, exclude) for posterior in every]}
        for group, size in spec.sizes.items()
    ]
    section: dict[str, Any] = {"names": list(posteriors), "layers": layers, "units": units}
    if prior_variance is not None:
        section["prior_std"] = float(np.sqrt(prior_variance))
    return section


def marginal(posterior: Any) -> Gaussian:
    """What a page shows of a posterior: the independent Gaussian of every weight; of a point, one without spread."""
    return posterior.marginal if isinstance(posterior, LowRankGaussian) else as_gaussian(posterior)


def unit_vectors(tree: Tree, spec: PermutationSpec, group: str, exclude: Collection[str] = ()) -> np.ndarray:
    """Returns one row for each unit of the group: every weight whose axis counts that unit.

    Example:
        >>> spec = PermutationSpec.parse({"b": ["g0"], "w": ["2", "g0"]}, {"g0": 3})
        >>> unit_vectors({"b": np.array([1, 2, 3]), "w": np.array([[4, 5, 6], [7, 8, 9]])}, spec, "g0").tolist()
        [[1.0, 4.0, 7.0], [2.0, 5.0, 8.0], [3.0, 6.0, 9.0]]
    """
    flat, blocks = flatten(tree), []
    for piece in (piece for pieces in layouts(spec).values() for piece in pieces if piece.path not in exclude):
        for place in piece.places(group):
            array = piece.factored(np.asarray(flat[piece.path], np.float64))
            blocks.append(np.moveaxis(array, place, 0).reshape(spec.sizes[group], -1))
    return np.concatenate(blocks, axis=1) if blocks else np.zeros((spec.sizes[group], 0))


def unit_correlation(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Returns the matrix of correlations between the rows of two matrices; zero where a row is constant.

    Example:
        >>> own, others = np.array([[1.0, 2.0, 3.0]]), np.array([[2.0, 4.0, 6.0], [3.0, 2.0, 1.0]])
        >>> unit_correlation(own, others).round(6).tolist()
        [[1.0, -1.0]]
    """
    return _standard(first) @ _standard(second).T


def pruned_units(mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """Returns which units are pruned: no weight that they touch has a mean larger than its std.

    Such a unit carries noise alone: the posterior does not even know the sign of one of its weights.

    Example:
        >>> pruned_units(np.array([[0.1, -0.2], [0.1, 3.0]]), np.ones((2, 2))).tolist()
        [True, False]
    """
    return np.all(np.abs(mean) < std, axis=1)


def largest(vectors: np.ndarray, most: int) -> np.ndarray:
    """Returns the indices of the `most` longest rows, longest first."""
    return np.argsort(-np.linalg.norm(vectors, axis=1), kind="stable")[:most]


def _curve(curve: Barrier) -> dict[str, Any]:
    shares, examples = curve.accuracy, curve.examples
    return {
        "taus": curve.taus,
        "nll": curve.nll,
        "nll_error": curve.standard_errors,
        "accuracy": [] if shares is None else shares,
        "accuracy_error": [] if shares is None else np.sqrt(shares * (1 - shares) / examples),
        "ece": curve.ece if curve.ece is not None else [],
        "ece_error": [] if curve.calibration is None else [_ece_error(bins) for bins in curve.calibration],
        "brier": curve.brier if curve.brier is not None else [],
        "value": curve.value,
        "error": curve.standard_error,
        "at": curve.argmax,
        "value_over_mean": curve.value_over_mean,
        "samples": curve.samples,
        "examples": examples,
    }


def _ece_error(bins: np.ndarray) -> float:
    """Standard error of ECE = Σ n_b/N |right_b − sure_b| from the number of examples, given how sure it is of each.

    The n_b examples of a bin are right independently: Var = Σ (n_b/N)² right_b (1 − right_b) / n_b.
    """
    _, right, count = bins
    return float(np.sqrt((count * right * (1 - right)).sum()) / count.sum())


def _step(curve: Barrier, at: int) -> dict[str, Any]:
    confidence, accuracy, count = curve.calibration[at]  # pyright: ignore[reportOptionalSubscript]
    return {
        "nll": curve.nll[at],
        "accuracy": curve.accuracy[at],  # pyright: ignore[reportOptionalSubscript]
        "ece": curve.ece[at],  # pyright: ignore[reportOptionalSubscript]
        "confidence": float((confidence * count).sum() / count.sum()),
        "calibration": [
            {"confidence": c, "accuracy": a, "count": int(n)}
            for c, a, n in zip(confidence, accuracy, count, strict=True)
        ],
        "confusion": curve.confusion[at].astype(int),  # pyright: ignore[reportOptionalSubscript]
        "probabilities": np.round(curve.probabilities[at], 4) if curve.probabilities is not None else [],
    }


def _is_image(shape: Any) -> bool:
    return isinstance(shape, tuple) and len(shape) == 3 and shape[-1] in (1, 3)


def _images(kept: np.ndarray, data: Dataset) -> dict[str, Any]:
    """Pixels of the kept test examples as bytes, undoing the normalisation."""
    pixels = data.x_test[kept]
    if data.normalise == "standard":
        pixels = pixels * data.std + data.mean
    rows = np.clip(np.round(255 * pixels), 0, 255).astype(int).reshape(len(kept), -1)
    return {"shape": list(data.input_shape), "pixels": rows, "labels": data.y_test[kept].astype(int)}


def _units_shown(spec: PermutationSpec, matrices: int = 2) -> dict[str, int]:
    """How many units of each group its matrices show, so that all of them together stay small."""
    fair = int(np.sqrt(CELLS / (matrices * max(len(spec.sizes), 1))))
    return {group: min(size, UNITS, fair) for group, size in spec.sizes.items()}


def _spread(steps: Sequence[Any], most: int) -> list[Any]:
    """At most so many of the steps, from the first to the last at equal distances.

    Example:
        >>> _spread("abcdefg", 3)
        ['a', 'd', 'g']
    """
    if len(steps) <= most:
        return list(steps)
    return [steps[round(at)] for at in np.linspace(0, len(steps) - 1, most)]


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


def _standard(rows: np.ndarray) -> Any:
    centred = rows - rows.mean(1, keepdims=True) if rows.shape[1] else rows
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    return centred / np.where(length > 0, length, 1.0)
