"""The inner loop of every evaluation: draws of the weights against chunks of data, compiled once.

The sum over draws runs in log space. The noise of draw s is folded from the key and s alone: it is
the same at every posterior (common random numbers), and does not depend on the chunks. One chunk
of draws is in memory at a time; of each draw only the log-likelihoods of the targets stay, four bytes an
example, less than the example itself.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..paths import Mixture
from ..posteriors import Gaussian, Samples
from ..trees import Tree

Posterior = Gaussian | Samples | Mixture


class Normal(NamedTuple):
    """The log-likelihood of regression: independent normal noise of a known std on every output."""

    std: float = 1.0

    def __call__(self, outputs: jax.Array, y: jax.Array) -> jax.Array:
        """Log-density of each example, summed over its outputs."""
        terms = jax.scipy.stats.norm.logpdf(y.reshape(outputs.shape), outputs, self.std)
        return terms.reshape(len(outputs), -1).sum(1)


def categorical(outputs: jax.Array, y: jax.Array) -> jax.Array:
    """The log-likelihood of classification: logits against whole labels."""
    return jnp.take_along_axis(jax.nn.log_softmax(outputs), y[:, None], 1)[:, 0]


class Streamed(NamedTuple):
    """Averages over draws, on the device."""

    log_likelihood: jax.Array  # (examples,)
    log_probs: jax.Array  # (examples, classes); no classes where the likelihood is not categorical
    ratios: jax.Array  # (draws,): mean_i p_is / p_i
    bias: jax.Array  # of the mean log-likelihood, downwards


@partial(jax.jit, static_argnames=("apply", "log_likelihood", "samples", "draws", "count"))
def stream(
    posterior: Posterior,
    key: jax.Array,
    x: jax.Array,  # (chunks, examples, ...)
    y: jax.Array,  # (chunks, examples, ...)
    *,
    apply: Callable[[Tree, Any], Any],
    log_likelihood: Callable[[jax.Array, jax.Array], jax.Array],
    samples: int,
    draws: int,  # computed at once
    count: int,  # examples; the rest fills up the last chunk
) -> Streamed:
    """Averages likelihoods and class probabilities over draws of the weights."""

    def some_draws(total: jax.Array, first: jax.Array) -> tuple[jax.Array, jax.Array]:
        index = first + jnp.arange(draws)
        members = _draws(posterior, key, jnp.minimum(index, samples - 1))
        unused = jnp.where(index < samples, 0.0, -jnp.inf)

        def one_chunk(chunk: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            likelihoods, probs = _scores(posterior, members, *chunk, apply, log_likelihood)
            return likelihoods, jax.nn.logsumexp(probs + unused[:, None, None], axis=0)

        likelihoods, probs = jax.lax.map(one_chunk, (x, y))
        return jnp.logaddexp(total, probs), likelihoods

    classes = jax.eval_shape(
        lambda: _scores(posterior, _draws(posterior, key, jnp.arange(draws)), x[0], y[0], apply, log_likelihood)[1]
    ).shape[-1]
    total = jnp.full((*y.shape[:2], classes), -jnp.inf, jnp.float32)
    total, likelihoods = jax.lax.scan(some_draws, total, jnp.arange(0, samples, draws))
    likelihoods = jnp.moveaxis(likelihoods, 2, 1)  # (rounds, draws, chunks, examples)
    likelihoods = likelihoods.reshape(-1, y.shape[0] * y.shape[1])[:samples, :count]
    log_samples = jnp.log(jnp.float32(samples))
    average = jax.nn.logsumexp(likelihoods, axis=0) - log_samples
    ratios = jnp.exp(likelihoods - average)
    return Streamed(
        average,
        (total - log_samples).reshape(y.shape[0] * y.shape[1], classes)[:count],
        ratios.mean(1),
        0.5 / samples * jnp.mean((ratios - 1) ** 2),
    )


def _draws(posterior: Posterior, key: jax.Array, index: jax.Array) -> Any:
    """Weights of some draws, stacked. A single one is not vmapped: that would turn convolutions into grouped ones."""
    if len(index) == 1:
        return jax.tree.map(lambda leaf: leaf[None], draw(posterior, key, index[0]))
    return jax.vmap(lambda i: draw(posterior, key, i))(index)


def draw(posterior: Posterior, key: jax.Array, index: Any) -> Any:
    """The weights of draw number `index`; of a mixture, one draw of each part with the same noise."""
    if isinstance(posterior, Mixture):
        return draw(posterior.first, key, index), draw(posterior.second, key, index)
    if isinstance(posterior, Samples):
        return jax.tree.map(lambda leaf: leaf[index], posterior.params)
    leaves, structure = jax.tree.flatten(posterior.mean)
    stds = jax.tree.leaves(posterior.std)
    noise = _noise(leaves, jax.random.fold_in(key, index))
    drawn = [
        mean if e is None else (mean + std * e).astype(mean.dtype)
        for mean, std, e in zip(leaves, stds, noise, strict=True)
    ]
    return jax.tree.unflatten(structure, drawn)


def _noise(leaves: list[jax.Array], key: jax.Array) -> list[jax.Array | None]:
    """Standard normals for every leaf, none for integers; half precision gets float32 noise, rounded with the sum.

    One long vector, cut up: a random generator for each leaf would take most of the time to compile.
    """
    floats = [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    wide = jnp.result_type(jnp.float32, *floats)
    vector = jax.random.normal(key, (sum(leaf.size for leaf in floats),), wide)
    noise, start = [], 0
    for leaf in leaves:
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            noise.append(vector[start : start + leaf.size].reshape(leaf.shape).astype(_widened(leaf.dtype)))
            start += leaf.size
        else:
            noise.append(None)
    return noise


def _widened(dtype: Any) -> Any:
    return jnp.promote_types(dtype, jnp.float32)


def _scores(
    posterior: Posterior,
    members: Any,
    x: jax.Array,
    y: jax.Array,
    apply: Callable[[Tree, Any], Any],
    log_likelihood: Callable[[jax.Array, jax.Array], jax.Array],
) -> tuple[jax.Array, jax.Array]:
    """Log-likelihoods (draws, examples) and log-probabilities (draws, examples, classes)."""
    if isinstance(posterior, Mixture):
        first = _scores(posterior.first, members[0], x, y, apply, log_likelihood)
        second = _scores(posterior.second, members[1], x, y, apply, log_likelihood)
        weights = jnp.log1p(-posterior.weight), jnp.log(posterior.weight)
        mixed = [jnp.logaddexp(weights[0] + a, weights[1] + b) for a, b in zip(first, second, strict=True)]
        return mixed[0], mixed[1]

    def one(params: Tree) -> tuple[jax.Array, jax.Array]:
        outputs = apply(params, x).astype(jnp.float32)
        empty = jnp.zeros((len(outputs), 0), jnp.float32)
        return log_likelihood(outputs, y), jax.nn.log_softmax(outputs) if log_likelihood is categorical else empty

    if len(jax.tree.leaves(members)[0]) == 1:
        return jax.tree.map(lambda leaf: leaf[None], one(jax.tree.map(lambda leaf: leaf[0], members)))
    return jax.vmap(one)(members)
