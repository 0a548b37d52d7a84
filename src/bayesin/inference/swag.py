"""SWAG: the Gaussian of the iterates of gradient descent, half diagonal and half low rank.

    N( m, ½ diag(E[w²] − m²) + ½ D Dᵀ / (K − 1) ),     D: the last K deviations of an iterate from the running mean

Gradient descent runs on the posterior's log-density, first with a rate that falls to `collect_rate`, then with that
rate held, while one iterate is collected every so many steps. How wide the Gaussian is depends on the
rate and the batch, not on the likelihood alone: a full batch that has converged has no spread.

Reference: Maddox et al. 2019.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ..errors import ConfigError
from ..inputs import count_of
from ..models import Model
from ..posteriors import FactorGaussian
from .fit import Fit, Progress
from .flat_parameters import FlatLayout
from .iterates import Iterates, keep_iterates, path_alone, with_optimiser
from .recalibrate import with_own_statistics
from .settings import Training, check_arguments, is_finite, is_whole, likelihood_of, require
from .training_loop import learned_likelihoods, train
from .training_problem import Problem, TrainingData, training_arrays
from .training_step import direction


@dataclass(frozen=True)
class SWAG(Training):
    """Settings of SWAG.

    Example:
        >>> SWAG(members=2, rank=5).collect_from
        0.75
    """

    optimiser: str = "sgd"  # pyright: ignore[reportIncompatibleVariableOverride]
    """Gradient descent with momentum, or adam."""
    rank: int = 20
    """Deviations that the low-rank part keeps."""
    collect_from: float = 0.75
    """Share of the run after which iterates are collected."""
    collect_every: int = 0
    """Steps from one collected iterate to the next; 0 means an epoch."""
    collect_rate: float = 5e-3
    """Learning rate while they are collected."""
    learning_rate: float = 5e-2
    """Peak rate before that, on the loss per example."""

    def __post_init__(self):
        super().__post_init__()
        require(is_whole(self.rank) and self.rank >= 2, self, "rank", "at least 2")
        require(is_finite(self.collect_from) and 0 <= self.collect_from < 1, self, "collect_from", "in [0, 1)")
        require(is_whole(self.collect_every) and self.collect_every >= 0, self, "collect_every", "zero or more")
        require(is_finite(self.collect_rate) and self.collect_rate > 0, self, "collect_rate", "positive")


def fit_swag(
    key: jax.Array,
    model: Model,
    data: TrainingData,
    config: SWAG,
    *,
    checkpoint: Path | str | None = None,
    on_progress: Callable[[Progress], object] | None = None,
) -> Fit[FactorGaussian, SWAG]:
    """Returns one low-rank plus diagonal Gaussian for each member.

    Args:
        key: a `jax.random.key`; member i uses `fold_in(key, i)` and nothing else.
        model: init and apply; its running statistics are estimated anew for the averaged weights.
        data: a `Dataset`, or a pair (x, y).
        config: the settings.
        checkpoint: a folder; a run found there is taken up where it was.
        on_progress: called with a `Progress` after every logging interval.

    Raises:
        ConfigError: among others, a run too short to collect two iterates.
        DataError, ModelError: the input cannot be used.
        TrainingError: the loss became NaN or exploded.

    Example:
        >>> model = Model(lambda key: {"w": jax.random.normal(key, (2, 3))}, lambda params, x: x @ params["w"])
        >>> x = np.eye(2, dtype=np.float32).repeat(8, 0)
        >>> fit = fit_swag(jax.random.key(0), model, (x, np.arange(2).repeat(8)), SWAG(epochs=40, batch=4, rank=3))
        >>> fit.posterior
        FactorGaussian(6 weights, rank 3)
    """
    check_arguments("fit_swag", key, model, config, SWAG)
    likelihood = likelihood_of(config)
    arrays = training_arrays(data, likelihood)
    collecting = with_optimiser(config, _collecting(path_alone(config), count_of(arrays.x)))
    problem = Problem(model, arrays, (collecting,), (1.0,), gaussian=False)
    trained = train(key, problem, checkpoint=checkpoint, on_progress=on_progress)
    states = [jax.tree.map(lambda leaf, at=i: leaf[at], trained.states) for i in range(config.members)]
    posteriors = tuple(
        with_own_statistics(
            _posterior(trained.layout, state.optimiser, state.fixed, config),
            model,
            arrays.x,
            key=jax.random.fold_in(key, number),
            batch=config.batch,
        )
        for number, state in enumerate(states)
    )
    return Fit(
        posteriors,
        trained.trace,
        config,
        learned_likelihoods(likelihood, trained),
        trained.memory,
        statistics=model.statistics,
    )


@lru_cache(maxsize=16)
def _collecting(config: SWAG, examples: int) -> optax.GradientTransformation:
    """The optimiser, its two rates, and the record of its iterates."""
    if not isinstance(config.optimiser, str):
        raise ConfigError("SWAG needs optimiser='sgd' or 'adam': the rate while iterates are collected is its own")
    each = examples // min(config.batch, examples)
    steps = config.epochs * each
    start, every = int(config.collect_from * steps), config.collect_every or each
    if (steps - start) // every < config.rank:
        raise ConfigError(
            f"SWAG collects {(steps - start) // every} iterates, fewer than rank={config.rank}; train longer, or "
            "lower rank, collect_from or collect_every"
        )
    rates = optax.join_schedules(
        [
            optax.cosine_decay_schedule(
                config.learning_rate, max(start, 1), config.collect_rate / config.learning_rate
            ),
            optax.constant_schedule(config.collect_rate),
        ],
        [start],
    )
    inner = optax.chain(
        direction(config.optimiser, config.momentum, config.clip),  # pyright: ignore[reportArgumentType]
        optax.scale_by_learning_rate(rates),
    )
    return keep_iterates(
        inner,
        size=config.rank,
        due=lambda step: (step >= start) & ((step - start) % every == every - 1),
        entry=lambda weights, mean: weights - mean,
    )


def _posterior(layout: FlatLayout, seen: Iterates, fixed: list[jax.Array], config: SWAG) -> FactorGaussian:
    mean = jnp.asarray(seen.mean)
    variance = np.maximum(np.asarray(seen.square - (seen.mean - seen.first) ** 2), 0.0)
    factors = jnp.asarray(seen.buffer) / np.sqrt(2 * (config.rank - 1), dtype=np.float32)
    still = [jnp.zeros_like(leaf) for leaf in fixed]
    stacked = [jnp.zeros((config.rank, *leaf.shape), leaf.dtype) for leaf in fixed]
    return FactorGaussian(
        layout.tree_of(mean, fixed),
        jax.vmap(layout.tree_of)(factors, stacked),
        layout.tree_of(jnp.asarray(np.sqrt(variance / 2)), still),
    )
