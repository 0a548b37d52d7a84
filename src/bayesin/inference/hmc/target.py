"""The posterior of a network as a target for HMC: full-batch gradients in bounded memory.

    log p(w | D) = (1/T) [ Σ_n log p(y_n | x_n, w) + log N(w; 0, v) ] + constant

The data are cut into chunks of equal length, the last one padded with examples of weight zero. The gradient
is added up over the chunks on the way forward (a custom VJP hands it on), so that only the activations of one
chunk are alive at a time.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...trees import Tree
from .energy import squares
from .precision import FULL, matmul_precision


class Chunks(NamedTuple):
    """A data set in equal parts: (parts, length, ...) arrays and the weight, 1 or 0, of every example."""

    x: Any
    y: Any
    weight: Any


class Target(NamedTuple):
    """Log-posterior up to a constant, with a gradient, and the log-likelihoods it consists of."""

    log_density: Callable[[Tree], jax.Array]  # in the gradient's precision; what the integrator follows
    terms: Callable[[Tree], jax.Array]  # log-likelihood of every example over T, in full precision
    prior_precision: float  # 1 / (v T)


LogLikelihood = Callable[[Tree, Any, Any], jax.Array]  # (params, x, y) -> one number for each example


def cut(x: Any, y: Any, length: int) -> Chunks:
    """Returns the examples in parts of at most `length`, as equal as can be."""
    count = len(x)
    parts = max(1, -(-count // min(length, count)))
    length = -(-count // parts)
    index = np.arange(parts * length)
    weight = (index < count).astype(np.float32)
    index = np.minimum(index, count - 1).reshape(parts, length)
    return Chunks(jnp.asarray(np.asarray(x)[index]), jnp.asarray(np.asarray(y)[index]), weight.reshape(parts, length))


def make_target(
    log_likelihood: LogLikelihood, chunks: Chunks, *, prior_variance: float, temperature: float, precision: str
) -> Target:
    """Returns the target; `precision` is that of the matrix products of the gradient."""
    prior_precision = 1.0 / (prior_variance * temperature)

    def value_and_grad(params: Tree) -> tuple[jax.Array, Tree]:
        def part(carry, chunk):
            def total(params):
                return jnp.sum(log_likelihood(params, chunk.x, chunk.y) * chunk.weight) / temperature

            with matmul_precision(precision):
                return jax.tree.map(jnp.add, carry, jax.value_and_grad(total)(params)), None

        start = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, params))
        (value, gradient), _ = jax.lax.scan(part, start, chunks)
        prior = -0.5 * prior_precision * sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(params))
        return value + prior, jax.tree.map(lambda g, w: g - prior_precision * w, gradient, params)

    @jax.custom_vjp
    def log_density(params: Tree) -> jax.Array:
        return value_and_grad(params)[0]

    log_density.defvjp(value_and_grad, lambda gradient, g: (jax.tree.map(lambda leaf: g * leaf, gradient),))

    def terms(params: Tree) -> jax.Array:
        def part(chunk):
            with matmul_precision(FULL):
                return log_likelihood(params, chunk.x, chunk.y) * chunk.weight / temperature

        return jax.lax.map(part, chunks).reshape(-1)

    return Target(log_density, terms, prior_precision)


def log_posterior(target: Target, position: Tree, terms: jax.Array) -> jax.Array:
    """Returns the log-posterior up to a constant, for people: too coarse to decide acceptance."""
    return jnp.sum(terms) - 0.5 * target.prior_precision * squares(position)
