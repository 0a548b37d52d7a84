"""From settings and data to what is compiled: checked arrays, roles of the leaves, prior, plan, first states.

A norm gain is recognised by its initial value: one number other than zero that does not depend on the key.
"""

import dataclasses
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike

from ..errors import ConfigError, DataError, ModelError
from ..inputs import Inputs, as_inputs, count_of, describe
from ..jaxprs import hashable
from ..likelihoods import Likelihood, Normal, check_outputs, parameters_of, target_array
from ..models import Model, has_training_mode
from ..trees import Tree, flatten, map_with_path
from .elbo import inverse_softplus
from .flat_parameters import FlatLayout, Role, constant_leaves, make_layout
from .priors import checked_moments
from .settings import Training, likelihood_of
from .training_step import INIT, MemberHyperparameters, Shared, State, TrainingPlan, initial_state


@runtime_checkable
class TrainAndTest(Protocol):
    """A data set with a training part, and a test part `x_test`, `y_test` where there is one; see `data.Dataset`."""

    @property
    def x_train(self) -> Inputs: ...
    @property
    def y_train(self) -> ArrayLike: ...


TrainingData = TrainAndTest | tuple[Inputs, ArrayLike]  # inputs: an array, or a dict of them


class Arrays(NamedTuple):
    """Inputs in float32, or in int32 where they are whole numbers; targets in int32 (labels) or float32."""

    x: Inputs
    y: np.ndarray
    x_test: Inputs | None
    y_test: np.ndarray | None


class Problem(NamedTuple):
    """What to train: settings, one for each point of a grid, that share one program."""

    model: Model
    arrays: Arrays
    settings: tuple[Training, ...]
    temperatures: tuple[float, ...]
    temperature_on_prior: bool = True
    train_samples: int = 1
    initial_std: float = 0.01
    gaussian: bool = True  # a std for every weight, or points
    gains_are_points: bool = False

    @property
    def config(self) -> Training:
        """The settings that all points of the grid share."""
        return self.settings[0]

    @property
    def count(self) -> int:
        """How many networks: settings × members."""
        return len(self.settings) * self.config.members


class Prepared(NamedTuple):
    """What the training loop starts from."""

    plan: TrainingPlan
    shared: Shared  # on the host
    states: list[State]  # settings × members
    members: list[MemberHyperparameters]
    params: Tree  # of one member, for its shapes


def training_arrays(data: TrainingData, likelihood: Likelihood) -> Arrays:
    """Takes a data set with x_train, y_train, x_test and y_test, or a pair (x, y), and checks it."""
    if isinstance(data, TrainAndTest):
        train, test = (data.x_train, data.y_train), (getattr(data, "x_test", None), getattr(data, "y_test", None))
    elif isinstance(data, tuple | list) and len(data) == 2:
        train, test = data, (None, None)
    else:
        raise DataError(f"data must be a Dataset or a pair (x, y), not {type(data).__name__}")
    x, y = _checked_pair(*train, likelihood, "training")
    return Arrays(x, y, *((None, None) if test[0] is None else _checked_pair(*test, likelihood, "test")))


def check_model(model: Model, params: Tree, arrays: Arrays, likelihood: Likelihood) -> None:
    """Raises unless the network's outputs fit the targets of training and test set."""
    check_outputs(likelihood, model.apply, params, (arrays.x, arrays.y), model.name)
    if arrays.x_test is not None:
        check_outputs(likelihood, model.apply, params, (arrays.x_test, arrays.y_test), model.name)


def check_network(key: jax.Array, model: Model, data: TrainingData, likelihood: Likelihood) -> None:
    """Raises where a fit would, of a network and data that do not go together; nothing is trained."""
    _check_statistics(model)
    check_model(model, initialise(model, jax.random.fold_in(key, 0)), training_arrays(data, likelihood), likelihood)


def prepare(key: jax.Array, problem: Problem) -> Prepared:
    """Returns plan, first states and hyperparameters; member i depends on `fold_in(key, i)` alone."""
    config, likelihood = problem.config, likelihood_of(problem.config)
    _check_statistics(problem.model)
    keys = [jax.random.fold_in(key, member) for member in range(config.members)]
    starts = [initialise(problem.model, member) for member in keys]
    check_model(problem.model, starts[0], problem.arrays, likelihood)
    spare = initialise(problem.model, jax.random.fold_in(key, config.members))
    layout, gains = _layout(problem, starts[0], spare)
    prior = _prior_vectors(config, layout, natural_centre(starts[0], gains))
    plan = _plan(problem, layout, likelihood)
    rho = inverse_softplus(problem.initial_std)
    states, members = [], []
    for settings, temperature in zip(problem.settings, problem.temperatures, strict=True):
        variance, rate = jnp.float32(settings.prior_variance), jnp.float32(settings.learning_rate)
        own = {name: jnp.float32(value) for name, value in parameters_of(likelihood_of(settings)).items()}
        states += [initial_state(plan, params, rho, own) for params in starts]
        members += [MemberHyperparameters(member, variance, jnp.float32(temperature), rate, own) for member in keys]
    return Prepared(plan, Shared(problem.arrays.x, problem.arrays.y, *prior), states, members, starts[0])


def prior_variances(key: jax.Array, problem: Problem, layout: FlatLayout) -> jax.Array | float:
    """Variance of the prior of every trained weight, as a vector or one number for all."""
    starts = [initialise(problem.model, jax.random.fold_in(key, member)) for member in range(2)]
    _, variance = _prior_vectors(problem.config, layout, natural_centre(starts[0], find_gains(*starts)))
    return problem.config.prior_variance if variance is None else variance


def _check_statistics(model: Model) -> None:
    """Raises where training would leave statistics as they start: a network that no fit has seen the data through."""
    if model.statistics and model.apply_train is None:
        raise ModelError(
            f"{model.name} has running statistics ('{min(model.statistics)}') and no training mode that collects "
            "them; give the adapter the options that select training (train_options=dict(train=True), say), a Model "
            "its apply_train, or hold them as they are with models.frozen(model)"
        )


def initialise(model: Model, member: jax.Array) -> Tree:
    """First parameters of the member with this key: of member i of a fit with `key`, `fold_in(key, i)`."""
    return model.init(jax.random.fold_in(member, INIT))


def natural_centre(params: Tree, gains: dict[str, np.ndarray]) -> Tree:
    """A tree of what every initialisation gives norm gains, and zeros elsewhere: where a prior may sit."""
    return map_with_path(
        lambda path, leaf: gains[path] if path in gains else np.zeros(jnp.shape(leaf), jnp.asarray(leaf).dtype),
        params,
    )


def find_gains(params: Tree, other: Tree) -> dict[str, np.ndarray]:
    """Leaves that start at one number other than zero whatever the key; from two initialisations."""
    same = constant_leaves(params, other)
    return {path: leaf for path, leaf in same.items() if np.any(leaf) and _is_uniform(leaf)}


def _layout(problem: Problem, params: Tree, other: Tree) -> tuple[FlatLayout, dict[str, np.ndarray]]:
    """Roles of the leaves, and the gains among them."""
    same, gains = constant_leaves(params, other), find_gains(params, other)
    if problem.config.members > 1 and len(same) == len(flatten(params)) and not all(map(_is_uniform, same.values())):
        raise ConfigError(
            f"members={problem.config.members}: init gives the same weights for every key, so that the members "
            "would not be independent; give the adapter a constructor instead of a finished module"
        )

    def role(path: str, leaf: Any) -> Role:
        if path in problem.model.statistics:
            return "fixed"
        return "gaussian" if problem.gaussian and not (problem.gains_are_points and path in gains) else "point"

    return make_layout(params, role), gains


def _prior_vectors(config: Training, layout: FlatLayout, start: Tree) -> tuple[jax.Array | None, jax.Array | None]:
    """Centre and variance as vectors; None where the centre is zero, or the variance each member's own number."""
    if config.prior is None:
        centres = flatten(start) if config.prior_centre == "initial" else {}
        if not any(np.any(centres.get(leaf.path, 0)) for _, leaf in layout.trained):
            return None, None
        return layout.concatenate([centres[leaf.path] for _, leaf in layout.trained]), None
    moments = checked_moments(config.prior, start)
    centre, variance = (layout.concatenate([part[leaf.path] for _, leaf in layout.trained]) for part in moments)
    return centre, variance


def _is_uniform(leaf: np.ndarray) -> bool:
    """Whether all entries are one number; weights of a finished module differ, and are no gains."""
    return leaf.size < 2 or bool((leaf == leaf.flat[0]).all())


def _plan(problem: Problem, layout: FlatLayout, likelihood: Likelihood) -> TrainingPlan:
    config, examples = problem.config, count_of(problem.arrays.x)
    batch = min(config.batch, examples)
    each = examples // batch
    steps = config.epochs * each
    if config.warmup >= steps:
        raise ConfigError(f"warmup={config.warmup}: the run has {steps} steps; warm up over fewer, or train longer")
    if isinstance(likelihood, Normal):  # the noise is a member's own number, so that a grid of it shares one program
        likelihood = dataclasses.replace(likelihood, std=1.0)
    return TrainingPlan(
        apply=hashable(problem.model.apply),
        apply_train=problem.model.apply_train if has_training_mode(problem.model) else None,
        layout=layout,
        likelihood=likelihood,
        temperature_on_prior=problem.temperature_on_prior,
        examples=examples,
        batch=batch,
        steps=steps,
        length=min(config.log_every or each, steps),
        train_samples=problem.train_samples,
        optimiser=config.optimiser,
        momentum=config.momentum,
        clip=config.clip,
        schedule=config.schedule,
        warmup=config.warmup,
        compute=config.compute,
    )


def _checked_pair(x: Any, y: Any, likelihood: Likelihood, part: str) -> tuple[Inputs, np.ndarray]:
    x, y = as_inputs(x, part), target_array(likelihood, y)
    if not y.ndim or count_of(x) != len(y) or not len(y):
        raise DataError(f"{part} data: inputs {_whole(x)}, targets {y.shape}; it needs one target for each input")
    if np.issubdtype(y.dtype, np.floating) and not np.isfinite(y).all():
        raise DataError(f"a {part} target is NaN or infinite")
    return x, y


def _whole(x: Inputs) -> str:
    return str(x.shape) if isinstance(x, np.ndarray) else f"{count_of(x)} of {describe(x)}"
