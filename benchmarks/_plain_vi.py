"""Variational inference of an MLP as one would write it by hand in JAX: a scan over batches, a derivative, optax."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import optax


def make_epoch(sizes: list[int], x: np.ndarray, y: np.ndarray, batch: int):
    """Returns a function that runs one epoch and waits for it."""
    shapes, count, adam = list(pairwise(sizes)), len(x), optax.adam(1e-3)

    def loss(variables, key, x, y):
        means, stds = variables["mean"], jax.tree.map(jax.nn.softplus, variables["rho"])
        leaves, tree = jax.tree.flatten(means)
        keys = jax.random.split(key, len(leaves))
        noise = jax.tree.unflatten(tree, [jax.random.normal(k, a.shape) for k, a in zip(keys, leaves, strict=True)])
        *hidden, (kernel, bias) = jax.tree.map(lambda m, s, e: m + s * e, means, stds, noise)
        for weight, shift in hidden:
            x = jax.nn.relu(x @ weight + shift)
        logits = x @ kernel + bias
        nll = -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean()
        terms = jax.tree.map(lambda m, s: (0.5 * (s**2 + m**2 - 1) - jnp.log(s)).sum(), means, stds)
        return nll + sum(jax.tree.leaves(terms)) / count

    def step(carry, at):
        (variables, state), (key, order), data = carry[:2], at, carry[2:]
        value, slope = jax.value_and_grad(loss)(variables, key, *(array[order] for array in data))
        updates, state = adam.update(slope, state)
        return (optax.apply_updates(variables, updates), state, *data), value

    @jax.jit
    def epoch(variables, state, key, x, y):
        order, noise = jax.random.split(key)
        batches = jax.random.permutation(order, count).reshape(-1, batch)
        carry = (variables, state, x, y)
        (variables, state, *_), values = jax.lax.scan(step, carry, (jax.random.split(noise, len(batches)), batches))
        return variables, state, values

    rng = np.random.default_rng(0)
    means = [(rng.normal(0, (2 / s[0]) ** 0.5, s).astype(np.float32), np.zeros(s[1], np.float32)) for s in shapes]
    variables = {"mean": means, "rho": jax.tree.map(lambda a: np.full(a.shape, -4.6, np.float32), means)}
    variables = jax.tree.map(jnp.asarray, variables)  # of full type: with a weak one every call compiles again
    kept, data, key = [variables, adam.init(variables)], (jnp.asarray(x), jnp.asarray(y)), jax.random.key(0)

    def run() -> None:
        *kept[:], values = epoch(*kept, key, *data)
        jax.block_until_ready(values)

    run()
    return run
