"""The host side of training: call the compiled program, watch the loss, keep checkpoints.

The host waits once for every logging interval. Whatever happens between two checkpoints is recomputed to the
bit: every random number is a function of (key, member, step), and intervals begin at the same steps.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..convolutions import has_convolution
from ..errors import TrainingError
from .arrays import Arrays as Arrays
from .arrays import training_arrays as training_arrays
from .checkpoint import Checkpoints, Resumed, checksum, key_numbers
from .fit import Trace, joined, trace_of
from .lanes import Arrangement, arrange, batch_sharding, collect, evaluation, place, place_shared, program
from .layout import Layout
from .likelihoods import score_name
from .problem import Prepared, Problem, prepare
from .program import Plan, Row, Shared, State
from .training import Training, meaningful


class Progress(NamedTuple):
    """What `on_progress` is told after every logging interval, and once when a run is taken up again."""

    step: int
    steps: int
    epoch: float
    row: dict[str, Any]  # the newest row of the trace
    seconds: float  # of training, earlier processes included
    rows: tuple[dict[str, Any], ...] = ()  # all rows so far
    resumed: bool = False


class Memory(NamedTuple):
    """Bytes on the device: what each member keeps, what a step of one lane needs besides, and the data."""

    member: int
    work: int
    data: int


class Trained(NamedTuple):
    """Final states of all members, setting by setting."""

    layout: Layout
    states: State  # leading axis: settings × members
    trace: Trace
    memory: Memory


class Running(NamedTuple):
    """What does not change while a run is going on."""

    problem: Problem
    plan: Plan
    arrangement: Arrangement
    rows: list[Row]  # lanes
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
    convolutional = has_convolution(plan.apply, prepared.params, arrays.x[:2])
    arrangement = arrange(config, problem.count, convolutional, devices)
    plan = plan.with_sharding(batch_sharding(arrangement))
    shared = place_shared(arrangement, Shared(arrays.x, arrays.y, prepared.centre))
    tested = config.eval_every and arrays.x_test is not None
    test = place_shared(arrangement, (arrays.x_test, arrays.y_test)) if tested else None
    checkpoints = None if checkpoint is None else _checkpoints(checkpoint, key, problem, prepared)
    running = Running(
        problem,
        plan,
        arrangement,
        place(arrangement, prepared.rows),
        shared,
        test,
        checkpoints,
        on_progress or _ignore,
        one_by_one=convolutional and devices[0].platform == "cpu",
    )
    try:
        return _run(running, prepared.states)
    finally:
        if checkpoints is not None:
            checkpoints.close()


def _run(running: Running, states: list[State]) -> Trained:
    plan, arrangement, config = running.plan, running.arrangement, running.problem.config
    lanes, rows, step, limit = _start(running, states)
    earlier = float(rows[-1]["seconds"]) if rows else 0.0
    began = saved = time.perf_counter()
    compiled = None
    while step < plan.steps:
        length = min(plan.length, plan.steps - step)
        compiled = _program(running, length, lanes)
        asked = time.perf_counter()
        lanes, row = _interval(running, compiled, lanes, step, length)
        step += length
        now = time.perf_counter()
        first = row.pop("first_nll")
        limit = config.explosion * np.maximum(np.abs(first), 1.0) if limit is None else limit
        row[score_name(config.likelihood)] = row.pop("score")
        rows.append(_times(plan, step, earlier + now - began, length / (now - asked)) | row)
        _check_loss(running, rows, limit)
        if _due(config.eval_every, plan, step, length) and running.test is not None:
            rows[-1] |= _test(running, lanes)
        due = _due(config.checkpoint_epochs, plan, step, length)
        due |= 0 < config.checkpoint_minutes <= (now - saved) / 60
        if running.checkpoints is not None and due:
            _save(running, lanes, rows, step, limit)
            saved = time.perf_counter()
        try:
            running.on_progress(_progress(plan, step, rows))
        except KeyboardInterrupt:
            if running.checkpoints is not None:
                _save(running, lanes, rows, step, limit)
            raise
    if compiled is None:  # taken up after its last step; what it says of memory must not depend on that
        compiled = _program(running, (plan.steps - 1) % plan.length + 1, lanes)
    return Trained(plan.layout, collect(arrangement, lanes), trace_of(rows), _memory(running, lanes, compiled))


def _program(running: Running, length: int, lanes: list[State]) -> Any:
    """The compiled program of an interval of this length, or of one of its steps."""
    part = running.plan.with_length(1 if running.one_by_one else length)
    return program(part, running.arrangement, lanes[0], running.rows[0], running.shared, np.int32(0))


def _interval(
    running: Running, compiled: Any, lanes: list[State], start: int, length: int
) -> tuple[list[State], dict[str, Any]]:
    """Advances every lane by `length` steps; returns them, and a row of the trace."""
    rows = []
    for step in range(start, start + length) if running.one_by_one else (start,):
        # All lanes are asked for before any is waited for; each may donate its state to the next.
        results = [compiled(s, r, running.shared, np.int32(step)) for s, r in zip(lanes, running.rows, strict=True)]
        lanes = [state for state, _ in results]
        rows.append(collect(running.arrangement, [seen for _, seen in results]))
    return lanes, joined(rows)


def _start(running: Running, states: list[State]) -> tuple[list[State], list[dict[str, Any]], int, Any]:
    """Lanes, rows, step and limit to begin with: those of the newest checkpoint, or the first ones."""
    stacked = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *states)
    leaves, structure = jax.tree.flatten(stacked)
    found = None if running.checkpoints is None else running.checkpoints.restore(leaves)
    if found is None:
        return place(running.arrangement, states), [], 0, None
    whole = jax.tree.unflatten(structure, found.leaves)
    states = [jax.tree.map(lambda leaf, at=i: jnp.asarray(leaf[at]), whole) for i in range(len(states))]
    running.on_progress(_progress(running.plan, found.step, found.rows)._replace(resumed=True))
    return place(running.arrangement, states), found.rows, found.step, found.limit


def _save(running: Running, lanes: list[State], rows: list[dict[str, Any]], step: int, limit: Any) -> None:
    if running.checkpoints is not None and step not in running.checkpoints.steps:
        leaves = jax.tree.leaves(collect(running.arrangement, lanes))
        running.checkpoints.save(Resumed(step, leaves, rows, limit))


def _test(running: Running, lanes: list[State]) -> dict[str, np.ndarray]:
    look = evaluation(running.plan, running.arrangement, lanes[0], running.rows[0], *running.test)  # pyright: ignore
    results = [look(s, r, *running.test) for s, r in zip(lanes, running.rows, strict=True)]  # pyright: ignore
    found = collect(running.arrangement, results)
    found[f"test_{score_name(running.plan.likelihood)}"] = found.pop("test_score")
    return found


def _check_loss(running: Running, rows: list[dict[str, Any]], limit: Any) -> None:
    """Raises where a loss is not a number or beyond the limit, saying what to do about it."""
    row = rows[-1]
    bad = ~np.isfinite(row["loss"]) | ~np.isfinite(row["nll"]) | (row["nll"] > limit)
    if not bad.any():
        return
    which, total, step = int(np.argmax(bad)), len(bad), row["step"]
    config = running.problem.settings[which // running.problem.config.members]
    nll, last = float(row["nll"][which]), running.checkpoints.latest if running.checkpoints else None
    raise TrainingError(
        f"training diverged at or before step {step} (epoch {row['epoch']:.2f}): the loss of network {which + 1} of "
        f"{total} is {'not a number' if not np.isfinite(nll) else f'{nll:.3g}'}; {_advice(config)}; "
        + (f"last good checkpoint: {last}" if last else "no checkpoint was written"),
        step=step,
        trace=trace_of(rows),
        checkpoint=last,
    )


def _advice(config: Training) -> str:
    ways = [f"lower learning_rate (now {config.learning_rate:g})"]
    ways += [] if config.warmup else ["set warmup (500 steps, say)"]
    ways += [] if config.clip else ["clip the gradient (clip=1)"]
    return ways[0] if len(ways) == 1 else f"{', '.join(ways[:-1])} or {ways[-1]}"


def _checkpoints(folder: Path | str, key: jax.Array, problem: Problem, prepared: Prepared) -> Checkpoints:
    identity = {
        "settings": [meaningful(settings) for settings in problem.settings],
        "kind": type(problem.config).__name__,
        "key": key_numbers(key),
        "data": checksum(problem.arrays.x, problem.arrays.y),
        "parameters": [[leaf.path, list(leaf.shape), leaf.role] for leaf in prepared.plan.layout.leaves],
    }
    need = sum(leaf.nbytes for leaf in jax.tree.leaves(prepared.states))
    return Checkpoints(folder, identity, need)


def _memory(running: Running, lanes: list[State], compiled: Any) -> Memory:
    member = sum(leaf.nbytes for leaf in jax.tree.leaves(lanes[0])) // running.arrangement.width
    try:
        work = int(compiled.memory_analysis().temp_size_in_bytes)
    except (AttributeError, NotImplementedError):  # a backend that does not say
        work = 0
    return Memory(member, work, sum(leaf.nbytes for leaf in jax.tree.leaves((running.shared, running.test))))


def _times(plan: Plan, step: int, seconds: float, rate: float) -> dict[str, Any]:
    return {"step": step, "epoch": step / plan.steps_per_epoch, "seconds": seconds, "steps_per_second": rate}


def _due(epochs: int, plan: Plan, step: int, length: int) -> bool:
    """Whether a multiple of so many epochs lies in the last `length` steps."""
    each = epochs * plan.steps_per_epoch
    return bool(each) and step // each > (step - length) // each


def _progress(plan: Plan, step: int, rows: list[dict[str, Any]]) -> Progress:
    return Progress(step, plan.steps, step / plan.steps_per_epoch, rows[-1], rows[-1]["seconds"], tuple(rows))


def _ignore(progress: Progress) -> None:
    pass
