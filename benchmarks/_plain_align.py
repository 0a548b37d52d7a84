"""The plain loop: coordinate descent in numpy and scipy, as one would first write it.

Every visit builds its similarity from scratch and calls scipy. It shares no code with the library and is
the baseline of the speed claims and the oracle of the permutations.
"""

import numpy as np
from scipy.optimize import linear_sum_assignment


def plain_align(target: list[dict], source: list[dict], spec, order, relative_tolerance: float = 1e-7):
    """Returns (perms, W₂² after every accepted step). `target` and `source` list trees: means, then stds."""
    perms = {group: np.arange(size) for group, size in spec.sizes.items()}
    where = {group: spec.touched_by(group) for group in perms}
    axes = spec.axes
    value = sum(
        float(((t[p].astype(float) - s[p]) ** 2).sum()) for t, s in zip(target, source, strict=True) for p in t
    )
    history = [value]
    for sweep in order:
        progress = False
        for group in sweep:
            n = perms[group].size
            similarity = np.zeros((n, n), target[0][where[group][0][0]].dtype)
            for path, axis, _ in where[group]:
                for t, s in zip(target, source, strict=True):
                    a = np.moveaxis(t[path], axis, 0).reshape(n, -1)
                    b = s[path]
                    for other, group_there in enumerate(map(_group, axes[path])):
                        if other != axis and group_there:
                            b = np.take(b, perms[group_there], axis=other)
                    similarity += a @ np.moveaxis(b, axis, 0).reshape(n, -1).T
            _, best = linear_sum_assignment(similarity, maximize=True)
            rows = np.arange(n)
            gain = 2.0 * float((similarity[rows, best].astype(float) - similarity[rows, perms[group]]).sum())
            if gain > relative_tolerance * history[-1]:
                perms[group], progress = best, True
                history.append(history[-1] - gain)
        if not progress:
            break
    return perms, history


def plain_move(source: list[dict], spec, perms) -> list[dict]:
    """Returns the trees with their units in the order found, which is what the search is for."""
    return [{path: _moved(leaf, spec.axes[path], perms) for path, leaf in tree.items()} for tree in source]


def _moved(leaf, axes, perms):
    for axis, group in enumerate(map(_group, axes)):
        if group:
            leaf = np.take(leaf, perms[group], axis=axis)
    return leaf


def _group(axis) -> str | None:
    """The group of an axis that is one factor, which is all that this loop knows."""
    return axis[0][0].group if axis[0] else None
