"""Axes as products of factors: the algebra that discovery runs on.

An axis is an ordered, row-major product of factors, and an axis of size 1 is the empty product. A factor is

- `Units`: units that move together wherever they stand. A node of a union-find: `join` merges two of them,
  `cut` refines one into an outer and an inner part, and both reach every axis that holds the node. With a
  `reason` the units are fixed: they must not move.
- `Constant`: nothing changes along it (a broadcast axis), so that every permutation leaves it as it is. It
  joins anything, and never refines or fixes what it joins.

What is left of these factors in the parameters when a walk ends becomes the spec's own (`spec.Factor`).

What an axis says is a claim: if the parameters move as their axes say, so does this array. Merging, refining
and fixing all shrink the set of permutations that are left, so that a claim once made stays true.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import gcd, prod


class Units:
    """Units that move together; compared by identity."""

    __slots__ = ("merged_into", "parts", "reason", "size")

    def __init__(self, size: int, reason: str = ""):
        self.size = size
        self.reason = reason  # why they are fixed; empty while they are free
        self.merged_into: Units | None = None
        self.parts: tuple[Units, Units] | None = None  # (outer, inner) once refined


@dataclass(frozen=True)
class Constant:
    """A factor along which an array does not change."""

    size: int


Factor = Units | Constant
Axis = tuple[Factor, ...]
Array = tuple[Axis, ...]


def free(size: int) -> Axis:
    """An axis of fresh units that may move."""
    return (Units(size),) if size != 1 else ()


def fixed(size: int, reason: str) -> Axis:
    """An axis of units that must not move."""
    return (Units(size, reason),) if size != 1 else ()


def constant(size: int) -> Axis:
    """An axis along which nothing changes."""
    return (Constant(size),) if size != 1 else ()


def size_of(axis: Axis) -> int:
    """Number of entries along an axis."""
    return prod(factor.size for factor in axis)


def is_constant(axis: Axis) -> bool:
    """Whether nothing changes along an axis."""
    return all(isinstance(factor, Constant) for factor in axis)


def resolve(axis: Iterable[Factor]) -> Axis:
    """The axis as it stands now: merged units by their root, refined ones by their parts."""
    leaves: list[Factor] = []
    for factor in axis:
        if isinstance(factor, Units):
            _collect(factor, leaves)
        elif leaves and isinstance(leaves[-1], Constant):
            leaves[-1] = Constant(leaves[-1].size * factor.size)
        else:
            leaves.append(factor)
    return tuple(leaves)


def units_of(axis: Axis) -> list[Units]:
    """The units of an axis as they stand now, without what is constant."""
    return [factor for factor in resolve(axis) if isinstance(factor, Units)]


def fix(axis: Axis, reason: str) -> None:
    """Fixes the units of an axis; the first reason given stays."""
    for units in units_of(axis):
        units.reason = units.reason or reason


def join(left: Axis, right: Axis) -> Axis:
    """Makes two axes move together and returns what both are now; size 1 broadcasts.

    From the innermost factor outwards, the left axis is cut to the size of each factor of the right one.
    """
    if not left or not right:
        return resolve(left or right)
    if size_of(left) == 0:
        return constant(0)
    joined: Axis = ()
    right = resolve(right)
    while right:
        *rest, last = right
        left, inner = cut(left, last.size)
        joined = _match(inner, last) + joined
        right = resolve(rest)
    return resolve(joined)


def cut(axis: Axis, inner: int) -> tuple[Axis, Axis]:
    """Splits an axis into an outer and an inner part, the inner one of size `inner`, refining what it cuts.

    A factor that does not divide keeps its greatest common part; the least segment that straddles the cut
    is fixed, since no product of factors can say how it moves.
    """
    outer, taken, missing = resolve(axis), (), inner
    while missing > 1:
        common = gcd(outer[-1].size, missing)
        if common == 1:
            return _cut_across(outer, taken, missing)
        outer, part = _divide_last(outer, common)
        taken, missing = (part, *taken), missing // common
    return resolve(outer), resolve(taken)


def _cut_across(outer: Axis, taken: Axis, missing: int) -> tuple[Axis, Axis]:
    segment = 1
    straddling: Axis = ()
    while segment % missing:
        common = gcd(outer[-1].size, missing // gcd(missing, segment))
        outer, part = _divide_last(outer, common if common > 1 else outer[-1].size)
        straddling, segment = (part, *straddling), segment * part.size
    reason = "cut where no product of factors can follow"
    fix(straddling, reason)
    return resolve(outer + fixed(segment // missing, reason)), resolve(fixed(missing, reason) + taken)


def _divide_last(axis: Axis, inner: int) -> tuple[Axis, Factor]:
    """Takes the innermost `inner` units off an axis."""
    *rest, last = axis
    if last.size == inner:
        return tuple(rest), last
    outer, part = _divide(last, inner)
    return resolve([*rest, outer]), part


def _divide(factor: Factor, inner: int) -> tuple[Factor, Factor]:
    if isinstance(factor, Constant):
        return Constant(factor.size // inner), Constant(inner)
    factor.parts = Units(factor.size // inner, factor.reason), Units(inner, factor.reason)
    return factor.parts


def _match(axis: Axis, factor: Factor) -> Axis:
    """Joins an axis with one factor of its size."""
    if isinstance(factor, Constant):
        return axis
    (*others, only) = resolve([factor])
    if others:  # refined while its partner was cut: it stands on both sides
        return join(axis, (*others, only))
    matched: Axis = ()
    rest: Axis = (only,)
    for other in reversed(resolve(axis)):
        rest, part = _divide_last(rest, other.size)
        matched = (_merge(part, other), *matched)
    return matched


def _merge(left: Factor, right: Factor) -> Factor:
    if isinstance(left, Constant):
        return right
    if isinstance(right, Constant):
        return left
    left, right = _root(left), _root(right)
    if left is not right:
        right.merged_into, left.reason = left, left.reason or right.reason
    return left


def _collect(units: Units, leaves: list[Factor]) -> None:
    units = _root(units)
    if units.parts:
        for part in units.parts:
            _collect(part, leaves)
    else:
        leaves.append(units)


def _root(units: Units) -> Units:
    while units.merged_into:
        if units.merged_into.merged_into:
            units.merged_into = units.merged_into.merged_into  # halve the path
        units = units.merged_into
    return units
