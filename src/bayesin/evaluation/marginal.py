"""The marginal likelihood: that of the network averaged over draws of its weights, in pure functions.

    p(y | x) ≈ 1/S Σ_s p(y | x, θ_s)        L = −mean_i log p(y_i | x_i)

The sum over draws runs in log space. Draw s is a function of the posterior and `fold_in(key, s)` alone: the noise
is the same at every posterior (common random numbers) and does not depend on what is computed at once.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Shaped

from ..errors import ConfigError
from ..inputs import Chunks, ExampleInputs, Inputs, take
from ..jaxprs import Apply
from ..likelihoods import Likelihood, LikelihoodLike, as_likelihood
from ..paths import Mixture, as_gaussian
from ..posteriors import (
    FactorGaussian,
    Gaussian,
    GaussianMixture,
    LowRankGaussian,
    Posterior,
    Samples,
    is_posterior,
)
from ..randomness import PRNGKey, check_key, normal_tree, sample_with
from ..trees import Tree, check_not_narrowed, common_dtype

# Posteriors whose draw number s can be made alone.
Drawable = Gaussian | LowRankGaussian | FactorGaussian | GaussianMixture | Samples | Mixture
Data = tuple[ExampleInputs, Shaped[Array | np.ndarray, "examples ..."]]
MOST_NOISE = 256 << 20  # bytes of noise that are kept for the evaluations of one path


class Averages(NamedTuple):
    """Averages over draws, on the device."""

    log_likelihood: Float[Array, " examples"]
    log_probs: Float[Array, "examples classes"]  # no classes where the likelihood has no probabilities
    influence: Float[Array, " draws"]  # of each draw on the loss; see `_influence`
    bias: Float[Array, ""]  # of the loss, upwards


def marginal_loss(
    posterior: Posterior | Mixture | Tree,
    apply: Apply,
    data: Data,
    *,
    key: PRNGKey | None,
    samples: int = 128,
    likelihood: LikelihoodLike = "categorical",
) -> Float[Array, ""]:
    """Returns the marginal loss in nats per example: a pure function of the posterior, for an objective of your own.

    `jax.jit`, `jax.grad` and `jax.vmap` take it. All examples are computed at once, and one draw after the other;
    backwards, the activations of one draw are alive at a time. The value is that of `evaluate`, which also works
    through data in chunks, gives standard errors and checks its input.

    Args:
        posterior: a posterior or a parameter tree.
        apply: the network, `apply(params, x)`.
        data: inputs and targets, batch first.
        key: seed of the draws; None where nothing is drawn (a parameter tree, a sample set).
        samples: draws of the weights.
        likelihood: a likelihood, its name, or a function `(outputs, targets) -> (batch,)`.

    Example:
        >>> def loss(q):
        ...     x, y = jnp.ones((3, 2)), jnp.array([0, 1, 0])
        ...     return marginal_loss(q, lambda p, x: x @ p["w"], (x, y), key=jax.random.key(0), samples=8)
        >>> slope = jax.jit(jax.grad(loss))(Gaussian({"w": jnp.zeros((2, 2))}, {"w": jnp.ones((2, 2))}))
        >>> slope.mean["w"].shape, slope.std["w"].shape
        ((2, 2), (2, 2))
    """
    likelihood, (x, y) = as_likelihood(likelihood), data
    drawn = as_drawable(posterior, key, samples)
    # Of a sample set every member is taken, so that the key decides nothing.
    count, stream = (len(drawn), jax.random.key(0)) if isinstance(drawn, Samples) else (samples, needed(key))

    # Backwards a draw's activations are computed again: kept, they would be those of all draws at once.
    @jax.checkpoint
    def log_likelihoods(number: Array) -> Array:
        return _scores(
            drawn, draw(drawn, stream, number), jax.tree.map(jnp.asarray, x), jnp.asarray(y), apply, likelihood
        )[0]

    terms = jax.lax.map(log_likelihoods, jnp.arange(count))
    return np.log(count).astype(terms.dtype) - jnp.mean(logsumexp(terms, axis=0))


def as_drawable(posterior: Posterior | Mixture | Tree, key: PRNGKey | None, samples: int) -> Drawable:
    """A posterior whose draws can be made one by one; those of your own family are drawn here, all at once.

    Every prediction and loss comes through here, so that none is of weights that JAX rounded in silence.
    """
    check_not_narrowed(posterior, "the posterior")
    if isinstance(posterior, Drawable):
        return posterior
    if is_posterior(posterior):
        return Samples(posterior.sample(needed(key), samples))
    return Samples(jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], as_gaussian(posterior).mean))


def needed(key: PRNGKey | None) -> PRNGKey:
    """The key of something that is drawn."""
    if key is None:
        raise ConfigError("key= is needed to draw from this posterior; for example key=jax.random.key(0)")
    check_key(key)
    return key


class KeptNoise:
    """The noise of all draws, made once for many posteriors that are drawn from with one key.

    To make it takes as long as to evaluate a small network on some hundred examples. The draws are the same.
    """

    def __init__(self, key: PRNGKey | None, samples: int):
        self._key, self._samples = key, samples
        self._made: Tree | None = None

    def of(self, posterior: Drawable) -> Tree | None:
        """Returns the noise with a leading axis of draws; None where it is not that of a mean-field Gaussian, or too
        much to be kept."""
        if not isinstance(posterior, Gaussian) or self._key is None:
            return None
        if 4 * self._samples * posterior.size > MOST_NOISE:
            return None
        if self._made is None:
            self._made = _noise_of_all(posterior.mean, self._key, self._samples)
        return self._made


@partial(jax.jit, static_argnames="samples")
def _noise_of_all(like: Tree, key: PRNGKey, samples: int) -> Tree:
    return sample_with(lambda own: normal_tree(own, like), key, samples)


@partial(jax.jit, static_argnames=("apply", "likelihood", "samples", "draws", "count"))
def average_over_draws(
    posterior: Drawable,
    key: PRNGKey,
    chunks: Chunks,
    noise: Tree | None = None,  # of all draws, where it is known
    *,
    apply: Apply,
    likelihood: Likelihood,
    samples: int,
    draws: int,  # computed at once
    count: int,  # examples; the rest fills up the last chunk
) -> Averages:
    """Averages likelihoods and class probabilities over draws of the weights; compiled once for a path.

    One chunk of draws is in memory at a time; of each draw only the log-likelihoods of the targets stay, four bytes
    an example, less than the example itself.
    """
    x, y = chunks.x, chunks.y

    def some_draws(total: Array, first: Array) -> tuple[Array, Array]:
        index = first + jnp.arange(draws)
        # The last round may be short. It is filled with the last draw once more, which then has no weight, so that
        # every round has one shape.
        members = _stacked(posterior, key, jnp.minimum(index, samples - 1), noise)
        unused = jnp.where(index < samples, 0.0, -jnp.inf).astype(total.dtype)

        def one_chunk(chunk: tuple[Array, Array]) -> tuple[Array, Array]:
            likelihoods, probs = _all_scores(posterior, members, *chunk, apply, likelihood)
            return likelihoods, logsumexp(probs + unused[:, None, None], axis=0)

        likelihoods, probs = jax.lax.map(one_chunk, (x, y))
        # Probabilities are added up on the way: of all draws they would take draws times classes an example.
        return jnp.logaddexp(total, probs), likelihoods

    # Only the number of classes is asked for; nothing is computed.
    probs = jax.eval_shape(
        lambda: _all_scores(
            posterior, _stacked(posterior, key, jnp.arange(draws)), take(x, 0), y[0], apply, likelihood
        )[1]
    )
    total = jnp.full((*y.shape[:2], probs.shape[-1]), -jnp.inf, probs.dtype)
    total, likelihoods = jax.lax.scan(some_draws, total, jnp.arange(0, samples, draws))
    likelihoods = jnp.moveaxis(likelihoods, 2, 1)  # (rounds, draws, chunks, examples)
    likelihoods = likelihoods.reshape(-1, y.shape[0] * y.shape[1])[:samples, :count]
    log_samples = jnp.log(jnp.asarray(samples, likelihoods.dtype))
    average = logsumexp(likelihoods, axis=0) - log_samples
    influence = _influence(likelihoods, average)
    return Averages(
        average,
        (total - log_samples).reshape(y.shape[0] * y.shape[1], probs.shape[-1])[:count],
        influence,
        jnp.mean(influence) - 1,
    )


def _influence(log_likelihoods: Float[Array, "draws examples"], average: Float[Array, " examples"]) -> Array:
    """One number for each draw: what the loss does without it, `1 + (S − 1) (L without s − L)`.

    Its mean is one plus the jackknife's estimate of the bias, its variance over S that of the variance. To first
    order it is the mean of p_is / p_i, the delta method, which cannot exceed S: where one of few draws carries an
    example it says too little. The sum of all other draws is formed by subtraction, and where the largest is left
    out, of which float32 might leave nothing, term by term.
    """
    draws = len(log_likelihoods)
    if draws == 1:
        return jnp.ones(1, average.dtype)
    ratios = jnp.exp(log_likelihoods - average[None])
    largest = jnp.arange(draws)[:, None] == jnp.argmax(log_likelihoods, axis=0)[None]
    others = logsumexp(jnp.where(largest, -jnp.inf, log_likelihoods), axis=0) - average
    # The one keeps the logarithm finite where the other branch is taken.
    without = jnp.where(largest, others[None], jnp.log(jnp.where(largest, 1.0, draws - ratios)))
    change = np.log(draws - 1).astype(without.dtype) - without  # of an example's loss
    return 1 + (draws - 1) * change.mean(1)


@partial(jax.jit, static_argnames=("apply", "samples", "draws"))
def outputs_of_draws(
    posterior: Drawable,
    key: PRNGKey,
    x: Inputs,  # in parts
    *,
    apply: Apply,
    samples: int,
    draws: int,  # computed at once
) -> Float[Array, "samples examples ..."]:
    """What every draw of the weights gives for every example, in float32 or wider."""

    def some_draws(first: Array) -> Array:
        members = _stacked(posterior, key, jnp.minimum(first + jnp.arange(draws), samples - 1))

        def one_chunk(part: Array) -> Array:
            outputs = _of_each(members, lambda member: apply(member, part))
            return outputs.astype(common_dtype(outputs, jnp.float32))

        return jnp.moveaxis(jax.lax.map(one_chunk, x), 0, 1)  # (draws, parts, length, ...)

    outputs = jax.lax.map(some_draws, jnp.arange(0, samples, draws))
    return outputs.reshape(-1, math.prod(jax.tree.leaves(x)[0].shape[:2]), *outputs.shape[4:])[:samples]


def draw(posterior: Drawable, key: PRNGKey, number: int | Array, noise: Tree | None = None) -> Tree:
    """The weights of draw number `number`; of a mixture, one draw of each part with the same noise."""
    if noise is not None and isinstance(posterior, Gaussian):
        return posterior.at(jax.tree.map(lambda leaf: leaf[number], noise))
    if isinstance(posterior, Mixture):
        return draw(posterior.first, key, number), draw(posterior.second, key, number)
    if isinstance(posterior, Samples):
        return jax.tree.map(lambda leaf: leaf[number], posterior.params)
    return posterior.draw(jax.random.fold_in(key, number))


def _stacked(posterior: Drawable, key: PRNGKey, index: Array, noise: Tree | None = None) -> Tree:
    """Weights of some draws. A single one is not vmapped: that would turn convolutions into grouped ones."""
    if len(index) == 1:
        return jax.tree.map(lambda leaf: leaf[None], draw(posterior, key, index[0], noise))
    return jax.vmap(lambda number: draw(posterior, key, number, noise))(index)


def _all_scores(
    posterior: Drawable, members: Tree, x: Inputs, y: Array, apply: Apply, likelihood: Likelihood
) -> tuple[Float[Array, "draws examples"], Float[Array, "draws examples classes"]]:
    def scores(member: Tree) -> tuple[Array, Array]:
        return _scores(posterior, member, x, y, apply, likelihood)

    return _of_each(members, scores)


def _of_each(members: Tree, function: Callable[[Tree], Any]) -> Any:
    """A function of each member; a single one is not vmapped, as above."""
    if len(jax.tree.leaves(members)[0]) == 1:
        return jax.tree.map(lambda leaf: leaf[None], function(jax.tree.map(lambda leaf: leaf[0], members)))
    return jax.vmap(function)(members)


def _scores(
    posterior: Drawable, member: Tree, x: Inputs, y: Array, apply: Apply, likelihood: Likelihood
) -> tuple[Float[Array, " examples"], Float[Array, "examples classes"]]:
    """Log-likelihoods of one draw and, where the likelihood has them, its log-probabilities."""
    if isinstance(posterior, Mixture):
        first = _scores(posterior.first, member[0], x, y, apply, likelihood)
        second = _scores(posterior.second, member[1], x, y, apply, likelihood)
        weight = posterior.weight.astype(first[0].dtype)
        # At an end of the path one of the two is −inf, and `logaddexp` leaves that part out.
        weights = jnp.log1p(-weight), jnp.log(weight)
        mixed = [jnp.logaddexp(weights[0] + a, weights[1] + b) for a, b in zip(first, second, strict=True)]
        return mixed[0], mixed[1]
    outputs = apply(member, x)
    outputs = outputs.astype(common_dtype(outputs, jnp.float32))
    terms = likelihood.log_likelihood(outputs, y)
    if hasattr(likelihood, "log_probs"):
        return terms, likelihood.log_probs(outputs)  # pyright: ignore[reportAttributeAccessIssue]
    return terms, jnp.zeros((len(terms), 0), terms.dtype)
