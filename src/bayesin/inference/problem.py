"""From settings to what is compiled: roles of the leaves, prior centre, plan, first states.

A norm gain is recognised by its initial value: one number other than zero that does not depend on the key.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import ConfigError
from ..models import Model
from ..trees import Tree, flatten
from .arrays import Arrays, check_outputs
from .checkpoint import key_numbers
from .divergence import inverse_softplus
from .layout import Layout, Role, constant_leaves, make_layout
from .program import INIT, Plan, Row, State, initial_state
from .training import Training


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
    """What the engine starts from."""

    plan: Plan
    centre: jax.Array | None
    states: list[State]  # settings × members
    rows: list[Row]
    params: Tree  # of one member, for its shapes


def prepare(key: jax.Array, problem: Problem) -> Prepared:
    """Returns plan, first states and rows; member i depends on `fold_in(key, i)` alone."""
    config = problem.config
    key_numbers(key)  # raises unless it is one
    keys = [jax.random.fold_in(key, member) for member in range(config.members)]
    starts = [initialise(problem.model, member) for member in keys]
    check_outputs(problem.model, starts[0], problem.arrays, config.likelihood)
    layout, centre = _layout(problem, starts[0], initialise(problem.model, jax.random.fold_in(key, config.members)))
    plan = _plan(problem, layout)
    rho = inverse_softplus(problem.initial_std)
    states, rows = [], []
    for settings, temperature in zip(problem.settings, problem.temperatures, strict=True):
        noise = float(np.log(settings.noise))
        numbers = [np.float32(v) for v in (settings.prior_variance, temperature, settings.learning_rate, noise)]
        states += [initial_state(plan, params, rho, noise) for params in starts]
        rows += [Row(member, *map(jnp.asarray, numbers)) for member in keys]
    return Prepared(plan, centre, states, rows, starts[0])


def initialise(model: Model, member: jax.Array) -> Tree:
    """First parameters of the member with this key."""
    return model.init(jax.random.fold_in(member, INIT))


def _layout(problem: Problem, params: Tree, other: Tree) -> tuple[Layout, jax.Array | None]:
    """Roles of the leaves, and the prior's centre (None where it is zero everywhere)."""
    same = constant_leaves(params, other)
    gains = {path: leaf for path, leaf in same.items() if np.any(leaf) and _is_uniform(leaf)}
    if problem.config.members > 1 and len(same) == len(flatten(params)) and not all(map(_is_uniform, same.values())):
        raise ConfigError(
            f"members={problem.config.members}: init gives the same weights for every key, so that the members "
            "would not be independent; give the adapter a constructor instead of a finished module"
        )

    def role(path: str, leaf: Any) -> Role:
        if path in problem.model.statistics:
            return "fixed"
        return "gaussian" if problem.gaussian and not (problem.gains_are_points and path in gains) else "point"

    layout = make_layout(params, role)
    if problem.config.prior_centre == "zero" or not any(leaf.path in gains for _, leaf in layout.trained):
        return layout, None
    zeros = {path: np.zeros(jnp.shape(leaf), np.float32) for path, leaf in flatten(params).items()}
    return layout, layout.concatenate([(zeros | gains)[leaf.path] for _, leaf in layout.trained])


def _is_uniform(leaf: np.ndarray) -> bool:
    """Whether all entries are one number; weights of a finished module differ, and are no gains."""
    return leaf.size < 2 or bool((leaf == leaf.flat[0]).all())


def _plan(problem: Problem, layout: Layout) -> Plan:
    config, examples = problem.config, len(problem.arrays.x)
    batch = min(config.batch, examples)
    each = examples // batch
    steps = config.epochs * each
    if config.warmup >= steps:
        raise ConfigError(f"warmup={config.warmup}: the run has {steps} steps; warm up over fewer, or train longer")
    return Plan(
        apply=hashable(problem.model.apply),
        layout=layout,
        likelihood=config.likelihood,
        learn_noise=config.learn_noise and config.likelihood == "gaussian",
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


def hashable(apply: Any) -> Any:
    """`apply` as something that a compiled program can be looked up by."""
    try:
        hash(apply)
    except TypeError:  # a callable that holds arrays
        return lambda params, x: apply(params, x)
    return apply
