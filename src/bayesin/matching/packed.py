"""Similarities of a small problem, with one product a visit.

In a small network a call into numpy costs as much as the numbers that it works on. So the tensors of each unit are
copied into one matrix a side, with a column for each of its places and a row for all else:

    target (rows, places)     as it stands
    source (rows, places)     of which a visit takes the rows in the order of the other units

and the similarity is one product of both. Where everything stands is known from the spec alone, and kept from call to
call. After a few places have moved only their rows are multiplied again.

Rows that no other unit moves, as those of gains that are all near one, are centred over the places. Of the others a
mean costs float32 a digit only where it is large: the first product shows it, and then they are centred too.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ..symmetry import Layout, PermutationSpec
from .families import FlatPerms, structure_of
from .problem import Problem
from .products import arities_of

SMALL = 3 << 18  # numbers up to which a problem is packed, which takes four times as many
COPYING = 25  # measured: to exchange a number costs as much in copies as it takes to multiply it with 25 places
NOWHERE = -1  # the row of the source in the place of one that is left out
NO_OTHER = np.zeros(1, np.intp)
ALIKE = 1 - 2.0**-6  # part of the squares of a similarity: its mean is then eight times the deviations from it


class View(NamedTuple):
    """An array of the features, turned so that the places of the unit stand last and those of another before them."""

    pair: int
    number: int  # among the arrays of the pair
    order: tuple[int, ...] | None  # of its axes; none where they stand like this

    def of(self, arrays: Sequence[Sequence[np.ndarray]]) -> np.ndarray:
        """The array, turned."""
        array = arrays[self.pair][self.number]
        return array if self.order is None else array.transpose(self.order)


class Rows(NamedTuple):
    """The rows of one unit: those that no other unit moves, then those that it shares with each other one."""

    numbers: slice  # where they are among those of all units
    shape: tuple[int, int]
    fixed: slice  # where the first of them are among the numbers of all fixed ones
    others: dict[str, tuple[int, int]]  # the rows shared with each
    base: np.ndarray  # for every row, the first one of the places of its other unit,
    place: np.ndarray  # and the place of this one among those of all others; 0 is of no other
    views: tuple[View, ...]  # of shared rows


class Plan(NamedTuple):
    """The rows of all units."""

    rows: dict[str, Rows]
    size: int  # how many numbers they have
    fixed: tuple[View, ...]  # rows that one unit has for itself
    starts: np.ndarray  # of each of them
    lengths: np.ndarray


def plan_for(problem: Problem) -> Plan | None:
    """Returns the plan of a problem; None where its features are not the tensors themselves, one like the other."""
    if problem.left_out is None or not problem.features or 0 in problem.spec.sizes.values():
        return None
    plan = _plan_of(problem.spec, problem.left_out, len(problem.features[0].target))
    return plan if plan.rows and plan.rows.keys() >= problem.given.keys() else None


@lru_cache(maxsize=8)
def _plan_of(spec: PermutationSpec, left_out: frozenset[str], count: int) -> Plan:
    """The plan for features of `count` arrays for each tensor of a spec but those left out."""
    structure = structure_of(spec)
    layouts = [piece.layout for piece in structure.pieces if piece.layout.path not in left_out]
    rows: dict[str, Rows] = {}
    fixed: list[View] = []
    lengths: list[int] = []
    at = 0

    def views(pairs: Sequence[int], *units: str) -> list[View]:
        return [View(pair, number, _order(layouts[pair], units)) for pair in pairs for number in range(count)]

    def length(of: list[View], size: int) -> int:
        return sum(math.prod(layouts[view.pair].shape) for view in of) // size

    for unit, kinds in arities_of(spec, left_out).items():
        size, alone = structure.units[unit].size, views(kinds.fixed, unit)
        stop = length(alone, size)
        own = slice(sum(lengths), sum(lengths) + stop * size)
        fixed += alone
        lengths += [size] * stop
        base, place, before = [np.arange(stop)], [np.zeros(stop, np.intp)], 1
        others: dict[str, tuple[int, int]] = {}
        shared: list[View] = []
        for other, pairs in kinds.coupled.items():
            here, many = views(pairs, other, unit), structure.units[other].size
            index = np.arange(length(here, size))
            base.append(stop + index - index % many)
            place.append(before + index % many)
            others[other] = (stop, stop := stop + index.size)
            before += many
            shared += here
        numbers = slice(at, at := at + stop * size)
        rows[unit] = Rows(
            numbers, (stop, size), own, others, np.concatenate(base), np.concatenate(place), tuple(shared)
        )
    return Plan(rows, at, tuple(fixed), np.cumsum([0, *lengths])[:-1], np.array(lengths, np.intp))


def _order(layout: Layout, units: tuple[str, ...]) -> tuple[int, ...] | None:
    """The order of axes in which these units are the last ones; None where they are."""
    last = [layout.groups.index(unit) for unit in units]
    order = (*(axis for axis in range(len(layout.shape)) if axis not in last), *last)
    return None if order == tuple(range(len(order))) else order


class Packed:
    """Similarities by one product a visit; each is kept for the next visit, which may exchange a part of it."""

    def __init__(self, problem: Problem, plan: Plan):
        self.plan = plan
        block = np.empty(2 * plan.size, problem.dtype)  # at once: the system need not clear it anew
        self._target = _matrices(plan, [pair.target for pair in problem.features], block[: plan.size])
        self._source = _matrices(plan, [pair.source for pair in problem.features], block[plan.size :])
        self._given = {unit: part.matrix for unit, part in problem.given.items()}
        self._work = np.empty(max(math.prod(rows.shape) for rows in plan.rows.values()), problem.dtype)
        self._ones = np.ones(max(rows.shape[1] for rows in plan.rows.values()) ** 2, problem.dtype)
        self._unseen = set(plan.rows)  # units of which it is not known yet whether a mean costs digits
        self.forget()

    def forget(self) -> None:
        """Starts over, for another search on the same problem."""
        self._kept: dict[str, tuple[np.ndarray, np.ndarray]] = {}  # similarities, and the rows of the source in them

    def matrix(self, unit: str, flat: FlatPerms, among: set[str] | None = None) -> np.ndarray:
        """Returns the similarity of places and units; the caller must not write to it.

        With `among`, only rows shared with these units count, and those shared with none.
        """
        rows = self.plan.rows[unit]
        now = rows.base + np.concatenate((NO_OTHER, *[flat[other] for other in rows.others])).take(rows.place)
        if among is not None:
            for other, (start, stop) in rows.others.items():
                if other not in among:
                    now[start:stop] = NOWHERE
        total = self._exchanged(unit, now) if unit in self._kept else None
        if total is None:
            total = self._product(unit, now, among is None)
        if unit in self._unseen and self._centred(unit, total, among is None):
            total = self._product(unit, now, among is None)
        self._kept[unit] = total, now
        return total

    def _exchanged(self, unit: str, now: np.ndarray) -> np.ndarray | None:
        """The similarity of the last visit with rows that have moved since; None where a new one costs less."""
        total, before = self._kept[unit]
        changed = np.flatnonzero(now != before)
        # Rows that moved are taken of both sides, of the source twice, and multiplied once.
        if changed.size * (1 + COPYING / len(total)) > now.size:
            return None
        if changed.size:
            gained, lost = (_rows_of(self._source[unit], rows[changed]) for rows in (now, before))
            gained -= lost
            total += self._target[unit].take(changed, 0).T @ gained
        return total

    def _product(self, unit: str, now: np.ndarray, is_whole: bool) -> np.ndarray:
        """A similarity from nothing."""
        target, source = self._target[unit], self._source[unit]
        if is_whole:
            taken = self._work[: source.size].reshape(source.shape)
            total = target.T @ source.take(now, 0, out=taken, mode="clip")  # with another mode numpy buffers `out`
        else:
            present = np.flatnonzero(now >= 0)
            total = target.take(present, 0).T @ source.take(now[present], 0)
        if unit in self._given:
            total += self._given[unit]
        return total

    def _centred(self, unit: str, total: np.ndarray, is_whole: bool) -> bool:
        """Centres the rows of a unit if its similarity shows that their means cost digits; returns whether it did."""
        numbers = total.reshape(-1)
        summed = float(numbers.dot(self._ones[: numbers.size]))
        is_alike = summed**2 > ALIKE * numbers.size * float(numbers.dot(numbers))
        if is_alike or is_whole:
            self._unseen.remove(unit)
        for array in (self._target[unit], self._source[unit]) if is_alike else ():
            array -= (array @ self._ones[: array.shape[1]] / array.shape[1])[:, None]
        return is_alike


def _rows_of(source: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """These rows, with zeros for those that are left out."""
    taken = source.take(rows, 0, mode="clip")
    if rows.min() < 0:
        taken[rows < 0] = 0
    return taken


def _matrices(plan: Plan, arrays: Sequence[Sequence[np.ndarray]], block: np.ndarray) -> dict[str, np.ndarray]:
    """The matrix of every unit, one behind the other in a block of memory."""
    fixed = [view.of(arrays) for view in plan.fixed]
    alone = np.concatenate(fixed, axis=None, dtype=block.dtype) if fixed else block[:0]
    if fixed:
        alone -= np.repeat(np.add.reduceat(alone, plan.starts) / plan.lengths, plan.lengths).astype(block.dtype)
    result = {}
    for unit, rows in plan.rows.items():
        part = block[rows.numbers]
        np.concatenate([alone[rows.fixed], *[view.of(arrays) for view in rows.views]], axis=None, out=part)
        result[unit] = part.reshape(rows.shape)
    return result
