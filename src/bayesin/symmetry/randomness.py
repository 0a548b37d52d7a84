"""Random numbers on the host, drawn from a JAX key.

A program of JAX is compiled for every shape it draws, which takes far longer than the permutations and the
noise that are wanted here; a numpy generator seeded with the key's bits costs nothing.
"""

import zlib

import jax
import numpy as np


def generator(key: jax.Array, *stream: str | int) -> np.random.Generator:
    """Returns the generator of a key and a stream of it; the same key and stream give the same numbers.

    Example:
        >>> bool(generator(jax.random.key(0), "a").random() == generator(jax.random.key(0), "a").random())
        True
    """
    words = [zlib.crc32(part.encode()) if isinstance(part, str) else part for part in stream]
    return np.random.default_rng([*np.asarray(jax.random.key_data(key)).ravel().tolist(), *words])
