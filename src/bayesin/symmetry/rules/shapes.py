"""Operations that rearrange axes and look at no values."""

from ..factors import Array, constant, cut, size_of
from .equation import Equation, freeze


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


RULES = {
    "reshape": reshape,
    "broadcast_in_dim": broadcast_in_dim,
    "tile": tile,
    "transpose": transpose,
    "squeeze": squeeze,
}
