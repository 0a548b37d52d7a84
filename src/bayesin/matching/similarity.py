"""How alike the places of one unit are, with all other units held where they are.

Entry (i, j) of a unit's similarity is the inner product of target place i with source place j over every
tensor that the unit stands in, the source moved along all other axes. Three kinds of tensors differ in
how much work they leave:

    fixed     the unit is the only one: the same at every visit
    coupled   two different units: after the other one moved a few places, only their share is exchanged
    general   more units, or one of a family on several axes: computed at every visit. For a family on several
              axes the sum over them is the gradient of the objective, not the objective

A similarity that came with the problem is part of what is fixed. Every tensor is centred over the places first.
That adds constants to rows and columns, which no permutation sees, and leaves to float32 the digits that matter;
where signs turn a tensor its mean over the places is not a constant, and stays.

Of units that may flip, the source has twins (`twins.py`), and the similarity is (places × 2 places).

Small problems are laid out for their products once. Of large ones nothing is copied but a block at a time, and
matrices are kept between visits only where they are smaller than the tensors they come from, so that all that is
kept is never more than the weights themselves.
"""

import math
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np

from .costs import widened
from .families import FlatPerms
from .packed import COPYING, SMALL, Packed, plan_for
from .problem import Problem, TensorPair, magnitude, sum_bound
from .products import (
    Block,
    TensorsByArity,
    add_on_device,
    device_products,
    group_tensors,
    is_worth_a_device,
    kinds_of,
    rest_first,
    stack,
)

BLOCK = 1 << 22  # numbers copied at a time: bounds the memory, and blocks used again cost no page faults
LAID_OUT = 1 << 23  # numbers up to which a problem is laid out once, three times over
LAID_OUT_ON_DEVICE = 1 << 28  # the same on an accelerator, in its memory; more would not fit, or not beside a model


class Coupled(NamedTuple):
    """All tensors between two units, in the two orders in which a product with each of them is one multiplication.

    Both units share the target (first, rest, last). The last one multiplies it with the source in the same order,
    the first one with the source as (rest, last, first): either gathers whole rows of the other unit's places.
    """

    other: str
    target: Any  # on the host or on a device
    source: Any
    is_last: bool  # whether the unit is the last axis of the target

    @property
    def numbers(self) -> int:
        """How many numbers of the source are multiplied."""
        return self.source.size

    def add(
        self, total: np.ndarray, new: np.ndarray, old: np.ndarray | None, places: np.ndarray, work: "_Work"
    ) -> None:
        """Adds the product with the other unit at `new`, in place of that at `old`, for those of its places."""
        axis = 0 if self.is_last else 1
        step = max(1, BLOCK * new.size // self.source.size)
        for part in (places[at : at + step] for at in range(0, places.size, step)):
            if part.size == new.size:
                target, here = self.target, new
            else:
                target, here = work.take("target", self.target, part, 0 if self.is_last else 2), new[part]
            source = work.take("source", self.source, here, axis)
            if old is not None:
                # One product with the difference rather than one for each.
                source -= work.take("old", self.source, old[part], axis)
            # A transposed view, not a copy: the product reads either order.
            left = target.reshape(-1, total.shape[0]).T if self.is_last else target.reshape(total.shape[0], -1)
            total += np.matmul(left, source.reshape(-1, total.shape[1]), out=work.array("product", total.shape))


class Streamed(NamedTuple):
    """All tensors between two units, read where they are, a block at a time."""

    other: str
    pairs: list[TensorPair]
    unit: str

    @property
    def numbers(self) -> int:
        """How many numbers of the source are multiplied."""
        return sum(array.size for pair in self.pairs for array in pair.source)

    def add(
        self, total: np.ndarray, new: np.ndarray, old: np.ndarray | None, places: np.ndarray, work: "_Work"
    ) -> None:
        """Adds the product with the other unit at `new`, in place of that at `old`, for those of its places."""
        for pair in self.pairs:
            place, axis = (pair.layout.groups.index(unit) for unit in (self.unit, self.other))
            for number, (target, source) in enumerate(zip(pair.target, pair.source, strict=True)):
                target, source = np.asarray(target), np.asarray(source)
                step, is_free = max(1, BLOCK * new.size // source.size), pair.keeps_constants(number, place)
                for part in (places[at : at + step] for at in range(0, places.size, step)):
                    moved = widened(source.take(new[part], axis))
                    if old is not None:
                        moved = moved - widened(source.take(old[part], axis))
                    _add_product(total, _taken(target, part, axis), moved, place, is_free, work)


class Similarities:
    """The similarities of all units of a problem, kept up to date as permutations change.

    `matrix` remembers for which permutations it was last asked; everything else stays as it was built.
    """

    def __init__(
        self,
        problem: Problem,
        on_device: bool | None = None,
        laid_out: bool | None = None,
        packed: bool | None = None,
    ):
        self.problem = problem
        self.kinds = kinds_of(problem)
        self._units: dict[str, list[str]] = {family: [] for family in problem.structure.families}
        for unit in self.kinds:
            self._units[problem.structure.units[unit].family].append(unit)
        self._sizes = [sum([array.size for array in pair.target]) for pair in problem.features]
        self.numbers = sum(self._sizes)
        if on_device is None:  # what does not fit stays on the host: streamed, it failed (results/speed.md)
            fits = SMALL < self.numbers <= LAID_OUT_ON_DEVICE  # a small one is never worth it
            on_device = fits and is_worth_a_device(problem, self.tensors)
        self.on_device = on_device and problem.dtype == np.float32  # JAX would silently make float64 float32
        put = jax.device_put if self.on_device else lambda array: array
        limit = LAID_OUT_ON_DEVICE if self.on_device else LAID_OUT
        self.laid_out = self.numbers <= limit if laid_out is None else laid_out
        self._packed: Packed | None = None
        if (self.laid_out and not self.on_device and self.numbers <= SMALL) if packed is None else packed:
            plan = plan_for(problem)
            self._packed = None if plan is None else Packed(problem, plan)
        # How far a gain may be off, as a part of the magnitudes that it was read off.
        self.rounding = 4.0 * float(np.finfo(problem.dtype).eps)
        self._magnitude: dict[str, float] = {}
        self._magnitude_of = _remembering(magnitude)  # a tensor between two units is asked for twice
        # Constants of a laid-out problem are made at once; of a streamed one each is made when it is first needed,
        # and may never be kept.
        self._constant: dict[str, Any] = {}
        if self.laid_out and self._packed is None:
            self._constant = {unit: put(self._fixed(unit)) for unit in self.tensors}
        self.coupled: Mapping[str, list[Any]] = {}
        if self._packed is None:
            self.coupled = self._laid_out_pairs(put) if self.laid_out else self._streamed_pairs()
        self._kept: dict[str, np.ndarray] = {}
        self._seen: dict[str, list[np.ndarray | None]] = {}
        self._work = _Work(problem.dtype)

    @cached_property
    def tensors(self) -> dict[str, TensorsByArity]:
        """The tensors of each unit, by kind; a packed problem is searched without them."""
        return group_tensors(self.problem)

    def units_of(self, family: str) -> list[str]:
        """The units of a family that there is any evidence for."""
        return self._units[family]

    def is_linear(self, family: str) -> bool:
        """Whether every number belongs to one place of the family: it stands on at most one axis a tensor."""
        units = self.problem.structure.units
        return all(
            sum(units[name].family == family for name in pair.layout.present) == 1
            for unit in self.units_of(family)
            for pair in map(self.problem.features.__getitem__, self.kinds[unit].general)
        )

    def forget(self) -> None:
        """Starts over, for another search on the same problem."""
        self._kept.clear()
        self._seen.clear()
        if self._packed is not None:
            self._packed.forget()

    def matrix(self, unit: str, flat: FlatPerms, among: set[str] | None = None) -> np.ndarray:
        """Returns the similarity of places and units; the caller must not write to it.

        With `among`, only tensors whose other units are all in it count.
        """
        if self.on_device and not self.laid_out:
            return self._stream_through_device(unit, flat, among)
        if self._packed is not None:
            total = self._packed.matrix(unit, flat, among)
        elif self.on_device:
            total = self._fetch(
                unit, flat, [term for term in self.coupled[unit] if among is None or term.other in among]
            )
        else:
            total = self._update(unit, flat, among)
        if not self.kinds[unit].general:
            return total
        general = [pair for pair in self.tensors[unit].general if _is_anchored(pair, unit, among)]
        if not general:
            return total
        total = total.copy()
        for pair in general:
            for place in pair.layout.places(unit):
                _add_gradient(total, pair, place, flat, self._work)
        return total

    def alone(self, unit: str) -> np.ndarray:
        """Returns the similarity from tensors without another unit; the caller must not write to it."""
        return self._constant[unit] if self.laid_out else self._streamed_fixed(unit)

    def beside(self, unit: str) -> list[TensorPair]:
        """Returns the tensors that the unit stands in with others."""
        kinds = self.tensors[unit]
        return [*(pair for pairs in kinds.coupled.values() for pair in pairs), *kinds.general]

    def evidence(self, unit: str, among: set[str]) -> float:
        """How many numbers of each place `matrix` would compare; a given similarity counts as one."""
        kinds, sizes = self.kinds[unit], self._sizes
        shared = [pairs for other, pairs in kinds.coupled.items() if other in among]
        compared = sum([sizes[number] for pairs in (kinds.fixed, *shared) for number in pairs])
        if kinds.general:
            here = zip(kinds.general, self.tensors[unit].general, strict=True)
            compared += sum(sizes[number] for number, pair in here if _is_anchored(pair, unit, among))
        return compared / self.problem.structure.units[unit].size + (unit in self.problem.given)

    def is_beyond_rounding(self, gain: float, units: Collection[str]) -> bool:
        """Whether a gain that was read off the similarities of these units is more than their rounding errors."""
        # What all tensors are added up to is known, and settles most questions; what those of a unit are is not.
        if gain > self.rounding * len(units) * self.problem.scale:
            return True
        return gain > self.rounding * sum(map(self.magnitude, units))

    def magnitude(self, unit: str) -> float:
        """Returns Σ |target| |source| of what is multiplied for a unit."""
        if unit not in self._magnitude:
            pairs = (*self.tensors[unit].fixed, *self.beside(unit))
            given = self.problem.given.get(unit)
            self._magnitude[unit] = sum(map(self._magnitude_of, pairs)) + (sum_bound(given.matrix) if given else 0.0)
        return self._magnitude[unit]

    def _fixed(self, unit: str) -> np.ndarray:
        """What no other permutation changes, as laid out at once."""
        pairs, dtype = self.tensors[unit].fixed, self.problem.dtype
        if not pairs and unit not in self.problem.given:
            return self._zeros(unit)
        total = np.zeros((), dtype)
        if pairs:
            block = Block(_size_of(pairs, "target") + _size_of(pairs, "source"), dtype)
            target, source = (stack(side, pairs, (unit,), block) for side in ("target", "source"))
            total = target.T @ source
        if unit in self.problem.given:
            matrix = self.problem.given[unit].matrix
            # Alone the matrix is used as it was given: nobody writes to what is fixed.
            total = total + matrix if pairs else matrix
        return total

    def _streamed_fixed(self, unit: str) -> np.ndarray:
        """The same a block at a time; kept where it is smaller than the tensors that it comes from."""
        if unit in self._constant:
            return self._constant[unit]
        pairs, total = self.tensors[unit].fixed, self._zeros(unit)
        for pair in pairs:
            _add_gradient(total, pair, pair.layout.groups.index(unit), {}, self._work)
        if unit in self.problem.given:
            total += self.problem.given[unit].matrix
        if total.size <= _size_of(pairs, "target"):
            self._constant[unit] = total
        return total

    def _zeros(self, unit: str) -> np.ndarray:
        size = self.problem.structure.units[unit].size
        twins = 2 if unit in self.problem.structure.signed else 1
        return np.zeros((size, twins * size), self.problem.dtype)

    def _laid_out_pairs(self, put: Callable) -> dict[str, list[Coupled]]:
        """Every pair of neighbours both ways: one target and two sources, the same numbers in two orders."""
        result: dict[str, list[Coupled]] = {unit: [] for unit in self.tensors}
        every = [pairs for kinds in self.tensors.values() for pairs in kinds.coupled.values()]
        both = sum(_size_of(pairs, "target") + 2 * _size_of(pairs, "source") for pairs in every)
        block = Block(both // 2, self.problem.dtype)  # every tensor was counted for both of its units
        for unit, kinds in self.tensors.items():
            # Each pair of units is met from both sides; both terms are made at the first, and share the target.
            for other, pairs in kinds.coupled.items():
                if other not in (term.other for term in result[unit]):
                    first, last = pairs[0].layout.present  # as the first tensor has them in memory
                    target, source = (stack(side, pairs, (first, last), block) for side in ("target", "source"))
                    sent = put(target)
                    result[last].append(Coupled(first, sent, put(source), True))
                    result[first].append(Coupled(last, sent, put(rest_first(source, block)), False))
        return result

    def _streamed_pairs(self) -> dict[str, list[Streamed]]:
        return {
            unit: [Streamed(other, pairs, unit) for other, pairs in kinds.coupled.items()]
            for unit, kinds in self.tensors.items()
        }

    def _fetch(self, unit: str, flat: FlatPerms, terms: list[Any]) -> np.ndarray:
        """On an accelerator products are cheap and traffic is not: everything is computed again, there."""
        targets, sources = [term.target for term in terms], [term.source for term in terms]
        last = tuple(term.is_last for term in terms)
        return device_products(self._constant[unit], targets, sources, [flat[term.other] for term in terms], last)

    def _stream_through_device(self, unit: str, flat: FlatPerms, among: set[str] | None) -> np.ndarray:
        """Everything again on an accelerator, which is sent one tensor after another; nothing stays there."""
        kinds = self.tensors[unit]
        coupled = [
            pair for other, pairs in kinds.coupled.items() if among is None or other in among for pair in pairs
        ]
        general = [pair for pair in kinds.general if _is_anchored(pair, unit, among)]
        given = self.problem.given.get(unit)
        total = jax.device_put(self._zeros(unit) if given is None else given.matrix)
        for pair in (*kinds.fixed, *coupled, *general):
            for place in pair.layout.places(unit):
                groups = enumerate(pair.layout.groups)
                perms = tuple(None if name is None or axis == place else flat[name] for axis, name in groups)
                for number, (target, source) in enumerate(zip(pair.target, pair.source, strict=True)):
                    sides = np.asarray(target), np.asarray(source)
                    ours, theirs = jax.device_put(sides)  # while the product before it is computed
                    # Calls return before they are done: without waiting all tensors would be there at once.
                    jax.block_until_ready(total)
                    is_free = pair.keeps_constants(number, place)
                    total = add_on_device(total, ours, theirs, perms, place, is_free)
        return np.asarray(total)

    def _update(self, unit: str, flat: FlatPerms, among: set[str] | None) -> np.ndarray:
        """On the host only what changed since the last visit is computed, unless that is most of it."""
        terms = self.coupled[unit]
        if not terms:
            return self._constant[unit] if self.laid_out else self._streamed_fixed(unit)
        now = [flat[term.other] if among is None or term.other in among else None for term in terms]
        before = self._seen.get(unit)
        if before is None or not self._is_exchange_cheaper(unit, before, now):
            before = [None] * len(terms)
            kept = self._from_scratch(unit)
        else:
            kept = self._kept[unit]
        for term, new, old in zip(terms, now, before, strict=True):
            # By identity: what did not move is the very array of the last visit.
            if new is not None and new is not old:
                places = np.arange(new.size) if old is None else np.flatnonzero(old != new)
                term.add(kept, new, old, places, self._work)
        numbers = sum(term.numbers for term in terms)
        if self.laid_out or 2 * kept.size <= numbers:  # every tensor serves two units
            # Held without copies: a step makes new permutations and never changes one that was there.
            self._kept[unit], self._seen[unit] = kept, now
        return kept

    def _from_scratch(self, unit: str) -> np.ndarray:
        """A matrix with what is fixed in it."""
        fixed = self._constant[unit] if self.laid_out else self._streamed_fixed(unit)
        # It was made just now and is remembered nowhere, so that it may be written to.
        if unit not in self._constant:
            return fixed
        kept = self._kept.pop(unit, None)
        # The last matrix of the unit is of the same size, and its memory is at hand.
        kept = np.empty_like(self._constant[unit]) if kept is None else kept
        np.copyto(kept, self._constant[unit])
        return kept

    def _is_exchange_cheaper(self, unit: str, before: list[np.ndarray | None], now: list[np.ndarray | None]) -> bool:
        """Whether adding what is new and exchanging what moved costs less than all terms from scratch."""
        size, exchanged, whole = self.problem.structure.units[unit].size, 0.0, 0
        for term, old, new in zip(self.coupled[unit], before, now, strict=True):
            # What an earlier visit added is left out now: there is no exchange for it.
            if old is not None and new is None:
                return False
            if new is not None:
                whole += term.numbers
                # Moved places are taken twice, of the new and of the old order, and multiplied once.
                share = 1.0 if old is None else float((old != new).mean()) * (1 + COPYING / size)
                exchanged += share * term.numbers
        return exchanged <= whole


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


def _remembering(function: Callable[[TensorPair], float]) -> Callable[[TensorPair], float]:
    """The function, computed once for each pair, which is known by where it is."""
    known: dict[int, float] = {}

    def remembered(pair: TensorPair) -> float:
        # By where it is: a pair holds arrays, which have no hash, and lives as long as the problem.
        if id(pair) not in known:
            known[id(pair)] = function(pair)
        return known[id(pair)]

    return remembered


def _size_of(pairs: list[TensorPair], side: str) -> int:
    return sum(array.size for pair in pairs for array in getattr(pair, side))


def _is_anchored(pair: TensorPair, unit: str, among: set[str] | None) -> bool:
    """Whether a tensor counts: always, or only with its other units among those that are settled."""
    return among is None or (len(pair.layout.places(unit)) == 1 and set(pair.layout.present) - {unit} <= among)


def _add_gradient(total: np.ndarray, pair: TensorPair, place: int, flat: FlatPerms, work: _Work) -> None:
    """Adds the product of one tensor along one axis, the source moved along all others, a block at a time."""
    layout = pair.layout
    others = [axis for axis in range(len(layout.shape)) if axis != place]
    if not others:
        for number, (target, source) in enumerate(zip(pair.target, pair.source, strict=True)):
            is_free = pair.keeps_constants(number, place)
            _add_product(total, np.asarray(target)[:, None], widened(source)[:, None], 0, is_free, work)
        return
    # Cut along the longest axis, even a step of one entry is as small a block as can be.
    longest = max(others, key=lambda axis: layout.shape[axis])
    for number, (target, source) in enumerate(zip(pair.target, pair.source, strict=True)):
        # Of one in a file rows can be read alone; anything else, and what is gathered, is read once and whole.
        target, source = target if longest == 0 else np.asarray(target), np.asarray(source)
        is_free = pair.keeps_constants(number, place)
        step = max(1, BLOCK * layout.shape[longest] // max(source.size, 1))
        for at in range(0, layout.shape[longest], step):
            part = np.arange(at, min(at + step, layout.shape[longest]))
            unit = layout.groups[longest]
            moved = _taken(source, part, longest) if unit is None else source.take(flat[unit][part], longest)
            for axis in others:
                name = layout.groups[axis]
                if name is not None and axis != longest:
                    moved = moved.take(flat[name], axis)
            _add_product(total, _taken(target, part, longest), widened(moved), place, is_free, work)


def _add_product(
    total: np.ndarray, target: np.ndarray, source: np.ndarray, place: int, is_free: bool, work: _Work
) -> None:
    """Adds the inner products of two blocks over all axes but one, centred over that axis where that is free."""
    is_last = place == target.ndim - 1
    rows = (_rows(array, place, is_last, is_free) for array in (target, source))
    left, right = (array.astype(total.dtype, copy=False) for array in rows)
    product = work.array("product", total.shape)
    total += np.matmul(left.T, right, out=product) if is_last else np.matmul(left, right.T, out=product)


def _rows(array: np.ndarray, place: int, is_last: bool, is_centred: bool) -> np.ndarray:
    """A block as (rest, places) where its places stand last in memory, else as (places, rest)."""
    rows = widened(array).reshape(-1, array.shape[place]) if is_last else _front(widened(array), place)
    return rows - rows.mean(1 if is_last else 0, keepdims=True) if is_centred else rows


def _taken(array: np.ndarray, part: np.ndarray, axis: int) -> np.ndarray:
    """`array.take(part, axis)`, as a view where the places follow one another."""
    # Places rise, so that the two ends say whether any is left out.
    if part.size and part[-1] - part[0] == part.size - 1:
        return array[(slice(None),) * axis + (slice(int(part[0]), int(part[-1]) + 1),)]
    return array.take(part, axis)


def _front(array: np.ndarray, place: int) -> np.ndarray:
    return np.moveaxis(array, place, 0).reshape(array.shape[place], -1)
