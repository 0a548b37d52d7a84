"""What gradient descent passes through, kept in the state of its optimiser.

An optax transformation sees every step of the shared training loop, and its state is checkpointed, resumed, vmapped
and sharded with the rest. So methods that need the iterates wrap an optimiser instead of having a loop of their own.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from .settings import Training


class Iterates(NamedTuple):
    """State of `keep_iterates`; buffers are filled in turn, the oldest is overwritten."""

    step: jax.Array
    kept: jax.Array  # how many have been
    mean: jax.Array  # of all that were kept
    square: jax.Array  # mean of their squares about the first
    first: jax.Array
    buffer: jax.Array  # (size, weights): what `entry` made of the last ones
    inner: Any


Entry = Callable[[jax.Array, jax.Array], jax.Array]  # (weights, running mean) -> what is kept of them


def keep_iterates(
    inner: optax.GradientTransformation, *, size: int, due: Callable[[jax.Array], jax.Array], entry: Entry
) -> optax.GradientTransformation:
    """Returns the optimiser with a record of the weights after every step for which `due(step)` holds.

    Args:
        inner: the optimiser, its rate included.
        size: entries of the buffer.
        due: of the number of the step, counted from 0.
        entry: what is kept of the weights.
    """

    def init(variables: Any) -> Iterates:
        weights, zero = variables["mean"], jnp.zeros((), jnp.int32)
        nothing = jnp.zeros_like(weights)
        buffer = jnp.zeros((size, *weights.shape), weights.dtype)
        return Iterates(zero, zero, nothing, nothing, nothing, buffer, inner.init(variables))

    def update(gradients: Any, state: Iterates, variables: Any = None) -> tuple[Any, Iterates]:
        updates: Any
        updates, own = inner.update(gradients, state.inner, variables)
        weights = variables["mean"] + updates["mean"]
        now = due(state.step)
        first = jnp.where(state.kept == 0, weights, state.first)
        share = 1.0 / (state.kept + 1).astype(weights.dtype)
        mean = state.mean + (weights - state.mean) * share
        square = state.square + ((weights - first) ** 2 - state.square) * share  # about the first: no cancellation
        buffer = state.buffer.at[state.kept % size].set(entry(weights, mean))
        after = (state.kept + 1, mean, square, first, buffer)
        before = (state.kept, state.mean, state.square, state.first, state.buffer)
        kept = jax.tree.map(lambda new, old: jnp.where(now, new, old), after, before)
        count, mean, square, first, buffer = kept
        return updates, Iterates(state.step + 1, count, mean, square, first, buffer, own)

    return optax.GradientTransformation(init, update)  # pyright: ignore[reportArgumentType]


def path_alone(config: Any) -> Any:
    """The settings of what is descended along, without those of what is descended: of all problems, so that they may
    be the key of an optimiser that is kept. One that is made anew is another program to JAX, compiled again."""
    return replace(config, prior=None, likelihood="categorical", learn_noise=False)


def with_optimiser(config: Any, optimiser: optax.GradientTransformation) -> Any:
    """The settings with an optimiser that brings its own rate; those that then mean nothing are at their defaults."""
    idle = ("learning_rate", "schedule", "warmup", "momentum", "clip")
    return replace(config, optimiser=optimiser, **{name: getattr(Training, name) for name in idle})
