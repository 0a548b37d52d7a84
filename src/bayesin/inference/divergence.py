"""Kullback-Leibler divergence of a mean-field Gaussian to an isotropic Gaussian prior, in closed form.

For q = N(m, s²) and p = N(c, v), summed over weights (never averaged over tensors: that is no ELBO):

    cross entropy   E_q[−log p] = ½ log 2πv + (s² + (m − c)²) / (2v)
    entropy         H[q]        = ½ log 2πe + log s
    KL[q‖p] = cross entropy − entropy

Their gradients are short enough to write down, which spares the training step a backward pass over
every weight:

    ∂/∂m = (m − c) / v,     ∂/∂s = s / v  (cross entropy),     1 / s  (entropy).
"""

import math

import jax
import jax.numpy as jnp
import numpy as np


def cross_entropy(
    mean: jax.Array, std: jax.Array, centre: jax.Array | float, variance: jax.Array | float
) -> jax.Array:
    """Returns `E_q[−log p]` in nats, summed over all weights."""
    terms = 0.5 * jnp.log(2 * math.pi * variance) + (jnp.square(std) + jnp.square(mean - centre)) / (2 * variance)
    return jnp.sum(jnp.broadcast_to(terms, jnp.shape(mean)))


def entropy(std: jax.Array) -> jax.Array:
    """Returns the entropy of `N(·, diag(std²))` in nats."""
    return jnp.sum(0.5 * math.log(2 * math.pi * math.e) + jnp.log(std))


def kl_divergence(
    mean: jax.Array, std: jax.Array, centre: jax.Array | float = 0.0, variance: jax.Array | float = 1.0
) -> jax.Array:
    """Returns `KL[N(mean, diag(std²)) ‖ N(centre, variance · I)]` in nats, summed over all weights.

    Example:
        >>> float(kl_divergence(jnp.zeros(3), jnp.ones(3)))
        0.0
        >>> float(kl_divergence(jnp.full(3, 2.0), jnp.ones(3)))
        6.0
    """
    ratio = jnp.square(std) / variance
    terms = 0.5 * (ratio - 1 - jnp.log(ratio)) + jnp.square(mean - centre) / (2 * variance)
    return jnp.sum(terms)


def softplus_and_slope(rho: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns `log(1 + exp(rho))` and its derivative; neither overflows, and tiny stds keep their digits."""
    tail = jnp.exp(-jnp.abs(rho))
    slope = jnp.where(rho >= 0, 1.0, tail) / (1.0 + tail)
    return jnp.maximum(rho, 0.0) + jnp.log1p(tail), slope


def inverse_softplus(std: float) -> float:
    """Returns `rho` with softplus(rho) = std, exact to float64 for a std of 1e-30 or 1e30 alike.

    Example:
        >>> round(inverse_softplus(0.01), 4)
        -4.6002
    """
    return float(np.log(-np.expm1(-np.float64(std))) + np.float64(std))
