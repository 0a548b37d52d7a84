"""Units of a posterior seen as vectors: all weights that a unit touches, into it and out of it."""

from collections.abc import Collection
from typing import Any

import numpy as np

from ..symmetry import PermutationSpec
from ..trees import Tree, flatten


def unit_vectors(tree: Tree, spec: PermutationSpec, group: str, exclude: Collection[str] = ()) -> np.ndarray:
    """Returns one row for each unit of the group: every weight whose axis counts that unit.

    Example:
        >>> spec = PermutationSpec.parse({"b": ["g0"], "w": ["2", "g0"]}, {"g0": 3})
        >>> unit_vectors({"b": np.array([1, 2, 3]), "w": np.array([[4, 5, 6], [7, 8, 9]])}, spec, "g0").tolist()
        [[1.0, 4.0, 7.0], [2.0, 5.0, 8.0], [3.0, 6.0, 9.0]]
    """
    flat, parts = flatten(tree), []
    for path, axis, place in spec.touched_by(group):
        if path in exclude:
            continue
        factors = [factor.size for one in spec.axes[path] for factor in one]
        before = sum(len(one) for one in spec.axes[path][:axis])
        array = np.asarray(flat[path], np.float64).reshape(factors)
        parts.append(np.moveaxis(array, before + place, 0).reshape(spec.sizes[group], -1))
    return np.concatenate(parts, axis=1) if parts else np.zeros((spec.sizes[group], 0))


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


def _standard(rows: np.ndarray) -> Any:
    centred = rows - rows.mean(1, keepdims=True) if rows.shape[1] else rows
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    return centred / np.where(length > 0, length, 1.0)
