"""Deep ensembles: k networks trained on their own, each a maximum of the posterior.

    loss per example = mean NLL(w) + Σ (w − c)² / (2 N v)

The prior acts as weight decay. The training loop is that of variational inference with every leaf a point.

Reference: Lakshminarayanan et al. 2017.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp

from ..models import Model
from ..posteriors import Samples
from .fit import Fit, Progress
from .settings import Training, check_arguments, likelihood_of
from .training_loop import learned_likelihoods, train
from .training_problem import Problem, TrainingData, training_arrays


@dataclass(frozen=True)
class Ensemble(Training):
    """Settings of a deep ensemble.

    Example:
        >>> Ensemble(members=3, epochs=20).batch
        500
    """

    members: int = 5
    """How many networks."""


def fit_ensemble(
    key: jax.Array,
    model: Model,
    data: TrainingData,
    config: Ensemble,
    *,
    checkpoint: Path | str | None = None,
    on_progress: Callable[[Progress], object] | None = None,
) -> Fit[Samples, Ensemble]:
    """Returns k maximum-a-posteriori networks as one sample set; `fit.posterior` holds them.

    Args:
        key: a `jax.random.key`; member i uses `fold_in(key, i)` and nothing else.
        model: init and apply, in training mode where it has one: `model.statistics` are collected on the way, for
            each member its own. Other integer leaves are held fixed.
        data: a `Dataset`, or a pair (x, y).
        config: the settings.
        checkpoint: a folder; a run found there is taken up where it was.
        on_progress: called with a `Progress` after every logging interval.

    Raises:
        ConfigError, DataError, ModelError: the input cannot be used.
        ArtifactError: the checkpoint folder cannot be written, or has too little space.
        TrainingError: the loss became NaN or exploded; the error keeps the trace.

    Example:
        >>> import numpy as np
        >>> model = Model(lambda key: {"w": jax.random.normal(key, (2, 3))}, lambda params, x: x @ params["w"])
        >>> x = np.eye(2, dtype=np.float32).repeat(8, 0)
        >>> fit = fit_ensemble(jax.random.key(0), model, (x, np.arange(2).repeat(8)), Ensemble(members=3, epochs=5))
        >>> len(fit.posterior)
        3
    """
    check_arguments("fit_ensemble", key, model, config, Ensemble)
    likelihood = likelihood_of(config)
    problem = Problem(model, training_arrays(data, likelihood), (config,), (1.0,), gaussian=False)
    trained = train(key, problem, checkpoint=checkpoint, on_progress=on_progress)
    variables, fixed = trained.states.variables, [jnp.asarray(leaf) for leaf in trained.states.fixed]
    params = jax.vmap(trained.layout.tree_of)(jnp.asarray(variables["mean"]), fixed)
    return Fit(
        (Samples(params),),
        trained.trace,
        config,
        learned_likelihoods(likelihood, trained),
        trained.memory,
        statistics=model.statistics,
    )
