"""Tensors sorted by how many groups they touch, and laid out for products and gathers.

A group of tensors becomes one array (rest, units, …): all tensors, their means and then their stds, one behind
the other, each contiguous. One product then serves all of them, and a gather of units copies whole rows.
"""

import math
from typing import NamedTuple

import numpy as np

from .features import Problem, Term


class Kinds(NamedTuple):
    """The tensors of one group."""

    fixed: list[Term]
    coupled: dict[str, list[Term]]  # by the other group
    general: list[Term]


def sort(problem: Problem) -> dict[str, Kinds]:
    """Returns the tensors of each group by kind."""
    kinds = {group: Kinds([], {}, []) for group in problem.spec.sizes}
    for term in problem.terms:
        present = term.layout.present
        for group in set(present):
            if len(present) == 1:
                kinds[group].fixed.append(term)
            elif len(present) == 2 and present[0] != present[1]:
                kinds[group].coupled.setdefault(present[1 - present.index(group)], []).append(term)
            else:
                kinds[group].general.append(term)
    return kinds


def multiplications(problem: Problem, kinds: dict[str, Kinds]) -> float:
    """Returns the work of one sweep in which every product between two groups is computed anew."""
    return sum(
        problem.spec.sizes[group]
        * sum(array.size for terms in kind.coupled.values() for t in terms for array in t.target)
        for group, kind in kinds.items()
    )


def stack(side: str, terms: list[Term], groups: tuple[str, ...], dtype: np.dtype) -> np.ndarray:
    """Returns all tensors as one centred array, means and stds one behind the other on the axis of the rest.

    Its axes are (rest, units) for one group and (units of the first, rest, units of the last) for two.
    """
    pieces = [(array, term.layout) for term in terms for array in getattr(term, side)]
    units = [terms[0].layout.shape[terms[0].layout.groups.index(group)] for group in groups]
    rest = sum(array.size for array, _ in pieces) // math.prod(units)
    out = np.empty((*units[:-1], rest, units[-1]), dtype)
    into = out.swapaxes(0, -2)  # the axis of the rest first
    at = 0
    for array, layout in pieces:
        places = [layout.groups.index(group) for group in groups]
        others = [axis for axis in range(array.ndim) if axis not in places]
        rows = array.transpose([*others, *places]).reshape(-1, *units)
        common = np.add.reduce(rows, tuple(range(1, rows.ndim)), keepdims=True) * rows.dtype.type(1 / rows[0].size)
        np.subtract(rows, common, out=into[at : at + len(rows)])
        at += len(rows)
    return out


def rest_first(array: np.ndarray) -> np.ndarray:
    """Returns an array (first, rest, last) as (rest, last, first).

    A large one goes in strips one cache line wide, which is three times as fast as numpy's own order.
    """
    out = np.empty((*array.shape[1:], array.shape[0]), array.dtype)
    strip = 16 if array.shape[2] >= 128 else array.shape[0]
    for at in range(0, array.shape[0], strip):
        out[:, :, at : at + strip] = array[at : at + strip].transpose(1, 2, 0)
    return out


def norm(array: np.ndarray) -> float:
    """Returns the Euclidean norm of all entries."""
    return float(np.vdot(array, array)) ** 0.5
