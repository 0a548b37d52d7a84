"""The compiled part of HMC: the start of all chains, one iteration of them, and their predictions.

Compiled once for a model and its settings, however often a run is resumed or prolonged.
"""

import zlib
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...trees import Tree
from ..likelihoods import negative_log_likelihood
from .config import HMC, INTEGRATORS
from .kernel import Apply, Chain, Info, iterate, start_chain
from .precision import FULL, matmul_precision
from .target import Chunks, Target, make_target


class Running(NamedTuple):
    """What the next iteration of all chains needs; leading axis: the chains."""

    chains: Chain
    adaptation: Any  # blackjax's dual averaging


@partial(jax.jit, static_argnums=(0, 1))
def begin(apply: Apply, config: HMC, positions: Tree, chunks: Chunks) -> Running:
    """Returns chains that stand at `positions`."""
    initial, *_ = _adaptation(config)
    steps = jnp.full((config.chains,), config.step_size, jnp.float32)
    chains = jax.vmap(partial(start_chain, _target(apply, config, chunks)))(positions)
    # blackjax starts from Python numbers, whose weak types would compile the iteration twice
    adaptation = jax.tree.map(lambda leaf: leaf + jnp.zeros((), leaf.dtype), jax.vmap(initial)(steps))
    return Running(chains, adaptation)


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=2)
def advance(
    apply: Apply, config: HMC, running: Running, chunks: Chunks, keys: jax.Array, iteration: jax.Array
) -> tuple[Running, Info, jax.Array]:
    """Returns the chains after one iteration, what happened, and the step sizes that were used."""
    _, update, final = _adaptation(config)
    chains, adaptation = running
    adapting = jnp.logical_and(config.adapt, iteration < config.burn_in)
    step_size = jnp.full((config.chains,), config.step_size, jnp.float32)
    if config.adapt:
        step_size = jnp.where(adapting, jnp.exp(adaptation.log_step_size), jax.vmap(final)(adaptation))
    one = partial(
        iterate, _target(apply, config, chunks), steps=config.steps, integrator=INTEGRATORS[config.integrator]
    )
    now = jax.vmap(lambda key: jax.random.fold_in(key, iteration))(keys)
    if config.jitter:
        step_size = step_size * jax.vmap(partial(_jitter, config.jitter))(now)
    chains, info = jax.vmap(one)(now, chains, step_size)
    updated = jax.vmap(update)(adaptation, info.acceptance)
    adaptation = jax.tree.map(lambda new, old: jnp.where(adapting, new, old).astype(old.dtype), updated, adaptation)
    return Running(chains, adaptation), info, step_size


@partial(jax.jit, static_argnums=(0, 1))
def predict(apply: Apply, config: HMC, positions: Tree, inputs: jax.Array) -> jax.Array:
    """Returns what every chain predicts: log-probabilities, or outputs, flattened."""
    with matmul_precision(FULL):
        outputs = jax.vmap(apply, (0, None))(positions, inputs)
    outputs = jax.nn.log_softmax(outputs) if config.likelihood == "categorical" else outputs
    return outputs.reshape(config.chains, -1)


def _target(apply: Apply, config: HMC, chunks: Chunks) -> Target:
    log_noise = float(np.log(config.noise))

    def log_likelihood(params: Tree, x: Any, y: Any) -> jax.Array:
        return -negative_log_likelihood(config.likelihood, apply(params, x), y, log_noise)

    return make_target(
        log_likelihood,
        chunks,
        prior_variance=config.prior_variance,
        temperature=config.temperature,
        precision=config.precision,
    )


def _jitter(jitter: float, key: jax.Array) -> jax.Array:
    key = jax.random.fold_in(key, zlib.crc32(b"jitter"))
    return jax.random.uniform(key, (), jnp.float32, 1 - jitter, 1 + jitter)


def _adaptation(config: HMC) -> Any:
    """(initial, update, final) of blackjax's dual averaging."""
    from blackjax.adaptation.step_size import dual_averaging_adaptation

    return dual_averaging_adaptation(config.target_acceptance)
