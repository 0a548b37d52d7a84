"""Paths on which every unit keeps its mean and spread.

Half-way between two networks a unit is the mean of two that are alike but not equal, so that it varies less than
either; layer after layer this adds up, and most of what alignment leaves of a barrier comes from it. A rescaled path
gives each unit, at each site before a non-linearity (`symmetry/activations.py`), an affine map by which its mean and
standard deviation over data are those of the two ends, interpolated:

    mean_τ = (1 − τ) mean_0 + τ mean_1        spread_τ = (1 − τ) spread_0 + τ spread_1

The map is folded into parameters (`symmetry/unit_maps.py`), stds scaled along, so that a point of the path is a
posterior like any other. A site that has no parameters of its own, such as the sum of a residual stream, follows from
those that have. Correcting one site changes what comes after it, so they are corrected one after the other, in the
order of evaluation, each measured after those before it: all at once overshoots, and left a ResNet20 worse than it
was. Where all inputs and draws fit into memory at once this takes one pass: at every site the units are measured, and
what goes on from there is what the map makes of them. That is exact where a map acts at its site alone, which a
second pass over the result checks; else, and where memory does not suffice, there is a pass for each site. So it is
on accelerators, where passes are cheap and one program with all statistics in it compiles for minutes. The data need
no labels. The ends are left as they are, to the bit.

With labels the same maps are then fitted to the loss, some 0.3 % of the parameters; so are those of the ends, lest a
path seem better than its ends for having been trained.

References: Jordan et al. 2023 (REPAIR, for points).
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Shaped

from .chunks import Chunks
from .errors import ConfigError, DataError, PosteriorError
from .jaxprs import Apply, activation_bytes, evaluate, follow, hashable
from .likelihoods import Likelihood, LikelihoodLike, as_likelihood, check_outputs
from .matching import draws_of, site_chunks
from .paths import as_gaussian
from .posteriors import Gaussian, Posterior
from .randomness import PRNGKey, check_key
from .symmetry import PermutationSpec, Site, Sites, UnitMap, apply_unit_maps, discover, find_sites, find_unit_maps
from .trees import Tree

MEASURED = 2_000  # inputs at most on which units are measured; the fit to labels uses all
ONE_PASS_BYTES, LIVE = 6 << 30, 8  # memory that one pass may take; values of the largest size that live at once
CLOSE = 0.05  # of the units' typical spread: by how much their moments may be off after one pass
LARGEST = 20.0  # factor; a unit that all but died on the way is not blown up beyond it
RATE = 1e-2  # of the fit to labels

Path = Callable[[float], Any]
UnitMoments = list[tuple[np.ndarray, np.ndarray]]  # mean and spread of every unit, for each site
Maps = list[tuple[Float[Array, " units"], Float[Array, " units"]]]


class Rescaled:
    """A rescaled path, a function of τ; made by `rescale`. Points are computed when asked for and then kept."""

    def __init__(self, path: Path, network: "_Network", fit: "_Labels | None"):
        self.path, self._network, self._fit = path, network, fit
        self._ends = [as_gaussian(path(tau)) for tau in (0.0, 1.0)]
        self._moments = [network.moments(end) for end in self._ends]
        self._points: dict[float, Gaussian] = {}

    def __call__(self, tau: float) -> Gaussian:
        """The posterior at τ; without labels exactly that of the path at 0 and 1."""
        tau = float(tau)
        if tau not in self._points:
            point = self._ends[int(tau)] if tau in (0.0, 1.0) else self._rescaled(tau)
            self._points[tau] = point if self._fit is None else self._fitted(point, tau)
        return self._points[tau]

    def _rescaled(self, tau: float) -> Gaussian:
        return self._network.rescaled(as_gaussian(self.path(tau)), self._wanted(tau))

    def _fitted(self, point: Gaussian, tau: float) -> Gaussian:
        spreads = [jnp.asarray(spread, jnp.float32) for _, spread in self._wanted(tau)]
        return self._network.mapped(point, self._fit.fit(point, spreads)) if self._fit else point

    def _wanted(self, tau: float) -> UnitMoments:
        return _weighted(self._moments, [1 - tau, tau])


def rescale(
    path: Path,
    apply: Apply,
    x: Shaped[Array | np.ndarray, "examples ..."],
    *,
    key: PRNGKey,
    samples: int = 1,
    spec: PermutationSpec | None = None,
    labels: Shaped[Array | np.ndarray, "examples ..."] | None = None,
    steps: int = 300,
    batch: int = 250,
    likelihood: LikelihoodLike = "categorical",
) -> Rescaled:
    """Returns the path on which every unit has the mean and spread that the two ends have there, interpolated.

    Args:
        path: from `geodesic`, or any function of τ that gives mean-field Gaussians or points.
        apply: the network, `apply(params, x)`.
        x: inputs of the training set, a thousand or so; they need no labels. Units are measured on the first 2,000.
        key: decides the draws, the same for every τ.
        samples: draws of the weights over which mean and spread are taken; 0 takes the mean of the weights.
        spec: the groups of units; discovered where it is not given.
        labels: with them the maps are fitted to the loss as well, at every τ and at the ends.
        steps: of that fit.
        batch: examples of each step.
        likelihood: of the labels.

    Raises:
        ModelError: a group has no parameters that could rescale it; says which.
        PosteriorError: the path goes through something else than Gaussians and points.

    Example:
        >>> from bayesin import geodesic
        >>> apply = lambda p, x: jax.nn.relu(x @ p["w0"] + p["b0"]) @ p["w1"]
        >>> def net(seed):
        ...     keys = jax.random.split(jax.random.key(seed))
        ...     w0, w1 = jax.random.normal(keys[0], (4, 8)), jax.random.normal(keys[1], (8, 2))
        ...     return {"b0": jnp.zeros(8), "w0": w0, "w1": w1}
        >>> x = jax.random.normal(jax.random.key(2), (500, 4))
        >>> path = rescale(geodesic(net(0), net(1)), apply, x, key=jax.random.key(3))
        >>> hidden = [jnp.std(x @ path(tau).mean["w0"], 0) for tau in (0.0, 0.5, 1.0)]
        >>> bool(jnp.allclose(hidden[1], (hidden[0] + hidden[2]) / 2, rtol=1e-4))
        True
    """
    if steps < 1 or batch < 1:
        raise ConfigError(f"steps and batch start at 1, not {steps} and {batch}")
    mean = as_gaussian(path(0.0)).mean
    network = _network(apply, mean, x, spec, key, samples)
    fit = None
    if labels is not None:
        labels = np.asarray(labels)
        if len(labels) != len(network.x):
            raise DataError(f"need as many labels as inputs, not {len(labels)} and {len(network.x)}")
        chosen = as_likelihood(likelihood)
        check_outputs(chosen, network.apply, mean, (network.x, labels))
        fit = _Labels(network, labels, steps, batch, chosen)
    return Rescaled(path, network, fit)


def rescale_middle(
    middle: Gaussian,
    members: Sequence[Posterior | Tree],
    apply: Apply,
    x: Shaped[Array | np.ndarray, "examples ..."],
    *,
    key: PRNGKey,
    samples: int = 1,
    spec: PermutationSpec | None = None,
) -> Gaussian:
    """Returns the posterior in the middle of many with every unit's mean and spread the average of theirs.

    Half-way between two that is what `rescale` gives at τ = ½.
    """
    network = _network(apply, middle.mean, x, spec, key, samples)
    moments = [network.moments(as_gaussian(member)) for member in members]
    return network.rescaled(middle, _weighted(moments, [1 / len(moments)] * len(moments)))


def _network(
    apply: Apply, params: Tree, x: Any, spec: PermutationSpec | None, key: PRNGKey, samples: int
) -> "_Network":
    check_key(key)
    if samples < 0:
        raise ConfigError(f"samples starts at 0, not {samples}")
    apply, x = hashable(apply), np.asarray(x)
    if x.ndim < 2 or len(x) < 2:
        raise DataError(f"rescaling needs some inputs, batch first, not an array of shape {x.shape}")
    return _Network(apply, params, x, discover(apply, params, x[:2]) if spec is None else spec, key, samples)


class _Network:
    """A network, the data on which its units are measured, and the parameters that map them."""

    def __init__(self, apply: Apply, params: Tree, x: np.ndarray, spec: PermutationSpec, key: PRNGKey, samples: int):
        self.apply, self.params, self.spec, self.x, self.key, self.samples = apply, params, spec, x, key, samples
        # The program that `costs.Activations` runs as well: it computes a few sites too many, and is compiled once.
        self.sites = find_sites(apply, params, x, spec).joined
        self.unit_maps = find_unit_maps(self.sites, params, x, spec)
        self.chunks: list[Chunks] = list(site_chunks(self.sites, params, x[:MEASURED]))

    def moments(self, posterior: Gaussian, only: int | None = None) -> UnitMoments:
        """Mean and spread of every unit over examples, places and draws, at all sites that have a map or at one."""
        totals, wanted = None, self.unit_maps if only is None else self.unit_maps[only : only + 1]
        for params in draws_of(posterior, self.samples, self.key, 0):
            for chunk in self.chunks:
                values = self.sites(params, chunk.x)
                sums = jax.device_get([_sums(values[unit_map.site], chunk.weight) for unit_map in wanted])
                wide = [np.asarray(part, np.float64) for part in sums]
                totals = wide if totals is None else [a + b for a, b in zip(totals, wide, strict=True)]
        return [_mean_and_spread(part) for part in totals or ()]

    def rescaled(self, point: Gaussian, wanted: UnitMoments) -> Gaussian:
        """The posterior whose units have these moments: in one pass where that is possible and exact."""
        found = self._in_one_pass(point, wanted) if self._fits() else None
        return self._site_after_site(point, wanted) if found is None else found

    def _fits(self) -> bool:
        """Whether one pass pays, and what a few layers compute for all inputs and draws stays in memory."""
        if jax.default_backend() != "cpu":
            return False
        mean = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf), leaf.dtype), self.params)
        of_example = activation_bytes(self.apply, mean, self.x[:1])
        return LIVE * of_example * len(self.x[:MEASURED]) * max(1, self.samples) <= ONE_PASS_BYTES

    def _in_one_pass(self, point: Gaussian, wanted: UnitMoments) -> Gaussian | None:
        """Corrects every site as it is computed; None where the result does not have the moments."""
        draws = draws_of(point, self.samples, self.key, 0)
        program = _Pass(self.apply, self.sites, self.unit_maps)
        goals = [tuple(jnp.asarray(part, jnp.float32) for part in of_site) for of_site in wanted]
        found = self.mapped(point, list(_one_pass(program, draws, self.x[:MEASURED], goals)))
        reached = self.moments(found)
        return found if all(map(_close, reached, wanted)) else None

    def _site_after_site(self, point: Gaussian, wanted: UnitMoments) -> Gaussian:
        """Corrects one site after the other, each measured in a pass of its own."""
        for number, then in enumerate(wanted):
            (now,) = self.moments(point, number)
            point = self.mapped(point, [_map(now, then)], number)
        return point

    def mapped(self, posterior: Gaussian, maps: Maps, first: int = 0) -> Gaussian:
        """The posterior with every unit's value v made `a v + b` at sites from the first on."""
        return _mapped(posterior, maps, self.spec, self.unit_maps[first : first + len(maps)])


@jax.jit
def _sums(value: Array, weight: Array) -> Float[Array, "3 units"]:
    """Sums over examples and places: of ones, of values, of squares."""
    units = value.shape[-1]
    rows = value.astype(jnp.float32).reshape(len(weight), -1, units)
    total = jnp.einsum("epu,e->u", rows, weight, precision="highest")
    squares = jnp.einsum("epu,e->u", jnp.square(rows), weight, precision="highest")
    return jnp.stack([jnp.full(units, jnp.sum(weight) * rows.shape[1]), total, squares])


class _Pass(NamedTuple):
    """What the program that corrects all sites depends on."""

    apply: Apply
    sites: Sites
    unit_maps: tuple[UnitMap, ...]


@partial(jax.jit, static_argnums=0)
def _one_pass(
    program: _Pass, draws: list[Tree], x: Array, wanted: list[tuple[Array, Array]]
) -> list[tuple[Array, Array]]:
    """The maps that give units these moments, each measured behind those before it; all draws go side by side."""
    sites = {program.sites.sites[unit_map.site]: at for at, unit_map in enumerate(program.unit_maps)}
    by_value = {site.number: (site, at) for site, at in sites.items()}
    maps: dict[int, tuple[Array, Array]] = {}
    number = 0

    def step(equation: Any, inputs: list[tuple[Array, ...]]) -> list[tuple[Array, ...]]:
        nonlocal number
        each = [evaluate(equation, [value[draw] for value in inputs]) for draw in range(len(draws))]
        outputs = [tuple(of_draw) for of_draw in zip(*each, strict=True)]
        for at, values in enumerate(outputs):
            if number in by_value:
                site, which = by_value[number]
                a, b = maps[which] = _map_to(values, site, wanted[which])
                outputs[at] = tuple(_on_units(value, site, a, b) for value in values)
            number += 1
        return outputs

    flats = [jax.tree.leaves(params) for params in draws]
    inputs = [*zip(*flats, strict=True), *((leaf,) * len(draws) for leaf in jax.tree.leaves(x))]
    follow(program.apply, draws[0], x, inputs, step, lambda value: (value,) * len(draws))
    return [maps[at] for at in range(len(wanted))]


def _map_to(values: tuple[Array, ...], site: Site, wanted: tuple[Array, Array]) -> tuple[Array, Array]:
    """`_map` of units whose values, in all draws, are at hand."""
    rest = tuple(axis for axis in range(values[0].ndim) if axis not in site.axes)
    wide = [value.astype(jnp.float32) for value in values]
    mean = sum(value.mean(rest, keepdims=True) for value in wide) / len(wide)
    variance = sum(jnp.square(value - mean).mean(rest, keepdims=True) for value in wide) / len(wide)
    mean, spread = (jnp.moveaxis(part, site.axes, range(-len(site.axes), 0)).reshape(-1) for part in (mean, variance))
    spread = jnp.sqrt(spread)
    alive = spread > 1e-6 * (jnp.abs(mean) + 1e-6)
    a = jnp.where(alive, wanted[1] / jnp.where(alive, spread, 1.0), 1.0)
    a = jnp.clip(a, 1 / LARGEST, LARGEST)
    return a, wanted[0] - a * mean


def _on_units(value: Array, site: Site, a: Array, b: Array) -> Array:
    """`a · value + b`, an a and b for each unit."""
    units = [value.shape[axis] for axis in site.axes]
    last = jnp.moveaxis(value, site.axes, range(-len(units), 0)).astype(jnp.float32)
    shape = [1] * (last.ndim - len(units)) + units
    mapped = last * a.reshape(shape) + b.reshape(shape)
    return jnp.moveaxis(mapped, range(-len(units), 0), site.axes).astype(value.dtype)


def _close(reached: tuple[np.ndarray, np.ndarray], wanted: tuple[np.ndarray, np.ndarray]) -> bool:
    """Whether units have their moments, but for a few whose map was bounded and for rounding."""
    typical = np.sqrt(np.mean(np.square(wanted[1]))) + 1e-30
    gaps = [np.sqrt(np.mean(np.square(now - then))) for now, then in zip(reached, wanted, strict=True)]
    return max(gaps) <= CLOSE * typical


def _weighted(moments: Sequence[UnitMoments], weights: Sequence[float]) -> UnitMoments:
    """Means and spreads of several networks, averaged site by site."""
    by_site = [list(zip(*of_site, strict=True)) for of_site in zip(*moments, strict=True)]
    return [(_combined(means, weights), _combined(spreads, weights)) for means, spreads in by_site]


def _combined(arrays: Sequence[np.ndarray], weights: Sequence[float]) -> np.ndarray:
    return np.sum([weight * array for weight, array in zip(weights, arrays, strict=True)], axis=0)


def _mean_and_spread(sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    count, total, squares = sums
    mean = total / count
    return mean, np.sqrt(np.maximum(squares / count - mean**2, 0.0))


def _map(now: tuple[np.ndarray, np.ndarray], then: tuple[np.ndarray, np.ndarray]) -> tuple[Array, Array]:
    """(a, b) that give the moments `then` to units that have those of `now`; one that never varies is only moved."""
    (mean, spread), (wanted_mean, wanted_spread) = now, then
    alive = spread > 1e-6 * (np.abs(mean) + 1e-6)
    a = np.where(alive, wanted_spread / np.where(alive, spread, 1.0), 1.0)
    a = np.clip(a, 1 / LARGEST, LARGEST)
    return jnp.asarray(a, jnp.float32), jnp.asarray(wanted_mean - a * mean, jnp.float32)


def _mapped(posterior: Gaussian, maps: Maps, spec: PermutationSpec, unit_maps: tuple[UnitMap, ...]) -> Gaussian:
    return Gaussian(
        apply_unit_maps(posterior.mean, spec, unit_maps, maps, std=False),
        apply_unit_maps(posterior.std, spec, unit_maps, maps, std=True),
    )


class _Program(NamedTuple):
    """What the compiled step of a fit depends on."""

    apply: Apply
    likelihood: Likelihood
    spec: PermutationSpec
    unit_maps: tuple[UnitMap, ...]
    steps: int


class _Labels:
    """The fit of unit maps to labels, from the identity, by Adam with a falling rate; the same batches at every τ."""

    def __init__(self, network: _Network, labels: np.ndarray, steps: int, batch: int, likelihood: Likelihood):
        self.x, self.labels, self.steps, self.batch = network.x, labels, steps, batch
        self.program = _Program(network.apply, likelihood, network.spec, network.unit_maps, steps)
        self.key = jax.random.fold_in(network.key, 1)

    def fit(self, point: Gaussian, spreads: list[Array]) -> Maps:
        """The maps that lower the loss of single draws from the posterior."""
        step, optimiser = _step(self.program)
        # In units of each unit's own spread all steps are of one size.
        fitted = [(jnp.zeros_like(spread), jnp.zeros_like(spread)) for spread in spreads]
        state, order = optimiser.init(fitted), _batches(len(self.x), self.steps, self.batch)
        for number, batch in enumerate(order):
            noise = jax.random.fold_in(self.key, number)
            fitted, state = step(fitted, state, point, spreads, self.x[batch], self.labels[batch], noise)
        maps = _as_maps(fitted, spreads)
        if not all(np.isfinite(np.asarray(part)).all() for of_site in maps for part in of_site):
            raise PosteriorError("the fit of the unit maps diverged; leave labels= out")
        return maps


@lru_cache(maxsize=16)
def _step(program: _Program) -> tuple[Any, optax.GradientTransformation]:
    optimiser = optax.adam(optax.cosine_decay_schedule(RATE, program.steps))

    def loss(fitted: Maps, point: Gaussian, spreads: list[Array], x: Array, y: Array, key: PRNGKey) -> Array:
        moved = _mapped(point, _as_maps(fitted, spreads), program.spec, program.unit_maps)
        return -jnp.mean(program.likelihood.log_likelihood(program.apply(moved.draw(key), x), y))

    @jax.jit
    def step(fitted: Maps, state: Any, *arguments: Any) -> tuple[Maps, Any]:
        gradient = jax.grad(loss)(fitted, *arguments)
        with jax.numpy_dtype_promotion("standard"):  # optax mixes counters and fractions
            updates, state = optimiser.update(gradient, state, fitted)
        return optax.apply_updates(fitted, updates), state  # pyright: ignore[reportReturnType]

    return step, optimiser


def _as_maps(fitted: Maps, spreads: list[Array]) -> Maps:
    return [(jnp.exp(log_a), b * spread) for (log_a, b), spread in zip(fitted, spreads, strict=True)]


def _batches(examples: int, steps: int, batch: int) -> list[np.ndarray]:
    """Every example once before any comes again."""
    draws, size = np.random.default_rng(0), min(batch, examples)
    epochs = math.ceil(steps * size / (examples - examples % size))
    order = [
        np.split(draws.permutation(examples)[: examples - examples % size], examples // size) for _ in range(epochs)
    ]
    return [batch for epoch in order for batch in epoch][:steps]
