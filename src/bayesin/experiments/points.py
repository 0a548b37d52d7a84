"""Networks trained side by side from given starts, every epoch shown: plain gradient descent with momentum.

`fit_ensemble` draws its starts from a key and returns the end. Experiments on permuted starts and on training
dynamics need the starts to be chosen and the way to be seen.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import ConfigError
from ..inference.likelihoods import negative_log_likelihood
from ..trees import Tree


@dataclass(frozen=True)
class Descent:
    """Settings of gradient descent; the defaults are those of Xiao et al. 2023, without weight decay."""

    epochs: int = 50
    batch: int = 64
    learning_rate: float = 1e-3
    momentum: float = 0.9

    def __post_init__(self):
        if self.epochs < 0 or self.batch < 1 or not self.learning_rate > 0 or not 0 <= self.momentum < 1:
            raise ConfigError(f"these settings of gradient descent make no sense: {self}")


def trained(
    key: jax.Array, apply: Callable[[Tree, Any], Any], starts: Tree, data: tuple[Any, Any], settings: Descent
) -> Iterator[Tree]:
    """Yields the networks before training and after every epoch, as stacks like `starts`.

    Args:
        key: network i visits the examples in orders that depend on `fold_in(key, i)` alone.
        apply: a classifier.
        starts: parameters with a leading axis, one entry for each network.
        data: training inputs and labels. What fills no batch is left out of that epoch.
        settings: how to descend.
    """
    for params in _epochs(key, apply, starts, data, settings):
        yield jax.tree.map(np.asarray, params)


def trained_end(
    key: jax.Array, apply: Callable[[Tree, Any], Any], starts: Tree, data: tuple[Any, Any], settings: Descent
) -> Tree:
    """Returns the last of `trained`, without carrying the way there off the device."""
    last = deque(_epochs(key, apply, starts, data, settings), maxlen=1)
    return jax.tree.map(np.asarray, last[0])


def _epochs(key: jax.Array, apply: Any, starts: Tree, data: tuple[Any, Any], settings: Descent) -> Iterator[Tree]:
    """On the device; each stack lives until the next one is asked for, which is computed in its place."""
    x, y = (jnp.asarray(part) for part in data)
    count = len(jax.tree.leaves(starts)[0])
    keys = jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(count))
    params = jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), starts)
    velocity = jax.tree.map(jnp.zeros_like, params)
    yield params
    for epoch in range(settings.epochs):
        params, velocity = _epoch(apply, settings, params, velocity, keys, np.int32(epoch), x, y)
        yield params


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=(2, 3))
def _epoch(apply, settings: Descent, params, velocity, keys, epoch, x, y):
    batch = min(settings.batch, len(x))
    steps = len(x) // batch

    def one(params: Tree, velocity: Tree, key: jax.Array) -> tuple[Tree, Tree]:
        order = jax.random.permutation(jax.random.fold_in(key, epoch), len(x))[: steps * batch].reshape(steps, batch)

        def step(carry, index):
            params, velocity = carry
            gradient = jax.grad(lambda p: negative_log_likelihood("categorical", apply(p, x[index]), y[index]).mean())
            velocity = jax.tree.map(lambda v, g: settings.momentum * v + g, velocity, gradient(params))
            return (jax.tree.map(lambda p, v: p - settings.learning_rate * v, params, velocity), velocity), None

        return jax.lax.scan(step, (params, velocity), order)[0]

    return jax.vmap(one)(params, velocity, keys)
