"""Likelihoods: how well outputs explain targets, in nats per example.

    categorical   −log p(y | f) = logsumexp(f) − f_y
    gaussian      −log p(y | f) = Σ_d [ ½ log 2π + log σ + (y_d − f_d)² / (2σ²) ]

The outputs are taken to float32 first, whatever the network computed in.
"""

import math
from typing import Literal

import jax
import jax.numpy as jnp

Likelihood = Literal["categorical", "gaussian"]
_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


def negative_log_likelihood(
    likelihood: Likelihood, outputs: jax.Array, targets: jax.Array, log_noise: jax.Array | float = 0.0
) -> jax.Array:
    """Returns `−log p(target | output)` of every example.

    Args:
        likelihood: "categorical" (outputs are logits, targets integers) or "gaussian".
        outputs: what the network returns, batch first.
        targets: labels, or real targets with as many entries an example as the outputs.
        log_noise: log of the Gaussian likelihood's standard deviation; unused by the categorical one.

    Example:
        >>> negative_log_likelihood("categorical", jnp.zeros((1, 4)), jnp.array([2])).round(3).tolist()
        [1.386...]
    """
    outputs = outputs.astype(jnp.float32)
    if likelihood == "categorical":
        picked = jnp.take_along_axis(outputs, targets[:, None], axis=-1)[:, 0]
        return jax.nn.logsumexp(outputs, axis=-1) - picked
    residual = outputs - targets.reshape(outputs.shape)
    terms = _HALF_LOG_TWO_PI + log_noise + 0.5 * jnp.square(residual * jnp.exp(-log_noise))
    return terms.reshape(len(outputs), -1).sum(-1)


def score(likelihood: Likelihood, outputs: jax.Array, targets: jax.Array) -> jax.Array:
    """Returns what a person wants to see: the share of right answers, or the mean squared error."""
    if likelihood == "categorical":
        return jnp.mean((jnp.argmax(outputs, -1) == targets).astype(jnp.float32))
    return jnp.mean(jnp.square(outputs.astype(jnp.float32) - targets.reshape(outputs.shape)))


def score_name(likelihood: Likelihood) -> str:
    """The name of `score`: accuracy, or mse."""
    return "accuracy" if likelihood == "categorical" else "mse"
