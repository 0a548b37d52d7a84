"""What the units of a group may be multiplied by without changing the network: signs, and positive scales.

Behind tanh a unit may change its sign, if all that reads it does too; before a ReLU it may be scaled, if all that
reads it is scaled back. Both are found alike. Every value of the program is multiplied, entry by entry, by

    Π m[unit] ** exponent      over the units that the entry stands for,

with one exponent for every place of units in every array. Those of the parameters are unknown; every equation of
the program says, linearly, what the exponents of its outputs are and what must vanish:

    a + b        the same on both sides           a * b        the sum of both
    a @ b        opposite where it is summed      tanh(a)      as they are (signs), or 0 (scales)
    relu(a)      0 (signs), or as they are        a ** 2       twice those of a

A network's multipliers are the solutions: of signs modulo 2, of scales over the rational numbers. A primitive that
is not known makes all exponents that go into it vanish, so that too little may be found, and never anything wrong.
Nothing is known of units that may not be permuted, and a sign or scale is one for each unit: where the spec indexes
a group by an outer factor, one for each position of both.
"""

from collections.abc import Callable, Iterator, Sequence
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
PASSING = ("device_put", "optimization_barrier")
SHOWING = ("debug_callback", "debug_print")

# fmt: off
SAME = (  # f(m x) = m f(x) for a sign and for a positive m
    "neg", "copy", "real", "imag", "conj", "reduce_precision", "stop_gradient", "name", "reshard",
    "sharding_constraint", "layout_constraint", "with_memory_space_constraint", "pvary", "rev",
)
ODD = (
    "tanh", "erf", "erf_inv", "sin", "tan", "asin", "atan", "sinh", "asinh", "atanh", "cbrt", "sign", "round",
    "bessel_i1e",
)
EVEN = ("abs", "cos", "cosh", "square", "is_finite")
POWERS = {
    "square": Fraction(2), "sqrt": Fraction(1, 2), "rsqrt": Fraction(-1, 2), "cbrt": Fraction(1, 3),
    "abs": Fraction(1), "sign": Fraction(0), "is_finite": Fraction(0),
}
LINEAR = ("add", "add_any", "sub", "complex")  # homogeneous in all operands at once
ORDERED = ("max", "min", "clamp")  # for positive scales
EQUALITY = ("eq", "ne")
COMPARISONS = (*EQUALITY, "lt", "le", "gt", "ge")
WRITING = ("scatter", "scatter-add", "scatter-sub", "dynamic_update_slice")
VANISHING = (
    *SAME, "broadcast_in_dim", "convert_element_type", "reshape", "transpose", "squeeze", "slice", "reduce_sum",
)
# fmt: on


def find_signs(
    parameters: dict[str, Array], dtypes: dict[str, Any], trail: Sequence[Meeting], outer: Outer
) -> frozenset[Place]:
    """Returns the places of units in the parameters where entries change their sign with the units.

    Args:
        parameters: the axes of each parameter after the walk.
        dtypes: the type of each parameter; what is not a floating-point number is multiplied by nothing.
        trail: every equation that the walk met, with calls, loops and branches as links between arrays.
        outer: the factors that units are indexed by.
    """
    return _Unknowns("signs", parameters, dtypes, outer).follow(trail).signs()


def find_scales(
    parameters: dict[str, Array], dtypes: dict[str, Any], trail: Sequence[Meeting], outer: Outer
) -> dict[Place, dict[Scale, int]]:
    """Returns the powers of the scales that entries are multiplied by, by place of units in the parameters."""
    return _Unknowns("scales", parameters, dtypes, outer).follow(trail).scales()


class _Unknowns:
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
                self._write(array, self._none(array))

    def follow(self, trail: Sequence[Meeting]) -> "_Unknowns":
        """Walks along all equations."""
        for meeting in trail:
            if any(self._free(array) for array in (*meeting.inputs, *meeting.outputs)):
                rule = RULES[self.kind].get(meeting.name, unknown)
                rule(self, meeting)
            elif self._makes_zeros(meeting):
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
            self._write(array, self._none(array))
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
            self.dead.update(leaf for i in range(len(array)) for leaf in self.leaves(array, i) if _is_free(leaf))

    def is_zero(self, array: Array) -> bool:
        """Whether an array is known to hold nothing but zeros."""
        return id(array) in self.zeros or (isinstance(array, Known) and not np.any(array.value))

    def carried(self, source: Array, i: int, target: Array, o: int) -> list[Form]:
        """The exponents that one axis of `target` has from one of `source`; nothing where that is constant."""
        ours, theirs = self.axes(source)[i], self.axes(target)[o]
        if not any(map(_is_free, self.leaves(source, i))):
            return [NOTHING] * len(self.leaves(target, o))
        numbers = _matched(ours, theirs)
        if numbers is None:
            return self._by_units(source, target, o)
        forms = self.exponents(source)[i]
        return [NOTHING if number is None else forms[number] for number in numbers]

    def carried_part(self, source: Array, i: int, target: Array, o: int, shift: int) -> list[Form]:
        """The same where position p of the source stands at p + shift of the target, if it stands there at all."""
        forms: list[Form] = [NOTHING] * len(self.leaves(target, o))
        parts = {(start, stop): (term, numbers) for start, stop, term, numbers in _segments(self.axes(source)[i])}
        given, leaves = self.exponents(source)[i], self.leaves(target, o)
        low, high = shift, shift + size_of(self.axes(source)[i])
        for start, stop, term, numbers in _segments(self.axes(target)[o]):
            if not (low <= start and stop <= high) or not any(_is_free(leaves[number]) for number in numbers):
                continue
            found = parts.get((start - shift, stop - shift))
            matched = None if found is None else _matched(found[0], term)
            if found is None or matched is None:
                return self._by_units(source, target, o)
            for number, own in zip(numbers, matched, strict=True):
                forms[number] = NOTHING if own is None else given[found[1][own]]
        return forms

    def aligned(self, source: Array, target: Array) -> Exponents:
        """The exponents of an operand, as the axes of the result have them; what is broadcast has none."""
        if not source:
            return self._none(target)
        return [self.carried(source, i, target, i) for i in range(len(target))]

    def equal(self, target: Array, operands: Sequence[tuple[Array, Exponents]]) -> Exponents:
        """The exponents that all operands must share, but for those that are zero."""
        # Zeros stay zeros whatever they are multiplied by: a state that begins at zero says nothing.
        counted = [exponents for array, exponents in operands if not self.is_zero(array)]
        if not counted:
            self.zeros.add(id(target))
            return self._none(target)
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
            numbers = _matched(self.axes(one)[k], self.axes(other)[m])
            if numbers is not None:
                given = self.exponents(one)[k]
                for form, number in zip(self.exponents(other)[m], numbers, strict=True):
                    self.vanish(form if number is None else self.plus(form, given[number]))
                return
        for array, k in ((left, i), (right, j)):
            self.dead.update(leaf for leaf in self.leaves(array, k) if _is_free(leaf))

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

    def _free(self, array: Array) -> bool:
        return any(self._has_free(array, i) for i in range(len(array)))

    def _has_free(self, array: Array, number: int) -> bool:
        return any(map(_is_free, self.leaves(array, number)))

    def _none(self, array: Array) -> Exponents:
        return [[NOTHING] * len(self.leaves(array, i)) for i in range(len(array))]

    def _write(self, array: Array, exponents: Exponents) -> None:
        # Constants and fixed units are multiplied by nothing, whatever a rule has made of them.
        self.known[id(array)] = [
            [form if _is_free(leaf) else NOTHING for form, leaf in zip(forms, self.leaves(array, i), strict=True)]
            for i, forms in enumerate(exponents)
        ]

    def _fresh(self, array: Array, path: str | None = None) -> Exponents:
        exponents = self._none(array)
        size = size_of(tuple(factor for axis in array for factor in axis))
        for i in range(len(array)):
            for number, leaf in enumerate(self.leaves(array, i)):
                if _is_free(leaf):
                    exponents[i][number] = {len(self.owners): 1}
                    if path is not None:
                        self.places[len(self.owners)] = (path, i, number), size
                    self.owners.append(leaf)
        return exponents

    def _by_units(self, source: Array, target: Array, o: int) -> list[Form]:
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
            if _is_free(leaf) and not (same and self._once(source, leaf) and self._once(target, leaf)):
                self.dead.add(leaf)
            forms.append(own[0] if same else NOTHING)
        return forms

    def _once(self, array: Array, units: Units) -> bool:
        """Whether units stand on one axis of an array only, and once in every product of it."""
        axes = [axis for i, axis in enumerate(self.axes(array)) if units in self.leaves(array, i)]
        return len(axes) == 1 and _most(axes[0], units) == 1

    def _makes_zeros(self, meeting: Meeting) -> bool:
        zero = [self.is_zero(array) for array in meeting.inputs]
        if meeting.name in ("mul", "dot_general"):
            return any(zero)
        return bool(zero) and all(zero) and meeting.name in (*VANISHING, *LINEAR, "same", "join", "step", "select_n")

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

    def __init__(self, unknowns: _Unknowns, sizes: dict[int, int]):
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


def _is_free(leaf: Any) -> bool:
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


def _matched(source: Axis, target: Axis) -> list[int | None] | None:
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
        inside = ([None] * len(list(leaves_of(theirs)))) if _is_still(ours) else _matched(ours, theirs)
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


Rule = Callable[[_Unknowns, Meeting], None]


def unknown(walk: _Unknowns, meeting: Meeting) -> None:
    """Nothing that goes in may be multiplied, and so nothing that comes out is."""
    for array in meeting.inputs:
        walk.summed(array, range(len(array)))
    for array in meeting.outputs:
        walk.write(array, walk._none(array))


def _entrywise(combine: Callable[[_Unknowns, list[Form]], Form]) -> Rule:
    """An operation on single entries, by what it makes of the exponents of its operands."""

    def rule(walk: _Unknowns, meeting: Meeting) -> None:
        (target,) = meeting.outputs
        operands = [walk.aligned(array, target) for array in meeting.inputs]
        walk.write(
            target,
            [
                [combine(walk, list(forms)) for forms in zip(*axis, strict=True)]
                for axis in zip(*operands, strict=True)
            ],
        )

    return rule


def _power(power: Fraction | int) -> Rule:
    return _entrywise(lambda walk, forms: walk.plus({}, forms[0], power))


def same(walk: _Unknowns, meeting: Meeting) -> None:
    """One output for each input, multiplied alike."""
    for source, target in zip(meeting.inputs, meeting.outputs, strict=True):
        if walk.is_zero(source):
            walk.zeros.add(id(target))
        walk.write(target, walk.aligned(source, target))


def product(walk: _Unknowns, meeting: Meeting) -> None:
    if any(map(walk.is_zero, meeting.inputs)):
        walk.zeros.add(id(meeting.outputs[0]))
    _entrywise(lambda walk, forms: walk.plus(forms[0], forms[1]))(walk, meeting)


def linear(walk: _Unknowns, meeting: Meeting) -> None:
    """f(m a, m b) = m f(a, b)."""
    (target,) = meeting.outputs
    walk.write(target, walk.equal(target, [(array, walk.aligned(array, target)) for array in meeting.inputs]))


def comparison(walk: _Unknowns, meeting: Meeting) -> None:
    """f(m a, m b) = f(a, b)."""
    linear(walk, meeting)
    walk.write(meeting.outputs[0], walk._none(meeting.outputs[0]))


def select(walk: _Unknowns, meeting: Meeting) -> None:
    which, *cases = meeting.inputs
    # A truth value is multiplied by nothing.
    walk.summed(which, range(len(which)))
    linear(walk, meeting._replace(inputs=tuple(cases)))


def convert(walk: _Unknowns, meeting: Meeting) -> None:
    """Numbers that are rounded stay what they are; integers and truth values are something else."""
    kind = np.dtype(meeting.params["new_dtype"])
    inexact = np.issubdtype(kind, np.inexact) or "float" in kind.name
    (same if inexact else unknown)(walk, meeting)


def integer_power(walk: _Unknowns, meeting: Meeting) -> None:
    _power(meeting.params["y"])(walk, meeting)


def power(walk: _Unknowns, meeting: Meeting) -> None:
    """A power that is known: a whole number, and for scales also a half."""
    exponent = meeting.inputs[1]
    value = float(exponent.value) if isinstance(exponent, Known) and not exponent else float("nan")
    # A root of a negative number is none, so that a sign has whole powers alone; a positive scale has roots too.
    steps = 1 if walk.kind == "signs" else 2
    if not float(steps * value).is_integer():
        return unknown(walk, meeting)
    _power(Fraction(int(steps * value), steps))(walk, meeting._replace(inputs=meeting.inputs[:1]))


def dot_general(walk: _Unknowns, meeting: Meeting) -> None:
    (left, right), (target,) = meeting.inputs, meeting.outputs
    (left_summed, right_summed), (left_batch, right_batch) = meeting.params["dimension_numbers"]
    # A product with zeros ties its factors to nothing.
    if walk.is_zero(left) or walk.is_zero(right):
        walk.zeros.add(id(target))
        return walk.write(target, walk._none(target))
    for i, j in zip(left_summed, right_summed, strict=True):
        walk.opposite(left, i, right, j)
    exponents: Exponents = []
    for o, (i, j) in enumerate(zip(left_batch, right_batch, strict=True)):
        pairs = zip(walk.carried(left, i, target, o), walk.carried(right, j, target, o), strict=True)
        exponents.append([walk.plus(*pair) for pair in pairs])
    for array, gone in ((left, (*left_summed, *left_batch)), (right, (*right_summed, *right_batch))):
        for i in range(len(array)):
            if i not in gone:
                exponents.append(walk.carried(array, i, target, len(exponents)))
    walk.write(target, exponents)


def convolution(walk: _Unknowns, meeting: Meeting) -> None:
    """Features are summed over window and input; where they are in groups, those of input and kernel meet."""
    (image, kernel), (target,) = meeting.inputs, meeting.outputs
    numbers = meeting.params["dimension_numbers"]
    batch, feature, *spatial = numbers.lhs_spec
    kernel_out, kernel_in, *window = numbers.rhs_spec
    out_batch, out_feature, *out_spatial = numbers.out_spec
    groups = meeting.params["feature_group_count"]
    features = walk.leaves(image, feature)
    count = _leading(walk.axes(image)[feature], groups)
    if meeting.params["batch_group_count"] != 1 or count is None:
        return unknown(walk, meeting)
    exponents = walk._none(target)
    exponents[out_batch] = walk.carried(image, batch, target, out_batch)
    exponents[out_feature] = walk.carried(kernel, kernel_out, target, out_feature)
    for number in range(count):  # those of the groups come first on both sides
        own = walk.exponents(image)[feature][number]
        if _is_free(features[number]) and walk.leaves(target, out_feature)[number] is not features[number]:
            walk.dead.add(features[number])
        exponents[out_feature][number] = walk.plus(exponents[out_feature][number], own)
    if count:
        inner = walk.axes(image)[feature][count:]
        matched = _matched(walk.axes(kernel)[kernel_in], inner)
        given = walk.exponents(kernel)[kernel_in]
        for number, form in enumerate(walk.exponents(image)[feature][count:]):
            if matched is None:
                walk.kill(image, kernel)
                break
            own = matched[number]
            walk.vanish(walk.plus(form, NOTHING if own is None else given[own]))
        if not inner:
            walk.summed(kernel, [kernel_in])
    else:
        walk.opposite(image, feature, kernel, kernel_in)
    walk.summed(kernel, window)
    for i, o in zip(spatial, out_spatial, strict=True):
        if walk._has_free(image, i):
            exponents[o] = walk.carried(image, i, target, o)
    walk.write(target, exponents)


def _leading(axis: Axis, groups: int) -> int | None:
    """How many factors in front count groups; None where no factor ends there."""
    size, count = 1, 0
    while size < groups and count < len(axis) and isinstance(axis[count], Units):
        size, count = size * axis[count].size, count + 1
    return count if size == groups else None


def _reduction(walk: _Unknowns, meeting: Meeting) -> None:
    (source, *_), (target, *_) = meeting.inputs, meeting.outputs
    gone = meeting.params["axes"]
    walk.summed(source, gone)
    left = [i for i in range(len(source)) if i not in gone]
    walk.write(target, [walk.carried(source, i, target, o) for o, i in enumerate(left)])
    if walk.is_zero(source):
        walk.zeros.add(id(target))


def position_of_extreme(walk: _Unknowns, meeting: Meeting) -> None:
    walk.summed(meeting.inputs[0], meeting.params["axes"])
    walk.write(meeting.outputs[0], walk._none(meeting.outputs[0]))


def along_one_axis(walk: _Unknowns, meeting: Meeting) -> None:
    walk.summed(meeting.inputs[0], [meeting.params["axis"] % len(meeting.inputs[0])])
    same(walk, meeting)


def window(walk: _Unknowns, meeting: Meeting) -> None:
    """Pooling; the axes that it goes along are fixed."""
    if len(meeting.inputs) != 1:
        return unknown(walk, meeting)
    same(walk, meeting)


def transpose(walk: _Unknowns, meeting: Meeting) -> None:
    _renumbered(walk, meeting, {i: o for o, i in enumerate(meeting.params["permutation"])})


def squeeze(walk: _Unknowns, meeting: Meeting) -> None:
    rank = len(meeting.inputs[0])
    gone = {i % rank for i in meeting.params["dimensions"]}
    _renumbered(walk, meeting, {i: o for o, i in enumerate(i for i in range(rank) if i not in gone)})


def broadcast_in_dim(walk: _Unknowns, meeting: Meeting) -> None:
    _renumbered(walk, meeting, dict(enumerate(meeting.params["broadcast_dimensions"])))


def _renumbered(walk: _Unknowns, meeting: Meeting, to: dict[int, int]) -> None:
    source, (target,) = meeting.inputs[0], meeting.outputs
    exponents = walk._none(target)
    for i, o in to.items():
        exponents[o] = walk.carried(source, i, target, o)
    walk.write(target, exponents)
    if walk.is_zero(source):
        walk.zeros.add(id(target))


def reshape(walk: _Unknowns, meeting: Meeting) -> None:
    (source, *_), (target,) = meeting.inputs, meeting.outputs
    ours, theirs = (tuple(factor for axis in walk.axes(array) for factor in axis) for array in (source, target))
    numbers, exponents = _matched(ours, theirs), walk._none(target)
    given = [form for forms in walk.exponents(source) for form in forms]
    at = 0
    for o in range(len(target)):
        if numbers is None:
            exponents[o] = walk._by_units(source, target, o)
        else:
            for number in range(len(exponents[o])):
                own = numbers[at]
                exponents[o][number], at = NOTHING if own is None else given[own], at + 1
    walk.write(target, exponents)
    if walk.is_zero(source):
        walk.zeros.add(id(target))


def slice_(walk: _Unknowns, meeting: Meeting) -> None:
    (source,), (target,) = meeting.inputs, meeting.outputs
    starts, strides = meeting.params["start_indices"], meeting.params["strides"] or (1,) * len(source)
    walk.write(target, [_cut(walk, source, target, i, starts[i], strides[i]) for i in range(len(source))])
    if walk.is_zero(source):
        walk.zeros.add(id(target))


def _cut(walk: _Unknowns, source: Array, target: Array, i: int, start: int, stride: int) -> list[Form]:
    if size_of(walk.axes(source)[i]) == size_of(walk.axes(target)[i]):
        return walk.carried(source, i, target, i)
    if stride != 1:
        return walk._by_units(source, target, i)
    return walk.carried_part(source, i, target, i, -start)


def split(walk: _Unknowns, meeting: Meeting) -> None:
    (source,), axis = meeting.inputs, meeting.params["axis"] % len(meeting.inputs[0])
    start = 0
    for target in meeting.outputs:
        walk.write(target, [_cut(walk, source, target, i, start if i == axis else 0, 1) for i in range(len(source))])
        start += size_of(walk.axes(target)[axis])


def concatenate(walk: _Unknowns, meeting: Meeting) -> None:
    (target,), axis = meeting.outputs, meeting.params["dimension"]
    operands, start, forms = [], 0, [NOTHING] * len(walk.leaves(target, axis))
    for array in meeting.inputs:
        part = walk.carried_part(array, axis, target, axis, start)
        # Parts do not overlap: at every place at most one of them has something to say.
        forms = [old or new for old, new in zip(forms, part, strict=True)]
        start += size_of(walk.axes(array)[axis])
        others = [walk.carried(array, i, target, i) if i != axis else [] for i in range(len(target))]
        operands.append((array, others))
    rest = walk.axes(target)[axis][1:]
    if rest and isinstance(walk.axes(target)[axis][0], Sum):  # one factor for all parts, each with its own exponent
        walk.dead.update(leaf for leaf in leaves_of(rest) if isinstance(leaf, Units))
    exponents = walk.equal(target, operands)
    walk.write(target, [forms if i == axis else exponents[i] for i in range(len(target))])


def pad(walk: _Unknowns, meeting: Meeting) -> None:
    (source, value), (target,) = meeting.inputs, meeting.outputs
    padding = [tuple(map(int, config)) for config in meeting.params["padding_config"]]
    exponents: Exponents = []
    for i, (low, high, interior) in enumerate(padding):
        if interior:
            exponents.append(walk._by_units(source, target, i))
        elif (low, high) == (0, 0):
            exponents.append(walk.carried(source, i, target, i))
        else:
            exponents.append(walk.carried_part(source, i, target, i, low))
    if not walk.is_zero(value):  # which is multiplied by nothing, whatever stands beside it
        walk.summed(source, range(len(source)))
    walk.write(target, exponents)


def gather(walk: _Unknowns, meeting: Meeting) -> None:
    """Entries are picked; an index is multiplied by nothing. What is out of bounds is filled with zeros, or NaN."""
    indices = meeting.inputs[1]
    if meeting.params.get("fill_value") not in (None, 0) or walk._free(indices):
        return unknown(walk, meeting)
    _picked(walk, meeting)


def dynamic_slice(walk: _Unknowns, meeting: Meeting) -> None:
    if any(map(walk._free, meeting.inputs[1:])):
        return unknown(walk, meeting)
    _picked(walk, meeting)


def _picked(walk: _Unknowns, meeting: Meeting) -> None:
    source, (target,) = meeting.inputs[0], meeting.outputs
    # Where a number chooses an entry, that of one unit must be that of any other.
    sizes = enumerate(meeting.params["slice_sizes"])
    walk.summed(source, [i for i, size in sizes if size != size_of(source[i])])
    walk.write(target, [walk._by_units(source, target, o) for o in range(len(target))])


def written(walk: _Unknowns, meeting: Meeting) -> None:
    """Entries of one array are put into another, or added to it: both are multiplied alike."""
    (target,) = meeting.outputs
    if meeting.name == "dynamic_update_slice":
        array, update, *others = meeting.inputs
    else:
        array, indices, update = meeting.inputs
        others = [indices]
    if any(map(walk._free, others)):
        return unknown(walk, meeting)
    arrays = [each for each in (array, update) if not walk.is_zero(each)]
    operands = [(each, [walk._by_units(each, target, o) for o in range(len(target))]) for each in arrays]
    walk.write(target, walk.equal(target, operands))
    for each in arrays:  # units that are in one of the two only are not written to at all, or at fixed places
        if {leaf for i in range(len(each)) for leaf in walk.leaves(each, i) if _is_free(leaf)} - {
            leaf for i in range(len(target)) for leaf in walk.leaves(target, i)
        }:
            walk.kill(each)


def branch(walk: _Unknowns, meeting: Meeting) -> None:
    """Arrays of which the program takes one: those of branches, and of all turns of a loop."""
    linear(walk, meeting)


def handed_on(walk: _Unknowns, meeting: Meeting) -> None:
    """What a loop begins with: zeros do not say how it goes on."""
    (source,), (target,) = meeting.inputs, meeting.outputs
    walk.known[id(target)] = walk.fresh(target)
    if not walk.is_zero(source):
        for given, forms in zip(walk.aligned(source, target), walk.known[id(target)], strict=True):
            for ours, theirs in zip(given, forms, strict=True):
                walk.vanish(walk.plus(ours, theirs, -1))


def one_step(walk: _Unknowns, meeting: Meeting) -> None:
    """What a scan goes along is not multiplied; the body sees the rest."""
    (source,), (target,) = meeting.inputs, meeting.outputs
    walk.summed(source, [0])
    walk.write(target, [walk.carried(source, i + 1, target, i) for i in range(len(target))])
    if walk.is_zero(source):
        walk.zeros.add(id(target))


def all_steps(walk: _Unknowns, meeting: Meeting) -> None:
    (source,), (target,) = meeting.inputs, meeting.outputs
    first = [NOTHING] * len(walk.leaves(target, 0))
    walk.write(target, [first, *(walk.carried(source, i, target, i + 1) for i in range(len(source)))])


def shown(walk: _Unknowns, meeting: Meeting) -> None:
    """What is shown does not come back."""


BOTH: dict[str, Rule] = {
    **dict.fromkeys((*SAME, *PASSING, "same"), same),
    **dict.fromkeys(SHOWING, shown),
    **dict.fromkeys(LINEAR, linear),
    **dict.fromkeys(WRITING, written),
    **dict.fromkeys(EQUALITY, comparison),
    "mul": product,
    "div": _entrywise(lambda walk, forms: walk.plus(forms[0], forms[1], -1)),
    "integer_pow": integer_power,
    "pow": power,
    "select_n": select,
    "convert_element_type": convert,
    "dot_general": dot_general,
    "conv_general_dilated": convolution,
    "reduce_sum": _reduction,
    "cumsum": along_one_axis,
    "reduce_window_sum": window,
    "transpose": transpose,
    "squeeze": squeeze,
    "broadcast_in_dim": broadcast_in_dim,
    "reshape": reshape,
    "slice": slice_,
    "split": split,
    "concatenate": concatenate,
    "pad": pad,
    "gather": gather,
    "dynamic_slice": dynamic_slice,
    "join": branch,
    "carry": handed_on,
    "step": one_step,
    "stack of steps": all_steps,
}
RULES: dict[Kind, dict[str, Rule]] = {
    "signs": BOTH | dict.fromkeys(ODD, same) | dict.fromkeys(EVEN, _power(0)),
    "scales": BOTH
    | {name: _power(power) for name, power in POWERS.items()}
    | dict.fromkeys(ORDERED, linear)
    | dict.fromkeys(COMPARISONS, comparison)
    | dict.fromkeys(("reduce_max", "reduce_min"), _reduction)
    | dict.fromkeys(("argmax", "argmin"), position_of_extreme)
    | dict.fromkeys(("cummax", "cummin"), along_one_axis)
    | {"reduce_window_max": window, "reduce_window_min": window},
}
