"""By how much another permutation could lower the objective at most, for a few looks at the weights.

The objective is a constant less twice the inner products of target and moved source. Those are bounded from above,
tensor by tensor and family by family:

    one unit in a tensor      the inner products of its places are known, and no permutation picks better than the
                              best for every place
    several units             along each of them in turn, the others are taken as free to permute everything else. Of
                              place i of the target and j of the source then only what no permutation changes counts,
                              mean m and deviation d over the other units: ⟨a_i, P b_j⟩ ≤ n m_i m_j + |d_i| |d_j|;
                              where these may change its sign, |a_i| |b_j|.
                              Each of the k units answers for one k-th of the tensor

Any prices v of the source's places bound the best assignment of a matrix M by Σ_i max_j (M[i, j] − v[j]) + Σ_j v[j];
column means are prices enough. Weights that have little in common leave a wide gap: that the bound is far
away says nothing, that it is near says that little is left to find.
"""

import math
from collections.abc import Mapping

import numpy as np

from ..symmetry import gather
from .costs import inner_product, widened
from .families import FlatPerms, Structure
from .nested import by_pairs
from .problem import Problem, TensorPair, unmoved
from .similarity import Similarities
from .twins import better

ROUNDING = 1e-6  # of a sum of squares in float32: deviations are never taken for smaller than they are


class LargestGain:
    """By how much the objective can fall from where a search has ended; computed when it is first asked for.

    Until then it holds on to target and source, which the search did not copy.
    """

    def __init__(self, problem: Problem, flat: FlatPerms):
        self._waiting: tuple[Problem, FlatPerms] | None = (problem, flat)
        self._value = 0.0

    def __call__(self) -> float:
        if self._waiting is not None:
            self._value, self._waiting = largest_gain(*self._waiting), None
        return self._value


def largest_gain(problem: Problem, flat: FlatPerms) -> float:
    """Returns by how much the objective can fall from these permutations; no others gain more."""
    similarities = Similarities(problem, on_device=False, laid_out=False)
    present, best = _of_several_units(similarities, flat), 0.0
    for family in problem.structure.families:
        matrices = {}
        for unit in similarities.units_of(family):
            alone = similarities.alone(unit)
            present += float(alone[np.arange(len(alone)), flat[unit]].sum(dtype=np.float64))
            matrices[unit] = better(sum((_invariant(pair, unit) for pair in similarities.beside(unit)), alone))
        best += _best_of_family(problem.structure, family, matrices)
    return 2.0 * max(best - present, 0.0)


def _of_several_units(similarities: Similarities, flat: FlatPerms) -> float:
    """The inner products, as they are at present, of all tensors with more than one unit."""
    skip, total = unmoved(similarities.problem, flat), 0.0
    for pair in similarities.problem.features:
        if len(pair.layout.present) > 1:
            moved = (gather(np.asarray(array), pair.layout, flat, skip) for array in pair.source)
            total += sum(map(inner_product, pair.target, moved))
    return total


def _invariant(pair: TensorPair, unit: str) -> np.ndarray:
    """The share of one tensor that its places answer for, whatever the other units do."""
    layout, total = pair.layout, np.zeros((), np.float32)
    for place in layout.places(unit):
        others = tuple(axis for axis, name in enumerate(layout.groups) if name is not None and axis != place)
        for number, (target, source) in enumerate(zip(pair.target, pair.source, strict=True)):
            turned = pair.is_odd(number) and any(layout.flips[axis] for axis in others)
            own = _with_twins_of(source, pair, place)
            ours, theirs = (_moments(array, place, others, turned) for array in (target, own))
            total = total + ours @ theirs.T
    return total / np.float32(len(layout.present))


def _with_twins_of(source: np.ndarray, pair: TensorPair, place: int) -> np.ndarray:
    """The source with the twins of the units of one axis only."""
    return source[tuple(slice(None if axis == place else size) for axis, size in enumerate(pair.layout.shape))]


def _moments(array: np.ndarray, place: int, others: tuple[int, ...], turned: bool) -> np.ndarray:
    """(places, 2 × rest): mean and deviation over the other units, scaled so that products are those of the bound.

    Where other units turn the sign of entries their mean is not known, and all is deviation.
    """
    array = widened(array)
    count = math.prod(array.shape[axis] for axis in others)
    means = array.mean(others, keepdims=True) * (0.0 if turned else 1.0)
    axes, left = list(range(array.ndim)), [axis for axis in range(array.ndim) if axis not in others]
    squares = np.einsum(array, axes, array, axes, left).reshape(means.shape)  # without a copy of the squares
    deviations = np.maximum(squares - count * means**2, 0.0) + ROUNDING * squares
    rows = [
        np.moveaxis(part, place, 0).reshape(array.shape[place], -1) for part in (means * count**0.5, deviations**0.5)
    ]
    return np.concatenate(rows, 1)


def _best_of_family(structure: Structure, family: str, matrices: Mapping[str, np.ndarray]) -> float:
    """No permutations of a family are worth more, as in `nested.py` with prices in place of assignments."""
    members, total = structure.families[family], 0.0
    for unit, matrix in matrices.items():
        if unit not in members:  # members side by side: taken as free of those that index them
            total += float(_priced(matrix))
    worth: dict[str, np.ndarray] = {}
    for name in reversed(members):
        unit = structure.units[name]
        inner = [by_pairs(worth[child], unit) for child in worth if structure.members[child].outer[-1] == name]
        own = [by_pairs(matrices[name], unit)] if name in matrices else []
        if own or inner:
            worth[name] = _priced(np.sum(own + inner, axis=0) if len(own + inner) > 1 else (own + inner)[0])
    return total + (float(worth[family][0, 0]) if family in worth else 0.0)


def _priced(matrices: np.ndarray) -> np.ndarray:
    """A bound on the best assignment of each of many matrices, with column means as prices."""
    prices = matrices.mean(-2, keepdims=True)
    return (matrices - prices).max(-1).sum(-1, dtype=np.float64) + prices.sum((-2, -1), dtype=np.float64)
