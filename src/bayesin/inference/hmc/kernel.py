"""One HMC iteration of one chain: blackjax's integrator and accept step around our energy difference."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...trees import Tree
from .energy import energy_difference
from .target import Target, log_posterior

Apply = Callable[[Tree, Any], Any]


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
    momentum = _standard_normal(key_momentum, chain.position)
    one_step = getattr(integrators, integrator)(target.log_density, _kinetic_energy)
    begin = integrators.IntegratorState(chain.position, momentum, chain.log_density, chain.gradient)
    end = trajectory.static_integration(one_step)(begin, step_size, steps)
    terms = target.terms(end.position)
    error = energy_difference(
        (begin.position, begin.momentum), (end.position, end.momentum), (chain.terms, terms), target.prior_precision
    )
    proposal = Chain(end.position, end.logdensity, end.logdensity_grad, terms)
    chain, (accepted, acceptance, *_) = static_binomial_sampling(key_accept, -error, chain, proposal)  # pyright: ignore[reportArgumentType]
    info = Info(acceptance, accepted.astype(jnp.float32), error, log_posterior(target, chain.position, chain.terms))
    return chain, info


def _standard_normal(key: jax.Array, like: Tree) -> Tree:
    """One long draw, cut into leaves: compiles faster than one draw for each."""
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([leaf.size for leaf in leaves])
    pieces = jnp.split(jax.random.normal(key, (int(ends[-1]),), jnp.float32), ends[:-1])
    shaped = [piece.reshape(leaf.shape).astype(leaf.dtype) for piece, leaf in zip(pieces, leaves, strict=True)]
    return jax.tree.unflatten(structure, shaped)


def _kinetic_energy(momentum: Tree, position: Tree = None) -> jax.Array:
    return 0.5 * sum((jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(momentum)), jnp.zeros(()))
