"""How alike the units of one group are, with all other groups held where they are.

Entry (i, j) of a group's similarity is the inner product of target unit i with source unit j over every
tensor that the group touches, the source moved along all other factors. Three kinds of tensors differ in
how much work they leave:

    fixed     the group is the only one: computed once
    coupled   two different groups: after the other one moved a few units, only their share is exchanged
    general   more groups, or one group on several factors: computed at every visit. For a group on several
              factors the sum over them is the gradient of the objective, not the objective

Every tensor is centred over the units of its groups first. That adds constants to rows and columns, which
no permutation sees, and leaves to float32 the digits that matter.
"""

from dataclasses import dataclass

import numpy as np

from ..symmetry import Perms
from .features import Problem, Term
from .layout import Layout, front, gather


@dataclass(frozen=True)
class Coupled:
    """A tensor between two groups as (rest, units of the other group, units of the group)."""

    other: str
    target: np.ndarray
    source: np.ndarray


class Similarities:
    """The similarities of all groups of a problem, kept up to date as permutations change.

    This is the one mutable object of a search: `of` remembers for which permutations it was last asked.
    """

    def __init__(self, problem: Problem):
        self.problem = problem
        self.fixed = {group: _fixed(problem, group) for group in problem.spec.sizes}
        self.coupled = {group: _coupled(problem, group) for group in problem.spec.sizes}
        self.general = {group: _general(problem, group) for group in problem.spec.sizes}
        self._kept: dict[str, np.ndarray] = {}
        self._seen: dict[str, list[np.ndarray]] = {}

    def forget(self) -> None:
        """Starts over, for another search on the same problem."""
        self._kept.clear()
        self._seen.clear()

    def of(self, group: str, perms: Perms) -> np.ndarray:
        """Returns the (units × units) similarity; the caller must not write to it."""
        if group not in self._kept:
            self._kept[group] = self.fixed[group].copy()
            for term in self.coupled[group]:
                self._kept[group] += _product(term.target, term.source.take(perms[term.other], 1))
        else:
            for term, old in zip(self.coupled[group], self._seen[group], strict=True):
                _exchange(self._kept[group], term, old, perms[term.other])
        self._seen[group] = [perms[term.other] for term in self.coupled[group]]
        if not self.general[group]:
            return self._kept[group]
        return self._kept[group] + sum(_gradient(term, group, perms) for term in self.general[group])

    def settled(self, group: str, perms: Perms, settled: set[str]) -> np.ndarray:
        """Returns the similarity from those tensors alone whose other groups are all settled."""
        total = self.fixed[group].copy()
        for term in self.coupled[group]:
            if term.other in settled:
                total += _product(term.target, term.source.take(perms[term.other], 1))
        for term in self.general[group]:
            if _speaks(term.layout, group, settled):
                total = total + _gradient(term, group, perms)
        return total

    def evidence(self, group: str, settled: set[str]) -> float:
        """How many numbers of each unit `settled` would compare."""
        speaking = (term for term in self.problem.terms if _speaks(term.layout, group, settled))
        return sum(array.size for term in speaking for array in term.target) / self.problem.spec.sizes[group]


def is_linear(problem: Problem, group: str) -> bool:
    """Whether the objective is linear in the group's permutation: at most one factor a tensor."""
    return all(len(term.layout.places(group)) <= 1 for term in problem.terms)


def _fixed(problem: Problem, group: str) -> np.ndarray:
    size = problem.spec.sizes[group]
    pairs = [
        (_units_last(t, place), _units_last(s, place))
        for term, place in _fixed_terms(problem, group)
        for t, s in zip(term.target, term.source, strict=True)
    ]
    if not pairs:
        return np.zeros((size, size), problem.dtype)
    target, source = (np.concatenate(arrays, dtype=problem.dtype) for arrays in zip(*pairs, strict=True))
    target -= target.mean(1, keepdims=True)
    source -= source.mean(1, keepdims=True)
    return target.T @ source


def _fixed_terms(problem: Problem, group: str) -> list[tuple[Term, int]]:
    return [(term, term.layout.groups.index(group)) for term in problem.terms if _present(term.layout) == [group]]


def _speaks(layout: Layout, group: str, settled: set[str]) -> bool:
    return len(layout.places(group)) == 1 and set(_present(layout)) - {group} <= settled


def _coupled(problem: Problem, group: str) -> list[Coupled]:
    result = []
    for term in problem.terms:
        present = _present(term.layout)
        if group in present and _is_coupled(present):
            other = present[1 - present.index(group)]
            places = term.layout.groups.index(other), term.layout.groups.index(group)
            arrays = (_between(arrays, places, problem.dtype) for arrays in (term.target, term.source))
            result.append(Coupled(other, *arrays))
    return result


def _general(problem: Problem, group: str) -> list[Term]:
    def is_general(present: list[str]) -> bool:
        return group in present and len(present) > 1 and not _is_coupled(present)

    return [term for term in problem.terms if is_general(_present(term.layout))]


def _present(layout: Layout) -> list[str]:
    return [group for group in layout.groups if group is not None]


def _is_coupled(present: list[str]) -> bool:
    return len(present) == 2 and present[0] != present[1]


def _units_last(array: np.ndarray, place: int) -> np.ndarray:
    return np.moveaxis(array, place, -1).reshape(-1, array.shape[place])


def _between(arrays: tuple[np.ndarray, ...], places: tuple[int, int], dtype: np.dtype) -> np.ndarray:
    """Means, then stds, one behind the other: each contiguous, and both in one product."""
    shape = (-1, *(arrays[0].shape[place] for place in places))
    stacked = np.concatenate([np.moveaxis(a, places, (-2, -1)).reshape(shape) for a in arrays], dtype=dtype)
    stacked -= stacked.mean((1, 2), keepdims=True)
    return stacked


def _product(target: np.ndarray, source: np.ndarray) -> np.ndarray:
    size = target.shape[-1]
    return target.reshape(-1, size).T @ source.reshape(-1, size)


def _exchange(total: np.ndarray, term: Coupled, old: np.ndarray, new: np.ndarray) -> None:
    """Replaces, in place, the share of those units of the other group that have moved."""
    changed = np.flatnonzero(old != new)
    if changed.size:
        target = term.target if changed.size == new.size else term.target.take(changed, 1)
        source = term.source.take(new[changed], 1)
        source -= term.source.take(old[changed], 1)
        total += _product(target, source)


def _gradient(term: Term, group: str, perms: Perms) -> np.ndarray:
    return sum(
        (
            front(t, place) @ front(gather(s, term.layout, perms, skip=place), place).T
            for place in term.layout.places(group)
            for t, s in zip(term.target, term.source, strict=True)
        ),
        np.zeros(()),
    )
