"""Stochastic-gradient Langevin dynamics and Hamiltonian Monte Carlo, with steps that fall and rise again.

With U the negative log-posterior, Ũ its estimate on a batch, ε the step and ξ ~ N(0, I),

    SGLD    w ← w − ½ ε ∇Ũ + √(ε T) ξ
    SGHMC   v ← (1 − α) v − ε ∇Ũ + √(2 α ε T) ξ,   w ← w + v                            (friction α)

Of several cycles each begins with the full step and ends near zero, ε_k = ½ ε₀ (1 + cos(π k mod C / C)); its first
part explores without noise, and draws are taken from the rest. Without cycles the step is constant. There is no
accept step: the error of the draws is of the order of the step, and of the noise of the batches.

Each chain is the shared training loop with an optimiser that adds the noise and keeps the draws, so that it is
resumed to the bit. blackjax has the same kernels; its loop would have to bring checkpoints of its own.

References: Welling and Teh 2011; Chen et al. 2014; Zhang et al. 2020 (cycles).
"""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ..errors import ConfigError
from ..inputs import count_of, take
from ..models import Model
from ..posteriors import Samples
from .chain_diagnostics import PROBED, diagnose_fit, warn_unmixed
from .fit import Fit, Progress, Trace
from .flat_parameters import FlatLayout
from .iterates import Iterates, keep_iterates, path_alone, with_optimiser
from .recalibrate import with_own_statistics
from .settings import Training, check_arguments, is_finite, is_whole, likelihood_of, require
from .training_loop import Trained, learned_likelihoods, train
from .training_problem import Problem, TrainingData, training_arrays

NOISE = 0x5317  # stream of a chain's own noise


@dataclass(frozen=True)
class SGMCMC(Training):
    """Settings of stochastic-gradient Markov chains; `members` is the number of chains.

    Example:
        >>> SGMCMC(members=4, samples=10, cycles=5).kernel
        'sghmc'
    """

    kernel: Literal["sghmc", "sgld"] = "sghmc"
    """Hamiltonian dynamics with friction, or Langevin dynamics."""
    step_size: float = 1e-4
    """ε on the log-posterior of all examples; the largest one of a cycle."""
    friction: float = 0.1
    """Of sghmc: the share of the velocity that is lost at each step."""
    samples: int = 50
    """Draws kept of each chain."""
    burn_in: float = 0.5
    """Share of the steps before the first draw, where there are no cycles."""
    cycles: int = 0
    """How often the step falls and rises again; 0 means that it is constant."""
    explore: float = 0.5
    """Share of a cycle that is without noise, and of which nothing is kept."""
    temperature: float = 1.0
    """Draws are of exp(-U/T); 1 is the Bayes posterior."""

    def __post_init__(self):
        super().__post_init__()
        require(self.kernel in ("sghmc", "sgld"), self, "kernel", "sghmc or sgld")
        for name in ("step_size", "temperature"):
            require(is_finite(getattr(self, name)) and getattr(self, name) > 0, self, name, "positive")
        for name in ("burn_in", "explore"):
            require(is_finite(getattr(self, name)) and 0 <= getattr(self, name) < 1, self, name, "in [0, 1)")
        require(is_finite(self.friction) and 0 < self.friction <= 1, self, "friction", "in (0, 1]")
        require(is_whole(self.samples) and self.samples >= 1, self, "samples", "at least 1")
        require(is_whole(self.cycles) and self.cycles >= 0, self, "cycles", "zero or more")

    @property
    def chains(self) -> int:
        """Independent chains."""
        return self.members


def fit_sgmcmc(
    key: jax.Array,
    model: Model,
    data: TrainingData,
    config: SGMCMC,
    *,
    checkpoint: Path | str | None = None,
    on_progress: Callable[[Progress], object] | None = None,
) -> Fit[Samples, SGMCMC]:
    """Returns draws of stochastic-gradient Markov chains, chain by chain.

    Args:
        key: a `jax.random.key`; chain i uses `fold_in(key, i)` and nothing else.
        model: init and apply; its running statistics are estimated anew for every draw.
        data: a `Dataset`, or a pair (x, y).
        config: the settings; the optimiser's own (learning_rate, …) mean nothing.
        checkpoint: a folder; a run found there is taken up where it was.
        on_progress: called with a `Progress` after every logging interval, one chain after the other.

    Raises:
        ConfigError: among others, a run too short for its draws.
        DataError, ModelError: the input cannot be used.
        TrainingError: the loss became NaN or exploded; lower step_size.

    Example:
        >>> model = Model(lambda key: {"w": jnp.zeros((2, 3))}, lambda params, x: x @ params["w"])
        >>> x = np.eye(2, dtype=np.float32).repeat(8, 0)
        >>> config = SGMCMC(members=2, samples=5, epochs=20, batch=4)
        >>> len(fit_sgmcmc(jax.random.key(0), model, (x, np.arange(2).repeat(8)), config).posterior)
        10
    """
    check_arguments("fit_sgmcmc", key, model, config, SGMCMC)
    likelihood = likelihood_of(config)
    arrays = training_arrays(data, likelihood)
    one = dataclasses.replace(config, members=1)
    chains: list[Trained] = []
    sampling = _sampling(path_alone(config), count_of(arrays.x))
    for chain in range(config.chains):
        own = jax.random.fold_in(key, chain)
        words = np.asarray(jax.random.key_data(jax.random.fold_in(own, NOISE)))
        optimiser = sampling._replace(init=_Start(sampling.init, tuple(words.tolist())))
        problem = Problem(model, arrays, (with_optimiser(one, optimiser),), (1.0,), gaussian=False)
        place = None if checkpoint is None else Path(checkpoint) / f"chain-{chain}"
        chains.append(train(own, problem, checkpoint=place, on_progress=_told(on_progress, chain, config.chains)))
    draws = [_draws(chain.layout, chain.states.optimiser, chain.states.fixed) for chain in chains]
    stacked = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *draws)
    likelihoods = learned_likelihoods(likelihood, chains[0])
    if any(learned_likelihoods(likelihood, chain) != likelihoods for chain in chains):
        raise ConfigError("chains cannot learn the noise, each another one; give Normal(std)")
    samples = with_own_statistics(Samples(stacked), model, arrays.x, key=key, batch=config.batch)
    mixing = diagnose_fit(key, model, samples, config.chains, take(arrays.x, slice(PROBED)), likelihoods[0])
    if mixing is not None and mixing.predictions is not None:
        warn_unmixed({"predictions": mixing.predictions}, "draw longer, or with larger steps", stacklevel=2)
    memory = chains[0].memory
    return Fit((samples,), _trace(chains), config, likelihoods, memory, mixing=mixing, statistics=model.statistics)


@dataclass(frozen=True)
class _Start:
    """The state before the first step, with a chain's own noise; equal for all chains, which are one program."""

    init: Callable[[Any], Any]
    words: tuple[int, ...] = field(compare=False)  # of the key of the noise

    def __call__(self, variables: Any) -> Iterates:
        state = self.init(variables)
        step, velocity, _ = state.inner
        return state._replace(inner=(step, velocity, jnp.array(self.words, jnp.uint32)))


@lru_cache(maxsize=16)
def _sampling(config: SGMCMC, examples: int) -> optax.GradientTransformation:
    steps = config.epochs * (examples // min(config.batch, examples))
    cycle = math.ceil(steps / config.cycles) if config.cycles else steps
    quiet = int((config.explore if config.cycles else config.burn_in) * cycle)
    each = config.samples // max(1, config.cycles)
    every = (cycle - quiet) // max(1, each)
    if every < 1 or each * max(1, config.cycles) != config.samples or each * every * max(1, config.cycles) > steps:
        raise ConfigError(
            f"{config.samples} draws do not fit {steps} steps in {max(1, config.cycles)} cycles: ask for a multiple "
            f"of the cycles, and at most {(cycle - quiet) * max(1, config.cycles)}"
        )

    def due(step: jax.Array) -> jax.Array:
        place = step % cycle - quiet
        return (place >= 0) & (place % every == every - 1) & (place // every < each)

    return keep_iterates(
        _dynamics(config, examples, cycle, quiet),
        size=config.samples,
        due=due,
        entry=lambda weights, mean: weights,
    )


def _dynamics(config: SGMCMC, examples: int, cycle: int, quiet: int) -> optax.GradientTransformation:
    """The update of one step; the state is its number, the velocity and the noise's key, which `_Start` brings."""

    def init(variables: Any) -> Any:
        return jnp.zeros((), jnp.int32), jnp.zeros_like(variables["mean"]), None

    def update(gradients: Any, state: Any, variables: Any = None) -> tuple[Any, Any]:
        step, velocity, words = state
        place = (step % cycle).astype(jnp.float32)
        shape = 0.5 * (1 + jnp.cos(jnp.pi * place / cycle)) if config.cycles else jnp.float32(1)
        size = config.step_size * shape
        noisy = (step % cycle >= quiet) if config.cycles else True
        slope = examples * gradients["mean"]  # the loop's loss is per example
        noise = jax.random.normal(jax.random.fold_in(jax.random.wrap_key_data(words), step), slope.shape)
        heat = jnp.where(noisy, config.temperature, 0.0).astype(jnp.float32)
        if config.kernel == "sgld":
            move = -0.5 * size * slope + jnp.sqrt(size * heat) * noise
        else:
            kept = jnp.where(step % cycle == 0, 0.0, 1 - config.friction) if config.cycles else 1 - config.friction
            velocity = kept * velocity - size * slope + jnp.sqrt(2 * config.friction * size * heat) * noise
            move = velocity
        others = jax.tree.map(jnp.zeros_like, gradients)
        return others | {"mean": move}, (step + 1, velocity, words)

    return optax.GradientTransformation(init, update)  # pyright: ignore[reportArgumentType]


def _draws(layout: FlatLayout, seen: Iterates, fixed: list[jax.Array]) -> Any:
    """All draws of one chain as a stack; a chain is the only member of its run."""
    draws = jnp.asarray(seen.buffer[0])
    still = [jnp.broadcast_to(jnp.asarray(leaf[0]), (len(draws), *leaf.shape[1:])) for leaf in fixed]
    return jax.vmap(layout.tree_of)(draws, still)


def _trace(chains: list[Trained]) -> Trace:
    """Columns (rows, chains) where chains differ; seconds are those of all chains together."""
    first = chains[0].trace
    joined = {
        name: np.concatenate([chain.trace[name] for chain in chains], 1) if column.ndim > 1 else column
        for name, column in first.items()
    }
    return joined | {"seconds": np.sum([chain.trace["seconds"] for chain in chains], 0)}


def _told(on_progress: Callable[[Progress], object] | None, chain: int, chains: int) -> Any:
    if on_progress is None:
        return None

    def told(progress: Progress) -> None:
        before = chain * progress.steps
        on_progress(progress._replace(step=before + progress.step, steps=chains * progress.steps))

    return told
