"""Likelihoods: how well the outputs of a network explain the targets, in nats per example.

    Categorical   log p(y | f) = f_y − logsumexp(f)
    Normal        log p(y | f) = −Σ_d [ ½ log 2π + log σ + (y_d − f_d)² / (2σ²) ]
    NormalHead    the same with σ an output of the network, for each example its own

The same object serves `fit_vi`, `fit_ensemble`, `fit_hmc`, `evaluate` and `barrier`. A likelihood of your own is a
frozen value with one method:

    @dataclass(frozen=True)
    class Poisson:
        def log_likelihood(self, outputs, targets):
            log_rate = outputs[:, 0]
            return targets * log_rate - jnp.exp(log_rate) - jax.scipy.special.gammaln(targets + 1.0)

What it may have besides:

    check(output_shape, targets)    raises where outputs (shape of one example) and targets do not fit each other
    target_dtype                    what targets are stored as; by default int32 for whole numbers, else float32
    score(outputs, targets)         what a person wants to see, with its name in `score_name`
    log_probs(outputs)              log-probabilities of the classes, for a classifier
    moments(outputs)                mean and std of the normal distribution of each target, for real targets
    parameters(), at(parameters)    numbers of its own, and the likelihood with other values for them (traced ones
                                    too); they are learned with the weights unless `learned` is False
    columns()                       what a trace shows of these numbers, by name; by default the numbers themselves
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Num

from .errors import ConfigError, DataError, ModelError, did_you_mean, first_line
from .inputs import describe, shapes_of
from .jaxprs import output_shapes
from .trees import Tree

_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


@runtime_checkable
class Likelihood(Protocol):
    """What every likelihood has; a frozen, hashable value.

    Example:
        >>> class Poisson:  # one of your own: a method and nothing else
        ...     def log_likelihood(self, outputs, targets):
        ...         return targets * outputs[..., 0] - jnp.exp(outputs[..., 0])
        >>> Poisson().log_likelihood(jnp.zeros((2, 1)), jnp.array([0, 3])).tolist()
        [-1.0, -1.0]
    """

    def log_likelihood(
        self, outputs: Float[Array, "batch ..."], targets: Num[Array, "batch ..."]
    ) -> Float[Array, " batch"]:
        """Returns `log p(target | output)` of every example; outputs come in float32."""
        ...


@dataclass(frozen=True)
class Categorical:
    """Classification: outputs are logits, targets whole labels.

    Example:
        >>> [round(float(one), 4) for one in Categorical().log_likelihood(jnp.zeros((2, 4)), jnp.array([0, 3]))]
        [-1.3863, -1.3863]
    """

    score_name = "accuracy"
    target_dtype = np.int32

    def log_likelihood(
        self, outputs: Float[Array, "batch classes"], targets: Int[Array, " batch"]
    ) -> Float[Array, " batch"]:
        picked = jnp.take_along_axis(outputs, targets[:, None], axis=-1)[:, 0]
        return picked - jax.nn.logsumexp(outputs, axis=-1)

    def log_probs(self, outputs: Float[Array, "batch classes"]) -> Float[Array, "batch classes"]:
        """Log-probabilities of all classes."""
        return jax.nn.log_softmax(outputs)

    def score(self, outputs: Float[Array, "batch classes"], targets: Int[Array, " batch"]) -> Float[Array, ""]:
        """The share of right answers."""
        return jnp.mean((jnp.argmax(outputs, -1) == targets).astype(jnp.float32))

    def check(self, output_shape: tuple[int, ...], targets: jax.Array | np.ndarray) -> None:
        if len(output_shape) != 1:
            sizes = ", ".join(map(str, output_shape))
            raise ModelError(
                f"a classifier returns (batch, classes), this network (batch{', ' if sizes else ''}{sizes})"
            )
        if targets.ndim != 1 or not jnp.issubdtype(targets.dtype, jnp.integer):
            raise DataError(
                f"labels must be whole numbers, one for each example, not {targets.dtype} of shape "
                f"{tuple(targets.shape)}; {_instead_of(targets)}"
            )
        low, high = int(targets.min()), int(targets.max())
        if low < 0 or high >= output_shape[0]:
            hint = "; labels count from 0" if low > 0 and high == output_shape[0] else ""
            raise DataError(f"labels run from {low} to {high}, but the network has {output_shape[0]} outputs{hint}")


def _instead_of(targets: Any) -> str:
    """What to give in place of targets that are no labels."""
    if targets.dtype.kind in "USO":
        return "np.unique(y, return_inverse=True)[1] numbers names"
    if targets.ndim == 2 and targets.shape[1] > 1:
        return "of one-hot rows give y.argmax(1); real targets need likelihood='gaussian'"
    if targets.ndim == 2:
        return "give y[:, 0]"
    return "of labels give y.astype(int); real targets need likelihood='gaussian'"


@dataclass(frozen=True)
class Normal:
    """Regression: independent normal noise of one std on every output, known or learned by maximum likelihood.

    Example:
        >>> float(Normal(2.0).log_likelihood(jnp.zeros((1, 1)), jnp.zeros(1))[0])
        -1.612...
    """

    std: float = 1.0
    learned: bool = False
    # log(std) to the last bit where `at` was given it: exp followed by log would round twice
    _log_std: float | Array | None = field(default=None, repr=False, compare=False)

    score_name = "mse"
    target_dtype = np.float32

    def __post_init__(self):
        if isinstance(self.std, int | float) and not (math.isfinite(self.std) and self.std > 0):
            raise ConfigError(f"the std of Normal must be positive, not {self.std!r}")

    def log_likelihood(
        self, outputs: Float[Array, "batch ..."], targets: Num[Array, "batch ..."]
    ) -> Float[Array, " batch"]:
        return _normal(outputs, math.log(self.std) if self._log_std is None else self._log_std, targets)

    def moments(self, outputs: Float[Array, "batch ..."]) -> tuple[Float[Array, "batch ..."], float | Array]:
        """Mean and std of the targets."""
        return outputs, self.std

    def score(self, outputs: Float[Array, "batch ..."], targets: Num[Array, "batch ..."]) -> Float[Array, ""]:
        """The mean squared error."""
        return jnp.mean(jnp.square(outputs - targets.reshape(outputs.shape).astype(outputs.dtype)))

    def check(self, output_shape: tuple[int, ...], targets: jax.Array | np.ndarray) -> None:
        if math.prod(output_shape) != math.prod(targets.shape[1:]):
            raise DataError(
                f"targets have shape {tuple(targets.shape[1:])}, but the outputs of the network {tuple(output_shape)}"
            )
        if not np.isfinite(np.asarray(targets)).all():
            raise DataError("a target is NaN or infinite")

    def parameters(self) -> dict[str, float]:
        return {"log_std": math.log(self.std) if self._log_std is None else self._log_std}  # pyright: ignore

    def at(self, parameters: Mapping[str, float | Array]) -> "Normal":
        log_std = parameters["log_std"]
        std = math.exp(log_std) if isinstance(log_std, int | float) else jnp.exp(log_std)
        return replace(self, std=std, _log_std=log_std)

    def columns(self) -> dict[str, Any]:
        return {"noise": self.std}


@dataclass(frozen=True)
class NormalHead:
    """Regression with a noise of each example's own: outputs are the means, then the logarithms of the stds.

    For targets of d numbers the network has 2d outputs, on its last axis. `smallest` is added to every std, so that
    no example can be explained without noise.

    Example:
        >>> outputs = jnp.array([[1.0, math.log(2.0)]])
        >>> float(NormalHead(smallest=1e-9).log_likelihood(outputs, jnp.ones(1))[0])
        -1.612...
    """

    smallest: float = 1e-3

    score_name = "mse"
    target_dtype = np.float32

    def __post_init__(self):
        if not (math.isfinite(self.smallest) and self.smallest > 0):
            raise ConfigError(f"the smallest std of NormalHead must be positive, not {self.smallest!r}")

    def log_likelihood(
        self, outputs: Float[Array, "batch ..."], targets: Num[Array, "batch ..."]
    ) -> Float[Array, " batch"]:
        return _normal(*self._parts(outputs), targets)

    def moments(
        self, outputs: Float[Array, "batch ..."]
    ) -> tuple[Float[Array, "batch ..."], Float[Array, "batch ..."]]:
        """Means and stds of the targets."""
        means, log_stds = self._parts(outputs)
        return means, jnp.exp(log_stds)

    def score(self, outputs: Float[Array, "batch ..."], targets: Num[Array, "batch ..."]) -> Float[Array, ""]:
        """The mean squared error of the means."""
        means, _ = self._parts(outputs)
        return jnp.mean(jnp.square(means - targets.reshape(means.shape).astype(means.dtype)))

    def check(self, output_shape: tuple[int, ...], targets: jax.Array | np.ndarray) -> None:
        wanted = math.prod(targets.shape[1:])
        if not output_shape or math.prod(output_shape) != 2 * wanted or output_shape[-1] % 2:
            raise DataError(
                f"a mean and a std for targets of shape {tuple(targets.shape[1:])} are {2 * wanted} outputs, means "
                f"first; the network has {tuple(output_shape)}"
            )
        if not np.isfinite(np.asarray(targets)).all():
            raise DataError("a target is NaN or infinite")

    def _parts(self, outputs: Float[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        means, log_stds = jnp.split(jnp.asarray(outputs), 2, axis=-1)
        return means, jnp.logaddexp(log_stds, jnp.asarray(math.log(self.smallest), log_stds.dtype))


def _normal(means: Array, log_stds: float | Array, targets: Array) -> Array:
    """The log-density of normal distributions, summed over the outputs of every example."""
    residual = means - targets.reshape(means.shape).astype(means.dtype)
    terms = _HALF_LOG_TWO_PI + log_stds + 0.5 * jnp.square(residual * jnp.exp(-log_stds))
    return -terms.reshape(len(means), -1).sum(-1)


@dataclass(frozen=True)
class _Function:
    """A plain function of (outputs, targets) as a likelihood."""

    function: Callable[[Array, Array], Array]

    def log_likelihood(self, outputs: Array, targets: Array) -> Array:
        return self.function(outputs, targets)


_NAMES: dict[str, Likelihood] = {"categorical": Categorical(), "gaussian": Normal()}


# What verbs take for a likelihood: an object, a function of (outputs, targets), or a name.
LikelihoodLike = Likelihood | Callable[[Array, Array], Array] | Literal["categorical", "gaussian"]


def as_likelihood(value: LikelihoodLike) -> Likelihood:
    """Returns the likelihood that a name, an object or a function `(outputs, targets) -> (batch,)` stands for.

    Raises:
        ConfigError: it is none, or cannot be hashed, so that no compiled program could be looked up by it.

    Example:
        >>> as_likelihood("gaussian")
        Normal(std=1.0, learned=False)
    """
    if isinstance(value, str):
        if value not in _NAMES:
            known = " or ".join(_NAMES)
            raise ConfigError(f"likelihood must be {known}, or an object, not '{value}'{did_you_mean(value, _NAMES)}")
        return _NAMES[value]
    if isinstance(value, type):
        raise ConfigError(f"likelihood={value.__name__} is a class; write {value.__name__}()")
    if not isinstance(value, Likelihood) and not callable(value):
        raise ConfigError(f"likelihood has no method log_likelihood(outputs, targets): {value!r:.60}")
    likelihood = value if isinstance(value, Likelihood) else _Function(value)
    try:
        hash(likelihood)
    except TypeError:
        raise ConfigError(
            f"the likelihood {type(value).__name__} cannot be hashed; make it a frozen dataclass of numbers"
        ) from None
    return likelihood


def negative_log_likelihood(
    likelihood: Likelihood, outputs: Float[Array, "batch ..."], targets: Num[Array, "batch ..."]
) -> Float[Array, " batch"]:
    """Returns `−log p(target | output)` of every example, in float32 whatever the network computed in.

    Example:
        >>> negative_log_likelihood(Categorical(), jnp.zeros((1, 4)), jnp.array([2])).round(3).tolist()
        [1.386...]
    """
    return -likelihood.log_likelihood(outputs.astype(jnp.float32), targets)


def score(
    likelihood: Likelihood, outputs: Float[Array, "batch ..."], targets: Num[Array, "batch ..."]
) -> dict[str, Array]:
    """Returns `{name: value}` of what a person wants to see (accuracy, mse), or nothing where there is no score."""
    measure = getattr(likelihood, "score", None)
    if measure is None:
        return {}
    return {getattr(likelihood, "score_name", "score"): measure(outputs.astype(jnp.float32), targets)}


def parameters_of(likelihood: Likelihood) -> dict[str, float]:
    """Returns the numbers of a likelihood's own, learned or not."""
    return dict(likelihood.parameters()) if hasattr(likelihood, "parameters") else {}  # pyright: ignore


def with_parameters(likelihood: Likelihood, parameters: Mapping[str, Any]) -> Likelihood:
    """Returns the likelihood with these values for its numbers; they may be traced."""
    return likelihood.at(parameters) if parameters else likelihood  # pyright: ignore


def is_learned(likelihood: Likelihood) -> bool:
    """Whether the numbers of a likelihood are learned with the weights."""
    return bool(parameters_of(likelihood)) and getattr(likelihood, "learned", True)


def check_outputs(
    likelihood: Likelihood,
    apply: Callable[[Tree, Any], Any],
    params: Tree,
    data: tuple[Any, Any],
    name: str = "the network",
) -> tuple[int, ...]:
    """Returns the shape of one example's outputs, having checked that they fit the targets.

    Args:
        likelihood: it may have a `check` of its own.
        apply: the network.
        params: parameters, or their shapes.
        data: inputs and targets as they go into `apply` and the likelihood; nothing is computed on them.
        name: of the network, for messages.

    Raises:
        ModelError: the network cannot be applied to such inputs, or does not return one array, batch first.
        DataError: the targets do not fit the outputs.
    """
    x, y = data
    try:
        outputs = output_shapes(apply, params, shapes_of(x, 2))
    except Exception as error:  # whatever a user's network raises while it is traced
        raise ModelError(f"{name} cannot be applied to inputs of shape {describe(x)}: {first_line(error)}") from error
    if not hasattr(outputs, "shape") or not outputs.shape or outputs.shape[0] != 2:
        raise ModelError(
            f"{name} returns shape {getattr(outputs, 'shape', type(outputs).__name__)} for two inputs; "
            "apply must return one array, batch first"
        )
    shape = tuple(outputs.shape[1:])
    if hasattr(likelihood, "check"):
        likelihood.check(shape, y)  # pyright: ignore
        return shape
    # A likelihood without a check of its own must at least be traceable and return one number for each example.
    try:
        terms = jax.eval_shape(lambda f, y: negative_log_likelihood(likelihood, f, y), outputs, shapes_of(y, 2))
    except Exception as error:
        raise DataError(
            f"the likelihood cannot be computed from outputs {shape} and targets {tuple(y.shape[1:])}: "
            f"{first_line(error)}"
        ) from error
    if terms.shape != (2,):
        raise DataError(f"log_likelihood returns shape {terms.shape} for two examples; one number each is needed")
    return shape


def target_array(likelihood: Likelihood, targets: jax.Array | np.ndarray) -> np.ndarray:
    """Returns targets in the dtype that the likelihood wants; `check` names those of the wrong kind."""
    targets = np.asarray(targets)
    whole = np.issubdtype(targets.dtype, np.integer)
    wanted = np.dtype(getattr(likelihood, "target_dtype", np.int32 if whole else np.float32))
    if np.issubdtype(wanted, np.integer) and not whole:
        return targets
    return targets.astype(wanted)
