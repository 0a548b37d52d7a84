"""The permutation symmetry of any `apply(params, x)`, read off its jaxpr.

Parameters start with fresh units on every axis, the input is fixed. One walk through the equations joins the axes
that must move together, refines those that a reshape cuts and fixes those whose order matters; the output is fixed
last. What is still free is a group. Whatever is not understood is fixed, so that the answer may have too few
symmetries, and never a wrong one.
"""

from collections.abc import Sequence
from typing import Any

import jax
from jax.interpreters.partial_eval import dce_jaxpr

from ..jaxprs import Apply, check_arrays, interpret, trace
from ..trees import Tree
from .factors import Array, Axis, Units, constant, fix, fixed, free, resolve, size_of, units_of
from .rules import ENTERING, RULES, Equation, closed_over, freeze
from .spec import Factor, PermutationSpec


def discover(apply: Apply, params: Tree, x: Any) -> PermutationSpec:
    """Returns the permutations of units that leave `apply(params, x)` unchanged.

    Args:
        apply: a pure function that JAX can trace.
        params: arrays, or `jax.ShapeDtypeStruct` objects: only shapes are looked at.
        x: one input, of any batch size: arrays or `jax.ShapeDtypeStruct` objects.

    Raises:
        ModelError: `apply` cannot be traced, or a leaf of `params` is not an array.

    Example:
        >>> import jax.numpy as jnp
        >>> params = {"w0": jnp.ones((4, 8)), "b0": jnp.ones(8), "w1": jnp.ones((8, 3))}
        >>> spec = discover(lambda p, x: jax.nn.relu(x @ p["w0"] + p["b0"]) @ p["w1"], params, jnp.ones((1, 4)))
        >>> spec.sizes
        {'g0': 8}
        >>> spec.touched_by("g0")
        (('b0', 0, 0), ('w0', 1, 0), ('w1', 0, 0))
    """
    flat = check_arrays(params, "params")
    check_arrays(x, "x")
    closed = trace(apply, params, x)
    # Equations that the output does not depend on must not fix anything, so they are removed first.
    jaxpr, used = dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars))

    reaching = dict(zip(flat, used[: len(flat)], strict=True))
    parameters = {path: _parameter(leaf.shape, reaching[path]) for path, leaf in flat.items()}
    inputs = [tuple(fixed(size, "joined to the input") for size in leaf.shape) for leaf in jax.tree.leaves(x)]
    arrays = [array for array, reaches in zip([*parameters.values(), *inputs], used, strict=True) if reaches]

    walk = _Walk()
    values = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    # A reason names an equation by its place in the program as the user would print it, before the removal.
    numbers = {var: index for index, eqn in enumerate(closed.jaxpr.eqns) for var in eqn.outvars}
    outputs = walk.run(jaxpr, [values[var] for var in jaxpr.constvars], arrays, numbers)
    for axis in (axis for array in outputs for axis in array):
        fix(axis, "output")
    return _spec(parameters, walk.order_met)


class _Walk:
    """Carries axes through a jaxpr, and remembers in which order it met the units of the parameters."""

    def __init__(self):
        self.order_met: dict[Units, int] = {}
        self._known: dict[int, tuple[Any, Array]] = {}  # constants by identity; held, so that no id comes back

    def run(
        self, jaxpr: Any, consts: Sequence[Any], arrays: Sequence[Array], numbers: dict[Any, int], place: str = ""
    ) -> list[Array]:
        """Returns the axes of the outputs of a jaxpr.

        Args:
            jaxpr: the equations.
            consts: values of its `constvars`.
            arrays: axes of its inputs.
            numbers: number of an equation by its output, where that is not its place in this jaxpr.
            place: number of the equation that holds this jaxpr, and a dot.
        """

        def step(index: int, equation: Any, inputs: list[Array]) -> list[Array]:
            number = next((numbers[var] for var in equation.outvars if var in numbers), index)
            return self._step(equation, inputs, f"{place}{number}")

        return interpret(jaxpr, [self._constant(value) for value in consts], arrays, step, self._constant)

    def _step(self, eqn: Any, arrays: list[Array], number: str) -> list[Array]:
        name = eqn.primitive.name
        shapes = tuple(getattr(var.aval, "shape", ()) for var in eqn.outvars)

        def enter(inner: Any, inputs: Sequence[Array]) -> list[Array]:
            return self.run(
                getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), inputs, {}, place=f"{number}."
            )

        if shapes and all(0 in shape for shape in shapes):
            return [tuple(map(constant, shape)) for shape in shapes]  # of no entries any claim is true
        if name not in ENTERING:
            self._meet(arrays)
        return _apply_rule(Equation(name, eqn.params, shapes, number, enter), arrays)

    def _meet(self, arrays: list[Array]) -> None:
        for factor in (factor for array in arrays for axis in array for factor in axis):
            if isinstance(factor, Units):
                self.order_met.setdefault(factor, len(self.order_met))

    def _constant(self, value: Any) -> Array:
        if not getattr(value, "shape", ()):
            return ()
        if id(value) not in self._known:
            self._known[id(value)] = (value, closed_over(value))
        return self._known[id(value)][1]


def _apply_rule(equation: Equation, arrays: list[Array]) -> list[Array]:
    """What the rule says; a primitive whose parameters or shapes its rule does not expect is frozen."""
    try:
        outputs = RULES.get(equation.name, freeze)(equation, *arrays)
    except (AttributeError, KeyError):  # as after a change of JAX
        return freeze(equation, *arrays)
    if [tuple(map(size_of, array)) for array in outputs] != list(equation.shapes):
        return freeze(equation, *arrays)
    return [tuple(map(resolve, array)) for array in outputs]


def _parameter(shape: tuple[int, ...], reaches: bool) -> Array:
    return tuple(free(size) if reaches else fixed(size, "does not reach the output") for size in shape)


def _spec(parameters: dict[str, Array], order_met: dict[Units, int]) -> PermutationSpec:
    """Names the groups in the order in which the computation meets them."""
    axes = [axis for array in parameters.values() for axis in array]
    names: dict[Units, str] = {}
    for axis in sorted(axes, key=lambda axis: _first_met(axis, order_met)):
        for units in units_of(axis):
            if not units.reason:
                names.setdefault(units, f"g{len(names)}")
    return PermutationSpec(
        tuple((path, tuple((_named(axis, names),) for axis in array)) for path, array in parameters.items())
    )


def _first_met(axis: Axis, order_met: dict[Units, int]) -> int:
    return min((order_met.get(factor, len(order_met)) for factor in axis if isinstance(factor, Units)), default=0)


def _named(axis: Axis, names: dict[Units, str]) -> tuple[Factor, ...]:
    """The factors of an axis; neighbours that are both fixed are one factor."""
    factors: list[Factor] = []
    for units in units_of(axis):
        if units in names:
            factors.append(Factor(units.size, names[units]))
        elif factors and not factors[-1].group:
            reasons = "; ".join(dict.fromkeys([*factors[-1].reason.split("; "), units.reason]))
            factors[-1] = Factor(factors[-1].size * units.size, None, reasons)
        else:
            factors.append(Factor(units.size, None, units.reason))
    return tuple(factors)
