"""Calls, branches and loops: equations that hold a jaxpr of their own, which is entered."""

from functools import reduce

from ..factors import Array, Axis, Constant, Factor, Sum, Units, constant, fix, fixed, is_constant, join, resolve
from .basic import Equation, freeze, join_all

STEPS = "steps of a scan"
CALLS = ("jit", "closed_call", "remat2", "custom_jvp_call", "custom_vjp_call", "custom_vmap_call", "composite")


def call(equation: Equation, *arrays: Array) -> list[Array]:
    """`jit`, `remat` and custom derivatives do not change what is computed."""
    for name in ("jaxpr", "call_jaxpr", "call"):
        if name in equation.params:
            return equation.enter(equation.params[name], arrays)
    return freeze(equation, *arrays)


def cond(equation: Equation, index: Array, *arrays: Array) -> list[Array]:
    """Every branch must agree on how its outputs move."""
    # All branches are walked: which one is taken is not known before the data are.
    branches = [equation.enter(branch, arrays) for branch in equation.params["branches"]]
    return [equation.link("join", outputs, join_all(outputs)) for outputs in zip(*branches, strict=True)]


def while_loop(equation: Equation, *arrays: Array) -> list[Array]:
    """What the loop hands on moves as what it was handed; condition and body are walked once, for every turn."""
    params = equation.params
    split = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    # The condition reads the carry too: what decides how long a loop goes on must not change with the order of units.
    tested, used, carry = arrays[: split[0]], arrays[split[0] : split[1]], _varying(equation, arrays[split[1] :])
    equation.enter(params["cond_jaxpr"], [*tested, *carry])
    return _closed(equation, carry, equation.enter(params["body_jaxpr"], [*used, *carry]))


def scan(equation: Equation, *arrays: Array) -> list[Array]:
    """The carry moves alike at every step, and so does the body's slice of what is scanned.

    Steps follow one another, so that the scanned axis is fixed; without a carry they are independent, and
    it may move.
    """
    body, length = equation.params["jaxpr"], equation.params["length"]
    # What is scanned has one axis more outside of the body than inside; how many arrays those are is told
    # under names that differ between versions of JAX.
    first = next((i for i, a in enumerate(arrays) if len(a) > len(body.in_avals[i].shape)), len(arrays))
    handed_on = sum(len(s) == len(v.shape) for s, v in zip(equation.shapes, body.out_avals, strict=True))
    used, scanned = arrays[: first - handed_on], arrays[first:]
    carry = _varying(equation, arrays[first - handed_on : first])

    steps = reduce(join, [array[0] for array in scanned], constant(length))
    if carry:
        fix(steps, STEPS)
        # `fix` leaves constants alone, but what a carry makes differs from step to step.
        steps = fixed(length, STEPS) if is_constant(steps) else steps
    equation.stand_outside([*used, *carry])
    seen = [equation.link("step", [array], array[1:]) for array in scanned]
    outputs = equation.enter(body, [*used, *carry, *seen], steps)
    made = [equation.link("stack of steps", [array], (steps, *array)) for array in outputs[handed_on:]]
    return _closed(equation, carry, outputs[:handed_on]) + made


def _varying(equation: Equation, carry: tuple[Array, ...]) -> list[Array]:
    """The carry with free units in place of constants: what starts constant need not stay so."""
    return [equation.link("carry", [array], tuple(_varied(resolve(axis)) for axis in array)) for array in carry]


def _varied(axis: Axis) -> Axis:
    return tuple(map(_vary, axis))


def _vary(factor: Factor) -> Factor:
    if isinstance(factor, Sum):
        return Sum(tuple(map(_varied, factor.terms)), factor.tag)
    return Units(factor.size) if isinstance(factor, Constant) and factor.size else factor


def _closed(equation: Equation, carry: list[Array], outputs: list[Array]) -> list[Array]:
    """Joins what a loop hands on with what it was handed."""
    return [equation.link("join", pair, join_all(pair)) for pair in zip(carry, outputs, strict=True)]


RULES = dict.fromkeys(CALLS, call) | {"cond": cond, "while": while_loop, "scan": scan}
