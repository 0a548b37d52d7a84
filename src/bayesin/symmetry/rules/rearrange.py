"""Operations that put entries elsewhere and change none: reshapes, slices, and rows picked by an index.

Where an axis is cut, or put together, at positions that are multiples of a block b, an axis of n is (n/b blocks, b):
the blocks stay in place and the b units inside of them may move, in all blocks alike. So the four gates of an
LSTM, or a fused query-key-value projection, are `4 * g` and `3 * g`.
"""

from math import gcd

from ..factors import Array, Axis, constant, cut, fix, fixed, is_constant, join, size_of
from .basic import Equation, freeze, join_all

POSITION = "position of a slice"
ROWS = "rows are picked by index"
ORDER_FREE = ("scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max")


def reshape(equation: Equation, array: Array) -> list[Array]:
    """Reads all factors as one long axis and cuts it anew from the inside out."""
    if equation.params.get("dimensions") is not None:
        return freeze(equation, array)
    rest, axes = tuple(factor for axis in array for factor in axis), []
    for size in reversed(equation.shapes[0]):
        rest, axis = cut(rest, size)
        axes.insert(0, axis)
    return [tuple(axes)]


def broadcast_in_dim(equation: Equation, array: Array, *sizes: Array) -> list[Array]:
    """New axes, and old ones of size 1 that grow, are constant; `sizes` are there only under dynamic shapes."""
    axes = [constant(size) for size in equation.shapes[0]]
    for axis, target in zip(array, equation.params["broadcast_dimensions"], strict=True):
        if size_of(axis) == equation.shapes[0][target]:
            axes[target] = axis
    return [tuple(axes)]


def tile(equation: Equation, array: Array) -> list[Array]:
    return [tuple(constant(count) + axis for axis, count in zip(array, equation.params["reps"], strict=True))]


def transpose(equation: Equation, array: Array) -> list[Array]:
    return [tuple(array[i] for i in equation.params["permutation"])]


def squeeze(equation: Equation, array: Array) -> list[Array]:
    gone = {i % len(array) for i in equation.params["dimensions"]}
    return [tuple(axis for i, axis in enumerate(array) if i not in gone)]


def slice_(equation: Equation, array: Array) -> list[Array]:
    """Whole blocks from fixed positions, or one entry of every stride."""
    params = equation.params
    starts, limits = params["start_indices"], params["limit_indices"]
    strides = params["strides"] or (1,) * len(array)
    return [tuple(map(_slice_axis, array, starts, limits, strides, equation.shapes[0]))]


def split(equation: Equation, array: Array) -> list[Array]:
    """The block is the greatest size that divides every part."""
    number, sizes = equation.params["axis"] % len(array), [int(size) for size in equation.params["sizes"]]
    block = gcd(*sizes)
    outer, inner = cut(array[number], block)
    return [_replace(array, number, _positions(outer, size // block) + inner) for size in sizes]


def concatenate(equation: Equation, *arrays: Array) -> list[Array]:
    """The parts move alike within their blocks: one axis cannot say that they move each on its own."""
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
    """An axis that is written whole moves with the update; of any other the position counts."""
    return [tuple(map(_update_axis, array, update))]


def gather(equation: Equation, array: Array, indices: Array) -> list[Array]:
    """Axes that an index reaches into are fixed, axes taken whole pass, and so do the axes of the indices.

    An embedding table keeps its features and fixes its rows. Of an axis that is taken whole only the start 0
    is within bounds; what lies outside is filled whole, too.
    """
    numbers, sizes = equation.params["dimension_numbers"], equation.params["slice_sizes"]
    fix(indices[-1], ROWS)  # which coordinate each index speaks of
    batch = list(indices[:-1])
    for i, j in zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True):
        batch[j] = join(batch[j], array[i])
    window: list[Axis] = []
    for i, axis in enumerate(array):
        if i in numbers.operand_batching_dims:
            continue
        picked = axis if size_of(axis) == sizes[i] else _picked(axis, sizes[i])
        if i not in numbers.collapsed_slice_dims:
            window.append(picked)
    rank = len(batch) + len(window)
    return [tuple(window.pop(0) if i in numbers.offset_dims else batch.pop(0) for i in range(rank))]


def scatter(equation: Equation, array: Array, indices: Array, updates: Array) -> list[Array]:
    """The mirror image of `gather`: whole axes of the updates join the array, written axes are fixed."""
    numbers = equation.params["dimension_numbers"]
    fix(indices[-1], ROWS)
    into = numbers.operand_batching_dims
    window = [i for i in range(len(array)) if i not in (*numbers.inserted_window_dims, *into)]
    rows = [j for j in range(len(updates)) if j not in numbers.update_window_dims]
    axes = [_written(axis) if i in numbers.inserted_window_dims else axis for i, axis in enumerate(array)]
    for i, j in zip(window, numbers.update_window_dims, strict=True):
        whole = size_of(array[i]) == size_of(updates[j])
        axes[i] = join(array[i], updates[j]) if whole else _written(array[i], updates[j])
    for number, j in enumerate(rows):
        row = join(indices[number], updates[j])
        if number in numbers.scatter_indices_batching_dims:
            i = into[numbers.scatter_indices_batching_dims.index(number)]
            axes[i] = join(array[i], row)
        elif equation.name not in ORDER_FREE:
            fix(row, ROWS)  # of two writes to one place the last one wins
    return [tuple(axes)]


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


def _picked(axis: Axis, size: int) -> Axis:
    fix(axis, ROWS)
    return fixed(size, ROWS)


def _written(axis: Axis, update: Axis = ()) -> Axis:
    fix(axis, ROWS)
    fix(update, ROWS)
    return fixed(size_of(axis), ROWS)


RULES = {
    "reshape": reshape,
    "broadcast_in_dim": broadcast_in_dim,
    "tile": tile,
    "transpose": transpose,
    "squeeze": squeeze,
    "slice": slice_,
    "split": split,
    "concatenate": concatenate,
    "stack": stack,
    "unstack": unstack,
    "pad": pad,
    "dynamic_slice": dynamic_slice,
    "dynamic_update_slice": dynamic_update_slice,
    "gather": gather,
    **dict.fromkeys(("scatter", *ORDER_FREE), scatter),
}
