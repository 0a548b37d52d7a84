"""The compiled part of training: many steps of one member, or of several side by side.

One step of stochastic variational inference in weight space, per example:

    w = m + s ε,  s = softplus(ρ),  ε ~ N(0, 1)
    loss = mean NLL(w) + (a E_q[−log p] − b H[q]) / N
    ∂loss/∂m = g + (a/N) (m − c)/v
    ∂loss/∂ρ = [ g ε + (a s/v − b/s)/N ] · sigmoid(ρ),    g = ∂ mean NLL / ∂w

so that the network alone is differentiated automatically. `a = b = T` when the temperature multiplies
the KL, `a = 1, b = T` for exp(−U/T). Points have no ε and no entropy.

Every random number is a function of (member key, stream, step): nothing of the generator is state, and
a member's numbers do not depend on which other members are trained.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..trees import Tree
from .divergence import cross_entropy, entropy, softplus_and_slope
from .layout import Layout
from .likelihoods import Likelihood, negative_log_likelihood, score
from .optimiser import direction, rate_shape

INIT, SHUFFLE, NOISE = (zlib.crc32(name) for name in (b"init", b"shuffle", b"noise"))


class State(NamedTuple):
    """What the next step needs."""

    variables: dict[str, jax.Array]  # "mean", "rho", and "log_noise" where it is learned
    optimiser: Any
    fixed: list[jax.Array]  # leaves that are not trained


class Row(NamedTuple):
    """What may differ between members without compiling again."""

    key: jax.Array
    prior_variance: jax.Array
    temperature: jax.Array
    learning_rate: jax.Array
    log_noise: jax.Array


class Shared(NamedTuple):
    """What all members see."""

    x: Any
    y: Any
    centre: Any  # of the prior; None means zero


@dataclass(frozen=True)
class Plan:
    """Everything that is compiled in; static and hashable."""

    apply: Callable[[Tree, Any], Any]
    layout: Layout
    likelihood: Likelihood
    learn_noise: bool
    temperature_on_prior: bool  # a = T (the KL is tempered) or a = 1 (the posterior is)
    examples: int
    batch: int
    steps: int  # of the whole run
    length: int  # of one call
    train_samples: int
    optimiser: str
    momentum: float
    clip: float
    schedule: str
    warmup: int
    compute: str
    batch_sharding: Any = None

    @property
    def steps_per_epoch(self) -> int:
        return self.examples // self.batch

    def with_length(self, length: int) -> "Plan":
        return replace(self, length=length)

    def with_sharding(self, sharding: Any) -> "Plan":
        return replace(self, batch_sharding=sharding)

    @property
    def direction(self) -> Any:
        return direction(self.optimiser, self.momentum, self.clip)  # pyright: ignore[reportArgumentType]


def initial_state(plan: Plan, params: Tree, rho: float, log_noise: float) -> State:
    """Returns the state before the first step; dtypes are explicit, weak types would compile twice."""
    mean, fixed = plan.layout.split(params)
    variables = {"mean": mean, "rho": jnp.full((plan.layout.gaussian_size,), rho, jnp.float32)}
    if plan.learn_noise:
        variables["log_noise"] = jnp.asarray(log_noise, jnp.float32)
    return State(variables, plan.direction.init(variables), fixed)


def advance(plan: Plan, state: State, row: Row, shared: Shared, start: jax.Array) -> tuple[State, dict[str, Any]]:
    """Runs `plan.length` steps of one member from step `start`; returns the state and a row of the trace."""
    # Keys and rates of all steps at once: in the loop each would be a handful of tiny kernels a step.
    steps = start + jnp.arange(plan.length, dtype=jnp.int32)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.fold_in(row.key, NOISE), steps)
    shape = rate_shape(plan.schedule, plan.warmup, plan.steps)  # pyright: ignore[reportArgumentType]
    rates = row.learning_rate * jax.vmap(shape)(steps)

    def body(state: State, at: Any) -> tuple[State, dict[str, jax.Array]]:
        return _step(plan, state, row, shared, *at)

    every = (keys, rates, batch_order(plan, row.key, start))
    if plan.length == 1:  # no loop around a lone step
        state, seen = body(state, jax.tree.map(lambda leaf: leaf[0], every))
        seen = jax.tree.map(lambda leaf: leaf[None], seen)
    else:
        state, seen = jax.lax.scan(body, state, every)
    row_of_trace = {"nll": seen["nll"].mean(), "score": seen["score"].mean(), "first_nll": seen["nll"][0]}
    return state, row_of_trace | summary(plan, state, row, shared, row_of_trace["nll"])


def summary(plan: Plan, state: State, row: Row, shared: Shared, nll: jax.Array) -> dict[str, jax.Array]:
    """KL, loss and spread of the stds as they are now; too dear for every step, free once an interval."""
    size = plan.layout.gaussian_size
    mean, (std, _) = state.variables["mean"], softplus_and_slope(state.variables["rho"])
    centre = jnp.zeros_like(mean) if shared.centre is None else shared.centre
    prior, spread = cross_entropy(mean[:size], std, centre[:size], row.prior_variance), entropy(std)
    points = jnp.sum(jnp.square(mean[size:] - centre[size:])) / (2 * row.prior_variance)
    on_prior, on_entropy = _weights(plan, row)
    found = {"loss": nll + (on_prior * (prior + points) - on_entropy * spread) / plan.examples}
    if size:
        found |= {"kl": prior - spread, "std_mean": std.mean(), "std_min": std.min(), "std_max": std.max()}
    if plan.learn_noise:
        found["noise"] = jnp.exp(state.variables["log_noise"])
    return found


def batch_order(plan: Plan, key: jax.Array, start: jax.Array) -> jax.Array:
    """Indices of the examples of the next `plan.length` batches: a fresh permutation for every epoch."""
    each, kept = plan.steps_per_epoch, plan.steps_per_epoch * plan.batch
    whole = plan.length % each == 0  # calls then begin where an epoch does
    epochs = plan.length // each if whole else (plan.length + each - 2) // each + 1
    stream = jax.random.fold_in(key, SHUFFLE)
    first = start // each

    def order(epoch: jax.Array) -> jax.Array:
        return jax.random.permutation(jax.random.fold_in(stream, epoch), plan.examples)[:kept]

    orders = jax.lax.map(order, first + jnp.arange(epochs, dtype=jnp.int32)).reshape(-1)
    if not whole:
        orders = jax.lax.dynamic_slice_in_dim(orders, (start - first * each) * plan.batch, plan.length * plan.batch)
    return orders.reshape(plan.length, plan.batch).astype(jnp.int32)


def evaluate(plan: Plan, state: State, row: Row, x: jax.Array, y: jax.Array) -> dict[str, jax.Array]:
    """NLL and score of the mean network on a test set, batch after batch."""
    params = plan.layout.tree_of(state.variables["mean"], state.fixed)
    log_noise = state.variables.get("log_noise", row.log_noise)
    size = min(plan.batch, len(x))
    padded = jnp.pad(x, [(0, -len(x) % size), *[(0, 0)] * (x.ndim - 1)])
    outputs = jax.lax.map(lambda part: plan.apply(params, part), padded.reshape(-1, size, *x.shape[1:]))
    outputs = outputs.reshape(-1, *outputs.shape[2:])[: len(x)]
    nll = negative_log_likelihood(plan.likelihood, outputs, y, log_noise)
    return {"test_nll": nll.mean(), "test_score": score(plan.likelihood, outputs, y)}


def _step(
    plan: Plan, state: State, row: Row, shared: Shared, key: jax.Array, rate: jax.Array, batch: jax.Array
) -> tuple[State, dict[str, jax.Array]]:
    size = plan.layout.gaussian_size
    mean, rho = state.variables["mean"], state.variables["rho"]
    std, slope = softplus_and_slope(rho)
    log_noise = state.variables.get("log_noise", row.log_noise)
    x, y = shared.x[batch], shared.y[batch]
    if plan.batch_sharding is not None:
        x, y = (jax.lax.with_sharding_constraint(a, plan.batch_sharding) for a in (x, y))

    def one_sample(noise: jax.Array) -> dict[str, jax.Array]:
        weights = (
            jnp.concatenate([mean[:size] + std * noise, mean[size:]]) if size < len(mean) else mean + std * noise
        )
        found, gradient = _gradient(plan, weights, state.fixed, x, y, log_noise)
        return found | {"mean": gradient["mean"], "std": gradient["mean"][:size] * noise} | gradient

    noise = jax.random.normal(key, (plan.train_samples, size), jnp.float32)
    if plan.train_samples == 1:
        found = one_sample(noise[0])
    else:
        found = jax.tree.map(lambda leaf: leaf.mean(0), jax.lax.map(one_sample, noise))

    on_prior, on_entropy = (weight / plan.examples for weight in _weights(plan, row))
    offset = mean if shared.centre is None else mean - shared.centre
    gradients = {
        "mean": found["mean"] + on_prior * offset / row.prior_variance,
        "rho": (found["std"] + on_prior * std / row.prior_variance - on_entropy / std) * slope,
    }
    if plan.learn_noise:
        gradients["log_noise"] = found["log_noise"]
    updates, optimiser = plan.direction.update(gradients, state.optimiser)
    variables = jax.tree.map(lambda old, update: old - rate * update, state.variables, updates)
    return State(variables, optimiser, state.fixed), {"nll": found["nll"], "score": found["score"]}


def _gradient(
    plan: Plan, weights: jax.Array, fixed: list[jax.Array], x: jax.Array, y: jax.Array, log_noise: jax.Array
) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    """NLL and score of one network, and the gradient of the NLL as a vector."""
    dtype = jnp.dtype(plan.compute)

    def cast(leaf: Any) -> Any:
        return leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    def loss(pieces: list[jax.Array], log_noise: jax.Array) -> tuple[jax.Array, jax.Array]:
        params = jax.tree.map(cast, plan.layout.assemble(pieces, fixed))
        outputs = plan.apply(params, cast(x))
        nll = negative_log_likelihood(plan.likelihood, outputs, y, log_noise).mean()
        return nll, score(plan.likelihood, outputs, y)

    (nll, seen), (pieces, slope) = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(
        plan.layout.pieces(weights), log_noise
    )
    gradient = {"mean": plan.layout.concatenate(pieces)}
    return {"nll": nll, "score": seen}, gradient | ({"log_noise": slope} if plan.learn_noise else {})


def _weights(plan: Plan, row: Row) -> tuple[jax.Array, jax.Array]:
    """(a, b): what the cross entropy to the prior and the entropy are multiplied with."""
    one = jnp.ones((), jnp.float32)
    return (row.temperature if plan.temperature_on_prior else one), row.temperature
