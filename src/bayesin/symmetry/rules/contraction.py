"""Sums over products: matrix multiplication and convolution."""

from ..factors import Array, Axis, cut, join, size_of
from .equation import Equation


def dot_general(equation: Equation, left: Array, right: Array) -> list[Array]:
    """Contracted axes move together and vanish; batch axes move together and stay, in front."""
    (left_contracted, right_contracted), (left_batch, right_batch) = equation.params["dimension_numbers"]
    for i, j in zip(left_contracted, right_contracted, strict=True):
        join(left[i], right[j])
    batch = [join(left[i], right[j]) for i, j in zip(left_batch, right_batch, strict=True)]
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


def _passes(equation: Equation, number: int, window: int) -> bool:
    """Whether a spatial axis goes through as it is: a window of one step, unpadded and undilated."""
    params = equation.params
    return (
        window == 1
        and params["window_strides"][number] == 1
        and tuple(params["padding"][number]) == (0, 0)
        and params["lhs_dilation"][number] == 1
    )


RULES = {"dot_general": dot_general, "conv_general_dilated": convolution}
