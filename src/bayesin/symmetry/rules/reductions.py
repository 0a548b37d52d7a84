"""Operations along an axis: those that forget its order, and those that depend on it."""

from ..factors import Array, is_constant
from .elementwise import join_all
from .equation import Equation

SYMMETRIC = ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "reduce_xor")
CUMULATIVE = ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
WINDOWS = ("reduce_window", "reduce_window_sum", "reduce_window_max", "reduce_window_min")


def symmetric(equation: Equation, array: Array) -> list[Array]:
    """Sums, products and extremes do not depend on the order: the axis vanishes, and its units stay free."""
    return [_without(array, equation.params["axes"])]


def arg_extreme(equation: Equation, array: Array) -> list[Array]:
    """The result counts positions, so that the axis may not move."""
    for i in equation.params["axes"]:
        equation.stop(array[i], 1)
    return [_without(array, equation.params["axes"])]


def reduce_with_function(equation: Equation, *arrays: Array) -> list[Array]:
    """A reduction by any function: it need not be symmetric."""
    joined = join_all(arrays[: len(arrays) // 2])  # the other half are initial values
    for i in equation.params["dimensions"]:
        equation.stop(joined[i], 1)
    return [_without(joined, equation.params["dimensions"])] * len(equation.shapes)


def cumulative(equation: Equation, array: Array) -> list[Array]:
    return [_stopped(equation, array, {equation.params["axis"] % len(array)})]


def sort(equation: Equation, *arrays: Array) -> list[Array]:
    """Several arrays are sorted together, by the first ones."""
    joined, i = join_all(arrays), equation.params["dimension"] % len(arrays[0])
    return [_stopped(equation, joined, {i}, equation.unsupported)] * len(arrays)


def top_k(equation: Equation, array: Array) -> list[Array]:
    return [_stopped(equation, array, {equation.params.get("axis", -1) % len(array)})] * len(equation.shapes)


def reverse(equation: Equation, array: Array) -> list[Array]:
    moved = {i for i in equation.params["dimensions"] if not is_constant(array[i])}
    return [_stopped(equation, array, moved)]


def reduce_window(equation: Equation, *arrays: Array) -> list[Array]:
    """Pooling: axes with a window of one step pass, the others are fixed."""
    arrays = arrays[: len(equation.shapes)]  # what follows are initial values
    params, joined = equation.params, join_all(arrays)
    steps = zip(
        params["window_dimensions"], params["window_strides"], params["base_dilation"], params["padding"], strict=True
    )
    pooled = {i for i, (*sizes, padding) in enumerate(steps) if (*sizes, *padding) != (1, 1, 1, 0, 0)}
    return [_stopped(equation, joined, pooled, "spatial axis of a pooling window")] * len(equation.shapes)


def fft(equation: Equation, array: Array) -> list[Array]:
    """The last axes are transformed."""
    count = len(equation.params["fft_lengths"])
    return [_stopped(equation, array, set(range(len(array) - count, len(array))))]


def _without(array: Array, gone) -> Array:
    return tuple(axis for i, axis in enumerate(array) if i not in gone)


def _stopped(equation: Equation, array: Array, stopped: set[int], reason: str = "") -> Array:
    sizes = equation.shapes[0]
    return tuple(equation.stop(axis, sizes[i], reason) if i in stopped else axis for i, axis in enumerate(array))


RULES = {
    **dict.fromkeys(SYMMETRIC, symmetric),
    **dict.fromkeys(("argmax", "argmin"), arg_extreme),
    **dict.fromkeys(CUMULATIVE, cumulative),
    **dict.fromkeys(WINDOWS, reduce_window),
    "reduce": reduce_with_function,
    "sort": sort,
    "top_k": top_k,
    "rev": reverse,
    "fft": fft,
}
