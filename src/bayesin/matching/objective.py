"""The cost of a permutation, computed directly from its definition.

The search itself only needs differences, which the similarity gives. This is where it starts from, where it
ends, and the judge of every step too small to be read off a float32 similarity.
"""

from typing import Any

import jax
import numpy as np

from ..posteriors import Gaussian
from ..symmetry import Perms
from .features import Problem, factored
from .layout import gather, leaves_by_path, still

CHUNK = 1 << 14  # numbers that stay in the cache between subtraction and sum


def objective(problem: Problem, perms: Perms) -> float:
    """Returns W₂², the squared distance of means or the KL divergence after the source has moved."""
    skip = still(perms)
    return sum(
        _cost(problem.cost, target, [gather(array, layout, perms, skip) for array in source])
        for layout, target, source in problem.raw
    )


def gain_of_units(problem: Problem, group: str, perms: Perms, perm: np.ndarray) -> float:
    """Returns by how much the objective falls when a group takes another permutation, from the moved units alone.

    Only for groups that stand on at most one factor of each tensor: there each number belongs to one unit.
    """
    moved = np.flatnonzero(perm != perms[group])
    skip = still(perms) | {group}
    total = 0.0
    for layout, target, source in problem.raw:
        for place in layout.places(group):
            part = tuple(array.take(moved, place) for array in target)
            old, new = (
                [gather(array.take(units[moved], place), layout, perms, skip) for array in source]
                for units in (perms[group], perm)
            )
            total += _cost(problem.cost, part, old) - _cost(problem.cost, part, new)
    return total


def objective_reached(problem: Problem, perms: Perms, moved: Any) -> float:
    """Returns the same from the posterior that `move` made, whose gathers need not be made again."""
    trees = (moved.mean, moved.std) if isinstance(moved, Gaussian) else (moved,)
    if not problem.raw or len(problem.raw[0].source) > len(trees):  # a point against a Gaussian
        return objective(problem, perms)
    paths = leaves_by_path(trees[0], problem.spec)
    flats = [dict(zip(paths, jax.tree.leaves(tree), strict=True)) for tree in trees]
    return sum(
        _cost(problem.cost, target, [factored(np.asarray(flat[layout.path]), layout) for flat in flats])
        for layout, target, _ in problem.raw
    )


def _cost(cost: str, target: tuple[np.ndarray, ...], source: list[np.ndarray]) -> float:
    if cost == "kl":
        return _kl(*target, *source)
    return sum(map(_squared_distance, target, source))  # of as many parts as the target has: means, stds


def _squared_distance(first: np.ndarray, second: np.ndarray) -> float:
    """Σ (a − b)², piece by piece: each summed by BLAS in its own precision, all of them in float64."""
    first, second = first.reshape(-1), second.reshape(-1)
    total = 0.0
    for start in range(0, first.size, CHUNK):
        gap = first[start : start + CHUNK] - second[start : start + CHUNK]
        total += float(gap @ gap)
    return total


def _kl(*arrays: np.ndarray) -> float:
    """KL[q₁ ‖ q₀] = ½ Σ [ (s₁² + (m₀ − m₁)²)/s₀² − 1 − log(s₁²/s₀²) ]."""
    mean0, std0, mean1, std1 = (array.astype(np.float64) for array in arrays)
    ratio = (std1 / std0) ** 2
    return 0.5 * float(np.sum(ratio + ((mean0 - mean1) / std0) ** 2 - 1.0 - np.log(ratio)))
