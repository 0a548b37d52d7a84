"""The compiled part of HMC: blackjax's integrator and accept step around our energy difference, for all chains.

Compiled once for a model and its settings, however often a run is resumed or prolonged.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ...inputs import Chunks
from ...likelihoods import Likelihood, negative_log_likelihood
from ...randomness import normal_tree
from ...trees import Tree
from .energy import energy_difference
from .target import FULL, Target, TemperedPrior, log_posterior, make_target, matmul_precision
from .whole_inputs import WholeInputs, apply_to_whole

# Our names -> blackjax's; gradients a step: 1, 2, 3.
INTEGRATORS = {"leapfrog": "velocity_verlet", "mclachlan": "mclachlan", "yoshida": "yoshida"}


@dataclass(frozen=True)
class ChainPlan:
    """Everything that is compiled in; static and hashable."""

    apply: Callable[[Tree, Any], Any]
    likelihood: Likelihood
    chains: int
    step_size: float
    steps: int
    jitter: float
    integrator: str
    prior_variance: float
    temperature: float
    precision: str
    adaptation_steps: int  # iterations in which the step size is adapted
    target_acceptance: float


class Chain(NamedTuple):
    """All that the next iteration needs."""

    position: Tree
    log_density: Any
    gradient: Tree
    terms: Any  # log-likelihood of every example, for the next energy difference


class Info(NamedTuple):
    """What a person wants to know of an iteration."""

    acceptance: Any  # probability
    accepted: Any  # 1 or 0
    energy_error: Any
    log_posterior: Any  # of the state the chain is in afterwards


class ChainStates(NamedTuple):
    """What the next iteration of all chains needs; leading axis: the chains."""

    chains: Chain
    adaptation: Any  # blackjax's dual averaging


@partial(jax.jit, static_argnums=0)
def begin(
    plan: ChainPlan,
    positions: Tree,
    chunks: Chunks,
    prior: tuple[Tree, Tree] | None = None,
    whole: Chunks | None = None,
) -> ChainStates:
    """Returns chains that stand at `positions`.

    Args:
        plan: what is compiled in.
        positions: parameters with a leading axis, the chains.
        chunks: the data.
        prior: (centre, variance) of every weight, if not N(0, v).
        whole: the same data with `WholeInputs`, for the gradients, where they are such.
    """
    initial, *_ = _adaptation(plan)
    steps = jnp.full((plan.chains,), plan.step_size, jnp.float32)
    chains = jax.vmap(partial(start_chain, target_of(plan, chunks, prior, whole)))(positions)
    # blackjax starts from Python numbers, whose weak types would compile the iteration twice
    adaptation = jax.tree.map(lambda leaf: leaf + jnp.zeros((), leaf.dtype), jax.vmap(initial)(steps))
    return ChainStates(chains, adaptation)


# Donated: the old chains are not needed any more, and their memory holds the new ones.
@partial(jax.jit, static_argnums=0, donate_argnums=1)
def advance(
    plan: ChainPlan,
    states: ChainStates,
    chunks: Chunks,
    keys: jax.Array,
    iteration: jax.Array,
    prior: tuple[Tree, Tree] | None = None,
    whole: Chunks | None = None,
) -> tuple[ChainStates, Info, jax.Array]:
    """Returns the chains after one iteration, what happened, and the step sizes that were used."""
    _, update, final = _adaptation(plan)
    chains, adaptation = states
    adapting = iteration < plan.adaptation_steps
    step_size = jnp.full((plan.chains,), plan.step_size, jnp.float32)
    if plan.adaptation_steps:
        # While it adapts a chain tries the newest size; afterwards it keeps their average, since a size that goes on
        # changing with the chain's past would not leave the target as it is.
        step_size = jnp.where(adapting, jnp.exp(adaptation.log_step_size), jax.vmap(final)(adaptation))
    # By the number of the iteration, so that a run that was taken up again makes the same draws, bit by bit.
    now = jax.vmap(lambda key: jax.random.fold_in(key, iteration))(keys)
    if plan.jitter:
        step_size = step_size * jax.vmap(partial(_jitter, plan.jitter))(now)
    trajectory = partial(
        iterate, target_of(plan, chunks, prior, whole), steps=plan.steps, integrator=INTEGRATORS[plan.integrator]
    )
    chains, info = jax.vmap(trajectory)(now, chains, step_size)
    with jax.numpy_dtype_promotion("standard"):  # blackjax raises counters to fractions
        updated = jax.vmap(update)(adaptation, info.acceptance)
    adaptation = jax.tree.map(lambda new, old: jnp.where(adapting, new, old).astype(old.dtype), updated, adaptation)
    return ChainStates(chains, adaptation), info, step_size


@partial(jax.jit, static_argnums=0)
def predictions(plan: ChainPlan, positions: Tree, inputs: jax.Array) -> jax.Array:
    """Returns what every chain predicts: log-probabilities of the classes, or outputs, flattened."""
    with matmul_precision(FULL):
        outputs = jax.vmap(plan.apply, (0, None))(positions, inputs)
    if hasattr(plan.likelihood, "log_probs"):
        outputs = plan.likelihood.log_probs(outputs)  # pyright: ignore[reportAttributeAccessIssue]
    return outputs.reshape(plan.chains, -1)


def start_chain(target: Target, position: Tree) -> Chain:
    """Returns the state of a chain that stands at `position`."""
    value, gradient = jax.value_and_grad(target.log_density)(position)
    return Chain(position, value, gradient, target.terms(position))


def iterate(
    target: Target, key: jax.Array, chain: Chain, step_size: Any, *, steps: int, integrator: str
) -> tuple[Chain, Info]:
    """Returns the chain after one trajectory and one accept or reject; unit mass matrix."""
    from blackjax.mcmc import integrators, trajectory
    from blackjax.mcmc.proposal import static_binomial_sampling

    key_momentum, key_accept = jax.random.split(key)
    noise = normal_tree(key_momentum, chain.position)
    momentum = jax.tree.map(lambda leaf, w: leaf.astype(w.dtype), noise, chain.position)
    # blackjax's own kernel forms both energies and subtracts them, of which float32 keeps too little (`energy.py`):
    # only its parts are used.
    one_step = getattr(integrators, integrator)(target.log_density, _kinetic_energy)
    begin = integrators.IntegratorState(chain.position, momentum, chain.log_density, chain.gradient)
    end = trajectory.static_integration(one_step)(begin, step_size, steps)
    # Carried with the chain: the terms of where it stands are known, and an iteration has one pass in full precision,
    # not two.
    terms = target.terms(end.position)
    prior = target.prior
    error = energy_difference(
        (prior.offset(begin.position), begin.momentum),
        (prior.offset(end.position), end.momentum),
        (chain.terms, terms),
        prior.precisions(begin.position),
    )
    proposal = Chain(end.position, end.logdensity, end.logdensity_grad, terms)
    chain, (accepted, acceptance, *_) = static_binomial_sampling(key_accept, -error, chain, proposal)  # pyright: ignore[reportArgumentType]
    info = Info(acceptance, accepted.astype(jnp.float32), error, log_posterior(target, chain.position, chain.terms))
    return chain, info


def target_of(
    plan: ChainPlan, chunks: Chunks, prior: tuple[Tree, Tree] | None = None, whole: Chunks | None = None
) -> Target:
    """Returns the posterior that a plan samples from; arguments as `begin` takes them."""

    def log_likelihood(params: Tree, x: Any, y: Any) -> jax.Array:
        if isinstance(x, WholeInputs):
            outputs = apply_to_whole(plan.apply, params, x, plan.precision)
        else:
            outputs = plan.apply(params, x)
        return -negative_log_likelihood(plan.likelihood, outputs, y)

    if prior is None:
        tempered = TemperedPrior(1.0 / (plan.prior_variance * plan.temperature))
    else:
        tempered = TemperedPrior(jax.tree.map(lambda v: 1.0 / (v * plan.temperature), prior[1]), prior[0])
    return make_target(
        log_likelihood,
        chunks,
        tempered,
        temperature=plan.temperature,
        precision=plan.precision,
        gradient_chunks=whole,
    )


def _jitter(jitter: float, key: jax.Array) -> jax.Array:
    key = jax.random.fold_in(key, zlib.crc32(b"jitter"))
    return jax.random.uniform(key, (), jnp.float32, 1 - jitter, 1 + jitter)


def _adaptation(plan: ChainPlan) -> Any:
    """(initial, update, final) of blackjax's dual averaging."""
    from blackjax.adaptation.step_size import dual_averaging_adaptation

    return dual_averaging_adaptation(plan.target_acceptance)


def _kinetic_energy(momentum: Tree, position: Tree = None) -> jax.Array:
    return 0.5 * sum((jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(momentum)), jnp.zeros(()))
