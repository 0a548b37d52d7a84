"""What a rule sees of an equation, and the plainest rules.

Operations that look at one entry at a time make matching axes move together. Counters and closed-over values do not
come from the parameters: what varies in them is fixed. What is not known at all is frozen.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import pairwise
from math import gcd
from typing import Any, NamedTuple

import numpy as np

from ..factors import Array, Axis, Choice, constant, fix, fixed, join, plus

# fmt: off
ARITHMETIC = (
    "add", "add_any", "sub", "mul", "div", "rem", "neg", "abs", "sign", "max", "min", "clamp", "pow", "integer_pow",
    "square", "sqrt", "rsqrt", "cbrt", "floor", "ceil", "round", "nextafter", "real", "imag", "conj", "complex",
)
SPECIAL = (
    "exp", "exp2", "expm1", "log", "log1p", "logistic", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh",
    "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erf_inv", "lgamma", "digamma", "polygamma", "zeta",
    "igamma", "igammac", "igamma_grad_a", "regularized_incomplete_beta", "bessel_i0e", "bessel_i1e",
)
LOGIC = (
    "eq", "ne", "lt", "le", "gt", "ge", "eq_to", "lt_to", "le_to", "is_finite", "select_n", "and", "or", "xor", "not",
    "mulhi", "shift_left", "shift_right_logical", "shift_right_arithmetic", "population_count", "clz",
)
IDENTITY = (
    "convert_element_type", "bitcast_convert_type", "reduce_precision", "copy", "stop_gradient", "name", "reshard",
    "sharding_constraint", "layout_constraint", "with_memory_space_constraint", "pvary",
)
# fmt: on
ENTRYWISE = (*ARITHMETIC, *SPECIAL, *LOGIC, *IDENTITY)
PASSING = ("device_put", "optimization_barrier")
SHOWING = ("debug_callback", "debug_print")

COUNTER = "joined to a counter"
VARIES = "joined to a constant that varies"
FEW = 16  # runs of equal values that a closed-over value is told apart by


class Equation(NamedTuple):
    """One equation: a rule maps the arrays it reads to the arrays it makes."""

    name: str
    params: dict[str, Any]
    shapes: tuple[tuple[int, ...], ...]  # of its outputs
    number: str  # its place in the jaxpr; 17.3 is the fourth equation inside the eighteenth
    enter: Callable[..., list[Array]]  # walks a jaxpr that the equation holds: (jaxpr, its inputs, steps of a scan)
    stand_outside: Callable[[Sequence[Array]], None]  # says of arrays that they belong to no single step of a scan
    link: Callable[
        [str, Sequence[Array], Array], Array
    ]  # says how an array inside or behind a loop comes from others

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
    """The rule for what is not known: nothing that goes in may move, so nothing that comes out does.

    This holds without outputs too: the equation may write to memory that another one reads.
    """
    for axis in (axis for array in arrays for axis in array):
        fix(axis, equation.unsupported)
    return [tuple(fixed(size, equation.unsupported) for size in shape) for shape in equation.shapes]


def elementwise(equation: Equation, *arrays: Array) -> list[Array]:
    """Scalars say nothing, size 1 broadcasts, everything else joins axis by axis."""
    return [join_all(arrays)]


def passing(equation: Equation, *arrays: Array) -> list[Array]:
    """As many arrays out as in, untouched."""
    return list(arrays)


def showing(equation: Equation, *arrays: Array) -> list[Array]:
    """What is shown does not come back, so that it fixes nothing."""
    return []


def join_all(arrays: tuple[Array, ...] | list[Array]) -> Array:
    """Joins arrays of one rank axis by axis, leaving out scalars.

    Axes that choose by a sum come after the others: by then it is known which sums are one.
    """
    # A scalar holds for every entry, and says nothing of any axis.
    columns = list(enumerate(zip(*[a for a in arrays if a], strict=True)))
    columns.sort(key=lambda column: any(isinstance(factor, Choice) for axis in column[1] for factor in axis))
    joined = {number: reduce(join, axes) for number, axes in columns}
    return tuple(joined[number] for number in range(len(columns)))


def iota(equation: Equation, *sizes: Array) -> list[Array]:
    """Counts along one dimension and repeats along the others."""
    axes = [constant(size) for size in equation.shapes[0]]
    counted = equation.params["dimension"]
    axes[counted] = fixed(equation.shapes[0][counted], COUNTER)
    return [tuple(axes)]


def closed_over(value: Any) -> Array:
    """The axes of a value that is known: what repeats is constant, what varies is fixed.

    Along each axis the values are read as (repeats, period, run): `[a a b b a a b b]` repeats 2 times a period
    of 2 runs of 2. What does not repeat is a sum of its runs, if they are few: `[a a a b b c c]` is 3 + 2 + 2.
    """
    if 0 in value.shape:
        return tuple(map(constant, value.shape))
    if not isinstance(value.dtype, np.dtype):  # keys of a random generator are not numbers
        return tuple(fixed(size, VARIES) for size in value.shape)
    array = np.asarray(value)
    return tuple(_closed_over_axis(array, number) for number in range(array.ndim))


def _closed_over_axis(array: np.ndarray, number: int) -> Axis:
    rows = np.moveaxis(array, number, 0).reshape(array.shape[number], -1)
    value = f"a closed-over value of shape {array.shape}, whose numbers are equal along axis {number}"
    changes = np.flatnonzero((rows[1:] != rows[:-1]).any(axis=1)) + 1
    # The longest run on whose borders all changes fall.
    run = gcd(*changes.tolist(), len(rows))
    heads = rows[::run]
    period = next(p for p in range(1, len(heads) + 1) if _repeats(heads, p))
    # A few runs are parts that units may stand on; where nearly every entry differs there is nothing to tell apart.
    if period == len(heads) and 0 < len(changes) < min(FEW, len(rows) - 1):
        ends = [0, *changes.tolist(), len(rows)]
        return plus([constant(stop - start, value) for start, stop in pairwise(ends)])
    return constant(len(heads) // period, value) + fixed(period, VARIES) + constant(run, value)


def _repeats(rows: np.ndarray, period: int) -> bool:
    if len(rows) % period:
        return False
    first = rows[period : 2 * period]
    return np.array_equal(first, rows[: len(first)]) and np.array_equal(rows[period:], rows[:-period])


RULES = {
    **dict.fromkeys(ENTRYWISE, elementwise),
    **dict.fromkeys(PASSING, passing),
    **dict.fromkeys(SHOWING, showing),
    "iota": iota,
}
