"""Variational inference of an MLP in JAX as one would write it by hand: ten steps in one scan."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import optax

WIDTHS = (784, 512, 512, 512, 10)
BATCH = 500


def hand_written_epoch(x: np.ndarray, y: np.ndarray, prior_std: float = 1.0) -> Callable[[], object]:
    """Returns a function that runs one epoch in a new order of the examples."""
    inputs, labels = jnp.asarray(x.reshape(len(x), -1)), jnp.asarray(y)
    shapes = [*pairwise(WIDTHS)] + [(b,) for b in WIDTHS[1:]]
    keys = jax.random.split(jax.random.key(0), len(shapes))
    means = [0.05 * jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True)]
    state = (means, [jnp.full(shape, -4.6) for shape in shapes])
    adam = optax.adam(1e-3)

    def loss(state, key, x, y):
        means, rhos = state
        stds = [jax.nn.softplus(rho) for rho in rhos]
        drawn = jax.random.split(key, len(means))
        weights = [m + s * jax.random.normal(k, m.shape) for m, s, k in zip(means, stds, drawn, strict=True)]
        kernels, biases = weights[: len(weights) // 2], weights[len(weights) // 2 :]
        for kernel, bias in zip(kernels[:-1], biases[:-1], strict=True):
            x = jax.nn.relu(x @ kernel + bias)
        logits = x @ kernels[-1] + biases[-1]
        ratios = [(s / prior_std, m / prior_std) for m, s in zip(means, stds, strict=True)]
        kl = 0.5 * sum(jnp.sum(r**2 + m**2 - 1.0 - 2.0 * jnp.log(r)) for r, m in ratios)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean() + kl / len(labels)

    @partial(jax.jit, donate_argnums=0)
    def epoch(carry, key, inputs, labels):
        def step(carry, batch):
            state, moments = carry
            key, rows = batch
            value, gradient = jax.value_and_grad(loss)(state, key, inputs[rows], labels[rows])
            updates, moments = adam.update(gradient, moments)
            return (optax.apply_updates(state, updates), moments), value

        order_key, noise_key = jax.random.split(key)
        rows = jax.random.permutation(order_key, len(labels)).reshape(-1, BATCH)
        return jax.lax.scan(step, carry, (jax.random.split(noise_key, len(rows)), rows))

    kept = [(state, adam.init(state)), jax.random.key(1)]

    def run() -> object:
        kept[1] = jax.random.fold_in(kept[1], 1)
        kept[0], values = epoch(kept[0], kept[1], inputs, labels)
        return jax.block_until_ready(values)

    return run
