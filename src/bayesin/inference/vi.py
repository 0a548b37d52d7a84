"""Mean-field variational inference in weight space.

    q(w) = N(m, diag(s²)),   s = softplus(ρ)
    loss per example = E_q[−log p(y | x, w)] + T · KL[q ‖ N(c, v)] / N         (temperature_meaning="kl")
    loss per example = E_q[−log p(y | x, w)] + (E_q[−log p(w)] − T · H[q]) / N (temperature_meaning="posterior")

The first tempers the likelihood (the prior's pull falls with T), the second is the cold posterior
exp(−U/T) (the prior stays). Both are the evidence lower bound at T = 1. The expectation is estimated
with one reparametrised weight sample a step, the KL is exact.

References: Blundell et al. 2015; Rossi et al. 2023; Osawa et al. 2019 (T on the KL); Wenzel et al. 2020.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp

from ..errors import ConfigError
from ..models import Model
from ..posteriors import Gaussian
from .elbo import softplus_and_slope
from .fit import Fit, Progress
from .flat_parameters import FlatLayout
from .settings import Training, check_arguments, check_numbers, is_finite, likelihood_of, require
from .training_loop import Trained, learned_likelihoods, train
from .training_problem import Problem, TrainingData, training_arrays
from .training_step import State


@dataclass(frozen=True)
class VI(Training):
    """Settings of mean-field variational inference.

    Example:
        >>> VI(members=2, epochs=60, temperature=0.1).initial_std
        0.01
        >>> VI(temperature=-1.0)
        Traceback (most recent call last):
            ...
        bayesin.errors.ConfigError: temperature must be positive: ...
    """

    temperature: float = 1.0
    """Temperature T; 1 is the Bayes posterior."""
    temperature_meaning: Literal["kl", "posterior"] = "kl"
    """kl: T multiplies the KL (tempered likelihood). posterior: exp(-U/T), T multiplies the entropy alone."""
    initial_std: float = 0.01
    """Standard deviation of every weight at the start."""
    train_samples: int = 1
    """Weight samples a step."""
    gains: Literal["bayesian", "points"] = "bayesian"
    """Leaves that start at a constant other than zero (norm gains): with a std, or certain."""

    def __post_init__(self):
        super().__post_init__()
        why = "positive: at 0 the objective has no prior, and its posterior is a point (train an Ensemble for that)"
        require(is_finite(self.temperature) and self.temperature > 0, self, "temperature", why)
        check_numbers(self, counts=("train_samples",), positive=("initial_std",))
        require(self.temperature_meaning in ("kl", "posterior"), self, "temperature_meaning", "kl or posterior")
        require(self.gains in ("bayesian", "points"), self, "gains", "bayesian or points")


def fit_vi(
    key: jax.Array,
    model: Model,
    data: TrainingData,
    config: VI,
    *,
    checkpoint: Path | str | None = None,
    on_progress: Callable[[Progress], object] | None = None,
) -> Fit[Gaussian, VI]:
    """Returns mean-field Gaussian posteriors, one for each member.

    Args:
        key: a `jax.random.key`; member i uses `fold_in(key, i)` and nothing else.
        model: init and apply, in training mode where it has one: `model.statistics` are collected on the way, for
            each member its own. Other integer leaves are held fixed.
        data: a `Dataset`, or a pair (x, y).
        config: the settings.
        checkpoint: a folder. A run found there is taken up where it was; killed at any moment, it ends with
            the bits of an undisturbed one.
        on_progress: called with a `Progress` after every logging interval.

    Raises:
        ConfigError, DataError, ModelError: the input cannot be used.
        ArtifactError: the checkpoint folder cannot be written, or has too little space.
        TrainingError: the loss became NaN or exploded; the error keeps the trace.

    Example:
        >>> import numpy as np
        >>> model = Model(lambda key: {"w": jnp.zeros((2, 3))}, lambda params, x: x @ params["w"])
        >>> x = np.eye(2, dtype=np.float32).repeat(8, 0)
        >>> fit = fit_vi(jax.random.key(0), model, (x, np.arange(2).repeat(8)), VI(epochs=5, batch=4))
        >>> fit.posterior.std["w"].shape, fit.trace["loss"].shape
        ((2, 3), (5, 1))
    """
    check_arguments("fit_vi", key, model, config, VI)
    return _fit_all(key, model, data, (config,), checkpoint, on_progress)[0]


def fit_vi_grid(
    key: jax.Array,
    model: Model,
    data: TrainingData,
    settings: Sequence[VI],
    *,
    checkpoint: Path | str | None = None,
    on_progress: Callable[[Progress], object] | None = None,
) -> tuple[Fit[Gaussian, VI], ...]:
    """Returns what `fit_vi` returns for each of several settings, trained together in one program.

    The settings may differ in prior_variance, temperature, learning_rate and noise alone. Each fit has the bits
    of the one it would be alone. The other arguments are those of `fit_vi`.

    Example:
        >>> import numpy as np
        >>> model = Model(lambda key: {"w": jnp.zeros((2, 3))}, lambda params, x: x @ params["w"])
        >>> x = np.eye(2, dtype=np.float32).repeat(8, 0)
        >>> settings = [VI(epochs=5, batch=4, prior_variance=variance) for variance in (0.1, 1.0)]
        >>> fits = fit_vi_grid(jax.random.key(0), model, (x, np.arange(2).repeat(8)), settings)
        >>> [fit.config.prior_variance for fit in fits]
        [0.1, 1.0]
    """
    if not settings:
        raise ConfigError("no settings: give at least one VI(...)")
    for config in settings:
        check_arguments("fit_vi_grid", key, model, config, VI)
    first = _without_varying(settings[0])
    if any(_without_varying(config) != first for config in settings[1:]):
        raise ConfigError(
            "settings of one grid may differ in prior_variance, temperature, learning_rate and noise alone; "
            "fit the others on their own"
        )
    return _fit_all(key, model, data, tuple(settings), checkpoint, on_progress)


def _without_varying(config: VI) -> VI:
    """The settings with what may differ within a grid at one value."""
    return replace(config, prior_variance=1.0, temperature=1.0, learning_rate=Training.learning_rate, noise=1.0)


def _fit_all(
    key: jax.Array,
    model: Model,
    data: TrainingData,
    settings: tuple[VI, ...],
    checkpoint: Path | str | None,
    on_progress: Callable[[Progress], object] | None,
) -> tuple[Fit[Gaussian, VI], ...]:
    first = settings[0]
    problem = Problem(
        model=model,
        arrays=training_arrays(data, likelihood_of(first)),
        settings=settings,
        temperatures=tuple(config.temperature for config in settings),
        temperature_on_prior=first.temperature_meaning == "kl",
        train_samples=first.train_samples,
        initial_std=first.initial_std,
        gaussian=True,
        gains_are_points=first.gains == "points",
    )
    trained = train(key, problem, checkpoint=checkpoint, on_progress=on_progress)
    return tuple(_fit(trained, model, index, config) for index, config in enumerate(settings))


def _fit(trained: Trained, model: Model, index: int, config: VI) -> Fit[Gaussian, VI]:
    mine = slice(index * config.members, (index + 1) * config.members)
    stacked = jax.tree.map(lambda leaf: leaf[mine], trained.states)
    states = [jax.tree.map(lambda leaf, at=i: leaf[at], stacked) for i in range(config.members)]
    trace = {name: column[:, mine] if column.ndim > 1 else column for name, column in trained.trace.items()}
    posteriors = tuple(_posterior(trained.layout, state) for state in states)
    likelihoods = learned_likelihoods(likelihood_of(config), trained)[mine]
    return Fit(posteriors, trace, config, likelihoods, trained.memory, statistics=model.statistics)


@partial(jax.jit, static_argnums=0)  # else every slice of every leaf is a program of its own
def _posterior(layout: FlatLayout, state: State) -> Gaussian:
    std, _ = softplus_and_slope(state.variables["rho"])
    certain = jnp.zeros(layout.size - layout.gaussian_size, jnp.float32)
    return Gaussian(
        layout.tree_of(state.variables["mean"], state.fixed),
        layout.tree_of(jnp.concatenate([std, certain]), [jnp.zeros_like(leaf) for leaf in state.fixed]),
    )
