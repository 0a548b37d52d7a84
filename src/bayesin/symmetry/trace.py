"""The jaxpr of `apply`, or one clear line about why there is none."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ..errors import BayesinError, ModelError
from ..trees import Flat, Tree, flatten


def trace(apply: Callable[[Any, Any], Any], params: Tree, x: Any) -> Any:
    """Returns the closed jaxpr of `apply(params, x)`.

    Raises:
        ModelError: `apply` is no function of arrays, or fails on these shapes.
    """
    if not callable(apply):
        raise ModelError(f"apply must be a function of (params, x), not {type(apply).__name__}")
    try:
        jaxpr = jax.make_jaxpr(apply)(params, x)
    except BayesinError:
        raise
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as error:
        raise ModelError(
            f"apply cannot be traced, since it looks at values ({first_line(error)}); "
            "write its branches with jnp.where or jax.lax.cond, and its arrays with jax.numpy"
        ) from error
    except Exception as error:
        raise ModelError(
            f"apply fails on params and an input of {_shapes(x)}: {type(error).__name__}: {first_line(error)}"
        ) from error
    if not jaxpr.jaxpr.outvars:
        raise ModelError("apply returns no arrays")
    return jaxpr


def check_arrays(tree: Tree, what: str) -> Flat:
    """Returns the leaves by path, all of them arrays with entries.

    Raises:
        ModelError: there are no leaves, or one is no array.
    """
    try:
        flat, leaves = flatten(tree), jax.tree.leaves(tree)
    except (TypeError, ValueError) as error:  # keys that cannot be sorted
        raise ModelError(f"{what} is no tree of arrays: {first_line(error)}") from error
    if not leaves:
        raise ModelError(f"{what} has no arrays")
    if len(flat) < len(leaves):
        raise ModelError(f"{what} has two leaves of one path; rename a key")
    for path, leaf in flat.items():
        where = f"{what}: '{path}'" if path else what
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            raise ModelError(f"{where} is no array but {type(leaf).__name__}; keep settings out of the tree")
        if isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind not in "biufcV":
            raise ModelError(f"{where} holds {leaf.dtype}, which is no number")
        if 0 in leaf.shape:
            raise ModelError(f"{where} is empty: its shape is {tuple(leaf.shape)}")
    return flat


def first_line(error: Exception) -> str:
    """The first line of an error's message, cut to a length people read."""
    return (str(error).strip().splitlines() or ["no message"])[0][:300]


def _shapes(x: Any) -> str:
    leaves = flatten(x)
    return ", ".join(f"{path + ' ' if path else ''}shape {tuple(leaf.shape)}" for path, leaf in leaves.items())
