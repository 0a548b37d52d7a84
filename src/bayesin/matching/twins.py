"""Units that may change their sign, as a choice between each unit and its flipped twin.

The source gets, behind the units of an axis, their twins: the same numbers, negated where the sign of the unit turns
them. A flat permutation then picks for every place of the target a unit (below n) or a twin (n and above), and all
that moves, multiplies or compares tensors needs to know nothing of signs. A similarity is (places × 2n); a unit is
taken with the better of its two signs, so that one assignment on the larger of both halves is the exact optimum of
all signed permutations of a group.

What a sign does to a feature is found by trial: the features are computed again with the sign of the source changed.
Means change theirs, stds do not.
"""

import numpy as np

from ..errors import ConfigError
from ..symmetry import Layout
from ..trees import Flat
from .costs import Cost, GroupSimilarity, Marginals, Means, Pair, Wasserstein, feature_pairs, name_of
from .families import FlatPerms, Piece

SAME = 1e-3  # of the largest entry: how far features that were computed twice may be apart
HINT = "align with spec.without_signs"


def with_twins(array: np.ndarray, layout: Layout, signed: frozenset[str], is_odd: bool) -> np.ndarray:
    """Returns an array of the source with the twins of its units behind them, along every axis that has some.

    Example:
        >>> piece = Layout("w", (2,), (), (2,), ("a",), ((),), (True,))
        >>> with_twins(np.array([1.0, 2.0]), piece, frozenset("a"), True).tolist()
        [1.0, 2.0, -1.0, -2.0]
    """
    for place, unit in enumerate(layout.groups):
        if unit in signed:
            array = np.concatenate([array, -array if is_odd and layout.flips[place] else array], place)
    return array


def without_twins(array: np.ndarray, layout: Layout) -> np.ndarray:
    """Returns the array that was given to `with_twins`."""
    return array[tuple(map(slice, layout.shape))]


def better(matrix: np.ndarray) -> np.ndarray:
    """Returns what the units are worth with the better of their signs; without twins the matrix itself."""
    size = len(matrix)
    return matrix if matrix.shape[1] == size else np.maximum(matrix[:, :size], matrix[:, size:])


def choose(matrix: np.ndarray, perm: np.ndarray) -> np.ndarray:
    """Returns a permutation with the twins in it that are worth more than the unit itself."""
    size = len(matrix)
    if matrix.shape[1] == size:
        return perm
    rows = np.arange(size)
    # At equal worth the unit itself: nothing flips without a reason.
    return perm + np.where(matrix[rows, perm + size] > matrix[rows, perm], size, 0)


def twin_of(flat: np.ndarray, size: int) -> np.ndarray:
    """Returns the twin of a unit, and the unit of a twin."""
    return np.where(flat < size, flat + size, flat - size)


def carry(flat: np.ndarray, perm: np.ndarray) -> np.ndarray:
    """Returns another permutation in which every unit of the source keeps the sign that it has at present."""
    size, signs = len(flat), np.empty(len(flat), flat.dtype)
    # By the unit of the source, since the sign belongs to it and not to the place that it leaves.
    signs[flat % size] = flat // size
    return perm + size * signs[perm]


def halves_of(part: GroupSimilarity, group: str, cost: Cost) -> tuple[np.ndarray, np.ndarray]:
    """Returns a similarity that was given outright, of units and of their twins.

    Raises:
        ConfigError: it does not say what a sign does to it.
    """
    if part.flipped is None:
        raise ConfigError(f"cost '{name_of(cost)}' says nothing of the signs of group '{group}'; {HINT}")
    return part.matrix, part.flipped


def odd_features(
    cost: Cost, target: Marginals, source: Marginals, pairs: list[Pair], layout: Layout
) -> tuple[bool, ...]:
    """Returns, for each feature of a tensor, whether it changes its sign with the source.

    Raises:
        ConfigError: it does something else.
    """
    if not any(layout.flips):
        return (False,) * len(pairs)
    # Of these two it is known without a trial: the mean comes first and turns, the std does not.
    if isinstance(cost, Wasserstein | Means):
        return tuple(number == 0 for number in range(len(pairs)))
    turned = feature_pairs(cost, target, source._replace(mean=-source.mean), layout.path)
    return tuple(
        _is_odd(theirs, other, -np.ones(()), cost, layout.path)
        for (_, theirs), (_, other) in zip(pairs, turned, strict=True)
    )


def is_odd_tree(piece: Piece, before: Flat, after: Flat, flat: FlatPerms, cost: Cost) -> bool:
    """Returns the same for a feature made of a whole network, computed before and after its units flipped by `flat`.

    Raises:
        ConfigError: it does something else.
    """
    layout = piece.layout
    if not any(layout.flips):
        return False
    own, other = piece.of(before[layout.path]), piece.of(after[layout.path])
    return _is_odd(own, other, _pattern(layout, flat), cost, layout.path)


def _pattern(layout: Layout, flat: FlatPerms) -> np.ndarray:
    """By what signs multiply the entries of a tensor."""
    pattern = np.ones((1,) * len(layout.shape))
    for place, (unit, flips) in enumerate(zip(layout.groups, layout.flips, strict=True)):
        if unit is not None and flips:
            shape = [-1 if axis == place else 1 for axis in range(len(layout.shape))]
            pattern = pattern * np.where(flat[unit] < len(flat[unit]), 1.0, -1.0).reshape(shape)
    return pattern


def _is_odd(before: np.ndarray, after: np.ndarray, pattern: np.ndarray, cost: Cost, path: str) -> bool:
    # A feature that is zero everywhere passes both tests, and either answer does.
    near = SAME * np.abs(before).max(initial=0.0)
    if np.abs(before * pattern - after).max(initial=0.0) <= near:
        return True
    if np.abs(before - after).max(initial=0.0) <= near:
        return False
    raise ConfigError(f"cost '{name_of(cost)}' does not say what a sign does to '{path}'; {HINT}")
