"""Operations along axes: sums of products, reductions that forget the order, and those that depend on it."""

from ..factors import Array, Axis, cut, fixed, is_constant, join, size_of
from .basic import Equation, join_all

SYMMETRIC = ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "reduce_xor")
CUMULATIVE = ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
WINDOWS = ("reduce_window", "reduce_window_sum", "reduce_window_max", "reduce_window_min")


def dot_general(equation: Equation, left: Array, right: Array) -> list[Array]:
    """Contracted axes move together and vanish; batch axes move together and stay, in front."""
    (left_contracted, right_contracted), (left_batch, right_batch) = equation.params["dimension_numbers"]
    # The batch first: where its axis is a sum on both sides, what is contracted may follow it on both.
    batch = [join(left[i], right[j]) for i, j in zip(left_batch, right_batch, strict=True)]
    for i, j in zip(left_contracted, right_contracted, strict=True):
        # A sum over both at once sees no order, as long as both have the same.
        join(left[i], right[j])
    left_rest = [axis for i, axis in enumerate(left) if i not in (*left_contracted, *left_batch)]
    right_rest = [axis for j, axis in enumerate(right) if j not in (*right_contracted, *right_batch)]
    return [(*batch, *left_rest, *right_rest)]


def convolution(equation: Equation, image: Array, kernel: Array) -> list[Array]:
    """Features are (groups, features of a group) on the way in and on the way out; each group has its own
    slice of the kernel's outputs. Batch groups do to the batch what feature groups do to the features.

    A transposed convolution is this one with a dilated image.
    """
    numbers = equation.params["dimension_numbers"]
    batch, feature, *spatial = numbers.lhs_spec
    kernel_out, kernel_in, *window = numbers.rhs_spec
    out_batch, out_feature, *out_spatial = numbers.out_spec
    feature_groups, batch_groups = equation.params["feature_group_count"], equation.params["batch_group_count"]

    # The kernel has inputs for one group only, which says how the image's features are cut.
    groups, features = cut(image[feature], size_of(kernel[kernel_in]))
    join(features, kernel[kernel_in])
    groups_of_batch, batch_axis = cut(image[batch], size_of(image[batch]) // batch_groups)
    outputs = size_of(kernel[kernel_out]) // (feature_groups * batch_groups)
    kernel_groups, kernel_features = cut(kernel[kernel_out], outputs)

    axes: dict[int, Axis] = {out_batch: batch_axis}
    axes[out_feature] = join(join(kernel_groups, groups), groups_of_batch) + kernel_features
    for number, (i, j, o) in enumerate(zip(spatial, window, out_spatial, strict=True)):
        size, reason = equation.shapes[0][o], "spatial axis of a convolution"
        if _passes(equation, number, size_of(kernel[j])):
            axes[o] = image[i]
        else:
            equation.stop(kernel[j], size_of(kernel[j]), reason)
            axes[o] = equation.stop(image[i], size, reason)
    return [tuple(axes[i] for i in range(len(image)))]


def symmetric(equation: Equation, array: Array) -> list[Array]:
    """Sums, products and extremes do not depend on the order: the axis vanishes, and its units stay free."""
    return [_without(array, equation.params["axes"])]


def arg_extreme(equation: Equation, array: Array) -> list[Array]:
    """The numbers of the best: these name units (`positions`), and fix them wherever they are used otherwise."""
    return [_without(array, equation.params["axes"])]


def reduce_with_function(equation: Equation, *arrays: Array) -> list[Array]:
    """A reduction by any function: it need not be symmetric."""
    joined = join_all(arrays[: len(arrays) // 2])  # the other half are initial values
    for i in equation.params["dimensions"]:
        equation.stop(joined[i], 1)
    return [_without(joined, equation.params["dimensions"])] * len(equation.shapes)


def cumulative(equation: Equation, array: Array) -> list[Array]:
    """Sums along the way depend on the order."""
    return [_stopped(equation, array, {equation.params["axis"] % len(array)})]


def sort(equation: Equation, *arrays: Array) -> list[Array]:
    """Several arrays are sorted together, by the first ones."""
    joined, i = join_all(arrays), equation.params["dimension"] % len(arrays[0])
    return [_stopped(equation, joined, {i}, equation.unsupported)] * len(arrays)


def top_k(equation: Equation, array: Array) -> list[Array]:
    """The best values, in their own order, do not depend on that of the units; their numbers name units."""
    number = equation.params.get("axis", -1) % len(array)
    # The values are sorted: where they stand tells which is larger, however the units were ordered.
    best = fixed(equation.params["k"], equation.ordered)
    return [(*array[:number], best, *array[number + 1 :])] * len(equation.shapes)


def reverse(equation: Equation, array: Array) -> list[Array]:
    """Positions change places; along a constant axis nobody sees that."""
    moved = {i for i in equation.params["dimensions"] if not is_constant(array[i])}
    return [_stopped(equation, array, moved)]


def reduce_window(equation: Equation, *arrays: Array) -> list[Array]:
    """Pooling: axes with a window of one step pass, the others are fixed."""
    arrays = arrays[: len(equation.shapes)]  # what follows are initial values
    params, joined = equation.params, join_all(arrays)
    steps = zip(
        params["window_dimensions"], params["window_strides"], params["base_dilation"], params["padding"], strict=True
    )
    # Size, stride and dilation of one and nothing added in front or behind: each entry is a window of its own.
    pooled = {i for i, (*sizes, padding) in enumerate(steps) if (*sizes, *padding) != (1, 1, 1, 0, 0)}
    return [_stopped(equation, joined, pooled, "spatial axis of a pooling window")] * len(equation.shapes)


def fft(equation: Equation, array: Array) -> list[Array]:
    """The last axes are transformed."""
    count = len(equation.params["fft_lengths"])
    return [_stopped(equation, array, set(range(len(array) - count, len(array))))]


def _passes(equation: Equation, number: int, window: int) -> bool:
    """Whether a spatial axis goes through as it is: a window of one step, unpadded and undilated."""
    params = equation.params
    return (
        window == 1
        and params["window_strides"][number] == 1
        and tuple(params["padding"][number]) == (0, 0)
        and params["lhs_dilation"][number] == 1
    )


def _without(array: Array, gone) -> Array:
    return tuple(axis for i, axis in enumerate(array) if i not in gone)


def _stopped(equation: Equation, array: Array, stopped: set[int], reason: str = "") -> Array:
    sizes = equation.shapes[0]
    return tuple(equation.stop(axis, sizes[i], reason) if i in stopped else axis for i, axis in enumerate(array))


RULES = {
    "dot_general": dot_general,
    "conv_general_dilated": convolution,
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
