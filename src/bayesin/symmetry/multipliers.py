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

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from .exponents import (
    LINEAR,
    NOTHING,
    SAME,
    Exponents,
    Form,
    Kind,
    Place,
    Rule,
    Scale,
    Unknowns,
    is_free,
    matched_leaves,
    unknown,
)
from .factors import Array, Axis, Sum, Units, leaves_of, size_of
from .indexed import Meeting, Outer
from .values import Known

PASSING = ("device_put", "optimization_barrier")
SHOWING = ("debug_callback", "debug_print")

# fmt: off
ODD = (
    "tanh", "erf", "erf_inv", "sin", "tan", "asin", "atan", "sinh", "asinh", "atanh", "cbrt", "sign", "round",
    "bessel_i1e",
)
EVEN = ("abs", "cos", "cosh", "square", "is_finite")
POWERS = {
    "square": Fraction(2), "sqrt": Fraction(1, 2), "rsqrt": Fraction(-1, 2), "cbrt": Fraction(1, 3),
    "abs": Fraction(1), "sign": Fraction(0), "is_finite": Fraction(0),
}
ORDERED = ("max", "min", "clamp")  # for positive scales
EQUALITY = ("eq", "ne")
COMPARISONS = (*EQUALITY, "lt", "le", "gt", "ge")
WRITING = ("scatter", "scatter-add", "scatter-sub", "dynamic_update_slice")
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
    return Unknowns("signs", parameters, dtypes, outer).follow(trail, RULES["signs"]).signs()


def find_scales(
    parameters: dict[str, Array], dtypes: dict[str, Any], trail: Sequence[Meeting], outer: Outer
) -> dict[Place, dict[Scale, int]]:
    """Returns the powers of the scales that entries are multiplied by, by place of units in the parameters."""
    return Unknowns("scales", parameters, dtypes, outer).follow(trail, RULES["scales"]).scales()


def _entrywise(combine: Callable[[Unknowns, list[Form]], Form]) -> Rule:
    """An operation on single entries, by what it makes of the exponents of its operands."""

    def rule(walk: Unknowns, meeting: Meeting) -> None:
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


def same(walk: Unknowns, meeting: Meeting) -> None:
    """One output for each input, multiplied alike."""
    for source, target in zip(meeting.inputs, meeting.outputs, strict=True):
        if walk.is_zero(source):
            walk.zeros.add(id(target))
        walk.write(target, walk.aligned(source, target))


def product(walk: Unknowns, meeting: Meeting) -> None:
    if any(map(walk.is_zero, meeting.inputs)):
        walk.zeros.add(id(meeting.outputs[0]))
    _entrywise(lambda walk, forms: walk.plus(forms[0], forms[1]))(walk, meeting)


def linear(walk: Unknowns, meeting: Meeting) -> None:
    """f(m a, m b) = m f(a, b)."""
    (target,) = meeting.outputs
    walk.write(target, walk.equal(target, [(array, walk.aligned(array, target)) for array in meeting.inputs]))


def comparison(walk: Unknowns, meeting: Meeting) -> None:
    """f(m a, m b) = f(a, b)."""
    linear(walk, meeting)
    walk.write(meeting.outputs[0], walk.none(meeting.outputs[0]))


def select(walk: Unknowns, meeting: Meeting) -> None:
    which, *cases = meeting.inputs
    # A truth value is multiplied by nothing.
    walk.summed(which, range(len(which)))
    linear(walk, meeting._replace(inputs=tuple(cases)))


def convert(walk: Unknowns, meeting: Meeting) -> None:
    """Numbers that are rounded stay what they are; integers and truth values are something else."""
    kind = np.dtype(meeting.params["new_dtype"])
    inexact = np.issubdtype(kind, np.inexact) or "float" in kind.name
    (same if inexact else unknown)(walk, meeting)


def integer_power(walk: Unknowns, meeting: Meeting) -> None:
    _power(meeting.params["y"])(walk, meeting)


def power(walk: Unknowns, meeting: Meeting) -> None:
    """A power that is known: a whole number, and for scales also a half."""
    exponent = meeting.inputs[1]
    value = float(exponent.value) if isinstance(exponent, Known) and not exponent else float("nan")
    # A root of a negative number is none, so that a sign has whole powers alone; a positive scale has roots too.
    steps = 1 if walk.kind == "signs" else 2
    if not float(steps * value).is_integer():
        return unknown(walk, meeting)
    _power(Fraction(int(steps * value), steps))(walk, meeting._replace(inputs=meeting.inputs[:1]))


def dot_general(walk: Unknowns, meeting: Meeting) -> None:
    (left, right), (target,) = meeting.inputs, meeting.outputs
    (left_summed, right_summed), (left_batch, right_batch) = meeting.params["dimension_numbers"]
    # A product with zeros ties its factors to nothing.
    if walk.is_zero(left) or walk.is_zero(right):
        walk.zeros.add(id(target))
        return walk.write(target, walk.none(target))
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


def convolution(walk: Unknowns, meeting: Meeting) -> None:
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
    exponents = walk.none(target)
    exponents[out_batch] = walk.carried(image, batch, target, out_batch)
    exponents[out_feature] = walk.carried(kernel, kernel_out, target, out_feature)
    for number in range(count):  # those of the groups come first on both sides
        own = walk.exponents(image)[feature][number]
        if is_free(features[number]) and walk.leaves(target, out_feature)[number] is not features[number]:
            walk.dead.add(features[number])
        exponents[out_feature][number] = walk.plus(exponents[out_feature][number], own)
    if count:
        inner = walk.axes(image)[feature][count:]
        matched = matched_leaves(walk.axes(kernel)[kernel_in], inner)
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
        if walk.has_free(image, i):
            exponents[o] = walk.carried(image, i, target, o)
    walk.write(target, exponents)


def _leading(axis: Axis, groups: int) -> int | None:
    """How many factors in front count groups; None where no factor ends there."""
    size, count = 1, 0
    while size < groups and count < len(axis) and isinstance(axis[count], Units):
        size, count = size * axis[count].size, count + 1
    return count if size == groups else None


def _reduction(walk: Unknowns, meeting: Meeting) -> None:
    (source, *_), (target, *_) = meeting.inputs, meeting.outputs
    gone = meeting.params["axes"]
    walk.summed(source, gone)
    left = [i for i in range(len(source)) if i not in gone]
    walk.write(target, [walk.carried(source, i, target, o) for o, i in enumerate(left)])
    if walk.is_zero(source):
        walk.zeros.add(id(target))


def position_of_extreme(walk: Unknowns, meeting: Meeting) -> None:
    walk.summed(meeting.inputs[0], meeting.params["axes"])
    walk.write(meeting.outputs[0], walk.none(meeting.outputs[0]))


def along_one_axis(walk: Unknowns, meeting: Meeting) -> None:
    walk.summed(meeting.inputs[0], [meeting.params["axis"] % len(meeting.inputs[0])])
    same(walk, meeting)


def window(walk: Unknowns, meeting: Meeting) -> None:
    """Pooling; the axes that it goes along are fixed."""
    if len(meeting.inputs) != 1:
        return unknown(walk, meeting)
    same(walk, meeting)


def transpose(walk: Unknowns, meeting: Meeting) -> None:
    _renumbered(walk, meeting, {i: o for o, i in enumerate(meeting.params["permutation"])})


def squeeze(walk: Unknowns, meeting: Meeting) -> None:
    rank = len(meeting.inputs[0])
    gone = {i % rank for i in meeting.params["dimensions"]}
    _renumbered(walk, meeting, {i: o for o, i in enumerate(i for i in range(rank) if i not in gone)})


def broadcast_in_dim(walk: Unknowns, meeting: Meeting) -> None:
    _renumbered(walk, meeting, dict(enumerate(meeting.params["broadcast_dimensions"])))


def _renumbered(walk: Unknowns, meeting: Meeting, to: dict[int, int]) -> None:
    source, (target,) = meeting.inputs[0], meeting.outputs
    exponents = walk.none(target)
    for i, o in to.items():
        exponents[o] = walk.carried(source, i, target, o)
    walk.write(target, exponents)
    if walk.is_zero(source):
        walk.zeros.add(id(target))


def reshape(walk: Unknowns, meeting: Meeting) -> None:
    (source, *_), (target,) = meeting.inputs, meeting.outputs
    ours, theirs = (tuple(factor for axis in walk.axes(array) for factor in axis) for array in (source, target))
    numbers, exponents = matched_leaves(ours, theirs), walk.none(target)
    given = [form for forms in walk.exponents(source) for form in forms]
    at = 0
    for o in range(len(target)):
        if numbers is None:
            exponents[o] = walk.by_units(source, target, o)
        else:
            for number in range(len(exponents[o])):
                own = numbers[at]
                exponents[o][number], at = NOTHING if own is None else given[own], at + 1
    walk.write(target, exponents)
    if walk.is_zero(source):
        walk.zeros.add(id(target))


def slice_(walk: Unknowns, meeting: Meeting) -> None:
    (source,), (target,) = meeting.inputs, meeting.outputs
    starts, strides = meeting.params["start_indices"], meeting.params["strides"] or (1,) * len(source)
    walk.write(target, [_cut(walk, source, target, i, starts[i], strides[i]) for i in range(len(source))])
    if walk.is_zero(source):
        walk.zeros.add(id(target))


def _cut(walk: Unknowns, source: Array, target: Array, i: int, start: int, stride: int) -> list[Form]:
    if size_of(walk.axes(source)[i]) == size_of(walk.axes(target)[i]):
        return walk.carried(source, i, target, i)
    if stride != 1:
        return walk.by_units(source, target, i)
    return walk.carried_part(source, i, target, i, -start)


def split(walk: Unknowns, meeting: Meeting) -> None:
    (source,), axis = meeting.inputs, meeting.params["axis"] % len(meeting.inputs[0])
    start = 0
    for target in meeting.outputs:
        walk.write(target, [_cut(walk, source, target, i, start if i == axis else 0, 1) for i in range(len(source))])
        start += size_of(walk.axes(target)[axis])


def concatenate(walk: Unknowns, meeting: Meeting) -> None:
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


def pad(walk: Unknowns, meeting: Meeting) -> None:
    (source, value), (target,) = meeting.inputs, meeting.outputs
    padding = [tuple(map(int, config)) for config in meeting.params["padding_config"]]
    exponents: Exponents = []
    for i, (low, high, interior) in enumerate(padding):
        if interior:
            exponents.append(walk.by_units(source, target, i))
        elif (low, high) == (0, 0):
            exponents.append(walk.carried(source, i, target, i))
        else:
            exponents.append(walk.carried_part(source, i, target, i, low))
    if not walk.is_zero(value):  # which is multiplied by nothing, whatever stands beside it
        walk.summed(source, range(len(source)))
    walk.write(target, exponents)


def gather(walk: Unknowns, meeting: Meeting) -> None:
    """Entries are picked; an index is multiplied by nothing. What is out of bounds is filled with zeros, or NaN."""
    indices = meeting.inputs[1]
    if meeting.params.get("fill_value") not in (None, 0) or walk.is_free(indices):
        return unknown(walk, meeting)
    _picked(walk, meeting)


def dynamic_slice(walk: Unknowns, meeting: Meeting) -> None:
    if any(map(walk.is_free, meeting.inputs[1:])):
        return unknown(walk, meeting)
    _picked(walk, meeting)


def _picked(walk: Unknowns, meeting: Meeting) -> None:
    source, (target,) = meeting.inputs[0], meeting.outputs
    # Where a number chooses an entry, that of one unit must be that of any other.
    sizes = enumerate(meeting.params["slice_sizes"])
    walk.summed(source, [i for i, size in sizes if size != size_of(source[i])])
    walk.write(target, [walk.by_units(source, target, o) for o in range(len(target))])


def written(walk: Unknowns, meeting: Meeting) -> None:
    """Entries of one array are put into another, or added to it: both are multiplied alike."""
    (target,) = meeting.outputs
    if meeting.name == "dynamic_update_slice":
        array, update, *others = meeting.inputs
    else:
        array, indices, update = meeting.inputs
        others = [indices]
    if any(map(walk.is_free, others)):
        return unknown(walk, meeting)
    arrays = [each for each in (array, update) if not walk.is_zero(each)]
    operands = [(each, [walk.by_units(each, target, o) for o in range(len(target))]) for each in arrays]
    walk.write(target, walk.equal(target, operands))
    for each in arrays:  # units that are in one of the two only are not written to at all, or at fixed places
        if {leaf for i in range(len(each)) for leaf in walk.leaves(each, i) if is_free(leaf)} - {
            leaf for i in range(len(target)) for leaf in walk.leaves(target, i)
        }:
            walk.kill(each)


def branch(walk: Unknowns, meeting: Meeting) -> None:
    """Arrays of which the program takes one: those of branches, and of all turns of a loop."""
    linear(walk, meeting)


def handed_on(walk: Unknowns, meeting: Meeting) -> None:
    """What a loop begins with: zeros do not say how it goes on."""
    (source,), (target,) = meeting.inputs, meeting.outputs
    walk.known[id(target)] = walk.fresh(target)
    if not walk.is_zero(source):
        for given, forms in zip(walk.aligned(source, target), walk.known[id(target)], strict=True):
            for ours, theirs in zip(given, forms, strict=True):
                walk.vanish(walk.plus(ours, theirs, -1))


def one_step(walk: Unknowns, meeting: Meeting) -> None:
    """What a scan goes along is not multiplied; the body sees the rest."""
    (source,), (target,) = meeting.inputs, meeting.outputs
    walk.summed(source, [0])
    walk.write(target, [walk.carried(source, i + 1, target, i) for i in range(len(target))])
    if walk.is_zero(source):
        walk.zeros.add(id(target))


def all_steps(walk: Unknowns, meeting: Meeting) -> None:
    (source,), (target,) = meeting.inputs, meeting.outputs
    first = [NOTHING] * len(walk.leaves(target, 0))
    walk.write(target, [first, *(walk.carried(source, i, target, i + 1) for i in range(len(source)))])


def shown(walk: Unknowns, meeting: Meeting) -> None:
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
