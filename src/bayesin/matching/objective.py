"""The cost of a permutation, computed directly from its definition.

The search itself only needs differences, which the similarity gives. This is where it starts from, where it
ends, and the judge of every step too small to be read off a float32 similarity.
"""

import numpy as np

from ..symmetry import Perms
from .features import Problem
from .layout import gather, still

CHUNK = 1 << 14  # numbers that stay in the cache between subtraction and sum


def objective(problem: Problem, perms: Perms) -> float:
    """Returns W₂², the squared distance of means or the KL divergence after the source has moved."""
    skip = still(perms)
    total = 0.0
    for layout, target, source in problem.raw:
        moved = [gather(array, layout, perms, skip) for array in source]
        if problem.cost == "kl":
            total += _kl(*target, *moved)
        else:
            total += sum(_squared_distance(t, s) for t, s in zip(target, moved, strict=True))
    return total


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
