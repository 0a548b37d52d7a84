"""A small network in plain JAX, written for the tests of evaluation: no adapter, no training."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from bayesin import Gaussian


def apply(params, x):
    x = x.reshape(len(x), -1)
    for layer in sorted(params):
        x = jax.nn.relu(x) if layer != "l0" else x
        x = x @ params[layer]["kernel"] + params[layer]["bias"][None]
    return x


def params(seed: int, sizes=(6, 8, 8, 4), scale: float = 1.0):
    rng = np.random.default_rng(seed)
    return {
        f"l{i}": {
            "kernel": jnp.asarray(scale * rng.normal(size=(a, b)) * np.sqrt(2 / a), jnp.float32),
            "bias": jnp.asarray(0.1 * rng.normal(size=b), jnp.float32),
        }
        for i, (a, b) in enumerate(itertools.pairwise(sizes))
    }


def gaussian(seed: int, sizes=(6, 8, 8, 4), spread: float = 0.2) -> Gaussian:
    rng = np.random.default_rng(1000 + seed)
    mean = params(seed, sizes)
    return Gaussian(mean, jax.tree.map(lambda m: jnp.asarray(spread * rng.random(m.shape), jnp.float32), mean))


def data(count: int = 40, seed: int = 0, sizes=(6, 4)):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, sizes[0])).astype(np.float32), rng.integers(0, sizes[-1], count).astype(np.int32)


def shuffled(q: Gaussian, seed: int = 0) -> Gaussian:
    """The same distribution of functions, its hidden units in another order: a barrier on the way between them."""
    rng = np.random.default_rng(seed)
    mean, std = (jax.tree.map(np.asarray, tree) for tree in (q.mean, q.std))
    layers = sorted(mean)
    for before, after in itertools.pairwise(layers):
        order = rng.permutation(mean[before]["bias"].shape[0])
        for tree in (mean, std):
            tree[before] = {"kernel": tree[before]["kernel"][:, order], "bias": tree[before]["bias"][order]}
            tree[after] = {"kernel": tree[after]["kernel"][order], "bias": tree[after]["bias"]}
    return jax.tree.map(jnp.asarray, Gaussian(mean, std))


def learnt(q: Gaussian, count: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Data that the mean of `q` explains."""
    x, _ = data(count)
    return x, np.asarray(apply(q.mean, x).argmax(1), np.int32)
