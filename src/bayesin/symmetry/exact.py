"""`apply` run as exactly as it can be.

Rounding hides small errors, and flips discrete choices such as a routing or an argmax. In double precision both
are a billion times rarer, so that is what a model runs in here, if it can.
"""

from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxprs_in_params

from ..errors import ModelError
from ..trees import Tree
from .trace import trace


class Exact:
    """A compiled `apply` in double precision where possible.

    Attributes:
        double: whether parameters and inputs are widened. A model with single precision written into a loop
            refuses that, and runs as it is.
        eps: the coarsest spacing of floating point numbers that the computation rounds to.
    """

    def __init__(self, apply: Callable[[Any, Any], Any], params: Tree, x: Any):
        shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), (params, x))
        self.double = True
        try:
            with self._precision():
                jaxpr = trace(apply, *widened(shapes))
        except ModelError:
            self.double = False
            with self._precision():
                jaxpr = trace(apply, *shapes)
        self.eps = _coarsest(jaxpr.jaxpr) or float(jnp.finfo(jnp.float32).eps)
        self._apply = jax.jit(apply)

    def __call__(self, params: Tree, x: Any) -> list[np.ndarray]:
        """Returns the leaves of the output in double precision."""
        if self.double:
            params, x = widened((params, x))
        with self._precision():
            return [widened(np.asarray(leaf)) for leaf in jax.tree.leaves(self._apply(params, x))]

    @contextmanager
    def _precision(self):
        with ExitStack() as stack:
            stack.enter_context(jax.default_matmul_precision("highest"))
            if self.double:
                stack.enter_context(jax.enable_x64(True))
            yield


def widened(tree: Tree) -> Tree:
    """Returns the tree, of arrays or shapes, with all real and complex leaves in double precision."""
    return jax.tree.map(_widen, tree)


def _widen(leaf: Any) -> Any:
    if not jnp.issubdtype(leaf.dtype, jnp.inexact):
        return leaf
    wide = np.complex128 if jnp.issubdtype(leaf.dtype, jnp.complexfloating) else np.float64
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return jax.ShapeDtypeStruct(leaf.shape, wide)
    return np.asarray(leaf).astype(wide)


def _coarsest(jaxpr: Any) -> float:
    eps = [0.0]
    for eqn in jaxpr.eqns:
        kinds = [var.aval.dtype for var in eqn.outvars if hasattr(var.aval, "dtype")]
        eps += [float(jnp.finfo(kind).eps) for kind in kinds if jnp.issubdtype(kind, jnp.inexact)]
        eps += [_coarsest(getattr(inner, "jaxpr", inner)) for inner in jaxprs_in_params(eqn.params)]
    return max(eps)
