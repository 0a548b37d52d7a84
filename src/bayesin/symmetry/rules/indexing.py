"""Entries picked, or written, by an index that is itself an array."""

from ..factors import Array, Axis, fix, fixed, join, size_of
from .equation import Equation

ORDER_FREE = ("scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max")

ROWS = "rows are picked by index"


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


def _picked(axis: Axis, size: int) -> Axis:
    fix(axis, ROWS)
    return fixed(size, ROWS)


def _written(axis: Axis, update: Axis = ()) -> Axis:
    fix(axis, ROWS)
    fix(update, ROWS)
    return fixed(size_of(axis), ROWS)


RULES = {"gather": gather} | dict.fromkeys(("scatter", *ORDER_FREE), scatter)
