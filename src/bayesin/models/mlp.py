"""The multilayer perceptron of both papers: three hidden layers of 512 ReLU units by default."""

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx


class MLP(nnx.Module):
    """`depth` hidden layers of `width` ReLU units; flattens its input, returns logits.

    Kernels start He-normal, biases at zero. Parameters are float32; `dtype` is that of the arithmetic, by default
    the parameters' own. Logits have at least single precision.

    Example:
        >>> net = MLP(64, 10, depth=2, width=32, rngs=nnx.Rngs(0))
        >>> net(jnp.ones((5, 8, 8, 1))).shape
        (5, 10)
    """

    def __init__(
        self, inputs: int, outputs: int, *, depth: int = 3, width: int = 512, dtype: Any = None, rngs: nnx.Rngs
    ):
        sizes = [inputs, *[width] * depth, outputs]
        kernel = nnx.initializers.he_normal()
        self.layers = nnx.List(
            [
                nnx.Linear(before, after, kernel_init=kernel, dtype=dtype, rngs=rngs)
                for before, after in pairwise(sizes)
            ]
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x.reshape(x.shape[0], -1)
        *hidden, last = self.layers
        for layer in hidden:
            x = jax.nn.relu(layer(x))
        return _at_least_single(last(x))


def _at_least_single(x: jax.Array) -> jax.Array:
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))
