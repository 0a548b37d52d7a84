"""How alike the units of one group are, with all other groups held where they are.

Entry (i, j) of a group's similarity is the inner product of target unit i with source unit j over every
tensor that the group touches, the source moved along all other factors. Three kinds of tensors differ in
how much work they leave:

    fixed     the group is the only one: computed once
    coupled   two different groups: after the other one moved a few units, only their share is exchanged
    general   more groups, or one group on several factors: computed at every visit. For a group on several
              factors the sum over them is the gradient of the objective, not the objective

A similarity that came with the problem is part of what is fixed. Every tensor is centred over the units of its
groups first. That adds constants to rows and columns, which no permutation sees, and leaves to float32 the digits
that matter.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from ..symmetry import Layout, Perms
from .problem import Problem, TensorPair, magnitude, norm, sum_bound
from .products import TensorsByArity, device_products, group_tensors, is_worth_a_device, rest_first, stack

BLOCK = 1 << 22  # numbers copied at a time: bounds the memory, and blocks used again cost no page faults
COPYING = 25  # measured: to exchange a number costs as much in copies as it takes to multiply it with 25 units


class Coupled(NamedTuple):
    """All tensors between two groups, in the two orders in which a product with each of them is one multiplication.

    Both groups share the target (first, rest, last). The last one multiplies it with the source in the same order,
    the first one with the source as (rest, last, first): either gathers whole rows of the other group's units.
    """

    other: str
    target: np.ndarray
    source: np.ndarray
    is_last: bool  # whether the group is the last axis of the target

    def moved(self, units: np.ndarray) -> int:
        """How many numbers a gather of these units copies."""
        return units.size * (self.source.size // self.source.shape[0 if self.is_last else 1])


class Similarities:
    """The similarities of all groups of a problem, kept up to date as permutations change.

    `matrix` remembers for which permutations it was last asked; everything else stays as it was built.
    """

    def __init__(self, problem: Problem, on_device: bool | None = None):
        self.problem = problem
        tensors = group_tensors(problem)
        if on_device is None:
            on_device = is_worth_a_device(problem, tensors)
        self.on_device = on_device and problem.dtype == np.float32  # JAX would silently make float64 float32
        put = jax.device_put if self.on_device else lambda array: array
        # Σ |target| |source| of what is multiplied for each group
        self._magnitude = {group: sum(map(magnitude, kinds.general)) for group, kinds in tensors.items()}
        self.fixed = {group: put(self._fixed(group, kinds.fixed)) for group, kinds in tensors.items()}
        self.coupled = self._coupled(tensors, put)
        self.general = {group: kinds.general for group, kinds in tensors.items()}
        self._kept: dict[str, np.ndarray] = {}
        self._seen: dict[str, list[np.ndarray]] = {}
        self._work = _Work(problem.dtype)

    def forget(self) -> None:
        """Starts over, for another search on the same problem."""
        self._kept.clear()
        self._seen.clear()

    def matrix(self, group: str, perms: Perms) -> np.ndarray:
        """Returns the (units × units) similarity; the caller must not write to it."""
        total = self._fetch(group, perms, self.coupled[group]) if self.on_device else self._update(group, perms)
        return sum((_gradient(pair, group, perms) for pair in self.general[group]), total)

    def anchored_matrix(self, group: str, perms: Perms, settled: set[str]) -> np.ndarray:
        """Returns the similarity from those tensors alone whose other groups are all settled."""
        coupled = [term for term in self.coupled[group] if term.other in settled]
        if self.on_device:
            total = self._fetch(group, perms, coupled)
        else:
            total = self.fixed[group].copy()
            for term in coupled:
                self._add(total, term, perms[term.other], None, np.arange(perms[term.other].size))
        general = (pair for pair in self.general[group] if _is_anchored(pair.layout, group, settled))
        return sum((_gradient(pair, group, perms) for pair in general), total)

    def evidence(self, group: str, settled: set[str]) -> float:
        """How many numbers of each unit `anchored_matrix` would compare; a given similarity counts as one."""
        anchored = (pair for pair in self.problem.features if _is_anchored(pair.layout, group, settled))
        compared = sum(array.size for pair in anchored for array in pair.target)
        return compared / self.problem.spec.sizes[group] + (group in self.problem.given)

    def rounding_bound(self, group: str) -> float:
        """A gain above this is beyond the rounding errors of the similarity."""
        return 4.0 * float(np.finfo(self.problem.dtype).eps) * self._magnitude[group]

    def is_linear(self, group: str) -> bool:
        """Whether the objective is linear in the group's permutation: at most one factor a tensor."""
        return all(len(pair.layout.places(group)) == 1 for pair in self.general[group])

    def _fixed(self, group: str, pairs: list[TensorPair]) -> np.ndarray:
        size, dtype = self.problem.spec.sizes[group], self.problem.dtype
        total = np.zeros((size, size), dtype)
        if pairs:
            target, source = (stack(side, pairs, (group,), dtype) for side in ("target", "source"))
            self._magnitude[group] += norm(target) * norm(source)
            total = target.T @ source
        if group in self.problem.given:
            matrix = self.problem.given[group].matrix
            self._magnitude[group] += sum_bound(matrix)
            total = total + matrix if pairs else matrix
        return total

    def _coupled(self, tensors: dict[str, TensorsByArity], put: Callable) -> dict[str, list[Coupled]]:
        """Every pair of neighbours both ways: one target and two sources, the same numbers in two orders."""
        result: dict[str, list[Coupled]] = {group: [] for group in tensors}
        for group, kinds in tensors.items():
            for other, pairs in kinds.coupled.items():
                if other not in (term.other for term in result[group]):
                    first, last = pairs[0].layout.present  # as the first tensor has them in memory
                    target, source = (
                        stack(side, pairs, (first, last), self.problem.dtype) for side in ("target", "source")
                    )
                    sent = put(target)
                    result[last].append(Coupled(first, sent, put(source), True))
                    result[first].append(Coupled(last, sent, put(rest_first(source)), False))
                    bound = norm(target) * norm(source)
                    for name in (group, other):
                        self._magnitude[name] += bound
        return result

    def _fetch(self, group: str, perms: Perms, terms: list[Coupled]) -> np.ndarray:
        """On an accelerator products are cheap and traffic is not: everything is computed again, there."""
        targets, sources = [term.target for term in terms], [term.source for term in terms]
        last = tuple(term.is_last for term in terms)
        return device_products(self.fixed[group], targets, sources, [perms[term.other] for term in terms], last)

    def _update(self, group: str, perms: Perms) -> np.ndarray:
        """On the host only what changed since the last visit is computed, unless that is most of it."""
        if not self.coupled[group]:
            return self.fixed[group]
        terms, now = self.coupled[group], [perms[term.other] for term in self.coupled[group]]
        before = self._seen.get(group)
        if before is not None:
            changed = [np.flatnonzero(old != new) for old, new in zip(before, now, strict=True)]
            work = sum(term.moved(units) for term, units in zip(terms, changed, strict=True))
            size = len(self.fixed[group])
            if work * (size + COPYING) > size * sum(term.source.size for term in terms):
                before = None
        if before is None:
            kept = self._kept.setdefault(group, np.empty_like(self.fixed[group]))
            np.copyto(kept, self.fixed[group])
            for term, new in zip(terms, now, strict=True):
                self._add(kept, term, new, None, np.arange(new.size))
        else:
            for term, new, old, units in zip(terms, now, before, changed, strict=True):
                self._add(self._kept[group], term, new, old, units)
        self._seen[group] = now
        return self._kept[group]

    def _add(
        self, total: np.ndarray, term: Coupled, new: np.ndarray, old: np.ndarray | None, changed: np.ndarray
    ) -> None:
        """Adds the product with the other group at `new`, in place of that at `old`, for the units that differ."""
        size, axis = total.shape[0], 0 if term.is_last else 1
        still = old is None and (new == changed).all()
        step = new.size if still else max(1, BLOCK * new.size // term.source.size)
        for units in (changed[at : at + step] for at in range(0, changed.size, step)):
            if units.size == new.size:
                target = term.target
            else:
                target = self._work.take("target", term.target, units, 0 if term.is_last else 2)
            source = term.source if still else self._work.take("source", term.source, new[units], axis)
            if old is not None:
                source -= self._work.take("old", term.source, old[units], axis)
            left = target.reshape(-1, size).T if term.is_last else target.reshape(size, -1)
            total += np.matmul(left, source.reshape(-1, size), out=self._work.array("product", total.shape))


class _Work:
    """Named blocks of memory that are used again and again."""

    def __init__(self, dtype: np.dtype):
        self.dtype = dtype
        self.blocks: dict[str, np.ndarray] = {}

    def array(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """An array of this shape with arbitrary contents, valid until the name is asked for again."""
        size = math.prod(shape)
        if name not in self.blocks or self.blocks[name].size < size:
            self.blocks[name] = np.empty(size, self.dtype)
        return self.blocks[name][:size].reshape(shape)

    def take(self, name: str, array: np.ndarray, units: np.ndarray, axis: int) -> np.ndarray:
        """`array.take(units, axis)`, copied into the block."""
        out = self.array(name, (*array.shape[:axis], units.size, *array.shape[axis + 1 :]))
        return array.take(units, axis, out=out, mode="clip")  # with another mode numpy buffers `out`


def _is_anchored(layout: Layout, group: str, settled: set[str]) -> bool:
    return len(layout.places(group)) == 1 and set(layout.present) - {group} <= settled


def _gradient(pair: TensorPair, group: str, perms: Perms) -> np.ndarray:
    total = np.zeros((), pair.target[0].dtype)
    for place in pair.layout.places(group):
        for target, source in zip(pair.target, pair.source, strict=True):
            for other, name in enumerate(pair.layout.groups):
                if name is not None and other != place:
                    source = source.take(perms[name], axis=other)
            total = total + _front(target, place) @ _front(source, place).T
    return total


def _front(array: np.ndarray, place: int) -> np.ndarray:
    return np.moveaxis(array, place, 0).reshape(array.shape[place], -1)
