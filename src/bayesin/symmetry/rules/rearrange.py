"""Operations that put entries elsewhere and change none: reshapes, slices, and rows picked by an index.

Where an axis is put together from parts, or parts are taken out of it, it is the sum of them, one behind the other.
The parts move each on their own, unless something else ties them: the four gates of an LSTM meet in one state, so
that a kernel with all of them is `g + g + g + g`, which is `4 * g`.
"""

from itertools import accumulate

from ..factors import (
    POSITION,
    TIED,
    Array,
    Axis,
    constant,
    cut,
    fix,
    fixed,
    is_constant,
    join,
    plus,
    select,
    size_of,
)
from ..positions import named
from .basic import Equation, freeze, join_all

ROWS = "rows are picked by index"
ORDER_FREE = ("scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max")


def reshape(equation: Equation, array: Array) -> list[Array]:
    """Reads all factors as one long axis and cuts it anew from the inside out."""
    # With `dimensions` the axes would be transposed first.
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
        # An axis of size 1 that grows holds one entry many times: it stays constant, as it was made.
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
    """A part of an axis from fixed positions, or one entry of every stride."""
    params, sizes = equation.params, [size_of(axis) for axis in array]
    starts, limits = params["start_indices"], params["limit_indices"]
    strides = params["strides"] or (1,) * len(array)
    for number, (start, limit, stride, size) in enumerate(zip(starts, limits, strides, sizes, strict=True)):
        count = equation.shapes[0][number]
        if stride == 1:
            array = select(array, number, start, limit)
        elif count != size:
            array = _replace(array, number, _strided(array[number], stride, count))
    return [array]


def split(equation: Equation, array: Array) -> list[Array]:
    number, sizes = equation.params["axis"] % len(array), [int(size) for size in equation.params["sizes"]]
    ends = list(accumulate(sizes))
    return [select(array, number, end - size, end) for size, end in zip(sizes, ends, strict=True)]


def concatenate(equation: Equation, *arrays: Array) -> list[Array]:
    """Along one axis the parts stand one behind the other; all other axes are joined."""
    number = equation.params["dimension"]
    others = join_all([_replace(array, number, ()) for array in arrays])
    return [_replace(others, number, plus([array[number] for array in arrays]))]


def stack(equation: Equation, *arrays: Array) -> list[Array]:
    number, joined = equation.params["axis"], join_all(arrays)
    return [(*joined[:number], fixed(len(arrays), POSITION), *joined[number:])]


def unstack(equation: Equation, array: Array) -> list[Array]:
    number = equation.params["axis"]
    parts = [select(array, number, index, index + 1) for index in range(len(equation.shapes))]
    return [(*part[:number], *part[number + 1 :]) for part in parts]


def pad(equation: Equation, array: Array, value: Array) -> list[Array]:
    """One value in front and behind; less than nothing is a slice."""
    for number, config in enumerate(equation.params["padding_config"]):
        low, high, interior = map(int, config)
        if interior:
            fix(array[number], POSITION)
            array = _replace(array, number, fixed(equation.shapes[0][number], POSITION))
            continue
        array = select(array, number, max(0, -low), size_of(array[number]) - max(0, -high))
        # What is padded with is one value: a part of its own, beside which the units stay free.
        padded = plus([constant(max(0, low)), array[number], constant(max(0, high))])
        array = _replace(array, number, padded)
    return [array]


def dynamic_slice(equation: Equation, array: Array, *starts: Array) -> list[Array]:
    """A start that is not known before run time: only whole axes pass, and the entry of a unit that is named."""
    units = _named_units(equation, array, *starts)
    return [
        tuple(
            axis if size_of(axis) == size else () if number in units else _positions(axis, size)
            for number, (axis, size) in enumerate(zip(array, equation.shapes[0], strict=True))
        )
    ]


def dynamic_update_slice(equation: Equation, array: Array, update: Array, *starts: Array) -> list[Array]:
    """An axis that is written whole moves with the update; of any other the position counts."""
    return [tuple(map(_update_axis, array, update))]


def gather(equation: Equation, array: Array, indices: Array) -> list[Array]:
    """Axes that an index reaches into are fixed, axes taken whole pass, and so do the axes of the indices.

    An embedding table keeps its features and fixes its rows. Of an axis that is taken whole only the start 0
    is within bounds; what lies outside is filled whole, too. Units that the index names move with their numbers.
    """
    units = _named_units(equation, array, indices)
    numbers, sizes = equation.params["dimension_numbers"], equation.params["slice_sizes"]
    fix(indices[-1], ROWS)  # which coordinate each index speaks of
    batch = list(indices[:-1])
    for i, j in zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True):
        batch[j] = join(batch[j], array[i])
    window: list[Axis] = []
    for i, axis in enumerate(array):
        if i in numbers.operand_batching_dims:
            continue
        # Of an axis that is taken in part the index decides which: its entries have places.
        picked = axis if size_of(axis) == sizes[i] else () if i in units else _picked(axis, sizes[i])
        if i not in numbers.collapsed_slice_dims:
            window.append(picked)
    rank = len(batch) + len(window)
    return [tuple(window.pop(0) if i in numbers.offset_dims else batch.pop(0) for i in range(rank))]


def scatter(equation: Equation, array: Array, indices: Array, updates: Array) -> list[Array]:
    """The mirror image of `gather`: whole axes of the updates join the array, written axes are fixed."""
    units = _named_units(equation, array, indices, updates)
    numbers = equation.params["dimension_numbers"]
    fix(indices[-1], ROWS)
    into = numbers.operand_batching_dims
    window = [i for i in range(len(array)) if i not in (*numbers.inserted_window_dims, *into)]
    rows = [j for j in range(len(updates)) if j not in numbers.update_window_dims]
    written = set(numbers.inserted_window_dims) - units.keys()
    axes = [_written(axis) if i in written else units.get(i, axis) for i, axis in enumerate(array)]
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


def _named_units(equation: Equation, array: Array, *numbers: Array) -> dict[int, Axis]:
    """The axes of which single entries are meant by numbers that name units, joined with these."""
    found = named(equation.name, equation.params, (array, *numbers))
    return {number: join(array[number], positions.axis) for number, positions in found.items()}


def _positions(axis: Axis, count: int, reason: str = POSITION) -> Axis:
    """What is left when `count` entries of an axis are taken at given positions."""
    if is_constant(axis):
        return constant(count)
    fix(axis, reason)
    return fixed(count, reason)


def _strided(axis: Axis, stride: int, count: int) -> Axis:
    """One entry of every stride."""
    if size_of(axis) != stride * count:
        return _positions(axis, count, TIED)
    # Blocks of one stride may still change places, each with its first entry.
    outer, inner = cut(axis, stride)
    fix(inner, POSITION)
    return outer


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


FOLLOWING = ("reshape", "broadcast_in_dim", "transpose", "squeeze", "slice", "split", "unstack")
DROPPING = ("slice", "split", "unstack", "pad", "dynamic_slice", "gather")

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
