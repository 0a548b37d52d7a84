"""Operations that take an axis apart, or put one together, at fixed positions.

Where all positions are multiples of a block b, an axis of n is (n/b blocks, b): the blocks stay in place and
the b units inside of them may move, in all blocks alike. So the four gates of an LSTM, or a fused
query-key-value projection, are `4 * g` and `3 * g`.
"""

from math import gcd

from ..factors import Array, Axis, constant, cut, fix, fixed, is_constant, join, size_of
from .elementwise import join_all
from .equation import Equation


def slice_(equation: Equation, array: Array) -> list[Array]:
    params = equation.params
    starts, limits = params["start_indices"], params["limit_indices"]
    strides = params["strides"] or (1,) * len(array)
    return [tuple(map(_slice_axis, array, starts, limits, strides, equation.shapes[0]))]


def split(equation: Equation, array: Array) -> list[Array]:
    number, sizes = equation.params["axis"] % len(array), [int(size) for size in equation.params["sizes"]]
    block = gcd(*sizes)
    outer, inner = cut(array[number], block)
    return [_replace(array, number, _positions(outer, size // block) + inner) for size in sizes]


def concatenate(equation: Equation, *arrays: Array) -> list[Array]:
    number = equation.params["dimension"]
    block = gcd(*[size_of(array[number]) for array in arrays])
    joined: Axis = ()
    for array in arrays:
        outer, inner = cut(array[number], block)
        fix(outer, POSITION)
        joined = join(joined, inner)
    others = [_replace(array, number, ()) for array in arrays]
    return [_replace(join_all(others), number, fixed(equation.shapes[0][number] // block, POSITION) + joined)]


def stack(equation: Equation, *arrays: Array) -> list[Array]:
    number, joined = equation.params["axis"], join_all(arrays)
    return [(*joined[:number], fixed(len(arrays), POSITION), *joined[number:])]


def unstack(equation: Equation, array: Array) -> list[Array]:
    number = equation.params["axis"]
    fix(array[number], POSITION)
    return [(*array[:number], *array[number + 1 :])] * len(equation.shapes)


def pad(equation: Equation, array: Array, value: Array) -> list[Array]:
    return [tuple(map(_pad_axis, array, equation.params["padding_config"], equation.shapes[0]))]


def dynamic_slice(equation: Equation, array: Array, *starts: Array) -> list[Array]:
    """A start that is not known before run time: only whole axes pass."""
    sizes = equation.shapes[0]
    return [
        tuple(
            axis if size_of(axis) == size else _positions(axis, size) for axis, size in zip(array, sizes, strict=True)
        )
    ]


def dynamic_update_slice(equation: Equation, array: Array, update: Array, *starts: Array) -> list[Array]:
    return [tuple(map(_update_axis, array, update))]


POSITION = "position of a slice"


def _positions(axis: Axis, count: int) -> Axis:
    """What is left when `count` entries of an axis are taken at given positions."""
    if is_constant(axis):
        return constant(count)
    fix(axis, POSITION)
    return fixed(count, POSITION)


def _slice_axis(axis: Axis, start: int, limit: int, stride: int, count: int) -> Axis:
    size = size_of(axis)
    if count == size:
        return axis
    if stride == 1:
        block = gcd(start, limit, size)
        outer, inner = cut(axis, block)
        return _positions(outer, count // block) + inner
    if size % stride == 0 and count == size // stride:  # one entry of every stride
        outer, inner = cut(axis, stride)
        fix(inner, POSITION)
        return outer
    return _positions(axis, count)


def _pad_axis(axis: Axis, config: tuple[int, int, int], count: int) -> Axis:
    low, high, interior = map(int, config)
    if (low, high, interior) == (0, 0, 0):
        return axis
    if interior:
        fix(axis, POSITION)
        return fixed(count, POSITION)
    block = gcd(low, high, size_of(axis))
    outer, inner = cut(axis, block)
    fix(outer, POSITION)
    return fixed(count // block, POSITION) + inner


def _update_axis(axis: Axis, update: Axis) -> Axis:
    if size_of(axis) == size_of(update):
        return join(axis, update)
    fix(axis, POSITION)
    fix(update, POSITION)
    return fixed(size_of(axis), POSITION)


def _replace(array: Array, number: int, axis: Axis) -> Array:
    return (*array[:number], axis, *array[number + 1 :])


RULES = {
    "slice": slice_,
    "split": split,
    "concatenate": concatenate,
    "stack": stack,
    "unstack": unstack,
    "pad": pad,
    "dynamic_slice": dynamic_slice,
    "dynamic_update_slice": dynamic_update_slice,
}
