"""Small networks and data that the tests of inference share."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
import scipy.special
import scipy.stats

from bayesin import VI
from bayesin.likelihoods import Categorical, Normal
from bayesin.models import Model, frozen

RESUMED = VI(
    epochs=12, batch=20, members=2, learning_rate=1e-2, checkpoint_epochs=2
)  # of 36 steps, stopped on the way


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
            x = x @ params[f"layer{i}"]["w"] + params[f"layer{i}"]["b"][None]
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
        return ((x - params["seen"][None]) * params["gain"][None]) @ params["w"]

    return frozen(Model(init, apply, statistics=frozenset({"seen"}), name="gained"))


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


@dataclass(frozen=True)
class Poisson:
    """Counts with a log-linear rate: a likelihood of a user's own, with nothing but what it must have."""

    def log_likelihood(self, outputs, targets):
        log_rate, counts = outputs[:, 0], targets.astype(outputs.dtype)
        return counts * log_rate - jnp.exp(log_rate) - jax.scipy.special.gammaln(counts + 1)


class OneWeight(NamedTuple):
    """A posterior over a single weight: what every method should find is known by integration.

    `log_likelihood(w)` is written with scipy, on its own, for all examples together.
    """

    model: Model
    data: tuple
    likelihood: object
    log_likelihood: Callable
    prior_variance: float = 0.5

    def log_joint(self, w):
        return self.log_likelihood(w) - 0.5 * w**2 / self.prior_variance

    @property
    def grid(self):
        """(weights, their probabilities under the posterior)."""
        w = np.linspace(-4, 4, 801)
        logs = np.array([self.log_joint(value) for value in w])
        p = np.exp(logs - logs.max())
        return w, p / p.sum()

    @property
    def maximum(self):
        return float(scipy.optimize.minimize_scalar(lambda w: -self.log_joint(w), bounds=(-4, 4)).x)

    @property
    def moments(self):
        w, p = self.grid
        mean = (w * p).sum()
        return float(mean), float(np.sqrt(((w - mean) ** 2 * p).sum()))

    @property
    def best_gaussian(self):
        """(mean, std) of the Gaussian with the highest evidence lower bound, by Gauss-Hermite quadrature."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(40)
        weights = weights / weights.sum()

        def loss(z):
            mean, std = z[0], np.exp(z[1])
            return -(weights * np.array([self.log_joint(mean + std * node) for node in nodes])).sum() - z[1]

        found = scipy.optimize.minimize(loss, [self.maximum, np.log(self.moments[1])], method="Nelder-Mead").x
        return float(found[0]), float(np.exp(found[1]))


def one_weight_problems() -> dict[str, OneWeight]:
    """Regression (conjugate), classification, and counts under a likelihood of the user's own."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=24).astype(np.float32)

    def model(outputs):
        return Model(lambda key: {"w": 0.1 * jax.random.normal(key, (1,))}, lambda p, x: outputs(x * p["w"][0]))

    y = 0.8 * x + 0.4 * rng.normal(size=24).astype(np.float32)
    labels = (rng.uniform(size=24) < scipy.special.expit(1.5 * x)).astype(np.int32)
    counts = rng.poisson(np.exp(0.6 * x)).astype(np.int32)
    return {
        "regression": OneWeight(
            model(lambda f: f), (x[:, None], y), Normal(0.4), lambda w: scipy.stats.norm(w * x, 0.4).logpdf(y).sum()
        ),
        "categorical": OneWeight(
            model(lambda f: jnp.concatenate([jnp.zeros_like(f), f], 1)),
            (x[:, None], labels),
            Categorical(),
            lambda w: np.log(scipy.special.expit((2 * labels - 1) * w * x)).sum(),
        ),
        "own likelihood": OneWeight(
            model(lambda f: f), (x[:, None], counts), Poisson(),
            lambda w: scipy.stats.poisson(np.exp(w * x)).logpmf(counts).sum(),
        ),
    }  # fmt: skip
