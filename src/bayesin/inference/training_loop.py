"""The host side of training: call the compiled program, watch the loss, keep checkpoints.

The host waits once for every logging interval. Whatever happens between two checkpoints is recomputed to the
bit: every random number is a function of (key, member, step), and intervals begin at the same steps.
"""

import re
import time
import warnings
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ..errors import TrainingError
from ..inputs import shapes_of
from ..jaxprs import has_convolution, jitted
from ..likelihoods import Likelihood, with_parameters
from ..store import Checkpoints, Resumed, checksum, key_numbers
from .fit import Memory, Progress, Trace, trace_of
from .flat_parameters import FlatLayout
from .parallel import (
    Arrangement,
    arrange,
    batch_sharding,
    collect,
    compiled_advance,
    compiled_evaluation,
    place,
    place_shared,
)
from .settings import Training, identity_fields
from .training_problem import Prepared, Problem, prepare
from .training_step import MemberHyperparameters, Shared, State, TrainingPlan

ENOUGH_STEPS = 500  # of a run that is meant to arrive somewhere


class Trained(NamedTuple):
    """Final states of all members, setting by setting."""

    layout: FlatLayout
    states: State  # leading axis: settings × members
    trace: Trace
    memory: Memory


class TrainingContext(NamedTuple):
    """What does not change while a run is going on."""

    problem: Problem
    plan: TrainingPlan
    arrangement: Arrangement
    members: list[MemberHyperparameters]  # one stack for each lane
    shared: Shared
    test: tuple[jax.Array, jax.Array] | None
    checkpoints: Checkpoints | None
    on_progress: Callable[[Progress], Any]
    one_by_one: bool  # a call for each step: on a CPU, gradients of kernels are slow inside a compiled loop


def train(
    key: jax.Array,
    problem: Problem,
    *,
    checkpoint: Path | str | None = None,
    on_progress: Callable[[Progress], Any] | None = None,
) -> Trained:
    """Trains every member of every setting, from the newest checkpoint where there is one.

    Raises:
        TrainingError: a loss became NaN or exploded.
        ArtifactError: the checkpoint folder cannot be written.
    """
    prepared = prepare(key, problem)
    plan, config, arrays = prepared.plan, problem.config, problem.arrays
    devices = jax.devices()
    convolutional = has_convolution(plan.apply, prepared.params, shapes_of(arrays.x, 2))
    arrangement = arrange(config, problem.count, convolutional, devices)
    plan = replace(plan, batch_sharding=batch_sharding(arrangement))
    shared = place_shared(arrangement, prepared.shared)
    tested = config.eval_every and arrays.x_test is not None
    test = place_shared(arrangement, (arrays.x_test, arrays.y_test)) if tested else None
    checkpoints = None if checkpoint is None else _checkpoints(checkpoint, key, problem, prepared)
    context = TrainingContext(
        problem,
        plan,
        arrangement,
        place(arrangement, prepared.members),
        shared,
        test,
        checkpoints,
        on_progress or _ignore,
        one_by_one=convolutional and devices[0].platform == "cpu",
    )
    try:
        trained = _run(context, prepared.states)
    finally:
        if checkpoints is not None:
            checkpoints.close()
    _warn_of_a_poor_fit(problem, trained.trace)
    return trained


def _warn_of_a_poor_fit(problem: Problem, trace: Trace) -> None:
    """Says where training accuracy has stayed nearer to that of a guess than to all, after a run that is no trial."""
    y = problem.arrays.y
    labelled = "accuracy" in trace and y.ndim == 1 and np.issubdtype(y.dtype, np.integer)
    if not labelled or trace["step"][-1] < ENOUGH_STEPS:
        return
    reached, guess = float(np.min(trace["accuracy"][-1])), float(np.unique(y, return_counts=True)[1].max() / len(y))
    if reached < (1 + guess) / 2:
        config = problem.config
        prior = f"prior_variance (now {config.prior_variance:g})" if config.prior is None else "variance of the prior"
        warnings.warn(
            f"training accuracy is {reached:.0%} after {trace['step'][-1]:,} steps, where the commonest class alone "
            f"gives {guess:.0%}; try a larger {prior} or prior=FanIn(1.0), a higher learning_rate, more epochs",
            stacklevel=4,
        )


def learned_likelihoods(likelihood: Likelihood, trained: Trained) -> tuple[Likelihood, ...]:
    """The likelihood with what each member has learned of it; the same for all where nothing is learned."""
    learned = trained.states.variables["likelihood"]
    return tuple(
        with_parameters(likelihood, {name: float(values[member]) for name, values in learned.items()})
        for member in range(len(trained.states.variables["mean"]))
    )


def _run(context: TrainingContext, states: list[State]) -> Trained:
    plan, arrangement, config = context.plan, context.arrangement, context.problem.config
    lanes, rows, step, limit = _start(context, states)
    earlier = float(rows[-1]["seconds"]) if rows else 0.0
    began = saved = time.perf_counter()
    compiled = None
    while step < plan.steps:
        length = min(plan.length, plan.steps - step)
        compiled = _program(context, length, lanes)
        asked = time.perf_counter()
        lanes, row = _interval(context, compiled, lanes, step, length)
        step += length
        now = time.perf_counter()
        limit = config.explosion * np.maximum(np.abs(row["first_nll"]), 1.0) if limit is None else limit
        times = _times(plan, step, earlier + now - began, length / (now - asked))
        rows.append(times | row["averages"] | row["now"])
        _check_loss(context, rows, limit)
        if _due(config.eval_every, plan, step, length) and context.test is not None:
            rows[-1] |= _test(context, lanes)
        due = _due(config.checkpoint_epochs, plan, step, length)
        due |= 0 < config.checkpoint_minutes <= (now - saved) / 60
        if context.checkpoints is not None and due:
            _save(context, lanes, rows, step, limit)
            saved = time.perf_counter()
        try:
            context.on_progress(_progress(plan, step, rows))
        except KeyboardInterrupt:
            if context.checkpoints is not None:
                _save(context, lanes, rows, step, limit)
            raise
    if compiled is None:  # taken up after its last step; what it says of memory must not depend on that
        compiled = _program(context, (plan.steps - 1) % plan.length + 1, lanes)
    return Trained(plan.layout, collect(arrangement, lanes), trace_of(rows), _memory(context, lanes, compiled))


def _program(context: TrainingContext, length: int, lanes: list[State]) -> Any:
    """The compiled program of an interval of this length, or of one of its steps."""
    part = context.plan.with_length(1 if context.one_by_one else length)
    return compiled_advance(part, context.arrangement, lanes[0], context.members[0], context.shared, np.int32(0))


def _interval(
    context: TrainingContext, compiled: Any, lanes: list[State], start: int, length: int
) -> tuple[list[State], dict[str, Any]]:
    """Advances every lane by `length` steps; returns them, and a row of the trace."""
    rows = []
    for step in range(start, start + length) if context.one_by_one else (start,):
        # All lanes are asked for before any is waited for; each may donate its state to the next.
        pairs = zip(lanes, context.members, strict=True)
        results = [compiled(state, member, context.shared, np.int32(step)) for state, member in pairs]
        lanes = [state for state, _ in results]
        rows.append(collect(context.arrangement, [seen for _, seen in results]))
    return lanes, _joined(rows)


def _start(context: TrainingContext, states: list[State]) -> tuple[list[State], list[dict[str, Any]], int, Any]:
    """Lanes, rows, step and limit to begin with: those of the newest checkpoint, or the first ones."""
    stacked = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *states)
    leaves, structure = jax.tree.flatten(stacked)
    found = None if context.checkpoints is None else context.checkpoints.restore(leaves)
    if found is None:
        return place(context.arrangement, states), [], 0, None
    whole = jax.tree.unflatten(structure, found.leaves)
    states = [jax.tree.map(lambda leaf, at=i: jnp.asarray(leaf[at]), whole) for i in range(len(states))]
    context.on_progress(_progress(context.plan, found.step, found.rows)._replace(resumed=True))
    return place(context.arrangement, states), found.rows, found.step, found.limit


def _save(context: TrainingContext, lanes: list[State], rows: list[dict[str, Any]], step: int, limit: Any) -> None:
    if context.checkpoints is not None and step not in context.checkpoints.steps:
        leaves = jax.tree.leaves(collect(context.arrangement, lanes))
        context.checkpoints.save(Resumed(step, leaves, rows, limit))


def _test(context: TrainingContext, lanes: list[State]) -> dict[str, np.ndarray]:
    """What the mean networks score on the test set."""
    test = context.test or ()
    look = compiled_evaluation(context.plan, context.arrangement, lanes[0], context.members[0], *test)
    return collect(context.arrangement, [look(s, m, *test) for s, m in zip(lanes, context.members, strict=True)])


def _check_loss(context: TrainingContext, rows: list[dict[str, Any]], limit: Any) -> None:
    """Raises where a loss is not a number or beyond the limit, saying what to do about it."""
    row = rows[-1]
    bad = ~np.isfinite(row["loss"]) | ~np.isfinite(row["nll"]) | (row["nll"] > limit)
    if not bad.any():
        return
    which, total, step = int(np.argmax(bad)), len(bad), row["step"]
    config = context.problem.settings[which // context.problem.config.members]
    nll, last = float(row["nll"][which]), context.checkpoints.latest if context.checkpoints else None
    raise TrainingError(
        f"training diverged at or before step {step} (epoch {row['epoch']:.2f}): the loss of network {which + 1} of "
        f"{total} is {'not a number' if not np.isfinite(nll) else f'{nll:.3g}'}; {_advice(config)}; "
        + (f"last good checkpoint: {last}" if last else "no checkpoint was written"),
        step=step,
        trace=trace_of(rows),
        checkpoint=last,
    )


def _advice(config: Training) -> str:
    if isinstance(config.optimiser, optax.GradientTransformation):
        return "give the optimiser a lower rate, a warm-up, or optax.clip_by_global_norm(1.0)"
    ways = [f"lower learning_rate (now {config.learning_rate:g})"]
    ways += [] if config.warmup else ["set warmup (500 steps, say)"]
    ways += [] if config.clip else ["clip the gradient (clip=1)"]
    return ways[0] if len(ways) == 1 else f"{', '.join(ways[:-1])} or {ways[-1]}"


def _checkpoints(folder: Path | str, key: jax.Array, problem: Problem, prepared: Prepared) -> Checkpoints:
    identity = {
        "settings": [_identity(settings, prepared) for settings in problem.settings],
        "kind": type(problem.config).__name__,
        "key": key_numbers(key),
        "data": checksum(*jax.tree.leaves(problem.arrays.x), problem.arrays.y),
        "parameters": [[leaf.path, list(leaf.shape), leaf.role] for leaf in prepared.plan.layout.leaves],
    }
    need = sum(leaf.nbytes for leaf in jax.tree.leaves(prepared.states))
    return Checkpoints(folder, identity, need)


def _identity(settings: Training, prepared: Prepared) -> dict[str, Any]:
    """The settings a checkpoint is known by; a prior and an optimiser of the user's by what they compute."""
    own_optimiser = isinstance(settings.optimiser, optax.GradientTransformation)
    named = replace(settings, prior=None, optimiser="adam" if own_optimiser else settings.optimiser)
    fields = identity_fields(named)
    if settings.prior is not None:
        fields["prior"] = checksum(prepared.shared.centre, prepared.shared.variance)
    if own_optimiser:
        state = prepared.states[0]
        update = jitted(prepared.plan.transformation.update)
        with jax.numpy_dtype_promotion("standard"):  # optax mixes counters and fractions
            program = update.trace(state.variables, state.optimiser, state.variables).jaxpr
        text = re.sub("0x[0-9a-f]+", "", str(program))  # addresses differ from process to process
        fields["optimiser"] = [zlib.crc32(text.encode()), checksum(*program.consts)]
    return fields


def _joined(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The row of an interval from rows of its steps: averages over the batches, the rest as it is at the end."""
    if len(rows) == 1:
        return rows[0]
    last = rows[-1]
    averages = {
        name: np.mean([row["averages"][name] for row in rows], axis=0, dtype=np.float32) for name in last["averages"]
    }
    loss = last["now"]["loss"] - last["averages"]["nll"] + averages["nll"]
    return {"averages": averages, "first_nll": rows[0]["first_nll"], "now": last["now"] | {"loss": loss}}


def _memory(context: TrainingContext, lanes: list[State], compiled: Any) -> Memory:
    member = sum(leaf.nbytes for leaf in jax.tree.leaves(lanes[0])) // context.arrangement.width
    try:
        work = int(compiled.memory_analysis().temp_size_in_bytes)
    except (AttributeError, NotImplementedError):  # a backend that does not say
        work = 0
    return Memory(member, work, sum(leaf.nbytes for leaf in jax.tree.leaves((context.shared, context.test))))


def _times(plan: TrainingPlan, step: int, seconds: float, rate: float) -> dict[str, Any]:
    return {"step": step, "epoch": step / plan.steps_per_epoch, "seconds": seconds, "steps_per_second": rate}


def _due(epochs: int, plan: TrainingPlan, step: int, length: int) -> bool:
    """Whether a multiple of so many epochs lies in the last `length` steps."""
    each = epochs * plan.steps_per_epoch
    return bool(each) and step // each > (step - length) // each


def _progress(plan: TrainingPlan, step: int, rows: list[dict[str, Any]]) -> Progress:
    return Progress(step, plan.steps, step / plan.steps_per_epoch, rows[-1], rows[-1]["seconds"], tuple(rows))


def _ignore(progress: Progress) -> None:
    pass
