"""Random keys, explicit everywhere, and the numbers drawn from them.

There is one source of standard normal trees. Draw number s of any posterior is made with `fold_in(key, s)`,
so that `q.sample(key, n)`, `evaluate` and `barrier` see the same weights for the same key, whatever is
computed at once.
"""

import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Inexact, Key, UInt32

from .errors import ConfigError
from .trees import Tree, check_not_narrowed, common_dtype, is_float

PRNGKey = Key[Array, ""] | UInt32[Array, "words"]  # of jax.random.key, or the raw words of jax.random.PRNGKey


def check_key(key: object) -> None:
    """Raises `ConfigError` unless `key` is a key of `jax.random`.

    Example:
        >>> check_key(0)
        Traceback (most recent call last):
        bayesin.errors.ConfigError: a key comes from jax.random, not 0; write jax.random.key(0)
    """
    if not hasattr(key, "dtype") or not hasattr(key, "shape"):
        instead = f"jax.random.key({key})" if isinstance(key, int) and key >= 0 else "jax.random.key(0)"
        raise ConfigError(f"a key comes from jax.random, not {key!r:.60}; write {instead}")


def seed_key(seed: int) -> PRNGKey:
    """Returns the key of a seed: every whole number below 2⁶⁴ has a stream of its own.

    `jax.random.key` keeps the low 32 bits alone unless x64 is on. Below 2³² both give the same key.

    Raises:
        ConfigError: the seed is negative, or has more than 64 bits.

    Example:
        >>> [jax.random.key_data(seed_key(seed)).tolist() for seed in (7, (3 << 32) + 7)]
        [[0, 7], [3, 7]]
    """
    words = np.array(divmod(check_seed(seed), 1 << 32), np.uint32)
    length = jax.random.key_data(jax.random.key(0)).size  # some generators have the same words twice
    return jax.random.wrap_key_data(jnp.asarray(np.tile(words, length // 2)))


def check_seed(seed: int) -> int:
    """Returns the seed, or raises `ConfigError` where it is no whole number of at most 64 bits."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 1 << 64:
        raise ConfigError(f"a key is a whole number from 0 to 2^64 - 1, not {seed!r:.60}")
    return seed


def generator(key: PRNGKey, *stream: str | int) -> np.random.Generator:
    """Returns the host generator of a key and a stream of it; the same key and stream give the same numbers.

    Example:
        >>> bool(generator(jax.random.key(0), "a").random() == generator(jax.random.key(0), "a").random())
        True
    """
    words = [zlib.crc32(part.encode()) if isinstance(part, str) else part for part in stream]
    return np.random.default_rng([*np.asarray(jax.random.key_data(key)).ravel().tolist(), *words])


def normal_tree(key: PRNGKey, like: Tree) -> Tree:
    """Returns independent standard normals shaped like a parameter tree, and zeros for its integers.

    Half-precision leaves get float32 noise, to be rounded together with what it is added to.

    Example:
        >>> noise = normal_tree(jax.random.key(0), {"steps": jnp.array(3), "w": jnp.zeros((2, 4), jnp.bfloat16)})
        >>> int(noise["steps"]), noise["w"].shape, noise["w"].dtype.name
        (0, (2, 4), 'float32')
    """
    leaves, structure = jax.tree.flatten(like)
    floats = [leaf.dtype for leaf in leaves if is_float(leaf.dtype)]
    # One long vector, cut up: a random generator for each leaf would take most of the time to compile.
    size = sum(leaf.size for leaf in leaves if is_float(leaf.dtype))
    vector = jax.random.normal(key, (size,), common_dtype(jnp.float32, *floats))
    noise, start = [], 0
    for leaf in leaves:
        if not is_float(leaf.dtype):
            noise.append(jnp.zeros(leaf.shape, leaf.dtype))
            continue
        part: Inexact[Array, ...] = vector[start : start + leaf.size].reshape(leaf.shape)
        noise.append(part.astype(common_dtype(leaf.dtype, jnp.float32)))
        start += leaf.size
    return jax.tree.unflatten(structure, noise)


def sample_with(draw: Callable[[PRNGKey], Tree], key: PRNGKey, count: int) -> Tree:
    """Returns the draws of `fold_in(key, 0)` to `fold_in(key, count - 1)`, stacked along a leading axis.

    One after the other, as evaluation draws them: side by side, the compiler may round the last bit otherwise.
    """
    return jax.lax.map(lambda number: draw(jax.random.fold_in(key, number)), jnp.arange(count))


def sample_of(posterior: Any, key: PRNGKey, count: int) -> Tree:
    """Returns `count` draws of a posterior with a method `draw(key)`, as above; compiled once for each count."""
    check_key(key)
    check_not_narrowed(posterior, "the posterior")
    return _sample_of(posterior, key, count)


@partial(jax.jit, static_argnames="count")
def _sample_of(posterior: Any, key: PRNGKey, count: int) -> Tree:
    return sample_with(posterior.draw, key, count)
