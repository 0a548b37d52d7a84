"""Full-batch Hamiltonian Monte Carlo: one compiled iteration, called from the host, draws streamed to disk.

    target   exp(−U(w)/T),   U(w) = −Σ_n log p(y_n | x_n, w) − log p(w)

with a unit mass matrix. Every random number is a function of (key, chain, iteration), and everything else an
iteration needs is in the checkpoint, so that a run that was killed and resumed has the same bits as one that was
not. A finished run in a folder is prolonged by asking for more samples.

Reference: Neal 2011.
"""

import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import ConfigError, ModelError, TrainingError
from ...inputs import Inputs, count_of, cut, take
from ...jaxprs import hashable
from ...likelihoods import Likelihood, is_learned
from ...models import Model, has_training_mode
from ...posteriors import Samples
from ...store import checksum, key_numbers
from ...trees import Tree, check_same_structure, flatten, map_with_path, unflatten
from ..chain_diagnostics import diagnose_fit, warn_unmixed
from ..fit import Fit, Progress, Trace, trace_of
from ..mixing import USUAL, effective_sample_size, mixing_of, split_rhat
from ..priors import Prior, checked_moments
from ..settings import (
    Settings,
    check_arguments,
    check_numbers,
    identity_fields,
    is_finite,
    likelihood_of,
    require,
    store_by_name,
)
from ..training_problem import (
    Arrays,
    TrainingData,
    check_model,
    find_gains,
    initialise,
    natural_centre,
    training_arrays,
)
from .draws import Draws, restore, save
from .kernel import INTEGRATORS, ChainPlan, ChainStates, Info, advance, begin, predictions
from .target import check_precision, usable_precision
from .whole_inputs import whole_chunks

# How many draws are wanted and how they are kept does not change the chain.
OPERATIONAL = ("samples", "draws_per_file", "probe")


@dataclass(frozen=True)
class HMC(Settings):
    """Full-batch HMC with a unit mass matrix and a prior N(0, prior_variance) on every weight.

    Example:
        >>> HMC(samples=20, burn_in=10, thin=2).iterations
        50
    """

    samples: int = 100
    """Draws kept of each chain."""
    chains: int = 1
    """Independent chains, run side by side."""
    burn_in: int = 100
    """Iterations before the first draw."""
    thin: int = 1
    """Iterations from one draw to the next."""
    step_size: float = 1e-3
    """Integration step; where it starts when adapted."""
    steps: int = 500
    """Integration steps of one iteration."""
    jitter: float = 0.0
    """Each iteration's step is multiplied by a random number within 1 ± jitter, which breaks orbits that close."""
    adapt: bool = False
    """Adapt the step size of each chain during burn-in by dual averaging."""
    target_acceptance: float = 0.8
    """Mean acceptance probability that adaptation aims at."""
    integrator: Literal["leapfrog", "mclachlan", "yoshida"] = "leapfrog"
    """Leapfrog, or a composition of two (mclachlan) or three (yoshida) gradients a step."""
    prior_variance: float = 1.0
    """Variance of the prior."""
    temperature: float = 1.0
    """Samples are drawn from exp(-U/T); 1 is the Bayes posterior."""
    likelihood: Literal["categorical", "gaussian"] | Likelihood = "categorical"
    """Labels, or real targets."""
    noise: float = 1.0
    """Standard deviation of the Gaussian likelihood."""
    precision: str = "highest"
    """Matrix products of the gradients along a trajectory: float32, bf16x3, bf16x6, tf32x3, tf32, or a name of JAX
    such as highest. A coarse one costs acceptance, not exactness: energies always have the full precision."""
    chunk: int = 20_000
    """Examples of one gradient pass; bounds memory, and changes nothing but rounding."""
    draws_per_file: int = 50
    """Draws of one file, and between two checkpoints."""
    probe: int = 64
    """Inputs whose predictions are followed for R-hat and effective sample size."""
    prior: Prior | None = None
    """A prior of another kind, in place of N(0, prior_variance)."""

    def __post_init__(self):
        store_by_name(self)
        check_numbers(
            self,
            counts=("samples", "chains", "thin", "steps", "chunk", "draws_per_file"),
            counts_or_zero=("burn_in", "probe"),
            positive=("step_size", "prior_variance", "temperature", "noise"),
            below_one=("jitter",),
        )
        acceptance = self.target_acceptance
        require(is_finite(acceptance) and 0 < acceptance < 1, self, "target_acceptance", "in (0, 1)")
        require(self.integrator in INTEGRATORS, self, "integrator", f"one of {', '.join(INTEGRATORS)}")
        require(not is_learned(likelihood_of(self)), self, "likelihood", "one that learns nothing")
        require(not self.adapt or self.burn_in > 0, self, "burn_in", "at least 1 to adapt the step size in")
        check_precision(self.precision)

    @property
    def iterations(self) -> int:
        """Iterations of a chain from its start to its last draw."""
        return self.burn_in + self.samples * self.thin


def fit_hmc(
    key: jax.Array,
    model: Model,
    data: TrainingData,
    config: HMC,
    *,
    checkpoint: Path | str | None = None,
    start: Tree | None = None,
    on_progress: Callable[[Progress], object] | None = None,
) -> Fit[Samples, HMC]:
    """Returns posterior samples of full-batch Hamiltonian Monte Carlo.

    Args:
        key: a `jax.random.key`; chain i uses `fold_in(key, i)` and nothing else.
        model: init and apply; with a training mode or running statistics only as `models.frozen(model)`.
        data: a `Dataset`, or a pair (x, y).
        config: the settings.
        checkpoint: a folder for draws and checkpoints. A run found there is taken up where it was, or prolonged
            when `samples` is larger than it was; a run of other settings is refused. The draws returned are then
            mapped from disk, and `Draws(folder)` reads them file by file. Without it all is kept in memory.
        start: where the chains begin: a parameter tree with a leading chain axis, such as the
            `fit_ensemble(...).posterior.params` of as many members, or one tree for all. Without it each chain
            begins at its own `model.init`. The start is no draw; it is part of what a run in a folder is known by.
        on_progress: called with a `Progress` after every iteration.

    Returns:
        A `Fit` whose posterior holds the draws chain by chain. The trace has a row for each iteration: "step",
        "epoch", "seconds", and for each chain "acceptance", "accepted", "energy_error", "log_posterior" and
        "step_size". Its last row also has "rhat_max", "rhat_median", "ess_min" and "ess_median" over the draws'
        predictions on `config.probe` test inputs, which `fit.probes` holds, (chains, draws, outputs). With several
        chains `fit.mixing` says whether they visit one basin modulo symmetry: see `diagnose_chains`.

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
    check_arguments("fit_hmc", key, model, config, HMC)
    if has_training_mode(model) or (model.statistics and model.apply_train is None):
        named = f"'{min(model.statistics)}' is a running statistic" if model.statistics else "it has dropout"
        raise ModelError(
            f"{model.name} does something else in training than in evaluation ({named}), so that it has no one "
            "log-posterior; models.frozen(model) is sampled in evaluation mode, its statistics as they start"
        )
    if not model.statistics:
        return _sample(key, model, data, config, checkpoint, on_progress, start, {})
    held = _statistics(model, key, start)

    def moving(params: Tree) -> Tree:
        return unflatten({path: leaf for path, leaf in flatten(params).items() if path not in held})

    inner = Model(
        lambda key: moving(model.init(key)),
        lambda params, x: model.apply(unflatten(flatten(params) | held), x),
        name=model.name,
    )
    fit = _sample(key, inner, data, config, checkpoint, on_progress, None if start is None else moving(start), held)
    # As large as the draws in name only: a view of one array.
    many = {path: np.broadcast_to(leaf, (len(fit.posterior), *leaf.shape)) for path, leaf in held.items()}
    posterior = Samples(unflatten(flatten(fit.posterior.params) | many))
    return Fit(
        (posterior,), fit.trace, fit.config, fit.likelihoods, probes=fit.probes, mixing=fit.mixing,
        statistics=model.statistics,
    )  # fmt: skip


def _statistics(model: Model, key: jax.Array, start: Tree | None) -> dict[str, np.ndarray]:
    """The statistics that a frozen network keeps: of the start where there is one, else as they begin."""
    flat = flatten(initialise(model, key))
    found = {path: np.asarray(leaf) for path, leaf in flat.items() if path in model.statistics}
    for path, leaf in found.items() if start is not None else ():
        given = np.asarray(flatten(start)[path])
        one = given if given.ndim == leaf.ndim else given[0]
        if (given != one).any():
            raise ModelError(f"the chains start with different statistics '{path}'; give one start for all of them")
        found[path] = one
    return found


def _sample(
    key: jax.Array,
    model: Model,
    data: TrainingData,
    config: HMC,
    checkpoint: Path | str | None,
    on_progress: Callable[[Progress], object] | None,
    start: Tree | None,
    held: dict[str, np.ndarray],
) -> Fit[Samples, HMC]:
    """Chains over all parameters of a model; `held` is what the network closes over besides."""
    likelihood = likelihood_of(config)
    arrays = training_arrays(data, likelihood)
    keys = jnp.stack([jax.random.fold_in(key, chain) for chain in range(config.chains)])
    positions = _positions(model, keys, start)
    check_model(model, jax.tree.map(lambda leaf: leaf[0], positions), arrays, likelihood)
    prior = None if config.prior is None else _prior_moments(config.prior, model, key)
    plan = chain_plan(config, model)
    chunks = cut(arrays.x, arrays.y, config.chunk)
    whole = whole_chunks(chunks, plan.apply, jax.tree.map(lambda leaf: leaf[0], positions), plan.precision)
    folder = None if checkpoint is None else Path(checkpoint)
    run = {} if folder is None else _identity(key, config, arrays, positions, prior, held)
    # Begun even where a run is taken up: its shapes say what the checkpoint must hold.
    states, history = restore(folder, run, _checked(begin(plan, positions, chunks, prior, whole)))
    if folder is not None and not history.rows:  # before any draws, which alone would belong to no run
        save(folder, run, states, history, [])
    if len(history.probes) > config.samples:
        raise ConfigError(f"{folder} holds {len(history.probes)} draws of each chain; ask for at least as many")
    inputs = _probe_inputs(config, arrays)
    kept: list[Tree] = []

    def report(resumed: bool = False) -> None:
        if on_progress is None:
            return
        row, rows = history.rows[-1], tuple(history.rows)
        try:
            on_progress(Progress(row["step"], config.iterations, row["epoch"], row, row["seconds"], rows, resumed))
        # Progress is where a person stops a run; what was drawn since the last file would be lost.
        except KeyboardInterrupt:
            if folder is not None:
                save(folder, run, states, history, kept)
            raise

    if history.rows:
        report(resumed=True)
    began, before = time.perf_counter(), float(history.rows[-1]["seconds"]) if history.rows else 0.0
    for iteration in range(len(history.rows), config.iterations):
        states, info, step_size = advance(plan, states, chunks, keys, np.int32(iteration), prior, whole)
        history.rows.append(_row(iteration, config, jax.device_get(info), np.asarray(step_size), before, began))
        if iteration >= config.burn_in and (iteration - config.burn_in) % config.thin == config.thin - 1:
            kept.append(jax.tree.map(np.asarray, states.chains.position))
            history.probes.append(np.asarray(predictions(plan, states.chains.position, inputs)))
        due = (iteration + 1) % (config.draws_per_file * config.thin) == 0 or iteration == config.iterations - 1
        if folder is not None and due:
            save(folder, run, states, history, kept)
            kept = []
        report()
    probes = np.stack(history.probes, 1)
    trace = _trace(history.rows, probes)
    _warn_unmixed(float(trace["rhat_max"][-1]), probes)
    draws = _posterior(folder, kept)
    mixing = diagnose_fit(key, model, draws, config.chains, inputs, likelihood, probes)
    return Fit((draws,), trace, config, (likelihood,), probes=probes, mixing=mixing)


def chain_plan(config: HMC, model: Model) -> ChainPlan:
    """What the compiled program depends on; the same for runs that are resumed or prolonged."""
    return ChainPlan(
        apply=hashable(model.apply),
        likelihood=likelihood_of(config),
        chains=config.chains,
        step_size=config.step_size,
        steps=config.steps,
        jitter=config.jitter,
        integrator=config.integrator,
        prior_variance=config.prior_variance,
        temperature=config.temperature,
        precision=usable_precision(config.precision),
        adaptation_steps=config.burn_in if config.adapt else 0,
        target_acceptance=config.target_acceptance if config.adapt else 0.5,
    )


def _identity(
    key: jax.Array,
    config: HMC,
    arrays: Arrays,
    positions: Tree,
    prior: tuple[Tree, Tree] | None,
    held: dict[str, np.ndarray],
) -> dict[str, Any]:
    """What makes two runs the same run: key, settings, data and start; a run may be prolonged, but not altered."""
    flat = flatten(positions)
    start = [zlib.crc32("/".join(flat).encode()), checksum(*flat.values())]
    found = identity_fields(replace(config, prior=None), OPERATIONAL)
    found |= {"key": key_numbers(key), "data": checksum(*jax.tree.leaves(arrays.x), arrays.y), "start": start}
    found |= {"held": checksum(*held.values())} if held else {}
    return found if prior is None else found | {"prior": checksum(*jax.tree.leaves(prior))}


def _prior_moments(prior: Prior, model: Model, key: jax.Array) -> tuple[Tree, Tree]:
    """Centre and variance of every weight, as trees like the parameters."""
    first, second = (initialise(model, jax.random.fold_in(key, n)) for n in (0, 1))
    start = natural_centre(first, find_gains(first, second))
    centre, variance = checked_moments(prior, start)
    return (
        map_with_path(lambda path, leaf: jnp.asarray(centre[path]), start),
        map_with_path(lambda path, leaf: jnp.asarray(variance[path]), start),
    )


def _check_installed() -> None:
    try:
        import blackjax  # noqa: F401
    except ImportError:
        raise ConfigError("HMC needs blackjax: pip install blackjax") from None


def _positions(model: Model, keys: jax.Array, start: Tree | None) -> Tree:
    params = [initialise(model, key) for key in keys]
    for path, leaf in flatten(params[0]).items():
        if not jnp.issubdtype(jnp.asarray(leaf).dtype, jnp.floating):
            raise ModelError(f"'{path}' holds {jnp.asarray(leaf).dtype}; HMC moves floating-point numbers alone")
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *params)
    if start is None:
        return stacked
    given = flatten(start)
    for path, like in flatten(params[0]).items():
        if path in given and jnp.ndim(given[path]) == like.ndim:  # of one network: where all chains start
            given[path] = jnp.broadcast_to(given[path], (len(keys), *like.shape))
    check_same_structure(stacked, unflatten(given), "the model's parameters (leading axis: chains) and the start")
    return map_with_path(lambda path, _: jnp.asarray(given[path]), stacked)


def _checked(states: ChainStates) -> ChainStates:
    for chain, value in enumerate(np.asarray(states.chains.log_density)):
        if not np.isfinite(value):
            raise TrainingError(f"chain {chain} cannot start: its log-posterior is {value}; give another start")
    return states


def _probe_inputs(config: HMC, arrays: Arrays) -> Inputs:
    """A few inputs, of the test set where there is one; labels are not looked at."""
    inputs = arrays.x if arrays.x_test is None else arrays.x_test
    count = count_of(inputs)
    # Spread over the set, which may be sorted by class.
    chosen = np.linspace(0, count - 1, min(config.probe, count)).astype(int)
    return jax.tree.map(jnp.asarray, take(inputs, chosen))


def _row(
    iteration: int, config: HMC, info: Info, step_size: np.ndarray, before: float, began: float
) -> dict[str, Any]:
    epoch, seconds = float((iteration + 1) * config.steps), before + time.perf_counter() - began
    return {"step": iteration + 1, "epoch": epoch, "seconds": seconds, "step_size": step_size, **info._asdict()}


def _posterior(folder: Path | None, kept: list[Tree]) -> Samples:
    if folder is not None:
        return Draws(folder).mapped()
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves, 1), *kept)
    return Samples(jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), stacked))


def _trace(rows: list[dict[str, Any]], probes: np.ndarray) -> Trace:
    rhat, ess = split_rhat(probes), effective_sample_size(probes)
    known = {"rhat_max": _over(np.max, rhat), "rhat_median": _over(np.median, rhat)}
    known |= {"ess_min": _over(np.min, ess), "ess_median": _over(np.median, ess)}
    return trace_of([*rows[:-1], rows[-1] | known])


def _warn_unmixed(largest: float, probes: np.ndarray) -> None:
    """Says once that the chains have not mixed; below 1.1 nothing is computed, nothing said."""
    if not largest > USUAL:
        return
    what = "draw longer, take longer trajectories or more burn_in"
    warn_unmixed({"predictions": mixing_of(probes)}, what, stacklevel=3)


def _over(statistic: Callable[[np.ndarray], Any], values: np.ndarray) -> float:
    """Of the values that are defined: a prediction that never varied has no R-hat."""
    values = values[np.isfinite(values)]
    return float(statistic(values)) if values.size else float("nan")
