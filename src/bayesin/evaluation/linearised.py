"""A network replaced by its first-order expansion around one set of weights.

    f(w, x) ≈ f(m, x) + J(x) (w − m),     J the Jacobian at m

Laplace's approximation with the generalised Gauss-Newton curvature is exact for this network, not for the one it was
expanded from: draws of the weights that the curvature calls likely leave the region where the two agree, so that the
network itself predicts far worse with them.

Reference: Immer, Korzepa and Bauer 2021.
"""

from typing import Any

import equinox as eqx
import jax

from ..errors import PosteriorError
from ..inference import Fit
from ..jaxprs import Apply, check_callable
from ..posteriors import Posterior, Samples, is_posterior
from ..trees import Tree, check_same_structure, is_float


def linearised(model: Apply, at: Posterior | Fit | Tree) -> Apply:
    """Returns the network's first-order expansion around the mean of a posterior, as a function `(params, x)`.

    It goes wherever an apply does, `predict`, `evaluate` and `barrier` among them.

    Args:
        model: the network, a `Model` or its `apply(params, x)`.
        at: the weights to expand around: a posterior with a mean, a `Fit` of one, or a parameter tree.

    Raises:
        PosteriorError: a sample set, whose members have no common expansion.

    Example:
        >>> import jax.numpy as jnp
        >>> from bayesin import Gaussian
        >>> q = Gaussian({"w": jnp.ones(1)}, {"w": jnp.full(1, 0.1)})
        >>> flat = linearised(lambda params, x: jnp.exp(params["w"]) * x, q)
        >>> print(f"{flat({'w': jnp.array([1.5])}, jnp.ones((1, 1)))[0, 0]:.4f}")  # e + e (1.5 − 1)
        4.0774
    """
    check_callable(model)
    at = at.posterior if isinstance(at, Fit) else at
    if isinstance(at, Samples):
        raise PosteriorError("a sample set has no one place to expand a network at; give a Gaussian or one member")
    return _Linearised(model, at.mean if is_posterior(at) else at)


class _Linearised:
    """Known by its identity, so that programs which hold it are compiled once."""

    def __init__(self, apply: Apply, centre: Tree):
        self._apply, self._centre = apply, centre

    def __call__(self, params: Tree, x: Any) -> Any:
        check_same_structure(self._centre, params, "the weights of a linearised network")
        moving, still = eqx.partition(self._centre, lambda leaf: is_float(leaf.dtype))
        there, _ = eqx.partition(params, lambda leaf: is_float(leaf.dtype))
        step = jax.tree.map(lambda w, m: (w - m).astype(m.dtype), there, moving)
        outputs, change = jax.jvp(lambda w: self._apply(eqx.combine(w, still), x), (moving,), (step,))
        return jax.tree.map(jax.numpy.add, outputs, change)
