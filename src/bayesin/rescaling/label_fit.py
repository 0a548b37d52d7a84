"""The fit of unit maps to labels, from the identity, by Adam with a falling rate; the same batches at every τ.

Some 0.3 % of the parameters are fitted, and those of the ends alike, lest a path seem better than its ends for having
been trained. Where nothing is labelled the ends are the teachers: a point is fitted to what both predict, weighted as
they are in it, so that an end is its own teacher and stays as it is.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from ..errors import PosteriorError
from ..inputs import count_of, take
from ..jaxprs import Apply, in_precision, output_shapes
from ..likelihoods import Categorical, Likelihood
from ..matching import draws_of
from ..posteriors import Gaussian
from ..randomness import PRNGKey
from ..symmetry import PermutationSpec, UnitMap
from .one_pass import Maps
from .units import Network, mapped

RATE = 1e-2
CHUNK = 500  # inputs on which the ends predict at once


class _Program(NamedTuple):
    """What the compiled steps depend on."""

    apply: Apply
    compute: str
    likelihood: Likelihood
    spec: PermutationSpec
    unit_maps: tuple[UnitMap, ...]
    steps: int
    soft: bool  # labels are probabilities of all classes


class LabelFit:
    """The fit of one network's unit maps to labels, or to both ends; program and data are shared by all τ."""

    def __init__(
        self,
        network: Network,
        labels: np.ndarray | Sequence[Gaussian],
        steps: int,
        batch: int,
        likelihood: Likelihood,
        compute: str,
    ):
        self.taught = not isinstance(labels, np.ndarray)
        # Labels of classes as probabilities too: one program, which takes long to compile, for both kinds of fit.
        soft = self.taught or isinstance(likelihood, Categorical)
        self.program = _Program(network.apply, compute, likelihood, network.spec, network.unit_maps, steps, soft)
        self.key, self.order = jax.random.fold_in(network.key, 1), _batches(count_of(network.x), steps, batch)
        self.x = jax.tree.map(jnp.asarray, network.x)
        if not isinstance(labels, np.ndarray):
            self.labels: Any = [_predicted(end, network, self.program) for end in labels]
        else:
            outputs = output_shapes(network.apply, network.params, take(network.x, slice(1)))
            self.labels = jax.nn.one_hot(labels, outputs.shape[-1]) if soft else jnp.asarray(labels)

    def fit(self, point: Gaussian, spreads: list[Array], tau: float) -> Maps:
        """The maps that lower the loss of single draws from the posterior."""
        run, optimiser = _steps(self.program)
        y = (1 - tau) * self.labels[0] + tau * self.labels[1] if self.taught else self.labels
        # In units of each unit's own spread all steps are of one size.
        fitted = [(jnp.zeros_like(spread), jnp.zeros_like(spread)) for spread in spreads]
        state, steps = optimiser.init(fitted), len(self.order)
        # One program runs all steps; on a CPU, where convolutions in a loop are four times as slow, one step a call.
        together = 1 if jax.default_backend() == "cpu" else steps
        for first in range(0, steps, together):
            part = np.arange(first, first + together), self.order[first : first + together]
            fitted, state = run(fitted, state, part, point, spreads, (self.x, y), self.key)
        maps = _as_maps(fitted, spreads)
        # A fit that diverges raises nothing by itself, and the path would go on as NaN.
        if not all(np.isfinite(np.asarray(part)).all() for of_site in maps for part in of_site):
            raise PosteriorError("the fit of the unit maps diverged; leave labels= out")
        return maps


@lru_cache(maxsize=16)
def _steps(program: _Program) -> tuple[Any, optax.GradientTransformation]:
    optimiser = optax.adam(optax.cosine_decay_schedule(RATE, program.steps))
    apply = in_precision(program.apply, program.compute)

    def loss(fitted: Maps, point: Gaussian, spreads: list[Array], x: Array, y: Array, key: PRNGKey) -> Array:
        moved = mapped(point, _as_maps(fitted, spreads), program.spec, program.unit_maps)
        outputs = apply(moved.draw(key), x)
        if program.soft:
            return -jnp.mean(jnp.sum(y * program.likelihood.log_probs(outputs), -1))  # pyright: ignore
        return -jnp.mean(program.likelihood.log_likelihood(outputs, y))

    @jax.jit
    def run(
        fitted: Maps, state: Any, part: Any, point: Gaussian, spreads: list[Array], data: Any, key: PRNGKey
    ) -> tuple[Maps, Any]:
        def step(carry: tuple[Maps, Any], of_step: tuple[Array, Array]) -> tuple[tuple[Maps, Any], None]:
            (fitted, state), (number, batch) = carry, of_step
            x, y = take(data, batch)
            gradient = jax.grad(loss)(fitted, point, spreads, x, y, jax.random.fold_in(key, number))
            with jax.numpy_dtype_promotion("standard"):  # optax mixes counters and fractions
                updates, state = optimiser.update(gradient, state, fitted)
            return (optax.apply_updates(fitted, updates), state), None  # pyright: ignore[reportReturnType]

        if len(part[0]) == 1:
            return step((fitted, state), (part[0][0], part[1][0]))[0]
        return jax.lax.scan(step, (fitted, state), part)[0]

    return run, optimiser


def _predicted(end: Gaussian, network: Network, program: _Program) -> Float[Array, "examples classes"]:
    """Probabilities of the classes by an end of the path, averaged over its draws."""
    probabilities = _probabilities(program)
    draws = draws_of(end, network.samples, network.key, 0)
    parts = [take(network.x, slice(at, at + CHUNK)) for at in range(0, count_of(network.x), CHUNK)]
    return jnp.concatenate([sum(probabilities(params, part) for params in draws) / len(draws) for part in parts])


@lru_cache(maxsize=16)
def _probabilities(program: _Program) -> Any:
    apply = in_precision(program.apply, program.compute)
    return jax.jit(lambda params, x: jnp.exp(program.likelihood.log_probs(apply(params, x))))  # pyright: ignore


def _as_maps(fitted: Maps, spreads: list[Array]) -> Maps:
    # The logarithm of a is fitted: a unit's sign stays what it is, and halving is as large a step as doubling.
    return [(jnp.exp(log_a), b * spread) for (log_a, b), spread in zip(fitted, spreads, strict=True)]


def _batches(examples: int, steps: int, batch: int) -> np.ndarray:
    """Numbers of the examples of each step; every one comes once before any comes again."""
    # A fixed order, the same at every τ, so that points of a path differ by their weights and not by their batches.
    draws, size = np.random.default_rng(0), min(batch, examples)
    epochs = math.ceil(steps * size / (examples - examples % size))
    order = [draws.permutation(examples)[: examples - examples % size].reshape(-1, size) for _ in range(epochs)]
    return np.concatenate(order)[:steps]
