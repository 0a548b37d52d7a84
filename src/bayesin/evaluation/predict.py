"""The predictive distribution of a posterior: on inputs alone, and on labelled data with its Monte-Carlo error.

The marginal loss `L = −mean_i log 1/S Σ_s p_is` (`marginal.py`) of S draws varies, and lies above that of many.
The jackknife estimates both from the losses L_s without one draw each,

    variance  (S − 1)/S Σ_s (L_s − mean L_s)²         bias  (S − 1) (mean L_s − L),

and the variance of any combination of losses over the same noise from that combination of their L_s.

Reference: Efron and Stein 1981.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, overload

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.dtypes import canonicalize_dtype
from jaxtyping import Array, Float

from ..errors import ConfigError, DataError, PosteriorError
from ..inference import Fit
from ..inputs import Chunks, ExampleInputs, check_whole, count_of, cut, without_bytes
from ..jaxprs import Apply, hashable
from ..likelihoods import Categorical, Likelihood, LikelihoodLike, Normal, as_likelihood, check_outputs
from ..paths import Mixture, as_gaussian, is_point
from ..posteriors import Gaussian, Posterior, Samples, is_posterior
from ..randomness import PRNGKey
from ..trees import Tree
from .marginal import Data, KeptNoise, as_drawable, average_over_draws, needed, outputs_of_draws
from .predictive import ClassPredictive, Predictive, RealPredictive, pooled
from .sizes import ChunkSizes, choose_sizes

Predictor = Posterior | Mixture | Fit | Sequence[Posterior] | Tree  # what can be asked for a prediction


class Evaluation(eqx.Module):
    """What averaging over draws gives for one labelled data set.

    Example:
        >>> data = jnp.ones((3, 2)), jnp.array([0, 1, 3])
        >>> found = evaluate({"w": jnp.zeros((2, 4))}, lambda params, x: x @ params["w"], data, key=None)
        >>> round(found.nll, 4), found.log_likelihood.shape
        (1.3863, (3,))
    """

    log_likelihood: Float[np.ndarray, " examples"]  # log of the averaged likelihood of each target
    log_probs: Float[np.ndarray, "examples classes"] | None  # where the likelihood has class probabilities
    influence: Float[np.ndarray, " draws"]  # 1 + (S − 1) (L_s − L) of every draw; a one for a point
    bias: float  # estimated upward bias of `nll`

    def __repr__(self) -> str:
        return f"Evaluation(nll={self.nll:.4f} ± {self.standard_error:.4f}, {len(self.log_likelihood):,} examples)"

    @property
    def nll(self) -> float:
        """The marginal loss in nats per example."""
        return float(-np.mean(self.log_likelihood, dtype=np.float64))

    @property
    def standard_error(self) -> float:
        """Monte-Carlo standard error of `nll`; zero where nothing was drawn."""
        return standard_error(self.influence)


class Prepared(NamedTuple):
    """Checked data on the device, in chunks, and everything that stays the same along a path."""

    apply: Apply
    chunks: Chunks
    count: int
    likelihood: Likelihood
    draws: int


def evaluate(
    posterior: Predictor,
    model: Apply,
    data: Data,
    *,
    key: PRNGKey | None,
    samples: int = 128,
    likelihood: LikelihoodLike | None = None,
    chunks: ChunkSizes | None = None,
) -> Evaluation:
    """Returns the marginal likelihood of every example, and the class probabilities.

    Args:
        posterior: a Gaussian, a sample set (its members are the draws), a mixture, a posterior of your own, a point,
            or a `Fit` with one of them, whose likelihood is then taken.
        model: the network, a `Model` or its `apply(params, x)`.
        data: inputs and targets, batch first; targets are whole labels for the categorical likelihood.
        key: seed of the draws; None where nothing is drawn (a point, a sample set).
        samples: draws of the weights, those of `posterior.sample(key, samples)`.
        likelihood: `Categorical()`, `Normal(std)`, one of your own, their name, or `(outputs, targets) -> (batch,)`;
            by default that of the fit, else categorical.
        chunks: examples and draws at once; chosen from the sizes when left out.

    Raises:
        DataError: inputs and targets do not fit each other or the network.
        PosteriorError: the loss is not a number.

    Example:
        >>> apply = lambda params, x: x @ params["w"]
        >>> q = Gaussian({"w": jnp.zeros((2, 4))}, {"w": jnp.ones((2, 4))})
        >>> x, y = jnp.ones((3, 2)), jnp.array([0, 1, 3])
        >>> found = evaluate(q, apply, (x, y), key=jax.random.key(0), samples=16)
        >>> found.log_probs.shape, found.influence.shape
        ((3, 4), (16,))
    """
    posterior, given = _with_likelihood(posterior, likelihood)
    likelihood = as_likelihood("categorical" if given is None else given)
    prepared = prepare(posterior, model, data, samples, likelihood, chunks)
    return evaluate_prepared(posterior, prepared, key, samples)


@overload
def predict(
    posterior: Predictor,
    model: Apply,
    x: ExampleInputs,
    *,
    key: PRNGKey | None,
    samples: int = 128,
    likelihood: Literal["categorical"] | Categorical,
    chunks: ChunkSizes | None = None,
) -> ClassPredictive: ...


@overload
def predict(
    posterior: Predictor,
    model: Apply,
    x: ExampleInputs,
    *,
    key: PRNGKey | None,
    samples: int = 128,
    likelihood: Literal["gaussian"] | Normal,
    chunks: ChunkSizes | None = None,
) -> RealPredictive: ...


@overload
def predict(
    posterior: Predictor,
    model: Apply,
    x: ExampleInputs,
    *,
    key: PRNGKey | None,
    samples: int = 128,
    likelihood: LikelihoodLike | None = None,
    chunks: ChunkSizes | None = None,
) -> Predictive: ...


def predict(
    posterior: Predictor,
    model: Apply,
    x: ExampleInputs,
    *,
    key: PRNGKey | None,
    samples: int = 128,
    likelihood: LikelihoodLike | None = None,
    chunks: ChunkSizes | None = None,
) -> Predictive:
    """Returns what a posterior predicts: class probabilities and entropies, or a mixture of normals for real targets.

    Args:
        posterior: as for `evaluate`; or several with equal shares, a list of posteriors or a `Fit` of several, each
            of which keeps the noise that it learned.
        model, key, samples, chunks: as for `evaluate`; of several posteriors each has its share of the samples.
        x: inputs, batch first: an array, or a dict of them.
        likelihood: one with `log_probs(outputs)` (classes) or `moments(outputs)` (real targets). By default that of
            the fit; of a bare posterior whose network has two or more outputs, categorical.

    Raises:
        ConfigError: a network with one output and no likelihood, or a likelihood that predicts neither kind.
        PosteriorError: a prediction is not a number.

    Example:
        >>> found = predict({"w": jnp.zeros((2, 4))}, lambda p, x: x @ p["w"], jnp.ones((1, 2)), key=None)
        >>> found.probabilities.round(4).tolist(), found.total_entropy.round(4).tolist()
        ([[0.25, 0.25, 0.25, 0.25]], [1.3863])
        >>> q = Gaussian({"w": jnp.ones((1, 1))}, {"w": jnp.full((1, 1), 0.5)})
        >>> line = predict(q, lambda p, x: x @ p["w"], jnp.ones((1, 1)), key=jax.random.key(0), likelihood="gaussian")
        >>> line.mean.shape, bool(1 < line.variance[0, 0] < 1.5)
        ((1, 1), True)
    """
    several = _several(posterior, likelihood)
    if several:
        each = max(1, samples // len(several))
        keys = [None] * len(several) if key is None else jax.random.split(key, len(several))
        parts = [
            predict(one, model, x, key=own, samples=each, likelihood=of_one, chunks=chunks)
            for (one, of_one), own in zip(several, keys, strict=True)
        ]
        return pooled(parts, [each] * len(parts))
    posterior, given = _with_likelihood(posterior, likelihood)
    known = _known_likelihood(posterior, model, x, given)
    data = (x, np.zeros(count_of(x), np.int32))  # any targets: nothing is scored
    if hasattr(known, "log_probs"):
        prepared = prepare(posterior, model, data, samples, _Unlabelled(known), chunks)
        columns = evaluate_prepared(posterior, prepared, key, samples).log_probs
        _check_finite(columns[:, :-1])  # pyright: ignore[reportOptionalSubscript]
        return ClassPredictive(columns[:, :-1], np.exp(columns[:, -1].astype(np.float64)))  # pyright: ignore
    if hasattr(known, "moments"):
        return _predict_reals(
            posterior, prepare(posterior, model, data, samples, _Silent(known), chunks), key, samples
        )
    raise ConfigError(
        f"{type(known).__name__} has neither log_probs(outputs) nor moments(outputs), so that it predicts "
        "nothing; use evaluate for its marginal likelihood, or posterior.sample and apply"
    )


def _predict_reals(posterior: Any, data: Prepared, key: PRNGKey | None, samples: int) -> RealPredictive:
    if isinstance(posterior, Mixture):
        first, second = (_predict_reals(part, data, key, samples) for part in (posterior.first, posterior.second))
        weight = float(posterior.weight)
        return RealPredictive(
            np.concatenate([first.means, second.means]),
            np.concatenate([first.stds, second.stds]),
            np.concatenate([(1 - weight) * first.weights, weight * second.weights]),
        )
    drawn, key, samples = _draws(posterior, key, samples)
    draws = min(data.draws, samples)
    outputs = outputs_of_draws(drawn, key, data.chunks.x, apply=data.apply, samples=samples, draws=draws)
    outputs = outputs[:, : data.count]
    _check_finite(outputs)
    # A likelihood has outputs batch first, as everywhere: draws count as more examples.
    batch = outputs.reshape(-1, *outputs.shape[2:])
    moments = data.likelihood.moments(batch)  # pyright: ignore[reportAttributeAccessIssue]
    means, stds = np.broadcast_arrays(*(np.asarray(part, np.float64) for part in moments))
    if means.shape[:1] != batch.shape[:1]:
        raise DataError(
            f"moments(outputs) returns shapes {' and '.join(str(np.shape(part)) for part in moments)} for outputs "
            f"{tuple(batch.shape)}; a mean and a std of every target are needed, batch first"
        )
    means, stds = (part.reshape(samples, data.count, -1) for part in (means, stds))
    return RealPredictive(means, stds, np.full(samples, 1 / samples))


def standard_error(influence: Float[np.ndarray, " draws"]) -> float:
    """The jackknife's standard error, infinite where one draw alone explains a target."""
    if len(influence) < 2:
        return 0.0
    return float(np.std(influence, ddof=1) / math.sqrt(len(influence))) if np.isfinite(influence).all() else math.inf


def prepare(
    posterior: Posterior | Mixture | Tree,
    apply: Apply,
    data: Data,
    samples: int,
    likelihood: Likelihood,
    chunks: ChunkSizes | None = None,
) -> Prepared:
    """Checks the data against the network, and puts it on the device in chunks."""
    if not 1 <= samples < 1 << 31:
        raise ConfigError(f"samples={samples}: at least one draw of the weights is needed, and at most 2^31 - 1")
    apply = hashable(apply)
    x, y = _checked_data(data)
    params = _shapes(posterior)
    check_outputs(likelihood, apply, params, (x, y))
    chunks = chunks or choose_sizes(apply, params, x, samples)
    if chunks.examples < 1 or chunks.draws < 1:
        raise ConfigError(f"chunks of {chunks.examples} examples and {chunks.draws} draws; at least one of each")
    return Prepared(apply, cut(x, y, chunks.examples), count_of(x), likelihood, chunks.draws)


def evaluate_prepared(
    posterior: Posterior | Mixture | Tree,
    data: Prepared,
    key: PRNGKey | None,
    samples: int,
    noise: KeptNoise | None = None,
) -> Evaluation:
    """`evaluate` on data that is checked and on the device already; `noise` serves many with one key."""
    drawn, key, samples = _draws(posterior, key, samples)
    averages = average_over_draws(
        drawn,
        key,
        data.chunks,
        None if noise is None else noise.of(drawn),
        apply=data.apply,
        likelihood=data.likelihood,
        samples=samples,
        draws=min(data.draws, samples),
        count=data.count,
    )
    result = Evaluation(
        np.asarray(averages.log_likelihood),
        np.asarray(averages.log_probs) if hasattr(data.likelihood, "log_probs") else None,
        np.asarray(averages.influence, np.float64),
        float(averages.bias),
    )
    if not math.isfinite(result.nll):
        bad = int(np.argmin(np.isfinite(result.log_likelihood)))
        raise PosteriorError(
            f"the marginal loss is {result.nll}: the log-likelihood of example {bad} is "
            f"{result.log_likelihood[bad]}; look for NaN or huge weights, stds or inputs"
        )
    return result


def _draws(posterior: Posterior | Mixture | Tree, key: PRNGKey | None, samples: int) -> tuple[Any, PRNGKey, int]:
    """What is drawn from, with which key and how often: points and sample sets need neither."""
    drawn = as_drawable(posterior, key, samples)
    if isinstance(drawn, Gaussian) and is_point(drawn):
        drawn = as_drawable(drawn.mean, None, 1)
    if isinstance(drawn, Samples):
        return drawn, jax.random.key(0), len(drawn)
    if isinstance(drawn, Mixture) and is_point(drawn.first) and is_point(drawn.second):
        return drawn, jax.random.key(0), 1
    return drawn, needed(key), samples


def _several(posterior: Any, likelihood: LikelihoodLike | None) -> list[tuple[Posterior, LikelihoodLike | None]]:
    """The posteriors of a list or of a fit's members, each with its likelihood; none where there is one alone."""
    if isinstance(posterior, Fit) and len(posterior.posteriors) > 1:
        own = zip(posterior.posteriors, posterior.likelihoods, strict=True)
        return [(one, of_one if likelihood is None else likelihood) for one, of_one in own]
    if isinstance(posterior, list | tuple) and posterior and all(map(is_posterior, posterior)):
        return [(one, likelihood) for one in posterior]
    return []


def _with_likelihood(posterior: Predictor, likelihood: LikelihoodLike | None) -> tuple[Any, LikelihoodLike | None]:
    """The posterior of a fit, and the likelihood that it goes with unless another is given."""
    if not isinstance(posterior, Fit):
        return posterior, likelihood
    return posterior.posterior, posterior.likelihood if likelihood is None else likelihood


def _known_likelihood(posterior: Any, apply: Apply, x: Any, given: LikelihoodLike | None) -> Likelihood:
    """The likelihood that was given; where none was, categorical if there are classes to speak of."""
    if given is not None:
        return as_likelihood(given)
    silent = _Silent(as_likelihood("categorical"))
    shape = check_outputs(silent, hashable(apply), _shapes(posterior), (x, np.zeros(count_of(x), np.int32)))
    if len(shape) != 1 or shape[0] < 2:
        raise ConfigError(
            f"the network returns (batch{''.join(f', {size}' for size in shape)}): give likelihood='gaussian' or "
            "Normal(std) for real targets, 'categorical' for classes, or the Fit, which knows it"
        )
    return as_likelihood("categorical")


def _check_finite(values: Any) -> None:
    if not bool(np.isfinite(np.asarray(values)).all()):
        raise PosteriorError("a prediction is not finite; look for NaN or huge weights, stds or inputs")


@dataclass(frozen=True)
class _Silent:
    """A likelihood of which nothing is scored, as there are no targets."""

    likelihood: Likelihood

    def log_likelihood(self, outputs: Array, targets: Array) -> Array:
        return jnp.zeros(targets.shape, outputs.dtype)

    def moments(self, outputs: Array) -> tuple[Any, Any]:
        return self.likelihood.moments(outputs)  # pyright: ignore[reportAttributeAccessIssue]

    def check(self, output_shape: tuple[int, ...], targets: Array) -> None:
        pass


@dataclass(frozen=True)
class _Unlabelled:
    """A classifier's probabilities, and their entropy as one more column: both are averaged in log space."""

    likelihood: Likelihood

    def log_likelihood(self, outputs: Array, targets: Array) -> Array:
        return jnp.zeros(targets.shape, outputs.dtype)

    def log_probs(self, outputs: Array) -> Array:
        logs = self.likelihood.log_probs(outputs)  # pyright: ignore[reportAttributeAccessIssue]
        entropy = jax.scipy.special.entr(jnp.exp(logs)).sum(-1, keepdims=True)
        return jnp.concatenate([logs, jnp.log(entropy)], -1)

    def check(self, output_shape: tuple[int, ...], targets: Array) -> None:
        check = getattr(self.likelihood, "check", None)
        if check is not None:
            check(output_shape, targets)


def _shapes(posterior: Posterior | Mixture | Tree) -> Tree:
    """Shapes of the parameters of one network."""
    if isinstance(posterior, Mixture):
        return _shapes(posterior.first)
    if isinstance(posterior, Samples):
        return _shapes_of(posterior.params, 1)
    return _shapes_of(posterior.mean if is_posterior(posterior) else as_gaussian(posterior).mean, 0)


def _shapes_of(tree: Tree, first: int) -> Tree:
    """The shapes of a tree from that axis on, in types that JAX computes in."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[first:], canonicalize_dtype(leaf.dtype)), tree)


def _checked_data(data: Data) -> Data:
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise DataError(f"data is a pair (x, y), such as (data.x_test, data.y_test), not {type(data).__name__}")
    x, y = data
    x = {name: _array(part) for name, part in x.items()} if isinstance(x, dict) else _array(x)
    x = jax.tree.map(lambda part: without_bytes(part, "these"), x)
    for part in jax.tree.leaves(x):
        check_whole(part, "these inputs")
    y = _array(y)
    leaves = [*jax.tree.leaves(x), y]
    if any(leaf.ndim < 1 or len(leaf) != len(y) or not len(leaf) for leaf in leaves):
        shapes = " and ".join(str(tuple(leaf.shape)) for leaf in leaves)
        raise DataError(f"need as many inputs as targets, and at least one: {shapes}")
    return x, y


def _array(value: Any) -> Any:
    return value if hasattr(value, "shape") else np.asarray(value)
