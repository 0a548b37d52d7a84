"""The host side of training: place the data, call the compiled program, watch the loss, keep checkpoints.

Members are trained in *lanes*. With `parallel="sequence"` a lane is one member and all lanes go through
one compiled program in turn, so that a member's result cannot depend, to the bit, on how many others
there are; with "vmap" all members are one lane. The host waits once for every logging interval.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import DataError, ModelError, TrainingError
from ..models import Model
from ..trees import Tree, flatten
from .divergence import inverse_softplus
from .layout import Layout, Role, constant_leaves, make_layout
from .likelihoods import score_name
from .program import INIT, Plan, Row, Shared, State, advance, has_convolution, initial_state, labels_dtype
from .training import Training


class Progress(NamedTuple):
    """What `on_progress` is told after every logging interval."""

    step: int
    steps: int
    epoch: float
    row: dict[str, Any]  # the newest row of the trace
    seconds: float  # since this process began to train


class Arrays(NamedTuple):
    """Training and test data as the program wants them."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray | None
    y_test: np.ndarray | None


class Problem(NamedTuple):
    """Settings, one for each point of a grid, that share one program."""

    model: Model
    arrays: Arrays
    settings: tuple[Training, ...]
    temperatures: tuple[float, ...]
    temperature_on_prior: bool
    train_samples: int
    initial_std: float
    gaussian: bool  # a std for every weight, or points
    gains_are_points: bool


class Trained(NamedTuple):
    """States of all members, setting by setting, as numpy arrays."""

    layout: Layout
    states: list[State]  # settings × members
    rows: list[dict[str, Any]]


def train(key: jax.Array, problem: Problem, *, on_progress: Callable[[Progress], Any] | None = None) -> Trained:
    """Trains every member of every setting and returns their final states."""
    config, arrays = problem.settings[0], problem.arrays
    starts = [_initialise(problem.model, jax.random.fold_in(key, i)) for i in range(config.members)]
    layout, centre = _layout(problem, key, starts[0])
    plan = _plan(problem, layout)
    shared = Shared(jnp.asarray(arrays.x), jnp.asarray(arrays.y), centre)
    _check_outputs(plan, starts[0], arrays)
    rho, members = inverse_softplus(problem.initial_std), range(config.members)
    log_noise = float(np.log(config.noise))
    states = [initial_state(plan, starts[i], rho, log_noise) for _ in problem.settings for i in members]
    rows = [
        Row(
            jax.random.fold_in(key, i),
            *(jnp.asarray(v, jnp.float32) for v in (s.prior_variance, t, s.learning_rate, np.log(s.noise))),
        )
        for s, t in zip(problem.settings, problem.temperatures, strict=True)
        for i in members
    ]
    side_by_side = _side_by_side(config, problem.model, starts[0], arrays.x[: plan.batch])
    lanes = _stack(states) if side_by_side else states
    lane_rows = _stack(rows) if side_by_side else rows
    run = jax.jit(_lane, static_argnums=(0, 1), donate_argnums=(2,))
    trace: list[dict[str, Any]] = []
    step, began, each = 0, time.perf_counter(), plan.steps_per_epoch
    limit = None
    while step < plan.steps:
        length = min(plan.length, plan.steps - step)
        asked = time.perf_counter()
        results = [
            run(plan.with_length(length), side_by_side, s, r, shared, np.int32(step))
            for s, r in zip(lanes, lane_rows, strict=True)
        ]
        lanes = [state for state, _ in results]
        found = jax.device_get([seen for _, seen in results])
        found = found[0] if side_by_side else {name: np.stack([f[name] for f in found]) for name in found[0]}
        step += length
        now = time.perf_counter()
        first = found.pop("first_nll")
        limit = config.explosion * np.maximum(np.abs(first), 1.0) if limit is None else limit
        row = {"step": step, "epoch": step / each, "seconds": now - began, "steps_per_second": length / (now - asked)}
        found[score_name(config.likelihood)] = found.pop("score")
        row |= found
        trace.append(row)
        _check_finite(row, limit, trace)
        if on_progress is not None:
            on_progress(Progress(step, plan.steps, step / each, row, now - began))
    final = jax.device_get(lanes)
    final = _unstack(final[0], len(states)) if side_by_side else final
    return Trained(layout, final, trace)


def _lane(plan: Plan, side_by_side: bool, state: State, row: Row, shared: Shared, start: jax.Array) -> Any:
    if not side_by_side:
        return advance(plan, state, row, shared, start)
    return jax.vmap(lambda s, r: advance(plan, s, r, shared, start))(state, row)


def _check_finite(row: dict[str, Any], limit: Any, trace: list[dict[str, Any]]) -> None:
    bad = ~np.isfinite(row["loss"]) | ~np.isfinite(row["nll"]) | (row["nll"] > limit)
    if bad.any():
        raise TrainingError(
            f"the loss of member {int(np.argmax(bad))} is {row['loss'][np.argmax(bad)]:.3g} at step {row['step']}"
        )


def _initialise(model: Model, member: jax.Array) -> Tree:
    return model.init(jax.random.fold_in(member, INIT))


def _layout(problem: Problem, key: jax.Array, params: Tree) -> tuple[Layout, jax.Array | None]:
    """Roles of the leaves, and the prior's centre (None where it is zero everywhere)."""
    other = _initialise(problem.model, jax.random.fold_in(key, problem.settings[0].members))
    constant = {path: leaf for path, leaf in constant_leaves(params, other).items() if np.any(leaf)}

    def role(path: str, leaf: Any) -> Role:
        if path in problem.model.statistics:
            return "fixed"
        return "gaussian" if problem.gaussian and not (problem.gains_are_points and path in constant) else "point"

    layout = make_layout(params, role)
    moved = {leaf.path for _, leaf in layout.trained} & set(constant)
    if problem.settings[0].prior_centre == "zero" or not moved:
        return layout, None
    zero = {path: np.zeros_like(leaf) for path, leaf in flatten(params).items()}
    centre = [constant.get(leaf.path, zero[leaf.path]) for _, leaf in layout.trained]
    return layout, layout.concatenate(centre)


def _plan(problem: Problem, layout: Layout) -> Plan:
    config, examples = problem.settings[0], len(problem.arrays.x)
    batch = min(config.batch, examples)
    each = examples // batch
    return Plan(
        apply=problem.model.apply,
        layout=layout,
        likelihood=config.likelihood,
        learn_noise=config.learn_noise and config.likelihood == "gaussian",
        temperature_on_prior=problem.temperature_on_prior,
        examples=examples,
        batch=batch,
        steps=config.epochs * each,
        length=min(config.log_every or each, config.epochs * each),
        train_samples=problem.train_samples,
        optimiser=config.optimiser,
        momentum=config.momentum,
        clip=config.clip,
        schedule=config.schedule,
        warmup=config.warmup,
        compute=config.compute,
    )


def _side_by_side(config: Training, model: Model, params: Tree, x: np.ndarray) -> bool:
    if config.parallel != "auto":
        return config.parallel == "vmap"
    return jax.default_backend() != "cpu" and not has_convolution(model.apply, params, x)


def training_arrays(data: Any, likelihood: str) -> Arrays:
    """Takes a data set with x_train, y_train, x_test, y_test, or a pair (x, y), and checks it."""
    if isinstance(data, tuple) and len(data) == 2 and not hasattr(data, "x_train"):
        found = (*data, None, None)
    elif hasattr(data, "x_train"):
        found = (data.x_train, data.y_train, getattr(data, "x_test", None), getattr(data, "y_test", None))
    else:
        raise DataError(f"data must be a Dataset or a pair (x, y), not {type(data).__name__}")
    x, y = np.asarray(found[0], np.float32), np.asarray(found[1])
    if len(x) != len(y) or not len(x):
        raise DataError(f"data has {len(x)} inputs and {len(y)} targets; it needs one target for each input")
    if not np.isfinite(x).all():
        raise DataError(f"input {int(np.argwhere(~np.isfinite(x))[0, 0])} holds NaN or infinity")
    if likelihood == "categorical" and not np.issubdtype(y.dtype, np.integer):
        raise DataError(f"targets are {y.dtype}; labels are integers, real targets need likelihood='gaussian'")
    dtype = labels_dtype(likelihood)  # pyright: ignore[reportArgumentType]
    test = (None, None) if found[2] is None else (np.asarray(found[2], np.float32), np.asarray(found[3], dtype))
    return Arrays(x, y.astype(dtype), *test)


def _check_outputs(plan: Plan, params: Tree, arrays: Arrays) -> None:
    try:
        shape = jax.eval_shape(plan.apply, params, arrays.x[: plan.batch]).shape
    except Exception as error:
        raise ModelError(f"the model cannot be applied to inputs of shape {arrays.x.shape[1:]}: {error}") from error
    y = arrays.y
    if len(shape) < 2 or shape[0] != plan.batch:
        raise ModelError(f"the model returns shape {shape} for a batch of {plan.batch}; it needs the batch first")
    if plan.likelihood == "categorical" and not 0 <= y.min() <= y.max() < shape[-1]:
        raise DataError(f"labels run from {y.min()} to {y.max()}, but the model has {shape[-1]} outputs")
    if plan.likelihood == "gaussian" and int(np.prod(shape[1:])) != int(np.prod(y.shape[1:])):
        raise DataError(f"targets have shape {y.shape[1:]}, the model's outputs {shape[1:]}")


def _stack(trees: Sequence[Any]) -> list[Any]:
    return [jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)]


def _unstack(tree: Any, count: int) -> list[Any]:
    return [jax.tree.map(lambda leaf, at=i: leaf[at], tree) for i in range(count)]
