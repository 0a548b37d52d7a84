"""Small networks and data that the tests of inference share."""

import functools
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np

from bayesin.models import Model


@functools.cache  # one model, one compiled program for all tests
def mlp(sizes=(4, 8, 3), name="toy mlp") -> Model:
    """A ReLU network without any library."""

    def init(key):
        keys = jax.random.split(key, len(sizes))
        return {
            f"layer{i}": {
                "w": jax.random.normal(keys[i], (a, b)) * np.sqrt(2 / a).astype(np.float32),
                "b": jnp.zeros(b),
            }
            for i, (a, b) in enumerate(pairwise(sizes))
        }

    def apply(params, x):
        x = x.reshape(len(x), -1)
        for i in range(len(sizes) - 1):
            x = x @ params[f"layer{i}"]["w"] + params[f"layer{i}"]["b"]
            x = jax.nn.relu(x) if i < len(sizes) - 2 else x
        return x

    return Model(init, apply, name=name)


@functools.cache  # one model, one compiled program for all tests
def gained() -> Model:
    """A network with a gain that starts at one, a running statistic and a counter."""

    def init(key):
        return {
            "w": 0.3 * jax.random.normal(key, (4, 3)),
            "gain": jnp.ones(4),
            "seen": jnp.full(4, 0.5),
            "count": jnp.arange(2),
        }

    def apply(params, x):
        return ((x - params["seen"]) * params["gain"]) @ params["w"]

    return Model(init, apply, statistics=frozenset({"seen"}), name="gained")


@functools.cache  # one model, one compiled program for all tests
def convolution() -> Model:
    """One convolution and a dense layer on 6 × 6 images."""

    def init(key):
        first, second = jax.random.split(key)
        return {"kernel": 0.3 * jax.random.normal(first, (3, 3, 1, 4)), "w": 0.3 * jax.random.normal(second, (4, 3))}

    def apply(params, x):
        x = jax.lax.conv_general_dilated(
            x, params["kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return jax.nn.relu(x).mean((1, 2)) @ params["w"]

    return Model(init, apply, name="convolution")


def blobs(count=60, features=4, classes=3, seed=0):
    """Gaussian clouds around one centre for each class."""
    generator = np.random.default_rng(seed)
    centres = 2 * generator.normal(size=(classes, features))
    y = np.arange(count) % classes
    return (centres[y] + generator.normal(size=(count, features))).astype(np.float32), y.astype(np.int32)


def images(count=40, seed=0):
    """Random 6 × 6 images whose class is the brightest third."""
    x = np.random.default_rng(seed).normal(size=(count, 6, 6, 1)).astype(np.float32)
    return x, x.reshape(count, 3, 12).sum(-1).argmax(-1).astype(np.int32)


def same_bits(first, second) -> bool:
    """Whether two trees agree to the bit."""
    left, right = jax.tree.leaves(first), jax.tree.leaves(second)
    return len(left) == len(right) and all(
        np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in zip(left, right, strict=True)
    )
