"""Arrays that do not come from the parameters: closed-over values and counters."""

from math import gcd
from typing import Any

import numpy as np

from ..factors import Array, Axis, constant, fixed
from .equation import Equation


def iota(equation: Equation, *sizes: Array) -> list[Array]:
    """Counts along one dimension and repeats along the others."""
    axes = [constant(size) for size in equation.shapes[0]]
    counted = equation.params["dimension"]
    axes[counted] = fixed(equation.shapes[0][counted], "joined to a counter")
    return [tuple(axes)]


def closed_over(value: Any) -> Array:
    """The axes of a value that is known: what repeats is constant, what varies is fixed.

    Along each axis the values are read as (repeats, period, run): `[a a b b a a b b]` repeats 2 times a period
    of 2 runs of 2.
    """
    if 0 in value.shape:
        return tuple(map(constant, value.shape))
    if not isinstance(value.dtype, np.dtype):  # keys of a random generator are no numbers
        return tuple(fixed(size, VARIES) for size in value.shape)
    array = np.asarray(value)
    return tuple(_closed_over_axis(array, number) for number in range(array.ndim))


VARIES = "joined to a constant that varies"


def _closed_over_axis(array: np.ndarray, number: int) -> Axis:
    rows = np.moveaxis(array, number, 0).reshape(array.shape[number], -1)
    changes = np.flatnonzero((rows[1:] != rows[:-1]).any(axis=1)) + 1
    run = gcd(*changes.tolist(), len(rows))
    heads = rows[::run]
    period = next(p for p in range(1, len(heads) + 1) if _repeats(heads, p))
    return constant(len(heads) // period) + fixed(period, VARIES) + constant(run)


def _repeats(rows: np.ndarray, period: int) -> bool:
    if len(rows) % period:
        return False
    first = rows[period : 2 * period]
    return np.array_equal(first, rows[: len(first)]) and np.array_equal(rows[period:], rows[:-period])


RULES = {"iota": iota}
