"""Numbers that name units: what `argmax` and `top_k` find, until it is turned back into units.

Where experts or code vectors change places, the number of the best one changes with them. Such a number may be moved
about, compared with a counter (a one-hot vector, whose new axis is that of the experts) and used to pick rows of
an axis that moves with the experts. Whatever else reads it sees a number, and fixes the order.

The first of several equal scores wins, which tells their units apart by their place. So the scores must differ, but
for parameters of measure zero. This is followed from the parameters and the input, which are taken to be generic,
through products with a parameter, sums of what is independent, and strictly monotonic functions. Behind a ReLU, a
mask or a rounding scores may be equal, and the numbers of the best fix the order at once.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .factors import (
    Array,
    Constant,
    Known,
    Positions,
    Value,
    constant,
    fix,
    is_constant,
    join,
    leaves_of,
    resolve,
    size_of,
    without_choices,
)

FINDING = ("argmax", "argmin", "top_k")
MOVING = ("broadcast_in_dim", "reshape", "transpose", "squeeze", "copy", "stop_gradient")
MONOTONIC = ("exp", "log", "logistic", "neg", "copy", "stop_gradient", "convert_element_type", "slice")
EVEN = ("integer_pow", "square")
RAW = ("transpose", "reshape", "squeeze", "copy", "stop_gradient", "convert_element_type")
PAIRED = ("add", "add_any", "sub", "mul", "div")


def settle(equation: Any, arrays: list[Array]) -> list[Array]:
    """The arrays that the rule of an equation shall see; numbers that it does not use as names fix their units."""
    name, params = equation.primitive.name, equation.params
    held = _held(arrays)
    if len(held) == 1 and (found := held[0]).apart:
        if name in MOVING or (name == "convert_element_type" and _holds(params["new_dtype"], found)):
            return arrays
        if _wraps(name, arrays, found):
            return arrays
        if name == "eq" and (number := _counter(arrays, found)) is not None:
            counter = arrays[number]
            named = tuple(found.axis if i == _facts(counter).counted else axis for i, axis in enumerate(counter))
            return [named if i == number else array for i, array in enumerate(arrays)]
        if name == "gather" and (picked := _picked(params, arrays, found)) is not None:
            array = without_choices(arrays[0])
            join(array[picked], found.axis)
            rows = constant(size_of(found.axis))
            return [tuple(rows if i == picked else axis for i, axis in enumerate(array)), arrays[1]]
    release(arrays)
    return arrays


def release(arrays: Sequence[Array]) -> None:
    """Fixes what is named by numbers that leave a program or a loop: there they are but numbers."""
    for positions in _held(arrays):
        fix(positions.axis, positions.reason)


def generic(array: Array, dtype: Any) -> Value:
    """An array of which no two entries are equal, if its type tells enough numbers apart."""
    value = Value(array)
    if _is_fine(dtype):
        value.apart, value.made_of = frozenset(range(len(array))), frozenset([id(value)])
        value.raw = value.plain = True
    return value


def note(equation: Any, reason: str, arrays: list[Array], outputs: list[Value]) -> None:
    """Writes down what is known of the outputs of an equation that holds no other."""
    name, params, inputs = equation.primitive.name, equation.params, list(map(_facts, arrays))
    if name in FINDING:
        number = params["axes"][0] if name != "top_k" else params.get("axis", -1) % len(inputs[0])
        axis = resolve(inputs[0][number])
        apart = number in inputs[0].apart and not any(isinstance(leaf, Constant) for leaf in leaves_of(axis))
        found = Positions(axis, reason, apart)
        found.apart &= _holds(equation.outvars[-1].aval.dtype, found)
        outputs[-1].positions, outputs[-1].role = found, "index"
    elif name == "iota":
        outputs[0].counted = params["dimension"]
    elif outputs and inputs:
        _note_positions(name, params, inputs, outputs[0])
        if _is_fine(getattr(equation.outvars[0].aval, "dtype", None)):
            _note_apart(name, params, inputs, outputs[0])


def _note_positions(name: str, params: dict[str, Any], inputs: list[Value], output: Value) -> None:
    if name in (*MOVING, "convert_element_type"):
        output.positions, output.role = inputs[0].positions, inputs[0].role
        if inputs[0].counted is not None and name in ("broadcast_in_dim", "convert_element_type", "copy"):
            counted = inputs[0].counted
            counted = params["broadcast_dimensions"][counted] if name == "broadcast_in_dim" else counted
            whole = size_of(output[counted]) == size_of(inputs[0][inputs[0].counted])
            exact = name != "convert_element_type" or np.issubdtype(params["new_dtype"], np.integer)
            output.counted = counted if whole and exact else None
        return
    found = next((a.positions for a in inputs if a.positions), None)
    if found is not None and found.apart and _wraps(name, inputs, found):
        output.positions, output.role = found, {"lt": "negative", "add": "beyond", "select_n": "index"}[name]


def _wraps(name: str, arrays: Sequence[Array], found: Positions) -> bool:
    """Whether this is a part of `where(index < 0, index + size, index)`, which indexing begins with."""
    facts = list(map(_facts, arrays))
    roles = [a.role if a.positions is found else "" for a in facts]
    if name == "select_n":
        return roles == ["negative", "index", "beyond"]
    if roles != ["index", ""] or not isinstance(arrays[1], Known) or np.ndim(arrays[1].value):
        return False
    return int(arrays[1].value) == {"lt": 0, "add": size_of(found.axis)}.get(name, -1)


def _counter(arrays: list[Array], found: Positions) -> int | None:
    """Which of two arrays counts along an axis that the other, of numbers, does not have."""
    for number in (0, 1):
        counter, numbers = _facts(arrays[number]), _facts(arrays[1 - number])
        at = counter.counted
        if at is not None and numbers.role == "index" and len(numbers) == len(counter):
            whole = size_of(counter[at]) == size_of(found.axis)
            return number if whole and is_constant(resolve(numbers[at])) else None
    return None


def _picked(params: dict[str, Any], arrays: list[Array], found: Positions) -> int | None:
    """The axis of which an index picks one row each, if it is the only one and can be named by the numbers."""
    numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
    if _facts(arrays[1]).role != "index" or len(numbers.start_index_map) != 1:
        return None
    at = numbers.start_index_map[0]
    is_row = at in numbers.collapsed_slice_dims and sizes[at] == 1
    return at if is_row and size_of(arrays[0][at]) == size_of(found.axis) else None


def _note_apart(name: str, params: dict[str, Any], inputs: list[Value], output: Value) -> None:
    output.apart = _apart(name, params, inputs, output)
    if output.apart:
        output.made_of = frozenset().union(*(array.made_of for array in inputs))
        output.raw = name in RAW and inputs[0].raw
        centred = name in PAIRED and not _are_independent(inputs[0], inputs[1])
        output.plain = not centred and all(array.plain or not array for array in inputs)


def _apart(name: str, params: dict[str, Any], inputs: list[Value], output: Value) -> frozenset[int]:
    """The axes along which no two entries of the output are equal, but for parameters of measure zero."""
    first = inputs[0]
    if name in MONOTONIC or (name in EVEN and first.plain and params.get("y", 2)):
        return first.apart
    if name in PAIRED and len(inputs) == 2:
        return frozenset(i for i in range(len(output)) if _stays_apart(name, inputs[0], inputs[1], i))
    if name == "broadcast_in_dim":
        to = params["broadcast_dimensions"]
        return frozenset(to[i] for i in first.apart if size_of(first[i]) == size_of(output[to[i]]))
    if name == "reshape":  # the last axes, as far as they stay
        same = 0
        while same < min(len(first), len(output)) and size_of(first[-1 - same]) == size_of(output[-1 - same]):
            same += 1
        return frozenset(len(output) - s for s in range(1, same + 1) if len(first) - s in first.apart)
    if name == "dot_general":
        return _contracted_apart(params, inputs[0], inputs[1])
    if name == "transpose":
        return _renumbered(first, params["permutation"])
    if name == "squeeze":
        return _renumbered(first, _others(first, [i % len(first) for i in params["dimensions"]]))
    if name == "reduce_sum" and first.plain and set(params["axes"]) <= first.apart:
        return _renumbered(first, _others(first, params["axes"]))
    return frozenset()


def _stays_apart(name: str, left: Value, right: Value, i: int) -> bool:
    """Whether sums, products and so on differ along an axis: along which one of both is constant, or both are apart
    and independent of each other."""
    for side, other in ((left, right), (right, left)):
        if side and i in side.apart and (not other or is_constant(resolve(other[i]))):
            if isinstance(other, Known) and not np.ndim(other.value):
                return name in ("add", "add_any", "sub") or bool(other.value)
            return name in ("add", "add_any", "sub") or (name == "div" and side is left)
    return bool(left and right) and i in left.apart and i in right.apart and _are_independent(left, right)


def _are_independent(left: Value, right: Value) -> bool:
    """Whether two arrays depend on different parameters and inputs; of an array not followed that is not known."""
    known = all(array.made_of or (isinstance(array, Known) and not array) for array in (left, right))
    return known and not left.made_of & right.made_of


def _contracted_apart(params: dict[str, Any], left: Value, right: Value) -> frozenset[int]:
    """Different rows, times a parameter that they do not depend on, stay different; so do rows of that parameter."""
    contracted, batch = params["dimension_numbers"]
    sides = list(zip((left, right), contracted, batch, strict=True))
    rows = all(set(own) <= side.apart and any(size_of(side[i]) > 1 for i in own) for side, own, _ in sides)
    if not rows or not (left.raw or right.raw) or not _are_independent(left, right):
        return frozenset()
    both = [i in left.apart and j in right.apart for i, j in zip(*batch, strict=True)]
    kept = [i in side.apart for side, own, shared in sides for i in _others(side, [*own, *shared])]
    return frozenset(o for o, fine in enumerate([*both, *kept]) if fine)


def _renumbered(array: Value, order: Sequence[int]) -> frozenset[int]:
    return frozenset(place for place, number in enumerate(order) if number in array.apart)


def _others(array: Value, numbers: Sequence[int]) -> list[int]:
    return [number for number in range(len(array)) if number not in numbers]


def _holds(dtype: Any, found: Positions) -> bool:
    """Whether a type can hold every number."""
    return np.issubdtype(dtype, np.integer) and size_of(found.axis) <= np.iinfo(dtype).max


def _is_fine(dtype: Any) -> bool:
    """Whether numbers of this type are equal by rounding so seldom that they may be taken as real ones."""
    return isinstance(dtype, np.dtype) and dtype.kind in "fc" and dtype.itemsize >= 4


def _held(arrays: Sequence[Array]) -> list[Positions]:
    """What the entries of arrays name; that an index is never negative says nothing about it."""
    facts = map(_facts, arrays)
    return list(dict.fromkeys(array.positions for array in facts if array.positions and array.role != "negative"))


def _facts(array: Array) -> Value:
    return array if isinstance(array, Value) else Value(array)
