"""Numbers that name units: what `argmax` and `top_k` find, until it is turned back into units.

Where experts or code vectors change places, the number of the best one changes with them. Such a number may be moved
about, compared with a counter (a one-hot vector, whose new axis is that of the experts) and used to pick or to write
entries of an axis that moves with the experts. Whatever else reads it sees a number, and fixes the order.

The first of several equal scores wins, which tells their units apart by their place. So the scores must differ, but
for parameters of measure zero (`entries.py`); where they may be equal, the numbers of the best fix the order at once.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .entries import entries_of, generic_entries
from .factors import Array, Constant, fix, is_constant, leaves_of, resolve, size_of
from .values import Known, Positions, Value

FINDING = ("argmax", "argmin", "top_k")
MOVING = ("broadcast_in_dim", "reshape", "transpose", "squeeze", "copy", "stop_gradient")
SCATTERING = ("scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max")


def settle(equation: Any, arrays: list[Array]) -> list[Array]:
    """The arrays that the rule of an equation shall see; numbers that it does not use as names fix their units."""
    name, params, held = equation.primitive.name, equation.params, _held(arrays)
    if not held:
        return arrays
    if all(found.apart for found in held):
        if held == list(dict.fromkeys(named(name, params, arrays).values())) or _moves(name, params, arrays, held):
            return arrays
        if name == "eq" and len(held) == 1 and (number := _counter(arrays, held[0])) is not None:
            counter, axis = arrays[number], held[0].axis
            units = tuple(axis if i == _facts(counter).counted else other for i, other in enumerate(counter))
            return [units if i == number else array for i, array in enumerate(arrays)]
    release(arrays)
    return arrays


def named(name: str, params: dict[str, Any], arrays: Sequence[Array]) -> dict[int, Positions]:
    """The axes of the first array of which an equation picks or writes one entry each, by numbers that name units."""
    array, *numbers = map(_facts, arrays)
    if name == "dynamic_slice":
        taken = [(at, start.positions) for at, start in enumerate(numbers) if params["slice_sizes"][at] == 1]
    elif name == "gather":
        axes, sizes = params["dimension_numbers"].start_index_map, params["slice_sizes"]
        taken = [(at, found) for at, found in _coordinates(axes, numbers[0]) if sizes[at] == 1]
    elif name in SCATTERING:
        into = params["dimension_numbers"]
        taken = _coordinates(into.scatter_dims_to_operand_dims, numbers[0])
        taken = [(at, found) for at, found in taken if at in into.inserted_window_dims]
    else:
        return {}
    fits = [(at, found) for at, found in taken if found and found.apart and size_of(array[at]) == size_of(found.axis)]
    return dict(fits)


def _coordinates(axes: Sequence[int], indices: Value) -> list[tuple[int, Positions | None]]:
    """The axis that each coordinate of an index speaks of, and what it names."""
    names = indices.columns or (indices.positions,) if len(axes) == 1 or indices.columns else [None] * len(axes)
    return list(zip(axes, names, strict=True))


def _moves(name: str, params: dict[str, Any], arrays: Sequence[Array], held: list[Positions]) -> bool:
    """Whether the numbers stay what they are: moved about, made positive, or put side by side as coordinates."""
    facts = list(map(_facts, arrays))
    if any(array.columns for array in facts):
        return False
    if name == "concatenate":
        beside = params["dimension"] == len(facts[0]) - 1
        return beside and all(a.role == "index" and size_of(a[-1]) == 1 for a in facts if a.positions)
    if len(held) > 1:
        return False
    holds = name == "convert_element_type" and _holds(params["new_dtype"], held[0])
    return name in MOVING or holds or _wraps(name, arrays, held[0])


def release(arrays: Sequence[Array]) -> None:
    """Fixes what is named by numbers that leave a program or a loop: there they are but numbers."""
    for positions in _held(arrays):
        fix(positions.axis, positions.reason)


def generic(array: Array, dtype: Any) -> Value:
    """A parameter or an input: all of its entries are numbers of their own."""
    value = Value(array)
    value.entries = generic_entries(id(value), value, dtype)
    return value


def note(equation: Any, reason: str, arrays: list[Array], outputs: list[Value]) -> None:
    """Writes down what is known of the outputs of an equation that holds no other."""
    name, params, inputs = equation.primitive.name, equation.params, list(map(_facts, arrays))
    for number, output in enumerate(outputs):
        output.entries = entries_of(equation, inputs, output, number)
    if name in FINDING:
        number = params["axes"][0] if name != "top_k" else params.get("axis", -1) % len(inputs[0])
        axis = resolve(inputs[0][number])
        apart = number in inputs[0].entries.apart and not any(isinstance(leaf, Constant) for leaf in leaves_of(axis))
        found = Positions(axis, reason, apart)
        found.apart &= _holds(equation.outvars[-1].aval.dtype, found)
        outputs[-1].positions, outputs[-1].role = found, "index"
    elif name == "iota":
        outputs[0].counted = params["dimension"]
    elif name == "concatenate" and _held(inputs):
        columns = [(a.positions,) if a.positions else (None,) * size_of(a[-1]) for a in inputs]
        outputs[0].columns = tuple(column for own in columns for column in own)
    elif outputs and inputs:
        _note_positions(name, params, inputs, outputs[0])


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


def _holds(dtype: Any, found: Positions) -> bool:
    """Whether a type can hold every number."""
    return np.issubdtype(dtype, np.integer) and size_of(found.axis) <= np.iinfo(dtype).max


def _held(arrays: Sequence[Array]) -> list[Positions]:
    """What the entries of arrays name; that an index is never negative says nothing about it."""
    facts = [array for array in map(_facts, arrays) if array.role != "negative"]
    return list(dict.fromkeys(found for array in facts for found in (array.positions, *array.columns) if found))


def _facts(array: Array) -> Value:
    return array if isinstance(array, Value) else Value(array)
