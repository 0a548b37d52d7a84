"""Normalisation without batch statistics, for networks whose weights are random.

Filter response normalisation divides each channel by its root mean square over the image,

    y = gamma * x / sqrt(mean_hw(x²) + eps) + beta,

and is followed by a rectifier with a learned threshold for each channel, `max(y, tau)`, in place of ReLU.

Reference: Singh and Krishnan 2020, Filter Response Normalization Layer.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from ..errors import ConfigError

EPSILON = 1e-6
NORMS = ("layernorm", "frn")


class FilterResponseNorm(nnx.Module):
    """Divides each channel of NHWC images by its root mean square over the image."""

    def __init__(self, features: int, *, dtype: Any = None):
        self.gamma = nnx.Param(jnp.ones(features, jnp.float32))
        self.beta = nnx.Param(jnp.zeros(features, jnp.float32))
        self.dtype = dtype

    def __call__(self, x: jax.Array) -> jax.Array:
        wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))  # squares of bfloat16 lose too much
        mean_square = jnp.mean(jnp.square(wide), axis=(-3, -2), keepdims=True)
        gamma, beta = self.gamma[...], self.beta[...]
        y = gamma * wide * jax.lax.rsqrt(mean_square + EPSILON) + beta
        return y.astype(self.dtype or jnp.promote_types(x.dtype, gamma.dtype))


class Threshold(nnx.Module):
    """The rectifier `max(x, tau)` with a learned threshold for each channel; ReLU at the start."""

    def __init__(self, features: int, *, dtype: Any = None):
        self.tau = nnx.Param(jnp.zeros(features, jnp.float32))
        self.dtype = dtype

    def __call__(self, x: jax.Array) -> jax.Array:
        tau = self.tau[...]
        return jnp.maximum(x, tau if self.dtype is None else tau.astype(self.dtype))


def make_norm(kind: str, features: int, *, dtype: Any = None, rngs: nnx.Rngs) -> Callable[[jax.Array], jax.Array]:
    """The norm of this name: `layernorm` over the channels of each pixel, or `frn` over the image of each channel."""
    check_norm(kind)
    if kind == "frn":
        return FilterResponseNorm(features, dtype=dtype)
    return nnx.LayerNorm(features, epsilon=EPSILON, dtype=dtype, rngs=rngs)


def make_rectifier(kind: str, features: int, *, dtype: Any = None) -> Callable[[jax.Array], jax.Array]:
    """The rectifier that goes with a norm: a learned threshold after `frn`, ReLU otherwise."""
    return Threshold(features, dtype=dtype) if kind == "frn" else jax.nn.relu


def check_norm(kind: str) -> None:
    """Raises `ConfigError` for an unknown norm."""
    if kind not in NORMS:
        raise ConfigError(f"there is no norm '{kind}'; choose {' or '.join(NORMS)}")
