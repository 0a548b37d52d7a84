"""What is known of the entries of an array, but for parameters and inputs of measure zero.

Where `argmax` chooses between units, the first of several equal scores wins, which tells their units apart by their
place. So it matters whether scores can be equal: behind a ReLU they can, as all that are off are zero; the scores of
a router, a product of its kernel with what is not zero, cannot. Three things are followed through a program:

- `filled`: no entry is zero;
- `own`: axes along which entries are made of entries of their own of one parameter, everything else being given, and
  each of them is either zero or takes no single value with a probability above zero. Two of them that are not zero
  differ then, and so does their sum with anything that the parameter has no part in;
- `apart`: axes along which no two entries are equal.

The parameters and the input are taken to be generic: every entry is a number of its own. An operation that is not in
the table makes an array of which nothing is known.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .factors import Array, is_constant, resolve, size_of
from .values import NOTHING, Axes, Entries, Own, Value


def generic_entries(name: int, array: Array, dtype: Any) -> Entries:
    """Those of a parameter or an input, if its type tells enough numbers apart."""
    if not is_fine(dtype):
        return Entries(frozenset([name]))
    axes = frozenset(range(len(array)))
    return Entries(frozenset([name]), True, {name: Own(axes, 1)}, axes)


def known_entries(value: Any) -> Entries:
    """Those of a value that is written in the program."""
    dtype = getattr(value, "dtype", np.dtype(np.float32))  # a number in the program text has the type of its array
    is_number = isinstance(dtype, np.dtype) and dtype.kind in "fiuc"
    return Entries(frozenset(), is_number and bool(np.all(np.isfinite(value) & (np.asarray(value) != 0))))


def is_fine(dtype: Any) -> bool:
    """Whether numbers of this type are equal by rounding so seldom that they may be taken as real ones."""
    return isinstance(dtype, np.dtype) and dtype.kind in "fc" and dtype.itemsize >= 4


def _depends(value: Value, parameter: int) -> bool:
    """Whether an array may depend on a parameter."""
    return value.entries.made_of is None or parameter in value.entries.made_of


def _is_constant(value: Value, number: int) -> bool:
    """Whether nothing changes along an axis; a scalar has none."""
    return not value or is_constant(resolve(value[number]))


def entries_of(equation: Any, inputs: Sequence[Value], output: Value, number: int) -> Entries:
    """What is known of one output of an equation that holds no other."""
    name, made_of = equation.primitive.name, [value.entries.made_of for value in inputs]
    # What reads memory depends on whatever was written there.
    parts = [part for part in made_of if part is not None]
    whole = frozenset[int]().union(*parts) if len(parts) == len(made_of) and not equation.effects else None
    rule = RULES.get(name)
    if rule is None or not is_fine(getattr(equation.outvars[number].aval, "dtype", None)):
        return Entries(whole)
    known = rule(equation.params, inputs, output)
    differ = (own.axes for own in known.own.values()) if known.filled else ()
    return replace(known, made_of=whole, apart=known.apart.union(*differ))


Rule = Callable[[dict[str, Any], Sequence[Value], Value], Entries]


def _moved(known: Entries, to: Mapping[int, int]) -> Entries:
    """Entries that are put elsewhere: `to` is the new number of every axis that keeps its entries apart."""

    def numbers(axes: Axes) -> Axes:
        return frozenset(to[axis] for axis in axes if axis in to)

    own = {parameter: replace(own, axes=numbers(own.axes)) for parameter, own in known.own.items()}
    return replace(known, own=own, apart=numbers(known.apart))


def _same(params: dict[str, Any], inputs: Sequence[Value], output: Value) -> Entries:
    return inputs[0].entries


def _function(
    *, at_zero: float | None = 0, filled: bool | None = None, monotonic: bool = False, degree: int | None = None
) -> Rule:
    """A smooth function of single entries.

    Args:
        at_zero: its value at zero; None for infinity.
        filled: whether its values are never zero; None if they are not where its argument is not.
        monotonic: whether different arguments have different values.
        degree: of the power that it is.
    """

    def rule(params: dict[str, Any], inputs: Sequence[Value], output: Value) -> Entries:
        known = inputs[0].entries
        # Of an argument that is exactly zero the value is one number, which may be equal to another.
        keeps = known.filled or at_zero == 0
        own = {p: Own(o.axes, degree and o.degree and degree * o.degree) for p, o in known.own.items() if keeps}
        is_filled = known.filled if filled is None else filled
        return Entries(filled=is_filled, own=own, apart=known.apart if monotonic else frozenset())

    return rule


def _power(params: dict[str, Any], inputs: Sequence[Value], output: Value) -> Entries:
    exponent = params["y"]
    if exponent == 0:
        return NOTHING
    rule = _function(at_zero=0 if exponent > 0 else None, degree=exponent if exponent > 0 else None)
    return rule(params, inputs, output)


def _transposed(params: dict[str, Any], inputs: Sequence[Value], output: Value) -> Entries:
    return _moved(inputs[0].entries, {i: o for o, i in enumerate(params["permutation"])})


def _squeezed(params: dict[str, Any], inputs: Sequence[Value], output: Value) -> Entries:
    rank = len(inputs[0])
    gone = {i % rank for i in params["dimensions"]}
    return _moved(inputs[0].entries, {i: o for o, i in enumerate(i for i in range(rank) if i not in gone)})


def _broadcast(params: dict[str, Any], inputs: Sequence[Value], output: Value) -> Entries:
    array, to = inputs[0], params["broadcast_dimensions"]
    whole = {i: o for i, o in enumerate(to) if size_of(array[i]) == size_of(output[o])}
    return _moved(inputs[0].entries, whole)


def _reshaped(params: dict[str, Any], inputs: Sequence[Value], output: Value) -> Entries:
    """Axes in front and at the end stay, as far as they are the same; entries all of their own stay so."""
    known, before, after = inputs[0].entries, *([size_of(axis) for axis in a] for a in (inputs[0], output))
    shorter = min(len(before), len(after))
    front = next((i for i in range(shorter) if before[i] != after[i]), shorter)
    end = next((i for i in range(shorter) if before[-1 - i] != after[-1 - i]), shorter)
    to = {i: i for i in range(front)} | {len(before) - i: len(after) - i for i in range(1, end + 1)}
    everywhere, all_axes = frozenset(range(len(after))), frozenset(range(len(before)))
    moved = _moved(known, to)
    own = {p: Own(everywhere, one.degree) if known.own[p].axes == all_axes else one for p, one in moved.own.items()}
    return replace(moved, own=own)


def _sum(params: dict[str, Any], inputs: Sequence[Value], output: Value) -> Entries:
    left, right = inputs
    both, own = left.entries.filled and right.entries.filled, dict[int, Own]()
    for one, other in ((left, right), (right, left)):
        for parameter, mine in one.entries.own.items():
            theirs = other.entries.own.get(parameter)
            if not _depends(other, parameter) and one.entries.filled:
                own[parameter] = Own(mine.axes)
            # Polynomials of different degrees do not cancel.
            elif theirs and mine.degree and theirs.degree and mine.degree != theirs.degree and both:
                own[parameter] = Own(mine.axes & theirs.axes)
    # What is zero at some entries and anything at the others is not the negative of what is never zero.
    filled = bool(own) or any(
        other.entries.filled and any(not _depends(other, parameter) for parameter in one.entries.own)
        for one, other in ((left, right), (right, left))
    )
    apart = {i for one, other in ((left, right), (right, left)) for i in one.entries.apart if _is_constant(other, i)}
    return Entries(filled=filled, own=own, apart=frozenset(apart))


def _product(params: dict[str, Any], inputs: Sequence[Value], output: Value) -> Entries:
    left, right = inputs
    own: dict[int, Own] = {}
    for one, other in ((left, right), (right, left)):
        for parameter, mine in one.entries.own.items():
            theirs = other.entries.own.get(parameter)
            if not _depends(other, parameter):
                own[parameter] = mine
            elif theirs and mine.degree and theirs.degree:
                own[parameter] = Own(mine.axes & theirs.axes, mine.degree + theirs.degree)
    apart = {
        i
        for one, other in ((left, right), (right, left))
        for i in one.entries.apart
        if _is_constant(other, i) and other.entries.filled
    }
    return Entries(filled=left.entries.filled and right.entries.filled, own=own, apart=frozenset(apart))


def _quotient(params: dict[str, Any], inputs: Sequence[Value], output: Value) -> Entries:
    left, right = inputs
    own = {p: mine for p, mine in left.entries.own.items() if not _depends(right, p)}
    own |= {p: Own(mine.axes) for p, mine in right.entries.own.items() if not _depends(left, p)}
    apart = frozenset(i for i in left.entries.apart if _is_constant(right, i))
    return Entries(filled=left.entries.filled, own=own, apart=apart)


def _contracted(params: dict[str, Any], inputs: Sequence[Value], output: Value) -> Entries:
    """A sum of entries of their own, times what does not know them, is one of its own."""
    contracted, batch = params["dimension_numbers"]
    own: dict[int, Own] = {}
    place = len(batch[0])
    for number, (one, other) in enumerate((inputs, inputs[::-1])):
        left = [i for i in range(len(one)) if i not in (*contracted[number], *batch[number])]
        to = {i: o for o, i in enumerate(batch[number])} | {i: place + o for o, i in enumerate(left)}
        place += len(left)
        for parameter, mine in one.entries.own.items():
            if set(contracted[number]) <= mine.axes and not _depends(other, parameter):
                own[parameter] = replace(mine, axes=frozenset(to[i] for i in mine.axes if i in to))
    filled = inputs[0].entries.filled and inputs[1].entries.filled
    return Entries(filled=filled and (bool(own) or not contracted[0]), own=own)


def _convolved(params: dict[str, Any], inputs: Sequence[Value], output: Value) -> Entries:
    image, kernel = inputs
    numbers = params["dimension_numbers"]
    everywhere = frozenset(range(len(kernel)))
    own = {
        p: Own(frozenset([numbers.out_spec[1]]), mine.degree)
        for p, mine in kernel.entries.own.items()
        if mine.axes == everywhere and not _depends(image, p)
    }
    windows = [size_of(kernel[i]) for i in numbers.rhs_spec[2:]]
    # Every window holds an entry of the image if less is added on each side than the window is long.
    plain = all(max(p) < size for p, size in zip(params["padding"], windows, strict=True))
    plain = plain and {*params["lhs_dilation"], *params["rhs_dilation"]} <= {1}
    return Entries(filled=plain and bool(own) and image.entries.filled and kernel.entries.filled, own=own)


def _summed(params: dict[str, Any], inputs: Sequence[Value], output: Value) -> Entries:
    known, gone = inputs[0].entries, params["axes"]
    to = {i: o for o, i in enumerate(i for i in range(len(inputs[0])) if i not in gone)}
    own = {p: mine for p, mine in known.own.items() if set(gone) <= mine.axes}
    return replace(_moved(replace(known, own=own), to), filled=known.filled and bool(own), apart=frozenset())


def _beside(params: dict[str, Any], inputs: Sequence[Value], output: Value) -> Entries:
    return Entries(filled=all(value.entries.filled for value in inputs))


def _chosen(params: dict[str, Any], inputs: Sequence[Value], output: Value) -> Entries:
    return Entries(filled=all(value.entries.filled for value in inputs[1:]))


def _picked(params: dict[str, Any], inputs: Sequence[Value], output: Value) -> Entries:
    """Rows; what is out of bounds is not of this network's inputs."""
    array, indices = inputs
    if params.get("fill_value") is not None:
        return NOTHING
    numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
    window = [i for i in range(len(array)) if i not in numbers.collapsed_slice_dims]
    window = [i for i in window if i not in numbers.operand_batching_dims]
    to = {i: o for i, o in zip(window, numbers.offset_dims, strict=True) if size_of(array[i]) == sizes[i]}
    own = {p: mine for p, mine in array.entries.own.items() if not _depends(indices, p)}
    return replace(_moved(replace(array.entries, own=own), to), apart=frozenset())


RULES: dict[str, Rule] = {
    **dict.fromkeys(("copy", "stop_gradient", "convert_element_type", "slice", "split", "rev", "neg"), _same),
    **dict.fromkeys(("tanh", "erf", "sinh", "asinh", "atan", "cbrt"), _function(monotonic=True)),
    **dict.fromkeys(("expm1", "log1p", "sqrt"), _function(monotonic=True)),
    **dict.fromkeys(("exp", "exp2", "logistic"), _function(at_zero=1, filled=True, monotonic=True)),
    "log": _function(at_zero=None, filled=False, monotonic=True),
    "rsqrt": _function(at_zero=None, filled=True, monotonic=True),
    "abs": _function(),
    "sin": _function(filled=False),
    "cos": _function(at_zero=1, filled=False),
    "square": _function(degree=2),
    "integer_pow": _power,
    "transpose": _transposed,
    "squeeze": _squeezed,
    "broadcast_in_dim": _broadcast,
    "reshape": _reshaped,
    **dict.fromkeys(("add", "add_any", "sub"), _sum),
    "mul": _product,
    "div": _quotient,
    "dot_general": _contracted,
    "conv_general_dilated": _convolved,
    "reduce_sum": _summed,
    "concatenate": _beside,
    "select_n": _chosen,
    "gather": _picked,
}
