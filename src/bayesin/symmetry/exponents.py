"""The exponents with which the units of every array of a program are multiplied, as linear forms of unknowns.

Every place of units in a parameter has one unknown. Rules (`multipliers.py`) say what the exponents of the outputs of
an equation are, and what must vanish; the solutions are signs, modulo 2, or powers of scales, over the rationals.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from math import gcd, lcm
from typing import Any, Literal

import numpy as np

from .factors import Array, Axis, Choice, Constant, Sum, Units, leaves_of, resolve, size_of
from .indexed import Meeting, Outer
from .values import Known

Kind = Literal["signs", "scales"]
Form = dict[int, Fraction | int]  # a linear form of the unknowns; {} is zero
Exponents = list[list[Form]]  # of one array: for every axis, that of each of its leaves in order
Place = tuple[str, int, int]  # path, axis, number of the leaf
Scale = tuple[Units, int]  # one of the scales of some units

NOTHING: Form = {}

# fmt: off
SAME = (  # f(m x) = m f(x) for a sign and for a positive m
    "neg", "copy", "real", "imag", "conj", "reduce_precision", "stop_gradient", "name", "reshard",
    "sharding_constraint", "layout_constraint", "with_memory_space_constraint", "pvary", "rev",
)
LINEAR = ("add", "add_any", "sub", "complex")  # homogeneous in all operands at once
PRODUCTS = ("mul", "dot_general")
# What is zero where its operands are: one of a product, all of the others.
ZEROS = (
    *PRODUCTS, *SAME, *LINEAR, "broadcast_in_dim", "convert_element_type", "reshape", "transpose", "squeeze", "slice",
    "reduce_sum", "same", "join", "step", "select_n",
)
# fmt: on


class Unknowns:
    """One walk along the trail: the exponents of every array, and what must vanish."""

    def __init__(self, kind: Kind, parameters: dict[str, Array], dtypes: dict[str, Any], outer: Outer):
        self.kind: Kind = kind
        self.owners: list[Units] = []  # of every unknown
        self.places: dict[int, tuple[Place, int]] = {}  # of those of parameters, with the number of entries there
        self.vanishing: list[Form] = []
        # Units of which something was not understood, and those that index others: these have a multiplier for each
        # position of the outer ones, which says more.
        self.dead = {units for others in outer.values() for units in others}
        self.zeros: set[int] = set()  # arrays that hold nothing but zeros, and fit any exponent
        self.known: dict[int, Exponents] = {}
        self._axes: dict[int, tuple[Array, tuple[list[Any], ...]]] = {}
        for path, array in parameters.items():
            if np.issubdtype(dtypes[path], np.inexact) or str(dtypes[path]).startswith(("bfloat", "float")):
                self.known[id(array)] = self._fresh(array, path)
            else:
                self._write(array, self.none(array))

    def follow(self, trail: Sequence[Meeting], rules: Mapping[str, "Rule"]) -> "Unknowns":
        """Walks along all equations; one without a rule lets nothing be multiplied."""
        for meeting in trail:
            if any(self.is_free(array) for array in (*meeting.inputs, *meeting.outputs)):
                rules.get(meeting.name, unknown)(self, meeting)
            elif meeting.name in ZEROS and self._makes_zeros(meeting):
                self.zeros.update(map(id, meeting.outputs))
        return self

    # What rules are made of.

    def axes(self, array: Array) -> Array:
        """The axes as they stand at the end."""
        return self._seen(array)[0]

    def leaves(self, array: Array, number: int) -> list[Any]:
        """Units and constants of one axis, in order."""
        return self._seen(array)[1][number]

    def exponents(self, array: Array) -> Exponents:
        """Those of an array; of one that nobody made nothing is known, so that nothing multiplies its units."""
        if id(array) not in self.known:
            if not isinstance(array, Known):
                self.kill(array)
            self._write(array, self.none(array))
        return self.known[id(array)]

    def write(self, array: Array, exponents: Exponents) -> None:
        """Says what the exponents of an output are."""
        self._write(array, exponents)

    def vanish(self, form: Form) -> None:
        """Says that an exponent is zero."""
        if form:
            self.vanishing.append(form)

    def plus(self, left: Form, right: Form, times: Fraction | int = 1) -> Form:
        """`left + times · right`."""
        total = dict(left)
        for unknown, value in right.items():
            total[unknown] = total.get(unknown, 0) + times * value
        if self.kind == "signs":
            return {unknown: 1 for unknown, value in total.items() if value % 2}
        return {unknown: value for unknown, value in total.items() if value}

    def kill(self, *arrays: Array) -> None:
        """Gives up on all units of arrays."""
        for array in arrays:
            self.dead.update(leaf for i in range(len(array)) for leaf in self.leaves(array, i) if is_free(leaf))

    def is_zero(self, array: Array) -> bool:
        """Whether an array is known to hold nothing but zeros."""
        return id(array) in self.zeros or (isinstance(array, Known) and not np.any(array.value))

    def carried(self, source: Array, i: int, target: Array, o: int) -> list[Form]:
        """The exponents that one axis of `target` has from one of `source`; nothing where that is constant."""
        ours, theirs = self.axes(source)[i], self.axes(target)[o]
        if not any(map(is_free, self.leaves(source, i))):
            return [NOTHING] * len(self.leaves(target, o))
        numbers = matched_leaves(ours, theirs)
        if numbers is None:
            return self.by_units(source, target, o)
        forms = self.exponents(source)[i]
        return [NOTHING if number is None else forms[number] for number in numbers]

    def carried_part(self, source: Array, i: int, target: Array, o: int, shift: int) -> list[Form]:
        """The same where position p of the source stands at p + shift of the target, if it stands there at all."""
        forms: list[Form] = [NOTHING] * len(self.leaves(target, o))
        parts = {(start, stop): (term, numbers) for start, stop, term, numbers in _segments(self.axes(source)[i])}
        given, leaves = self.exponents(source)[i], self.leaves(target, o)
        low, high = shift, shift + size_of(self.axes(source)[i])
        for start, stop, term, numbers in _segments(self.axes(target)[o]):
            if not (low <= start and stop <= high) or not any(is_free(leaves[number]) for number in numbers):
                continue
            found = parts.get((start - shift, stop - shift))
            matched = None if found is None else matched_leaves(found[0], term)
            if found is None or matched is None:
                return self.by_units(source, target, o)
            for number, own in zip(numbers, matched, strict=True):
                forms[number] = NOTHING if own is None else given[found[1][own]]
        return forms

    def aligned(self, source: Array, target: Array) -> Exponents:
        """The exponents of an operand, as the axes of the result have them; what is broadcast has none."""
        if not source:
            return self.none(target)
        return [self.carried(source, i, target, i) for i in range(len(target))]

    def equal(self, target: Array, operands: Sequence[tuple[Array, Exponents]]) -> Exponents:
        """The exponents that all operands must share, but for those that are zero."""
        # Zeros stay zeros whatever they are multiplied by: a state that begins at zero says nothing.
        counted = [exponents for array, exponents in operands if not self.is_zero(array)]
        if not counted:
            self.zeros.add(id(target))
            return self.none(target)
        first, *others = counted
        for other in others:
            for ours, theirs in zip(first, other, strict=True):
                for left, right in zip(ours, theirs, strict=True):
                    self.vanish(self.plus(left, right, -1))
        return first

    def opposite(self, left: Array, i: int, right: Array, j: int) -> None:
        """What is summed over two axes at once must not be multiplied by anything."""
        # `_matched` lets the first side be constant where the second has units, and not the reverse: both ways are
        # tried.
        for one, k, other, m in ((left, i, right, j), (right, j, left, i)):
            numbers = matched_leaves(self.axes(one)[k], self.axes(other)[m])
            if numbers is not None:
                given = self.exponents(one)[k]
                for form, number in zip(self.exponents(other)[m], numbers, strict=True):
                    self.vanish(form if number is None else self.plus(form, given[number]))
                return
        for array, k in ((left, i), (right, j)):
            self.dead.update(leaf for leaf in self.leaves(array, k) if is_free(leaf))

    def summed(self, array: Array, axes: Sequence[int]) -> None:
        """What is summed over must not be multiplied by anything."""
        for i in axes:
            for form in self.exponents(array)[i]:
                self.vanish(form)

    def fresh(self, array: Array) -> Exponents:
        """New unknowns, for what a loop hands on."""
        return self._fresh(array)

    # Inside.

    def _seen(self, array: Array) -> tuple[Array, tuple[list[Any], ...]]:
        # By identity: the trail holds every array of the walk, so that no number comes back for another one.
        if id(array) not in self._axes:
            axes = tuple(map(resolve, array))
            self._axes[id(array)] = axes, tuple(list(leaves_of(axis)) for axis in axes)
        return self._axes[id(array)]

    def is_free(self, array: Array) -> bool:
        return any(self.has_free(array, i) for i in range(len(array)))

    def has_free(self, array: Array, number: int) -> bool:
        return any(map(is_free, self.leaves(array, number)))

    def none(self, array: Array) -> Exponents:
        return [[NOTHING] * len(self.leaves(array, i)) for i in range(len(array))]

    def _write(self, array: Array, exponents: Exponents) -> None:
        # Constants and fixed units are multiplied by nothing, whatever a rule has made of them.
        self.known[id(array)] = [
            [form if is_free(leaf) else NOTHING for form, leaf in zip(forms, self.leaves(array, i), strict=True)]
            for i, forms in enumerate(exponents)
        ]

    def _fresh(self, array: Array, path: str | None = None) -> Exponents:
        exponents = self.none(array)
        size = size_of(tuple(factor for axis in array for factor in axis))
        for i in range(len(array)):
            for number, leaf in enumerate(self.leaves(array, i)):
                if is_free(leaf):
                    exponents[i][number] = {len(self.owners): 1}
                    if path is not None:
                        self.places[len(self.owners)] = (path, i, number), size
                    self.owners.append(leaf)
        return exponents

    def by_units(self, source: Array, target: Array, o: int) -> list[Form]:
        """Where places cannot be followed: units that stand once on both sides take their exponent along."""
        given, forms = self.exponents(source), []
        for leaf in self.leaves(target, o):
            own = [
                form
                for i in range(len(source))
                for form, other in zip(given[i], self.leaves(source, i), strict=True)
                if other is leaf
            ]
            same = own and all(form == own[0] for form in own)
            if is_free(leaf) and not (same and self._once(source, leaf) and self._once(target, leaf)):
                self.dead.add(leaf)
            forms.append(own[0] if same else NOTHING)
        return forms

    def _once(self, array: Array, units: Units) -> bool:
        """Whether units stand on one axis of an array only, and once in every product of it."""
        axes = [axis for i, axis in enumerate(self.axes(array)) if units in self.leaves(array, i)]
        return len(axes) == 1 and _most(axes[0], units) == 1

    def _makes_zeros(self, meeting: Meeting) -> bool:
        zero = [self.is_zero(array) for array in meeting.inputs]
        if meeting.name in PRODUCTS:
            return any(zero)
        return bool(zero) and all(zero)

    def _systems(self) -> dict[Units, "_System"]:
        sizes = {unknown: size for unknown, (_, size) in self.places.items()}
        systems = {units: _System(self, sizes) for units in dict.fromkeys(self.owners) if units not in self.dead}
        for form in self.vanishing:
            owners = {self.owners[unknown] for unknown in form}
            if len(owners) > 1:
                for units in owners:  # no rule makes such a form
                    systems.pop(units, None)
            elif owners <= systems.keys():
                systems[owners.pop()].add(form)
        return systems

    def _of_parameters(self, units: Units) -> list[int]:
        """The unknowns of units in parameters, those of the largest first."""
        own = [unknown for unknown in self.places if self.owners[unknown] is units]
        return sorted(own, key=lambda unknown: -self.places[unknown][1])

    def signs(self) -> frozenset[Place]:
        """The solution; of several, that in which as many entries as can be change their sign: one sign a unit."""
        flips: list[Place] = []
        for units, system in self._systems().items():
            own = self._of_parameters(units)
            for unknown in own:
                # Each in turn is set to one, unless those before have decided it, since `add` leaves a contradiction
                # out.
                system.add({unknown: 1, _System.ONE: 1})
            flips += [self.places[u][0] for u in own if system.reduced({u: 1}) == {_System.ONE: 1}]
        return frozenset(flips)

    def scales(self) -> dict[Place, dict[Scale, int]]:
        """All solutions, as whole powers of independent scales."""
        found: dict[Place, dict[Scale, int]] = {}
        for units, system in self._systems().items():
            forms = {unknown: system.reduced({unknown: 1}) for unknown in self._of_parameters(units)}
            free = sorted({unknown for form in forms.values() for unknown in form})
            for number, parameter in enumerate(free):
                powers = {unknown: Fraction(form[parameter]) for unknown, form in forms.items() if parameter in form}
                # A scale may be any power of itself: the smallest whole powers, the first of them positive, are the
                # one to write.
                whole = lcm(*(power.denominator for power in powers.values()))
                common = gcd(*(int(power * whole) for power in powers.values()))
                sign = 1 if powers[min(powers)] > 0 else -1
                for unknown, power in powers.items():
                    place = found.setdefault(self.places[unknown][0], {})
                    place[units, number] = sign * int(power * whole) // common
        return found


class _System:
    """Linear equations of the unknowns of one group, each solved for the unknown of the fewest entries."""

    ONE = -1  # stands for the number 1 in a form

    def __init__(self, unknowns: Unknowns, sizes: dict[int, int]):
        self._plus, self._sizes = unknowns.plus, sizes
        self._solved: dict[int, Form] = {}

    def reduced(self, form: Form) -> Form:
        """A form of the unknowns that are not solved for."""
        # What a solution names may have been solved for since.
        while solved := [unknown for unknown in form if unknown in self._solved]:
            for unknown in solved:
                if unknown in form:
                    value = form[unknown]
                    form = self._plus(self._plus(form, {unknown: value}, -1), self._solved[unknown], value)
        return form

    def add(self, form: Form) -> None:
        """Says that a form is zero, unless that contradicts what is known."""
        form = self.reduced(form)
        unknowns = [unknown for unknown in form if unknown != self.ONE]
        if unknowns:
            pivot = min(unknowns, key=lambda unknown: self._sizes.get(unknown, 0))
            value = form[pivot]
            rest = {unknown: v for unknown, v in form.items() if unknown != pivot}
            self._solved[pivot] = self._plus({}, rest, Fraction(-1, value))


def is_free(leaf: Any) -> bool:
    return isinstance(leaf, Units) and not leaf.reason


def _count(factor: Any) -> int:
    return sum(1 for _ in leaves_of((factor,)))


def _most(axis: Axis, units: Units) -> int:
    """How often units stand in one product of an axis at most."""
    total = 0
    for factor in axis:
        if isinstance(factor, Sum | Choice):
            terms = factor.terms if isinstance(factor, Sum) else factor.options
            total += max(_most(term, units) for term in terms)
        else:
            total += factor is units
    return total


def matched_leaves(source: Axis, target: Axis) -> list[int | None] | None:
    """For every leaf of `target` the number of the leaf of `source` in its place, None where that is constant.

    None for all of it where the two are not cut alike.
    """
    result: list[int | None] = []
    number, at, left = 0, 0, 1  # the next leaf and factor of the source; entries of a constant still to be matched
    for factor in target:
        if left == 1:
            if at == len(source):
                return None
            other = source[at]
            at, before, number = at + 1, number, number + _count(other)
            if not isinstance(other, Constant):
                inside = _matched_factor(other, factor)
                if inside is None:
                    return None
                result += [None if own is None else before + own for own in inside]
                continue
            left = other.size
        if left % factor.size:
            return None
        left //= factor.size
        result += [None] * _count(factor)
    return result if at == len(source) and left == 1 else None


def _matched_factor(source: Any, target: Any) -> list[int | None] | None:
    if isinstance(source, Units) and isinstance(target, Units):
        alike = source is target or (source.reason and target.reason and source.size == target.size)
        return [0] if alike else None
    terms = None
    if isinstance(source, Sum) and isinstance(target, Sum):
        terms = source.terms, target.terms
    if isinstance(source, Choice) and isinstance(target, Choice):
        terms = source.options, target.options
    if terms is None or [size_of(term) for term in terms[0]] != [size_of(term) for term in terms[1]]:
        return None
    result: list[int | None] = []
    number = 0
    for ours, theirs in zip(*terms, strict=True):
        inside = ([None] * len(list(leaves_of(theirs)))) if _is_still(ours) else matched_leaves(ours, theirs)
        if inside is None:
            return None
        result += [None if own is None else number + own for own in inside]
        number += len(list(leaves_of(ours)))
    return result


def _is_still(axis: Axis) -> bool:
    return all(isinstance(leaf, Constant) for leaf in leaves_of(axis))


def _segments(axis: Axis) -> Iterator[tuple[int, int, Axis, list[int]]]:
    """(start, stop, product, numbers of its leaves) of the parts that stand one behind the other on an axis."""
    if not axis or not isinstance(axis[0], Sum):
        yield 0, size_of(axis), axis, list(range(len(list(leaves_of(axis)))))
        return
    rest, inside = axis[1:], _count(axis[0])
    others = list(range(inside, inside + len(list(leaves_of(rest)))))
    ends, number = [0, *accumulate(size_of(term) * size_of(rest) for term in axis[0].terms)], 0
    for term, (start, stop) in zip(axis[0].terms, pairwise(ends), strict=True):
        count = len(list(leaves_of(term)))
        yield start, stop, resolve(term + rest), [*range(number, number + count), *others]
        number += count


Rule = Callable[[Unknowns, Meeting], None]


def unknown(walk: Unknowns, meeting: Meeting) -> None:
    """Nothing that goes in may be multiplied, and so nothing that comes out is."""
    for array in meeting.inputs:
        walk.summed(array, range(len(array)))
    for array in meeting.outputs:
        walk.write(array, walk.none(array))
