"""Local search by swaps, for a group that stands on several factors of one tensor.

There the objective is quadratic in the permutation and an assignment on its gradient may raise it. The
change of a swap of two units is known exactly for two factors, from the gradient `G` and the 2 × 2 corners
of the tensor that a swap moves along both factors at once:

    gain(a, b) = G[a,b] + G[b,a] − G[a,a] − G[b,b] + corner(a, b).
"""

import numpy as np

from ..symmetry import Perms
from .features import Problem
from .layout import gather


def swap_gains(problem: Problem, group: str, perms: Perms, similarity: np.ndarray) -> np.ndarray:
    """Returns how much each swap of two placed units raises the similarity; exact up to two factors."""
    placed = similarity[:, perms[group]].astype(np.float64)
    kept = np.diag(placed)
    gains = placed + placed.T - kept[:, None] - kept[None, :]
    for layout, target, source in problem.terms:
        places = layout.places(group)
        if len(places) == 2:
            for t, s in zip(target, source, strict=True):
                moved = gather(s, layout, perms)
                gains += _corners(np.moveaxis(t, places, (0, 1)), np.moveaxis(moved, places, (0, 1)))
    return gains


def disjoint(gains: np.ndarray) -> np.ndarray:
    """Returns swaps with a positive gain that share no unit, the most promising first, as rows (a, b)."""
    upper = np.triu(gains, 1)
    a, b = np.unravel_index(np.argsort(-upper, axis=None, kind="stable")[: int((upper > 0).sum())], upper.shape)
    free, chosen = np.ones(len(gains), bool), []
    for pair in zip(a.tolist(), b.tolist(), strict=True):
        if free[pair[0]] and free[pair[1]]:
            free[list(pair)] = False
            chosen.append(pair)
    return np.array(chosen, np.int64).reshape(-1, 2)


def _corners(target: np.ndarray, source: np.ndarray) -> np.ndarray:
    """What the linear gain counts wrongly where both indices of an entry are among the swapped two."""
    size = target.shape[0]
    t, s = (array.reshape(size, size, -1).astype(np.float64) for array in (target, source))
    tt, ss = t.transpose(1, 0, 2), s.transpose(1, 0, 2)
    td, sd = t[np.arange(size), np.arange(size)], s[np.arange(size), np.arange(size)]
    ta, tb, sa, sb = td[:, None], td[None, :], sd[:, None], sd[None, :]
    rows = _dot(ta - tt, ss - sa) + _dot(t - tb, sb - s)  # Σ_j over j in {a, b} of (t_aj − t_bj)(s_bj − s_aj)
    columns = _dot(ta - t, s - sa) + _dot(tt - tb, sb - ss)
    return _dot(ta - tb, sb - sa) + _dot(t - tt, ss - s) - rows - columns


def _dot(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return (first * second).sum(-1)
