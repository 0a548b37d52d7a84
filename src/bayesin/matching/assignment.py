"""Exact linear assignment on the host: lapx's `lapjvh` where it is installed, scipy otherwise."""

from collections.abc import Callable

import numpy as np
from scipy.optimize import linear_sum_assignment


def assign(similarity: np.ndarray) -> np.ndarray:
    """Returns the permutation that maximises `Σ similarity[i, perm[i]]`, exactly.

    Example:
        >>> assign(np.array([[1.0, 5.0], [2.0, 3.0]])).tolist()
        [1, 0]
    """
    return _solve(similarity.max() - similarity) if similarity.size else np.zeros(0, np.int64)


def solver_name() -> str:
    """Which solver `assign` uses, for reports."""
    return "scipy" if _lapjvh() is None else "lapx lapjvh"


def _lapjvh() -> Callable | None:
    """`lap` and `lapx` install the same module and overwrite each other; only lapx has this function."""
    try:
        import lap
    except ImportError:
        return None
    return getattr(lap, "lapjvh", None)


def _solve(cost: np.ndarray) -> np.ndarray:
    solver = _lapjvh()
    if solver is not None:
        return np.asarray(solver(cost, return_cost=False)[1], np.int64)
    return linear_sum_assignment(cost)[1].astype(np.int64)
