"""The predictive distribution of a posterior, with its Monte-Carlo error.

By the delta method draw s moves the marginal loss `L = −mean_i log p_i` (`marginal.py`) by `−(r_s − 1)/S` with
`r_s = mean_i p_is / p_i`. So the Monte-Carlo variance of L, and of any combination of losses over the same noise, is
the variance over draws of that combination of r_s, divided by S; the bias of L is
`½/S mean_i Var_s(p_is) / p_i²`, upwards.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..chunks import Chunks, cut
from ..errors import ConfigError, DataError, PosteriorError
from ..inputs import Inputs, count_of
from ..jaxprs import Apply, hashable
from ..likelihoods import Likelihood, LikelihoodLike, as_likelihood, check_outputs
from ..paths import Mixture, as_gaussian, is_point
from ..posteriors import Gaussian, Posterior, Samples, is_posterior
from ..randomness import PRNGKey
from ..trees import Tree
from .marginal import Data, as_drawable, average_over_draws, needed
from .sizes import ChunkSizes, choose_sizes


class Predictive(eqx.Module):
    """What averaging over draws gives for one data set."""

    log_likelihood: Float[np.ndarray, " examples"]  # log of the averaged likelihood of each target
    log_probs: Float[np.ndarray, "examples classes"] | None  # where the likelihood has class probabilities
    ratios: Float[np.ndarray, " draws"]  # r_s above; a one for a point
    bias: float  # estimated upward bias of `nll`

    def __repr__(self) -> str:
        return f"Predictive(nll={self.nll:.4f} ± {self.standard_error:.4f}, {len(self.log_likelihood):,} examples)"

    @property
    def nll(self) -> float:
        """The marginal loss in nats per example."""
        return float(-np.mean(self.log_likelihood, dtype=np.float64))

    @property
    def standard_error(self) -> float:
        """Monte-Carlo standard error of `nll`; zero where nothing was drawn."""
        return standard_error(self.ratios)


class Prepared(NamedTuple):
    """Checked data on the device, in chunks, and everything that stays the same along a path."""

    apply: Apply
    chunks: Chunks
    count: int
    likelihood: Likelihood
    draws: int


def evaluate(
    posterior: Posterior | Mixture | Tree,
    apply: Apply,
    data: Data,
    *,
    key: PRNGKey | None,
    samples: int = 128,
    likelihood: LikelihoodLike = "categorical",
    chunks: ChunkSizes | None = None,
) -> Predictive:
    """Returns the marginal likelihood of every example, and the class probabilities.

    Args:
        posterior: a Gaussian, a sample set (its members are the draws), a mixture, a posterior of your own, a point.
        apply: the network, `apply(params, x)`.
        data: inputs and targets, batch first; targets are whole labels for the categorical likelihood.
        key: seed of the draws; None where nothing is drawn (a point, a sample set).
        samples: draws of the weights, those of `posterior.sample(key, samples)`.
        likelihood: `Categorical()`, `Normal(std)`, one of your own, their name, or `(outputs, targets) -> (batch,)`.
        chunks: examples and draws at once; chosen from the sizes when left out.

    Raises:
        DataError: inputs and targets do not fit each other or the network.
        PosteriorError: the loss is not a number.

    Example:
        >>> apply = lambda params, x: x @ params["w"]
        >>> q = Gaussian({"w": jnp.zeros((2, 4))}, {"w": jnp.ones((2, 4))})
        >>> x, y = jnp.ones((3, 2)), jnp.array([0, 1, 3])
        >>> found = evaluate(q, apply, (x, y), key=jax.random.key(0), samples=16)
        >>> found.log_probs.shape, found.ratios.shape
        ((3, 4), (16,))
    """
    prepared = prepare(posterior, apply, data, samples, as_likelihood(likelihood), chunks)
    return evaluate_prepared(posterior, prepared, key, samples)


def predict(
    posterior: Posterior | Mixture | Tree,
    apply: Apply,
    x: Inputs,
    *,
    key: PRNGKey | None,
    samples: int = 128,
    likelihood: LikelihoodLike = "categorical",
    chunks: ChunkSizes | None = None,
) -> Float[np.ndarray, "examples classes"]:
    """Returns the log-probabilities (examples, classes) of a classifier, averaged over draws of the weights.

    Args:
        posterior, apply, key, samples, chunks: as for `evaluate`.
        x: inputs, batch first: an array, or a dict of them.
        likelihood: one with `log_probs(outputs)`.

    Example:
        >>> log_probs = predict({"w": jnp.zeros((2, 4))}, lambda p, x: x @ p["w"], jnp.ones((1, 2)), key=None)
        >>> np.exp(log_probs).round(4).tolist()
        [[0.25, 0.25, 0.25, 0.25]]
    """
    likelihood = as_likelihood(likelihood)
    if not hasattr(likelihood, "log_probs"):
        raise ConfigError(
            f"predict returns probabilities of classes, which {type(likelihood).__name__} has not; "
            "use evaluate, or posterior.sample and apply"
        )
    predictive = evaluate(
        posterior,
        apply,
        (x, np.zeros(count_of(x), np.int32)),  # any targets: only the probabilities are used
        key=key,
        samples=samples,
        likelihood=_Unlabelled(likelihood),
        chunks=chunks,
    )
    return np.asarray(predictive.log_probs)


def standard_error(ratios: Float[np.ndarray, " draws"]) -> float:
    """Standard error of an average over draws, given one value for each."""
    return float(np.std(ratios, ddof=1) / math.sqrt(len(ratios))) if len(ratios) > 1 else 0.0


def prepare(
    posterior: Posterior | Mixture | Tree,
    apply: Apply,
    data: Data,
    samples: int,
    likelihood: Likelihood,
    chunks: ChunkSizes | None = None,
) -> Prepared:
    """Checks the data against the network, and puts it on the device in chunks."""
    if samples < 1:
        raise ConfigError(f"samples={samples}: at least one draw of the weights is needed")
    apply = hashable(apply)
    x, y = _checked_data(data)
    params = _shapes(posterior)
    check_outputs(likelihood, apply, params, (x, y))
    chunks = chunks or choose_sizes(apply, params, x, samples)
    if chunks.examples < 1 or chunks.draws < 1:
        raise ConfigError(f"chunks of {chunks.examples} examples and {chunks.draws} draws; at least one of each")
    return Prepared(apply, cut(x, y, chunks.examples), count_of(x), likelihood, chunks.draws)


def evaluate_prepared(
    posterior: Posterior | Mixture | Tree, data: Prepared, key: PRNGKey | None, samples: int
) -> Predictive:
    """`evaluate` on data that is checked and on the device already."""
    drawn = as_drawable(posterior, key, samples)
    if isinstance(drawn, Gaussian) and is_point(drawn):
        drawn = as_drawable(drawn.mean, None, 1)
    if isinstance(drawn, Samples):
        samples, key = len(drawn), jax.random.key(0)  # nothing is drawn
    if isinstance(drawn, Mixture) and is_point(drawn.first) and is_point(drawn.second):
        samples, key = 1, jax.random.key(0)
    averages = average_over_draws(
        drawn,
        needed(key),
        data.chunks,
        apply=data.apply,
        likelihood=data.likelihood,
        samples=samples,
        draws=min(data.draws, samples),
        count=data.count,
    )
    result = Predictive(
        np.asarray(averages.log_likelihood),
        np.asarray(averages.log_probs) if hasattr(data.likelihood, "log_probs") else None,
        np.asarray(averages.ratios, np.float64),
        float(averages.bias),
    )
    if not math.isfinite(result.nll):
        bad = int(np.argmin(np.isfinite(result.log_likelihood)))
        raise PosteriorError(
            f"the marginal loss is {result.nll}: the log-likelihood of example {bad} is "
            f"{result.log_likelihood[bad]}; look for NaN or huge weights, stds or inputs"
        )
    return result


@dataclass(frozen=True)
class _Unlabelled:
    """Another likelihood's probabilities, where there are no targets to score."""

    likelihood: Likelihood

    def log_likelihood(self, outputs: Array, targets: Array) -> Array:
        return jnp.zeros(targets.shape, outputs.dtype)

    def log_probs(self, outputs: Array) -> Array:
        return self.likelihood.log_probs(outputs)  # pyright: ignore[reportAttributeAccessIssue]

    def check(self, output_shape: tuple[int, ...], targets: Array) -> None:
        check = getattr(self.likelihood, "check", None)
        if check is not None:
            check(output_shape, targets)


def _shapes(posterior: Posterior | Mixture | Tree) -> Tree:
    """Shapes of the parameters of one network."""
    if isinstance(posterior, Mixture):
        return _shapes(posterior.first)
    if isinstance(posterior, Samples):
        return jax.eval_shape(lambda params: jax.tree.map(lambda leaf: leaf[0], params), posterior.params)
    mean = posterior.mean if is_posterior(posterior) else as_gaussian(posterior).mean
    return jax.eval_shape(lambda params: params, mean)


def _checked_data(data: Data) -> Data:
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise DataError(f"data is a pair (x, y), such as (data.x_test, data.y_test), not {type(data).__name__}")
    x, y = data
    x = {name: _array(part) for name, part in x.items()} if isinstance(x, dict) else _array(x)
    y = _array(y)
    leaves = [*jax.tree.leaves(x), y]
    if any(leaf.ndim < 1 or len(leaf) != len(y) or not len(leaf) for leaf in leaves):
        shapes = " and ".join(str(tuple(leaf.shape)) for leaf in leaves)
        raise DataError(f"need as many inputs as targets, and at least one: {shapes}")
    return x, y


def _array(value: Any) -> Any:
    return value if hasattr(value, "shape") else np.asarray(value)
