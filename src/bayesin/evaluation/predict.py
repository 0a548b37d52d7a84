"""The predictive distribution of a posterior: the network averaged over draws of its weights.

    p(y | x) ≈ 1/S Σ_s p(y | x, θ_s)        θ_s = mean + std · ε_s

The marginal loss is `L = −mean_i log p(y_i | x_i)`, the logarithm outside the average. By the delta method draw s
moves it by `−(r_s − 1)/S` with `r_s = mean_i p_is / p_i`. So the Monte-Carlo variance of L, and of any combination
of losses over the same noise, is the variance over draws of that combination of r_s, divided by S; the bias of
L is `½/S mean_i Var_s(p_is) / p_i²`, upwards.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import ConfigError, DataError, ModelError, PosteriorError
from ..keys import check_key
from ..paths import Mixture, as_gaussian, is_point
from ..posteriors import Gaussian, LowRankGaussian, Samples
from ..trees import Tree
from .chunks import Plan, in_chunks, plan
from .stream import Posterior, categorical, stream


class Predictive(NamedTuple):
    """What averaging over draws gives for one data set."""

    log_likelihood: np.ndarray  # (examples,): log of the averaged likelihood of each target
    log_probs: np.ndarray | None  # (examples, classes) where the likelihood is categorical
    ratios: np.ndarray  # (draws,): r_s above; a one for a point
    bias: float  # estimated upward bias of `nll`

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

    apply: Callable[[Tree, Any], Any]
    x: jax.Array
    y: jax.Array
    count: int
    log_likelihood: Callable[[jax.Array, jax.Array], jax.Array]
    draws: int


def evaluate(
    posterior: Posterior | Tree,
    apply: Callable[[Tree, Any], Any],
    data: tuple[Any, Any],
    *,
    key: jax.Array | None,
    samples: int = 128,
    log_likelihood: Callable[[jax.Array, jax.Array], jax.Array] = categorical,
    chunks: Plan | None = None,
) -> Predictive:
    """Returns the marginal likelihood of every example, and the class probabilities.

    Args:
        posterior: a Gaussian (mean-field or low-rank), a sample set (its members are the draws), a mixture, a point.
        apply: the network, `apply(params, x)`.
        data: inputs and targets, batch first; targets are whole labels for the categorical likelihood.
        key: seed of the draws; None where nothing is drawn (a point, a sample set).
        samples: draws of the weights.
        log_likelihood: `(outputs, targets) -> (batch,)`; `Normal(std)` for regression.
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
    if isinstance(posterior, LowRankGaussian):
        posterior = Samples(
            posterior.sample(_needed(key), samples)
        )  # few draws of correlated weights: kept in memory
    posterior = as_posterior(posterior)
    prepared = prepare(posterior, apply, data, samples, log_likelihood, chunks)
    return evaluate_prepared(posterior, prepared, key, samples)


def predict(
    posterior: Posterior | Tree,
    apply: Callable[[Tree, Any], Any],
    x: Any,
    *,
    key: jax.Array | None,
    samples: int = 128,
    chunks: Plan | None = None,
) -> np.ndarray:
    """Returns the log-probabilities (examples, classes) of a classifier, averaged over draws of the weights.

    Example:
        >>> log_probs = predict({"w": jnp.zeros((2, 4))}, lambda p, x: x @ p["w"], jnp.ones((1, 2)), key=None)
        >>> np.exp(log_probs).round(4).tolist()
        [[0.25, 0.25, 0.25, 0.25]]
    """
    labels = np.zeros(len(x), np.int32)  # any: only the class probabilities are kept
    found = evaluate(posterior, apply, (x, labels), key=key, samples=samples, chunks=chunks)
    return np.asarray(found.log_probs)


def standard_error(ratios: np.ndarray) -> float:
    """Standard error of an average over draws, given one value a draw."""
    return float(np.std(ratios, ddof=1) / math.sqrt(len(ratios))) if len(ratios) > 1 else 0.0


def as_posterior(posterior: Posterior | Tree) -> Posterior:
    """A point as a Gaussian, anything else as it is."""
    return posterior if isinstance(posterior, Mixture | Samples) else as_gaussian(posterior)


def prepare(
    posterior: Posterior,
    apply: Callable[[Tree, Any], Any],
    data: tuple[Any, Any],
    samples: int,
    log_likelihood: Callable[[jax.Array, jax.Array], jax.Array],
    chunks: Plan | None = None,
) -> Prepared:
    """Checks the data against the network, and puts it on the device in chunks."""
    if samples < 1:
        raise ConfigError(f"samples={samples}: at least one draw of the weights is needed")
    apply = _hashable(apply)
    x, y = _checked_data(data)
    params = _shapes(posterior)
    outputs = _output_shape(apply, params, x)
    if log_likelihood is categorical:
        _check_labels(y, outputs)
    chunks = chunks or plan(apply, params, x, samples)
    if chunks.examples < 1 or chunks.draws < 1:
        raise ConfigError(f"chunks of {chunks.examples} examples and {chunks.draws} draws; at least one of each")
    size = min(chunks.examples, len(x))
    return Prepared(apply, in_chunks(x, size), in_chunks(y, size), len(x), log_likelihood, chunks.draws)


def evaluate_prepared(posterior: Posterior, data: Prepared, key: jax.Array | None, samples: int) -> Predictive:
    """`evaluate` on data that is checked and on the device already."""
    if isinstance(posterior, Gaussian) and is_point(posterior):
        posterior = Samples(jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], posterior.mean))
    if isinstance(posterior, Samples):
        samples, key = len(posterior), jax.random.key(0)  # nothing is drawn
    if isinstance(posterior, Mixture) and is_point(posterior.first) and is_point(posterior.second):
        samples, key = 1, jax.random.key(0)
    found = stream(
        posterior,
        _needed(key),
        data.x,
        data.y,
        apply=data.apply,
        log_likelihood=data.log_likelihood,
        samples=samples,
        draws=min(data.draws, samples),
        count=data.count,
    )
    result = Predictive(
        np.asarray(found.log_likelihood),
        np.asarray(found.log_probs) if data.log_likelihood is categorical else None,
        np.asarray(found.ratios, np.float64),
        float(found.bias),
    )
    if not math.isfinite(result.nll):
        bad = int(np.argmin(np.isfinite(result.log_likelihood)))
        raise PosteriorError(
            f"the marginal loss is {result.nll}: the log-likelihood of example {bad} is "
            f"{result.log_likelihood[bad]}; look for NaN or huge weights, stds or inputs"
        )
    return result


def _needed(key: jax.Array | None) -> jax.Array:
    if key is None:
        raise ConfigError("key= is needed to draw from this posterior; for example key=jax.random.key(0)")
    check_key(key)
    return key


def _shapes(posterior: Posterior) -> Tree:
    """Shapes of the parameters of one network."""
    if isinstance(posterior, Mixture):
        return _shapes(posterior.first)
    if isinstance(posterior, Samples):
        return jax.eval_shape(lambda params: jax.tree.map(lambda leaf: leaf[0], params), posterior.params)
    return jax.eval_shape(lambda mean: mean, posterior.mean)


def _hashable(apply: Callable[[Tree, Any], Any]) -> Callable[[Tree, Any], Any]:
    """`apply` as something that a compiled program can be looked up by."""
    if not callable(apply):
        raise ModelError(f"apply must be a function of (params, x), not {type(apply).__name__}")
    try:
        hash(apply)
    except TypeError:  # a callable that holds arrays
        return lambda params, x: apply(params, x)
    return apply


def _checked_data(data: tuple[Any, Any]) -> tuple[Any, Any]:
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise DataError(f"data is a pair (x, y), such as (data.x_test, data.y_test), not {type(data).__name__}")
    x, y = (value if hasattr(value, "shape") else np.asarray(value) for value in data)
    if x.ndim < 1 or y.ndim < 1 or len(x) != len(y) or not len(x):
        raise DataError(f"need as many inputs as targets, and at least one: {tuple(x.shape)} and {tuple(y.shape)}")
    return x, y


def _output_shape(apply: Callable[[Tree, Any], Any], params: Tree, x: Any) -> tuple[int, ...]:
    inputs = jax.ShapeDtypeStruct((2, *x.shape[1:]), jnp.asarray(x[:1]).dtype)
    try:
        outputs = jax.eval_shape(apply, params, inputs)
    except (TypeError, ValueError, KeyError, IndexError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise ModelError(f"the network cannot be applied to inputs of shape {tuple(x.shape[1:])}: {first}") from error
    if not hasattr(outputs, "shape") or not outputs.shape or outputs.shape[0] != 2:
        raise ModelError("apply must return one array, batch first")
    return tuple(outputs.shape[1:])


def _check_labels(y: Any, outputs: tuple[int, ...]) -> None:
    if len(outputs) != 1:
        raise ModelError(
            f"a classifier returns (batch, classes), this network (batch, {', '.join(map(str, outputs))})"
        )
    if y.ndim != 1 or not jnp.issubdtype(y.dtype, jnp.integer):
        raise DataError(f"labels must be whole numbers, one an example, not {y.dtype} of shape {tuple(y.shape)}")
    low, high = int(y.min()), int(y.max())
    if low < 0 or high >= outputs[0]:
        raise DataError(f"labels from {low} to {high}, but the network has {outputs[0]} classes")
