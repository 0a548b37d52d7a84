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
from typing import Any, Literal, overload

import jax
import jax.numpy as jnp

from ..errors import ConfigError
from ..models import Model
from ..posteriors import Gaussian
from .arrays import training_arrays
from .divergence import softplus_and_slope
from .engine import Progress, Trained, train
from .fit import Fit
from .given import check_given
from .layout import Layout
from .problem import Problem
from .program import State
from .training import Training, is_finite, require


@dataclass(frozen=True)
class VI(Training):
    """Settings of mean-field variational inference."""

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
        require(is_finite(self.initial_std) and self.initial_std > 0, self, "initial_std", "positive")
        require(isinstance(self.train_samples, int) and self.train_samples >= 1, self, "train_samples", "at least 1")
        require(self.temperature_meaning in ("kl", "posterior"), self, "temperature_meaning", "kl or posterior")
        require(self.gains in ("bayesian", "points"), self, "gains", "bayesian or points")


@overload
def fit_vi(
    key: jax.Array,
    model: Model,
    data: Any,
    config: VI,
    *,
    checkpoint: Path | str | None = None,
    on_progress: Callable[[Progress], Any] | None = None,
) -> Fit: ...
@overload
def fit_vi(
    key: jax.Array,
    model: Model,
    data: Any,
    config: Sequence[VI],
    *,
    checkpoint: Path | str | None = None,
    on_progress: Callable[[Progress], Any] | None = None,
) -> tuple[Fit, ...]: ...
def fit_vi(key, model, data, config, *, checkpoint=None, on_progress=None):
    """Returns mean-field Gaussian posteriors, one for each member.

    Args:
        key: a `jax.random.key`; member i uses `fold_in(key, i)` and nothing else.
        model: init and apply; leaves named in `model.statistics` and integer leaves are held fixed.
        data: a `Dataset`, or a pair (x, y).
        config: the settings, or several that differ in prior variance, temperature, learning rate or
            noise alone: they are trained in one program and come back as a tuple.
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
    for one in config if isinstance(config, list | tuple) else (config,):
        check_given("fit_vi", key, model, one, VI)
    settings = (config,) if isinstance(config, VI) else tuple(config)
    _check_grid(settings)
    first = settings[0]
    problem = Problem(
        model=model,
        arrays=training_arrays(data, first.likelihood),
        settings=settings,
        temperatures=tuple(s.temperature for s in settings),
        temperature_on_prior=first.temperature_meaning == "kl",
        train_samples=first.train_samples,
        initial_std=first.initial_std,
        gaussian=True,
        gains_are_points=first.gains == "points",
    )
    trained = train(key, problem, checkpoint=checkpoint, on_progress=on_progress)
    fits = tuple(_fit(trained, index, s) for index, s in enumerate(settings))
    return fits[0] if isinstance(config, VI) else fits


def _fit(trained: Trained, index: int, config: VI) -> Fit:
    mine = slice(index * config.members, (index + 1) * config.members)
    state = jax.tree.map(lambda leaf: leaf[mine], trained.states)
    members = [jax.tree.map(lambda leaf, at=i: leaf[at], state) for i in range(config.members)]
    trace = {name: column[:, mine] if column.ndim > 1 else column for name, column in trained.trace.items()}
    return Fit(tuple(_posterior(trained.layout, one) for one in members), trace, state, config, trained.memory)


@partial(jax.jit, static_argnums=0)  # else every slice of every leaf is a program of its own
def _posterior(layout: Layout, state: State) -> Gaussian:
    std, _ = softplus_and_slope(state.variables["rho"])
    certain = jnp.zeros(layout.size - layout.gaussian_size, jnp.float32)
    return Gaussian(
        layout.tree_of(state.variables["mean"], state.fixed),
        layout.tree_of(jnp.concatenate([std, certain]), [jnp.zeros_like(leaf) for leaf in state.fixed]),
    )


def _check_grid(settings: tuple[VI, ...]) -> None:
    if not settings:
        raise ConfigError("no settings: give at least one VI(...)")
    first = settings[0]
    for other in settings[1:]:
        same = replace(
            other,
            prior_variance=first.prior_variance,
            temperature=first.temperature,
            learning_rate=first.learning_rate,
            noise=first.noise,
        )
        if same != first:
            raise ConfigError(
                "settings of one grid may differ in prior_variance, temperature, learning_rate and noise alone; "
                "fit the others on their own"
            )
