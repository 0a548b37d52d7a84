"""The permutation symmetry of any `apply(params, x)`, read off its jaxpr.

Parameters start with one fresh set of units an axis, the input is fixed. One walk through the equations joins
the axes that must move together, refines those that a reshape cuts and fixes those whose order matters; the
output is fixed last. What is still free is a group. Whatever is not understood is fixed, so that the answer
may have too few symmetries, and never a wrong one.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax.interpreters.partial_eval import dce_jaxpr

from ..trees import Tree
from .factors import Array, Axis, Units, fix, fixed, free, units_of
from .spec import Factor, PermutationSpec
from .trace import check_arrays, trace
from .walk import Walk


def discover(apply: Callable[[Any, Any], Any], params: Tree, x: Any) -> PermutationSpec:
    """Returns the permutations of units that leave `apply(params, x)` unchanged.

    Args:
        apply: a pure function that JAX can trace.
        params: arrays, or `jax.ShapeDtypeStruct` objects: only shapes are looked at.
        x: one input, of any batch size: arrays or `jax.ShapeDtypeStruct` objects.

    Raises:
        ModelError: `apply` cannot be traced, or `params` holds something that is no array.

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
    jaxpr, used = dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars))

    reaching = dict(zip(flat, used[: len(flat)], strict=True))
    parameters = {path: _parameter(leaf.shape, reaching[path]) for path, leaf in flat.items()}
    inputs = [tuple(fixed(size, "joined to the input") for size in leaf.shape) for leaf in jax.tree.leaves(x)]
    arrays = [array for array, reaches in zip([*parameters.values(), *inputs], used, strict=True) if reaches]

    walk = Walk()
    values = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    numbers = {var: index for index, eqn in enumerate(closed.jaxpr.eqns) for var in eqn.outvars}
    outputs = walk.run(jaxpr, [values[var] for var in jaxpr.constvars], arrays, numbers)
    for axis in (axis for array in outputs for axis in array):
        fix(axis, "output")
    return _spec(parameters, walk.met)


def _parameter(shape: tuple[int, ...], reaches: bool) -> Array:
    return tuple(free(size) if reaches else fixed(size, "does not reach the output") for size in shape)


def _spec(parameters: dict[str, Array], met: dict[Units, int]) -> PermutationSpec:
    """Names the groups in the order in which the computation meets them."""
    axes = [axis for array in parameters.values() for axis in array]
    names: dict[Units, str] = {}
    for axis in sorted(axes, key=lambda axis: _first(axis, met)):
        for units in units_of(axis):
            if not units.reason:
                names.setdefault(units, f"g{len(names)}")
    return PermutationSpec(
        tuple((path, tuple(_named(axis, names) for axis in array)) for path, array in parameters.items())
    )


def _first(axis: Axis, met: dict[Units, int]) -> int:
    return min((met.get(factor, len(met)) for factor in axis if isinstance(factor, Units)), default=0)


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
