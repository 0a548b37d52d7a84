"""Settings that every trained posterior has, their checks, and what they are known by.

An object that has a name is stored under it: `VI(likelihood=Normal(0.5))` equals
`VI(likelihood="gaussian", noise=0.5)`, and `VI(prior=Isotropic(0.1))` equals `VI(prior_variance=0.1)`.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax

from ..errors import ConfigError, ModelError, nearest
from ..likelihoods import Categorical, Likelihood, Normal, as_likelihood
from ..randomness import check_key
from .priors import Isotropic, Prior


@dataclass(frozen=True)
class Settings:
    """What the settings of every method share: a field that is none is refused with the nearest one that is."""

    def __new__(cls, *values: Any, **fields: Any):
        known = [field.name for field in dataclasses.fields(cls)]
        for name in fields:
            if name not in known:
                close = nearest(name, known, 0.6)
                hint = f"did you mean '{close}'?" if close else f"settings are {', '.join(known)}"
                raise ConfigError(f"{cls.__name__} has no setting '{name}'; {hint}")
        return super().__new__(cls)


@dataclass(frozen=True)
class Training(Settings):
    """What is trained, on what objective, how fast and for how long."""

    members: int = 1
    """How many independent posteriors (or networks) to train in one program."""
    prior_variance: float = 0.01
    """Variance of the isotropic Gaussian prior."""
    prior_centre: Literal["initial", "zero"] = "initial"
    """Where the prior sits for leaves whose initial value does not depend on the key (norm gains,
    thresholds): at that value, or at zero, which pulls gains that start at 1 towards 0."""
    likelihood: Literal["categorical", "gaussian"] | Likelihood = "categorical"
    """Labels, or real targets."""
    noise: float = 1.0
    """Standard deviation of the Gaussian likelihood; where it starts when learned."""
    learn_noise: bool = False
    """Learn that standard deviation by maximum likelihood."""
    epochs: int = 100
    """Passes over the training set."""
    batch: int = 500
    """Examples a step; more than there are means all of them. Every epoch is one permutation without
    replacement, and the remainder that fills no batch is left out of that epoch."""
    optimiser: Literal["adam", "sgd"] | optax.GradientTransformation = "adam"
    """Adam, or gradient descent with momentum. In Python also any optax transformation, which brings its own rate:
    learning_rate, schedule, warmup, momentum and clip then stay at their defaults and mean nothing."""
    momentum: float = 0.9
    """Heavy-ball momentum of sgd."""
    learning_rate: float = 1e-3
    """Peak rate, on the loss per example."""
    schedule: Literal["constant", "cosine"] = "cosine"
    """How the rate goes on after warm-up."""
    warmup: int = 0
    """Steps over which the rate rises linearly."""
    clip: float = 0.0
    """Largest global norm of the gradient; 0 means no clipping."""
    compute: Literal["float32", "bfloat16"] = "float32"
    """What the network computes in; parameters, optimiser and loss stay float32."""
    parallel: Literal["auto", "vmap", "sequence"] = "auto"
    """Members side by side (vmap), or one after the other through one compiled program (sequence).
    In sequence a member has the same bits however many there are; side by side it agrees to rounding.
    auto: vmap for nets without convolutions on an accelerator, else sequence."""
    shard: Literal["auto", "members", "batch", "none"] = "auto"
    """What is spread over several devices. auto: the members if there are enough, else the batch."""
    log_every: int = 0
    """Steps between two rows of the trace, and between two checks for divergence; 0 means an epoch."""
    eval_every: int = 0
    """Epochs between two looks at the test set with the mean network; 0 means never."""
    explosion: float = 100.0
    """Stop when the loss per example exceeds this many times where it started."""
    checkpoint_epochs: int = 0
    """Epochs between two checkpoints; 0 means by time alone."""
    checkpoint_minutes: float = 2.0
    """Minutes between two checkpoints; 0 means by epochs alone."""
    prior: Prior | None = None
    """A prior of another kind (`FanIn`, or your own), in place of prior_variance and prior_centre."""

    def __post_init__(self):
        store_by_name(self)
        check_numbers(
            self,
            counts=("members", "epochs", "batch"),
            counts_or_zero=("warmup", "log_every", "eval_every", "checkpoint_epochs"),
            positive=("prior_variance", "noise", "explosion"),
            positive_or_zero=("learning_rate", "clip", "checkpoint_minutes"),
            below_one=("momentum",),
        )
        for name, choices in _CHOICES.items():
            require(getattr(self, name) in choices, self, name, f"one of {', '.join(choices)}")
        if isinstance(self.optimiser, optax.GradientTransformation):
            for name in ("learning_rate", "schedule", "warmup", "momentum", "clip"):
                default = getattr(Training, name)
                why = f"left at {default!r}: the optimiser given brings a rate, a schedule and clipping of its own"
                require(getattr(self, name) == default, self, name, why)
        else:
            what = "adam, sgd or an optax transformation"
            require(self.optimiser in ("adam", "sgd"), self, "optimiser", what)


_CHOICES = {
    "prior_centre": ("initial", "zero"),
    "schedule": ("constant", "cosine"),
    "compute": ("float32", "bfloat16"),
    "parallel": ("auto", "vmap", "sequence"),
    "shard": ("auto", "members", "batch", "none"),
}

# How often a run is saved, how many draws are wanted and how they are kept does not change what is computed.
OPERATIONAL = ("checkpoint_epochs", "checkpoint_minutes")


def store_by_name(settings: Any) -> None:
    """Replaces objects in new settings by the names and numbers that say the same, and checks those that remain."""

    def put(**values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(settings, name, value)

    likelihood = as_likelihood(settings.likelihood)
    if not isinstance(settings.likelihood, str):
        if isinstance(likelihood, Categorical):
            put(likelihood="categorical")
        elif isinstance(likelihood, Normal):
            put(likelihood="gaussian", noise=likelihood.std)
            if hasattr(settings, "learn_noise"):
                put(learn_noise=likelihood.learned)
            elif likelihood.learned:
                raise ConfigError(f"{type(settings).__name__} does not learn the noise; give Normal(std) alone")
        else:
            put(likelihood=likelihood)  # a plain function has become an object
    prior = settings.prior
    if prior is not None and (isinstance(prior, type) or not isinstance(prior, Prior)):
        raise ConfigError(f"prior has no method moments(start): {prior!r:.60}; for example Isotropic(0.01)")
    if isinstance(prior, Isotropic):
        if hasattr(settings, "prior_centre"):
            put(prior=None, prior_variance=prior.variance, prior_centre=prior.centre)
        elif prior.centre == "zero":
            put(prior=None, prior_variance=prior.variance)


def likelihood_of(settings: Any) -> Likelihood:
    """The likelihood that settings name or hold."""
    if settings.likelihood == "gaussian":
        return Normal(settings.noise, getattr(settings, "learn_noise", False))
    return as_likelihood(settings.likelihood)


def identity_fields(settings: Any, leave_out: tuple[str, ...] = OPERATIONAL) -> dict[str, Any]:
    """The settings that decide the result, as plain data: what a checkpoint or a run is known by.

    Names and numbers stand for themselves, objects for their `repr`; settings that 0.1 did not have are left out
    where they are not given, so that its checkpoints and run folders stay valid.

    Raises:
        ConfigError: an object whose repr is an address, which is another one in every process.
    """
    found = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if field.name in leave_out or (field.name == "prior" and value is None):
            continue
        if value is not None and not isinstance(value, str | int | float):
            if re.search(r" at 0x[0-9a-f]+", repr(value)):
                raise ConfigError(
                    f"{field.name}={type(value).__name__} cannot be told apart from another: give it a repr "
                    "(a frozen dataclass has one), or do without a checkpoint"
                )
            value = repr(value)
        found[field.name] = value
    return found


def check_arguments(verb: str, key: Any, model: Any, config: Any, kind: type) -> None:
    """Raises unless key, model and settings are what the fit takes.

    Raises:
        ConfigError: no key, or settings of another method.
        ModelError: a network of some framework that has not gone through its adapter.
    """
    check_key(key)
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):  # raw words: their generator would be a guess
        raise ConfigError(f"the key must come from jax.random.key, not {key!r:.60}")
    if not all(hasattr(model, name) for name in ("init", "apply", "statistics")):
        raise ModelError(
            f"{verb} takes a bayesin Model, not {type(model).__name__}; models.from_nnx, from_linen, from_equinox, "
            "from_haiku, from_torch and from_functions make one"
        )
    if not isinstance(config, kind):
        raise ConfigError(f"{verb} takes the settings {kind.__name__}(...), not {type(config).__name__}")


def check_numbers(
    settings: Any,
    *,
    counts: Sequence[str] = (),
    counts_or_zero: Sequence[str] = (),
    positive: Sequence[str] = (),
    positive_or_zero: Sequence[str] = (),
    below_one: Sequence[str] = (),
) -> None:
    """Raises `ConfigError` for the first of these settings that is out of the range of its kind."""

    def all_hold(names: Sequence[str], holds: Callable[[Any], bool], what: str) -> None:
        for name in names:
            require(holds(getattr(settings, name)), settings, name, what)

    all_hold(counts, lambda value: is_whole(value) and value >= 1, "at least 1")
    all_hold(counts_or_zero, lambda value: is_whole(value) and value >= 0, "zero or more")
    all_hold(positive, lambda value: is_finite(value) and value > 0, "positive")
    all_hold(positive_or_zero, lambda value: is_finite(value) and value >= 0, "zero or more")
    all_hold(below_one, lambda value: is_finite(value) and 0 <= value < 1, "in [0, 1)")


def require(holds: bool, settings: Any, name: str, what: str) -> None:
    """Raises `ConfigError` unless a setting holds."""
    if not holds:
        raise ConfigError(f"{name} must be {what}, not {getattr(settings, name)!r}")


def is_finite(value: Any) -> bool:
    """Whether this is an ordinary number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_whole(value: Any) -> bool:
    """Whether this is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)
