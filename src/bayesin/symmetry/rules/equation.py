"""What a rule sees of one equation of a jaxpr."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..factors import Array, Axis, fix, fixed


class Equation(NamedTuple):
    """One equation: a rule maps the arrays it reads to the arrays it makes."""

    name: str
    params: dict[str, Any]
    shapes: tuple[tuple[int, ...], ...]  # of its outputs
    number: str  # its place in the jaxpr; 17.3 is the fourth equation inside the eighteenth
    enter: Callable[[Any, Sequence[Array]], list[Array]]  # walks a jaxpr that the equation holds

    @property
    def unsupported(self) -> str:
        return f"`{self.name}` is not supported, equation {self.number}"

    @property
    def ordered(self) -> str:
        return f"`{self.name}` depends on the order, equation {self.number}"

    def stop(self, axis: Axis, size: int, reason: str = "") -> Axis:
        """Fixes an axis that this equation may not permute, and returns the fixed axis that comes out of it."""
        reason = reason or self.ordered
        fix(axis, reason)
        return fixed(size, reason)


def freeze(equation: Equation, *arrays: Array) -> list[Array]:
    """The rule of what is not known: nothing that goes in may move, so nothing that comes out does.

    This holds without outputs too: the equation may write to memory that another one reads.
    """
    for axis in (axis for array in arrays for axis in array):
        fix(axis, equation.unsupported)
    return [tuple(fixed(size, equation.unsupported) for size in shape) for shape in equation.shapes]
