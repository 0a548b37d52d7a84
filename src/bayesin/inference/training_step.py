"""The compiled part of training: many steps of one member, or of several side by side.

One step of stochastic variational inference in weight space, per example:

    w = m + s ε,  s = softplus(ρ),  ε ~ N(0, 1)
    loss = mean NLL(w) + (a E_q[−log p] − b H[q]) / N
    ∂loss/∂m = g + (a/N) (m − c)/v
    ∂loss/∂ρ = [ g ε + (a s/v − b/s)/N ] · sigmoid(ρ),    g = ∂ mean NLL / ∂w

so that the network alone is differentiated automatically. `a = b = T` when the temperature multiplies
the KL, `a = 1, b = T` for exp(−U/T). Points have no ε and no entropy. A network with a training mode runs in it: the
statistics it collects at w are the next step's, and have no gradient, no noise and no prior. The named optimisers
come without their rate, and the rate without its scale, so that a grid of rates can share one program:

    update = −rate · shape(step) · direction(gradient)

Every random number is a function of (member key, stream, step): nothing of the generator is state, and
a member's numbers do not depend on which other members are trained.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from ..inputs import Inputs, count_of, take
from ..likelihoods import Likelihood, is_learned, negative_log_likelihood, score, with_parameters
from ..models import ApplyTrain
from ..trees import Tree, is_float
from .elbo import cross_entropy, entropy, softplus_and_slope
from .flat_parameters import FlatLayout

# Streams go by name: a new one changes the numbers of none that is there. Not by Python's own hash, which differs
# between processes.
INIT, SHUFFLE, NOISE, DROPOUT = (zlib.crc32(name) for name in (b"init", b"shuffle", b"noise", b"dropout"))


class State(NamedTuple):
    """What the next step needs."""

    variables: dict[str, Any]  # "mean", "rho", and in "likelihood" what is learned of it (else nothing)
    optimiser: Any
    fixed: list[jax.Array]  # leaves that are not trained: statistics as collected so far, and integers


class MemberHyperparameters(NamedTuple):
    """What may differ between members without compiling again."""

    key: jax.Array
    prior_variance: jax.Array
    temperature: jax.Array
    learning_rate: jax.Array
    likelihood: dict[str, jax.Array]  # the numbers of the likelihood; where they start when they are learned


class Shared(NamedTuple):
    """What all members see."""

    x: Inputs
    y: Any
    centre: Any = None  # of the prior, a vector; None means zero
    variance: Any = None  # of the prior, a vector; None means each member's own number


@dataclass(frozen=True)
class TrainingPlan:
    """Everything that is compiled in; static and hashable."""

    apply: Callable[[Tree, Any], Any]
    apply_train: ApplyTrain | None  # None where training mode is evaluation mode
    layout: FlatLayout
    likelihood: Likelihood
    temperature_on_prior: bool  # a = T (the KL is tempered) or a = 1 (the posterior is)
    examples: int
    batch: int
    steps: int  # of the whole run
    length: int  # of one call
    train_samples: int
    optimiser: Literal["adam", "sgd"] | optax.GradientTransformation
    momentum: float
    clip: float
    schedule: Literal["constant", "cosine"]
    warmup: int
    compute: str
    batch_sharding: Any = None

    @property
    def steps_per_epoch(self) -> int:
        return self.examples // self.batch

    def with_length(self, length: int) -> "TrainingPlan":
        return replace(self, length=length)

    @property
    def transformation(self) -> optax.GradientTransformation:
        """What becomes of a gradient: the user's optimiser whole, or ours without its rate."""
        if isinstance(self.optimiser, optax.GradientTransformation):
            return self.optimiser
        return direction(self.optimiser, self.momentum, self.clip)


def direction(kind: Literal["adam", "sgd"], momentum: float, clip: float) -> optax.GradientTransformation:
    """Returns optax's Adam or heavy-ball momentum behind global-norm clipping, to be multiplied by minus the rate."""
    clipped = [optax.clip_by_global_norm(clip)] if clip else []
    inner = optax.scale_by_adam() if kind == "adam" else optax.trace(momentum) if momentum else optax.identity()
    return optax.chain(*clipped, inner)


def rate_shape(schedule: Literal["constant", "cosine"], warmup: int, steps: int) -> optax.Schedule:
    """Returns the rate as a share of its peak: a linear rise from 1/(warmup + 1), then constant or a cosine to 0.

    Example:
        >>> [round(float(rate_shape("cosine", 0, 100)(step)), 3) for step in (0, 50, 100)]
        [1.0, 0.5, 0.0]
        >>> [round(float(rate_shape("constant", 3, 100)(step)), 3) for step in (0, 1, 2, 3)]
        [0.25, 0.5, 0.75, 1.0]
    """
    after = max(steps - warmup, 1)
    body = optax.cosine_decay_schedule(1.0, after) if schedule == "cosine" else optax.constant_schedule(1.0)
    if not warmup:
        return body
    rise = optax.linear_schedule(1.0 / (warmup + 1), 1.0, warmup)
    return optax.join_schedules([rise, body], [warmup])


def initial_state(plan: TrainingPlan, params: Tree, rho: float, likelihood: dict[str, jax.Array]) -> State:
    """Returns the state before the first step; dtypes are explicit, weak types would compile twice."""
    mean, fixed = plan.layout.split(params)
    learned = likelihood if is_learned(plan.likelihood) else {}
    rhos = jnp.full((plan.layout.gaussian_size,), rho, jnp.float32)
    variables = {"mean": mean, "rho": rhos, "likelihood": learned}
    return State(variables, plan.transformation.init(variables), fixed)


def advance(
    plan: TrainingPlan, state: State, member: MemberHyperparameters, shared: Shared, start: jax.Array
) -> tuple[State, dict[str, Any]]:
    """Runs `plan.length` steps of one member from step `start`.

    Returns:
        The state, and a row of the trace in parts: "averages" over the batches, "first_nll", and "now" at the end.
    """
    # Keys and rates of all steps at once: in the loop each would be a handful of tiny kernels a step.
    steps = start + jnp.arange(plan.length, dtype=jnp.int32)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.fold_in(member.key, NOISE), steps)
    with jax.numpy_dtype_promotion("standard"):  # optax divides counters by Python's numbers
        rates = member.learning_rate * jax.vmap(rate_shape(plan.schedule, plan.warmup, plan.steps))(steps)

    def body(state: State, at: Any) -> tuple[State, dict[str, jax.Array]]:
        return _step(plan, state, member, shared, *at)

    every = (keys, rates, batch_order(plan, member.key, start))
    # The same numbers either way; on a CPU convolutions inside of a loop are several times as slow.
    if plan.length == 1:  # no loop around a lone step
        state, seen = body(state, jax.tree.map(lambda leaf: leaf[0], every))
        seen = jax.tree.map(lambda leaf: leaf[None], seen)
    else:
        state, seen = jax.lax.scan(body, state, every)
    averages = {name: values.mean() for name, values in seen.items()}
    now = summary(plan, state, member, shared, averages["nll"])
    return state, {"averages": averages, "first_nll": seen["nll"][0], "now": now}


def summary(
    plan: TrainingPlan, state: State, member: MemberHyperparameters, shared: Shared, nll: jax.Array
) -> dict[str, jax.Array]:
    """KL, loss and spread of the stds as they are now; too dear for every step, free once an interval."""
    size = plan.layout.gaussian_size
    mean, (std, _) = state.variables["mean"], softplus_and_slope(state.variables["rho"])
    centre = jnp.zeros_like(mean) if shared.centre is None else shared.centre
    variance = member.prior_variance
    of_gaussians, of_points = (variance, variance) if shared.variance is None else jnp.split(shared.variance, [size])
    prior, spread = cross_entropy(mean[:size], std, centre[:size], of_gaussians), entropy(std)
    if shared.variance is None:
        points = jnp.sum(jnp.square(mean[size:] - centre[size:])) / (2 * variance)
    else:
        points = jnp.sum(jnp.square(mean[size:] - centre[size:]) / (2 * of_points))
    on_prior, on_entropy = _weights(plan, member)
    now = {"loss": nll + (on_prior * (prior + points) - on_entropy * spread) / plan.examples}
    if size:
        now |= {"kl": prior - spread, "std_mean": std.mean(), "std_min": std.min(), "std_max": std.max()}
    if state.variables["likelihood"]:
        likelihood = with_parameters(plan.likelihood, state.variables["likelihood"])
        columns = getattr(likelihood, "columns", None)
        now |= state.variables["likelihood"] if columns is None else columns()
    return now


def batch_order(plan: TrainingPlan, key: jax.Array, start: jax.Array) -> jax.Array:
    """Indices of the examples of the next `plan.length` batches: a fresh permutation for every epoch."""
    each, kept = plan.steps_per_epoch, plan.steps_per_epoch * plan.batch
    whole = plan.length % each == 0  # calls then begin where an epoch does
    epochs = plan.length // each if whole else (plan.length + each - 2) // each + 1
    stream = jax.random.fold_in(key, SHUFFLE)
    first = start // each

    def order(epoch: jax.Array) -> jax.Array:
        return jax.random.permutation(jax.random.fold_in(stream, epoch), plan.examples)[:kept]

    # What is left over of an epoch is left out, and is another part in the next: all batches have one size.
    orders = jax.lax.map(order, first + jnp.arange(epochs, dtype=jnp.int32)).reshape(-1)
    if not whole:
        orders = jax.lax.dynamic_slice_in_dim(orders, (start - first * each) * plan.batch, plan.length * plan.batch)
    return orders.reshape(plan.length, plan.batch).astype(jnp.int32)


def evaluate_mean(
    plan: TrainingPlan, state: State, member: MemberHyperparameters, x: Any, y: jax.Array
) -> dict[str, jax.Array]:
    """NLL and score of the mean network on a test set, batch after batch, in evaluation mode."""
    params = plan.layout.tree_of(state.variables["mean"], state.fixed)
    likelihood = with_parameters(plan.likelihood, state.variables["likelihood"] or member.likelihood)
    count = count_of(x)
    size = min(plan.batch, count)

    def in_batches(leaf: jax.Array) -> jax.Array:
        # Filled up to whole batches, of which the results are cut off: one shape, one program.
        padded = jnp.pad(leaf, [(0, -count % size), *[(0, 0)] * (leaf.ndim - 1)])
        return padded.reshape(-1, size, *leaf.shape[1:])

    outputs = jax.lax.map(lambda part: plan.apply(params, part), jax.tree.map(in_batches, x))
    outputs = outputs.reshape(-1, *outputs.shape[2:])[:count]
    seen = {"nll": negative_log_likelihood(likelihood, outputs, y).mean()} | score(likelihood, outputs, y)
    return {f"test_{name}": value for name, value in seen.items()}


def _step(
    plan: TrainingPlan,
    state: State,
    member: MemberHyperparameters,
    shared: Shared,
    key: jax.Array,
    rate: jax.Array,
    batch: jax.Array,
) -> tuple[State, dict[str, jax.Array]]:
    size = plan.layout.gaussian_size
    mean, rho, learned = (state.variables[name] for name in ("mean", "rho", "likelihood"))
    std, slope = softplus_and_slope(rho)
    x, y = take((shared.x, shared.y), batch)
    if plan.batch_sharding is not None:
        x, y = (jax.lax.with_sharding_constraint(a, plan.batch_sharding) for a in (x, y))

    def one_draw(drawn: tuple[jax.Array, jax.Array]) -> tuple[dict[str, jax.Array], dict[str, Any], list[jax.Array]]:
        noise, key = drawn
        # Sizes are static: a network without points, by far the most common, pays for no slice and no concatenation.
        gaussians = mean[:size] + std * noise if size < len(mean) else mean + std * noise
        weights = jnp.concatenate([gaussians, mean[size:]]) if size < len(mean) else gaussians
        seen, gradient, collected = _gradient(plan, weights, state.fixed, x, y, learned or member.likelihood, key)
        return seen, gradient | {"std": gradient["mean"][:size] * noise}, collected

    noise = jax.random.normal(key, (plan.train_samples, size), jnp.float32)
    if plan.train_samples == 1:
        seen, slopes, collected = one_draw((noise[0], jax.random.fold_in(key, DROPOUT)))
    else:
        keys = jax.random.split(jax.random.fold_in(key, DROPOUT), plan.train_samples)
        *averaged, collected = jax.lax.map(one_draw, (noise, keys))
        seen, slopes = jax.tree.map(lambda leaf: leaf.mean(0), averaged)
        # Statistics are averaged over the draws; a counter counts the step, not the draws in it.
        collected = [leaf.mean(0) if is_float(leaf.dtype) else leaf[0] for leaf in collected]

    on_prior, on_entropy = (weight / plan.examples for weight in _weights(plan, member))
    offset = mean if shared.centre is None else mean - shared.centre
    variance = member.prior_variance if shared.variance is None else shared.variance
    of_gaussians = variance if shared.variance is None else variance[:size]
    gradients = {
        "mean": slopes["mean"] + on_prior * offset / variance,
        "rho": (slopes["std"] + on_prior * std / of_gaussians - on_entropy / std) * slope,
        "likelihood": slopes["likelihood"] if learned else {},
    }
    if isinstance(plan.optimiser, optax.GradientTransformation):  # brings its own rate
        # optax mixes its counters with fractions, which is an error where promotion is strict.
        with jax.numpy_dtype_promotion("standard"):
            updates, optimiser = plan.optimiser.update(gradients, state.optimiser, state.variables)
        variables = optax.apply_updates(state.variables, updates)
    else:
        with jax.numpy_dtype_promotion("standard"):
            updates, optimiser = plan.transformation.update(gradients, state.optimiser)
        variables = jax.tree.map(lambda old, update: old - rate * update, state.variables, updates)
    fixed = state.fixed if plan.apply_train is None else collected
    return State(variables, optimiser, fixed), seen  # pyright: ignore[reportArgumentType]


def _gradient(
    plan: TrainingPlan,
    weights: jax.Array,
    fixed: list[jax.Array],
    x: Any,
    y: jax.Array,
    parameters: Any,
    key: jax.Array,
) -> tuple[dict[str, jax.Array], dict[str, Any], list[jax.Array]]:
    """NLL and score of one network; the gradient of the NLL, a vector, and that of the likelihood's numbers; and the
    leaves that are not trained as training mode leaves them."""
    dtype = jnp.dtype(plan.compute)

    def cast(leaf: Any) -> Any:
        return leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    def outputs_of(pieces: list[jax.Array]) -> tuple[Any, list[jax.Array]]:
        if plan.apply_train is None:
            params = jax.tree.map(cast, plan.layout.assemble(pieces, fixed))
            return plan.apply(params, jax.tree.map(cast, x)), []
        # Statistics keep their precision: an average that moves by a hundredth has too few digits in bfloat16.
        params = plan.layout.assemble([cast(piece) for piece in pieces], fixed)
        outputs, after = plan.apply_train(params, jax.tree.map(cast, x), key)
        return outputs, plan.layout.fixed_of(after)

    def loss(pieces: list[jax.Array], parameters: Any) -> tuple[jax.Array, Any]:
        outputs, after = outputs_of(pieces)
        likelihood = with_parameters(plan.likelihood, parameters)
        nll = negative_log_likelihood(likelihood, outputs, y).mean()
        return nll, (score(likelihood, outputs, y), after)

    # By pieces rather than the whole vector: the gradients of slices would each be a padded vector of all weights,
    # added up.
    (nll, (scores, after)), (pieces, slope) = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(
        plan.layout.pieces(weights), parameters
    )
    return {"nll": nll} | scores, {"mean": plan.layout.concatenate(pieces), "likelihood": slope}, after


def _weights(plan: TrainingPlan, member: MemberHyperparameters) -> tuple[jax.Array, jax.Array]:
    """(a, b): what the cross entropy to the prior and the entropy are multiplied with."""
    one = jnp.ones((), jnp.float32)
    return (member.temperature if plan.temperature_on_prior else one), member.temperature
