"""A data set in equal parts on the device, so that only the activations of one part are alive at a time."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Shaped

from .inputs import Inputs, count_of


class Chunks(NamedTuple):
    """Arrays (parts, length, ...), and the weight of every example: 1, or 0 where it only fills up the last part."""

    x: Inputs
    y: Shaped[Array, "parts length ..."]
    weight: Float[Array, "parts length"]


def cut(x: Inputs, y: ArrayLike, length: int) -> Chunks:
    """Returns the examples in parts of at most `length`, as equal as can be.

    The last part is filled up with copies of the last example, which carry no weight. Arrays on a device are
    cut there.

    Example:
        >>> chunks = cut(np.arange(5.0), np.arange(5), 4)
        >>> chunks.y.tolist(), chunks.weight.tolist()
        ([[0, 1, 2], [3, 4, 4]], [[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]])
    """
    count = count_of(x)
    parts = max(1, -(-count // min(length, count)))
    length = -(-count // parts)  # nearly equal parts: fewer than `parts` examples are copied
    weight = np.arange(parts * length) < count
    x = jax.tree.map(lambda array: _in_parts(array, parts, length), x)
    return Chunks(x, _in_parts(y, parts, length), jnp.asarray(weight.reshape(parts, length), jnp.float32))


def _in_parts(array: ArrayLike, parts: int, length: int) -> Shaped[Array, "parts length ..."]:
    numpy = jnp if isinstance(array, jax.Array) else np
    array = numpy.asarray(array)
    missing = parts * length - len(array)
    if missing:
        array = numpy.concatenate([array, numpy.repeat(array[-1:], missing, 0)])
    return jnp.asarray(array.reshape(parts, length, *array.shape[1:]))
