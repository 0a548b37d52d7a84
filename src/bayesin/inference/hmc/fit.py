"""Runs the chains: one compiled iteration, called from the host, draws streamed to disk.

Every random number is a function of (key, chain, iteration), and everything else an iteration needs is in the
checkpoint, so that a run that was killed and resumed has the same bits as one that was not. A finished run
in a folder is prolonged by asking for more samples.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import ConfigError, ModelError, TrainingError
from ...models import Model
from ...posteriors import Samples
from ...trees import Tree, check_same_structure, flatten
from ..arrays import Arrays, check_outputs, training_arrays
from ..engine import Progress
from ..fit import Fit, Trace, trace_of
from ..given import check_given
from ..program import INIT
from .checkpoint import identity, restore, save
from .config import HMC
from .diagnostics import effective_sample_size, split_rhat
from .draws import Draws
from .kernel import Info
from .precision import usable_precision
from .program import Running, advance, begin, predict
from .target import cut


class State(NamedTuple):
    """Where the chains stand, and what their draws predict."""

    running: Running
    probes: np.ndarray  # (chains, draws, outputs)


def fit_hmc(
    key: jax.Array,
    model: Model,
    data: Any,
    config: HMC,
    *,
    checkpoint: Path | str | None = None,
    start: Tree | None = None,
    load: bool = True,
    on_progress: Callable[[Progress], Any] | None = None,
) -> Fit:
    """Returns posterior samples of full-batch Hamiltonian Monte Carlo.

    Args:
        key: a `jax.random.key`; chain i uses `fold_in(key, i)` and nothing else.
        model: init and apply; without running statistics, which no posterior is defined over.
        data: a `Dataset`, or a pair (x, y).
        config: the settings.
        checkpoint: a folder for draws and checkpoints. A run found there is taken up where it was, or prolonged
            when `samples` is larger than it was; a run of other settings is refused. Without it all is kept
            in memory.
        start: where the chains begin: a parameter tree with a leading chain axis, such as the
            `fit_ensemble(...).posterior.params` of as many members, or one tree for all. Without it each chain
            begins at its own `model.init`. The start is no draw; it is part of what a run in a folder is known by.
        load: return `Samples`, with a checkpoint mapped from disk; otherwise `Draws`, which reads them as needed.
        on_progress: called with a `Progress` after every iteration.

    Returns:
        A `Fit` whose posterior holds the draws chain by chain. The trace has a row for each iteration: "step",
        "epoch", "seconds", and for each chain "acceptance", "accepted", "energy_error", "log_posterior" and
        "step_size". Its last row also has "rhat_max", "rhat_median", "ess_min" and "ess_median" over the draws'
        predictions on `config.probe` test inputs, which `fit.state.probes` holds, (chains, draws, outputs).

    Raises:
        ConfigError, DataError, ModelError: the input cannot be used.
        TrainingError: a chain cannot start, since its log-posterior is not finite.

    Example:
        >>> model = Model(lambda key: {"w": jnp.zeros(2)}, lambda params, x: x @ params["w"][:, None])
        >>> x = np.eye(2, dtype=np.float32).repeat(8, 0)
        >>> config = HMC(samples=20, burn_in=10, step_size=0.2, steps=5, likelihood="gaussian")
        >>> fit = fit_hmc(jax.random.key(0), model, (x, x.sum(1)), config)
        >>> len(fit.posterior), fit.trace["acceptance"].shape
        (20, (30, 1))
    """
    _check_installed()
    check_given("fit_hmc", key, model, config, HMC)
    arrays = training_arrays(data, config.likelihood)
    keys = jnp.stack([jax.random.fold_in(key, chain) for chain in range(config.chains)])
    positions = _positions(model, keys, start)
    check_outputs(model, jax.tree.map(lambda leaf: leaf[0], positions), arrays, config.likelihood)
    folder = None if checkpoint is None else Path(checkpoint)
    run = identity(key, config, arrays, positions)
    chunks = cut(arrays.x, arrays.y, config.chunk)
    program = (model.apply, _compiled_in(config))
    running, history = restore(folder, run, _checked(begin(*program, positions, chunks)))
    if folder is not None and not history.rows:  # before any draws, which alone would belong to no run
        save(folder, run, running, history, [])
    if len(history.probes) > config.samples:
        raise ConfigError(f"{folder} holds {len(history.probes)} draws of each chain; ask for at least as many")
    inputs = _probe_inputs(config, arrays)
    kept: list[Tree] = []

    def told(resumed: bool = False) -> None:
        if on_progress is None:
            return
        row, rows = history.rows[-1], tuple(history.rows)
        try:
            on_progress(Progress(row["step"], config.iterations, row["epoch"], row, row["seconds"], rows, resumed))
        except KeyboardInterrupt:
            if folder is not None:
                save(folder, run, running, history, kept)
            raise

    if history.rows:
        told(resumed=True)
    began, before = time.perf_counter(), float(history.rows[-1]["seconds"]) if history.rows else 0.0
    for iteration in range(len(history.rows), config.iterations):
        running, info, step_size = advance(*program, running, chunks, keys, np.int32(iteration))
        history.rows.append(_row(iteration, config, jax.device_get(info), np.asarray(step_size), before, began))
        if iteration >= config.burn_in and (iteration - config.burn_in) % config.thin == config.thin - 1:
            kept.append(jax.tree.map(np.asarray, running.chains.position))
            history.probes.append(np.asarray(predict(*program, running.chains.position, inputs)))
        due = (iteration + 1) % (config.draws_per_file * config.thin) == 0 or iteration == config.iterations - 1
        if folder is not None and due:
            save(folder, run, running, history, kept)
            kept = []
        told()
    state = State(running, np.stack(history.probes, 1))
    return Fit((_posterior(folder, kept, load),), _trace(history.rows, state.probes), state, config)


def _check_installed() -> None:
    try:
        import blackjax  # noqa: F401
    except ImportError:
        raise ConfigError("HMC needs blackjax: pip install blackjax") from None


def _positions(model: Model, keys: jax.Array, start: Tree | None) -> Tree:
    params = [model.init(jax.random.fold_in(key, INIT)) for key in keys]
    for path, leaf in flatten(params[0]).items():
        if path in model.statistics:
            raise ModelError(f"'{path}' is a running statistic; HMC needs a model without them, such as norm='frn'")
        if not jnp.issubdtype(jnp.asarray(leaf).dtype, jnp.floating):
            raise ModelError(f"'{path}' holds {jnp.asarray(leaf).dtype}; HMC moves floating-point numbers alone")
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *params)
    if start is None:
        return stacked
    start = jax.tree.map(
        lambda leaf, one: jnp.broadcast_to(leaf, (len(keys), *one.shape)) if jnp.ndim(leaf) == one.ndim else leaf,
        start,
        params[0],
    )
    check_same_structure(stacked, start, "the model's parameters (leading axis: chains) and the start")
    return jax.tree.map(jnp.asarray, start)


def _compiled_in(config: HMC) -> HMC:
    """The settings that the compiled program depends on; the others at one value, to compile once."""
    plain = replace(
        config, samples=1, draws_per_file=1, probe=0, thin=1, precision=usable_precision(config.precision)
    )
    return plain if config.adapt else replace(plain, burn_in=0, target_acceptance=0.5)


def _checked(running: Running) -> Running:
    for chain, value in enumerate(np.asarray(running.chains.log_density)):
        if not np.isfinite(value):
            raise TrainingError(f"chain {chain} cannot start: its log-posterior is {value}; give another start")
    return running


def _probe_inputs(config: HMC, arrays: Arrays) -> jax.Array:
    """A few inputs, of the test set where there is one; labels are not looked at."""
    inputs = arrays.x if arrays.x_test is None else arrays.x_test
    return jnp.asarray(inputs[np.linspace(0, len(inputs) - 1, min(config.probe, len(inputs))).astype(int)])


def _row(
    iteration: int, config: HMC, info: Info, step_size: np.ndarray, before: float, began: float
) -> dict[str, Any]:
    epoch, seconds = float((iteration + 1) * config.steps), before + time.perf_counter() - began
    return {"step": iteration + 1, "epoch": epoch, "seconds": seconds, "step_size": step_size, **info._asdict()}


def _posterior(folder: Path | None, kept: list[Tree], load: bool) -> Samples | Draws:
    if folder is not None:
        return Draws(folder).mapped() if load else Draws(folder)
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves, 1), *kept)
    return Samples(jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), stacked))


def _trace(rows: list[dict[str, Any]], probes: np.ndarray) -> Trace:
    rhat, ess = split_rhat(probes), effective_sample_size(probes)
    known = {"rhat_max": _over(np.max, rhat), "rhat_median": _over(np.median, rhat)}
    known |= {"ess_min": _over(np.min, ess), "ess_median": _over(np.median, ess)}
    return trace_of([*rows[:-1], rows[-1] | known])


def _over(statistic: Callable[[np.ndarray], Any], values: np.ndarray) -> float:
    """Of the values that are defined: a prediction that never varied has no R-hat."""
    values = values[np.isfinite(values)]
    return float(statistic(values)) if values.size else float("nan")
