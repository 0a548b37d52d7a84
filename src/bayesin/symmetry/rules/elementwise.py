"""Operations that look at one entry at a time: matching axes move together."""

from functools import reduce

from ..factors import Array, join
from .equation import Equation

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
PASSING = ("device_put", "optimization_barrier")  # as many arrays out as in, untouched
SHOWING = ("debug_callback", "debug_print")  # what they show does not come back


def elementwise(equation: Equation, *arrays: Array) -> list[Array]:
    """Scalars say nothing, size 1 broadcasts, everything else joins axis by axis."""
    return [join_all(arrays)]


def passing(equation: Equation, *arrays: Array) -> list[Array]:
    return list(arrays)


def showing(equation: Equation, *arrays: Array) -> list[Array]:
    return []


def join_all(arrays: tuple[Array, ...] | list[Array]) -> Array:
    """Joins arrays of one rank axis by axis, leaving out scalars."""
    return tuple(reduce(join, axes) for axes in zip(*[a for a in arrays if a], strict=True))


RULES = {
    **dict.fromkeys((*ARITHMETIC, *SPECIAL, *LOGIC, *IDENTITY), elementwise),
    **dict.fromkeys(PASSING, passing),
    **dict.fromkeys(SHOWING, showing),
}
