"""Exact linear assignment on the host, made fast by potentials.

Subtracting a number from a row or a column of the cost changes no optimum, but decides how long a solver
takes. So costs are reduced before they are solved: first by column potentials, which the last solution of
the same group supplies (or, the first time, the column means, which takes out what all units share), then
by row minima, then by column minima. The solver itself is lapx's `lapjvh` where it is installed and
scipy's otherwise; both are exact, so potentials change the time and never the optimum.

References: Jonker and Volgenant 1987 (reduction); Bertsekas 1988 (potentials as prices).
"""

from functools import cache
from types import ModuleType
from typing import NamedTuple

import numpy as np

# Up to it a solver needs less time than the reduction. Measured: `benchmarks/assignment.py`.
SMALL = 64
# Potentials are worth recovering only where the reduction did not already settle most rows. Measured on
# trained MLPs of width 512: points end above 0.7 and gain nothing, posteriors start at 0.2 and gain 15 times.
SETTLED = 0.7
PASSES = 6  # of the recovery, each one look at the matrix; more cost what they save


class Assignment(NamedTuple):
    """A permutation that maximises the similarity, and column potentials to start from the next time."""

    perm: np.ndarray
    potentials: np.ndarray


def assign(
    similarity: np.ndarray, potentials: np.ndarray | None = None, work: np.ndarray | None = None
) -> Assignment:
    """Returns the permutation that maximises `Σ similarity[i, perm[i]]`, exactly.

    Args:
        similarity: a square float array; it is left as it is.
        potentials: those of an earlier, similar problem. They change the time, not the optimum.
        work: two arrays like `similarity`, stacked, to compute in.

    Example:
        >>> assign(np.array([[1.0, 5.0], [2.0, 3.0]])).perm.tolist()
        [1, 0]
    """
    if similarity.shape[0] < 2:
        return Assignment(np.arange(similarity.shape[0]), np.zeros(similarity.shape[0], similarity.dtype))
    if similarity.shape[0] <= SMALL:
        return Assignment(_solve(-similarity), np.zeros(similarity.shape[0], similarity.dtype))
    best = similarity.argmax(1)
    if np.bincount(best, minlength=best.size).max() == 1:  # no two rows want the same column
        return Assignment(best, np.zeros(best.size, similarity.dtype))
    start = -similarity.mean(0) if potentials is None else potentials
    cost, spare = np.empty((2, *similarity.shape), similarity.dtype) if work is None else work
    np.subtract(-start, similarity, out=cost)
    cost -= cost.min(1, keepdims=True)
    lowest = cost.min(0)
    cost -= lowest
    perm = _solve(cost)
    return Assignment(perm, start + lowest + _recover(cost, perm, spare))


def assign_each(similarities: np.ndarray) -> np.ndarray:
    """Returns the permutations that maximise each of many similarities, (count, n, n), as (count, n).

    Example:
        >>> assign_each(np.array([[[1.0, 5.0], [2.0, 3.0]], [[4.0, 0.0], [0.0, 4.0]]])).tolist()
        [[1, 0], [0, 1]]
    """
    best = similarities.argmax(-1)  # where no two rows want the same column nothing is left to solve
    left = np.flatnonzero((np.sort(best, -1) != np.arange(best.shape[-1])).any(-1))
    cost = similarities[left].max(-1, keepdims=True) - similarities[left]
    cost -= cost.min(1, keepdims=True)
    best[left] = _solve_each(cost)
    return best


def solver_name() -> str:
    """Which solver `assign` uses, for reports."""
    return "scipy" if _lapx() is None else "lapx lapjvh"


@cache
def _lapx() -> ModuleType | None:
    """`lap` and `lapx` install the same module and overwrite each other; only lapx has these solvers."""
    try:
        import lap
    except ImportError:
        return None
    return lap if hasattr(lap, "lapjvh_batch") else None


def _solve(cost: np.ndarray) -> np.ndarray:
    lapx = _lapx()
    if lapx is not None:
        return np.asarray(lapx.lapjvh(cost, return_cost=False)[1], np.int64)
    from scipy.optimize import linear_sum_assignment  # a third of the time that importing this module takes

    return linear_sum_assignment(cost)[1].astype(np.int64)


def _solve_each(costs: np.ndarray) -> np.ndarray:
    """The same of many at once, (count, n, n), in threads where there are many."""
    lapx = _lapx()
    if lapx is not None and len(costs):
        return np.stack(lapx.lapjvh_batch(costs, return_cost=False)[1])
    return np.array([_solve(cost) for cost in costs], np.int64).reshape(costs.shape[:2])


def _recover(cost: np.ndarray, perm: np.ndarray, work: np.ndarray) -> np.ndarray:
    """Column potentials under which `perm` is nearly row-wise best, by a few rounds of shortest paths.

    Optimal potentials satisfy `v[j] ≤ v[perm[i]] + cost[i, j] − cost[i, perm[i]]`. A few rounds of Bellman
    and Ford get close, and close is enough: they only serve the next reduction.
    """
    paid = cost[np.arange(perm.size), perm]
    potentials = np.zeros(perm.size, cost.dtype)
    if (paid == 0).mean() >= SETTLED:
        return potentials
    for _ in range(PASSES):
        before = potentials
        potentials = np.add(cost, (before[perm] - paid)[:, None], out=work).min(0)
        if (potentials == before).mean() > 0.9:
            break
    return potentials
