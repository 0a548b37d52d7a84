"""A network seen by its units: their moments over data, and the posterior in which they have others.

What averaging takes from hidden units it takes from outputs as well: half-way between two classifiers logits vary
less than at either end, and the network is less sure than it should be. So the outputs are one more group of units,
which are rescaled but never permuted. Which parameters carry them is found like any group: a function of the outputs
that does not see their order leaves theirs free.
"""

import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ConfigError, LeftBehindWarning, ModelError
from ..inputs import Inputs, count_of, some_inputs, take
from ..jaxprs import Apply, activation_bytes, hashable, output_shapes
from ..matching import draws_of, site_chunks
from ..posteriors import Gaussian
from ..randomness import PRNGKey, check_key
from ..symmetry import Axis, Factor, PermutationSpec, UnitMap, apply_unit_maps, discover, find_sites, find_unit_maps
from ..trees import Tree
from .one_pass import Maps, Pass, map_between

MEASURED = 2_000  # inputs at most on which units are measured; the fit to labels uses all
LIVE = 8  # values of the largest size that live at once in one pass
ONE_PASS_BYTES = {"cpu": 6 << 30, "other": 40 << 30}  # memory that it may take
CLOSE = 0.05  # of the units' typical spread: by how much their moments may be off after one pass

UnitMoments = list[tuple[np.ndarray, np.ndarray]]  # mean and spread of every unit, for each site


class Network:
    """A network, the data on which its units are measured, and the parameters that map them."""

    def __init__(self, apply: Apply, params: Tree, x: Inputs, spec: PermutationSpec, key: PRNGKey, samples: int):
        self.apply, self.params, self.spec, self.x, self.key, self.samples = apply, params, spec, x, key, samples
        self.measured = take(x, slice(MEASURED))
        self.sites = find_sites(apply, params, x, spec).joined
        self.unit_maps = find_unit_maps(self.sites, params, x, spec)
        # Sites without a map are measured by nobody, and the pass does not stop there.
        stops = tuple(self.sites.sites[unit_map.site] for unit_map in self.unit_maps)
        self.one_pass = Pass(apply, stops, self.measured) if self._fits() else None

    def moments(self, posterior: Gaussian) -> UnitMoments:
        """Mean and spread of every unit over examples, places and draws, at all sites that have a map."""
        if self.one_pass is None:
            return self._streamed(posterior, self.unit_maps)
        return jax.device_get(self.one_pass.moments(draws_of(posterior, self.samples, self.key, 0)))

    def _streamed(self, posterior: Gaussian, unit_maps: tuple[UnitMap, ...]) -> UnitMoments:
        """The same at some sites, a part of the inputs at a time."""
        totals = None
        for params in draws_of(posterior, self.samples, self.key, 0):
            for chunk in site_chunks(self.sites, self.params, self.measured):
                values = self.sites(params, chunk.x)
                sums = jax.device_get([_sums(values[unit_map.site], chunk.weight) for unit_map in unit_maps])
                wide = [np.asarray(part, np.float64) for part in sums]
                totals = wide if totals is None else [a + b for a, b in zip(totals, wide, strict=True)]
        return [_mean_and_spread(part) for part in totals or ()]

    def rescaled(self, point: Gaussian, wanted: UnitMoments) -> Gaussian:
        """The posterior whose units have these moments: in one pass where that is possible and exact."""
        found = None if self.one_pass is None else self._at_once(self.one_pass, point, wanted)
        return self._site_after_site(point, wanted) if found is None else found

    def _fits(self) -> bool:
        """Whether what a few layers compute for all inputs and draws stays in memory."""
        mean = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf), leaf.dtype), self.params)
        of_example = activation_bytes(self.apply, mean, take(self.x, slice(1)))
        room = ONE_PASS_BYTES["cpu" if jax.default_backend() == "cpu" else "other"]
        return LIVE * of_example * count_of(self.measured) * max(1, self.samples) <= room

    def _at_once(self, one_pass: Pass, point: Gaussian, wanted: UnitMoments) -> Gaussian | None:
        """Corrects every site as it is computed; None where the result does not have the moments."""
        goals = [(_narrow(mean), _narrow(spread)) for mean, spread in wanted]
        found = self.mapped(point, one_pass.maps(draws_of(point, self.samples, self.key, 0), goals))
        return found if all(map(_close, self.moments(found), wanted)) else None

    def _site_after_site(self, point: Gaussian, wanted: UnitMoments) -> Gaussian:
        """Corrects one site after the other, each measured in a pass of its own."""
        for number, then in enumerate(wanted):
            (now,) = self._streamed(point, self.unit_maps[number : number + 1])
            a, b = map_between((_narrow(now[0]), _narrow(now[1])), (_narrow(then[0]), _narrow(then[1])))
            point = self.mapped(point, [(a, b)], number)
        return point

    def mapped(self, posterior: Gaussian, maps: Maps, first: int = 0) -> Gaussian:
        """The posterior with every unit's value v made `a v + b` at sites from the first on."""
        return mapped(posterior, maps, self.spec, self.unit_maps[first : first + len(maps)])


@jax.jit
def _sums(value: Array, weight: Array) -> Float[Array, "3 units"]:
    """Sums over examples and places: of ones, of values, of squares."""
    units = value.shape[-1]
    rows = value.astype(jnp.float32).reshape(len(weight), -1, units)
    total = jnp.einsum("epu,e->u", rows, weight, precision="highest")
    squares = jnp.einsum("epu,e->u", jnp.square(rows), weight, precision="highest")
    return jnp.stack([jnp.full(units, jnp.sum(weight) * rows.shape[1]), total, squares])


def _close(reached: tuple[np.ndarray, np.ndarray], wanted: tuple[np.ndarray, np.ndarray]) -> bool:
    """Whether units have their moments, but for a few whose map was bounded and for rounding."""
    # Against the typical spread of the site: a unit that hardly varies may be off by all of its own and move nothing.
    typical = np.sqrt(np.mean(np.square(wanted[1]))) + 1e-30
    gaps = [np.sqrt(np.mean(np.square(now - then))) for now, then in zip(reached, wanted, strict=True)]
    return max(gaps) <= CLOSE * typical


def weighted(moments: Sequence[UnitMoments], weights: Sequence[float]) -> UnitMoments:
    """Means and spreads of several networks, averaged site by site."""
    by_site = [list(zip(*of_site, strict=True)) for of_site in zip(*moments, strict=True)]
    return [(_combined(means, weights), _combined(spreads, weights)) for means, spreads in by_site]


def _combined(arrays: Sequence[np.ndarray], weights: Sequence[float]) -> np.ndarray:
    return np.sum([weight * array for weight, array in zip(weights, arrays, strict=True)], axis=0)


def _mean_and_spread(sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    count, total, squares = sums
    mean = total / count
    return mean, np.sqrt(np.maximum(squares / count - mean**2, 0.0))


def _narrow(array: np.ndarray) -> Array:
    return jnp.asarray(array, jnp.float32)


def mapped(posterior: Gaussian, maps: Maps, spec: PermutationSpec, unit_maps: tuple[UnitMap, ...]) -> Gaussian:
    """The posterior with every unit's value v made `a v + b`."""
    return Gaussian(
        apply_unit_maps(posterior.mean, spec, unit_maps, maps, std=False),
        apply_unit_maps(posterior.std, spec, unit_maps, maps, std=True),
    )


def checked(
    apply: Apply, params: Tree, x: Any, spec: PermutationSpec | None, key: PRNGKey, samples: int
) -> tuple[Apply, Inputs, PermutationSpec]:
    """The network, inputs and groups of a rescaling, discovered where they are not given."""
    check_key(key)
    if samples < 0:
        raise ConfigError(f"samples starts at 0, not {samples}")
    x = some_inputs(x)
    return hashable(apply), x, discover(apply, params, take(x, slice(2))) if spec is None else spec


def network_of(apply: Apply, params: Tree, x: Inputs, spec: PermutationSpec, key: PRNGKey, samples: int) -> Network:
    """The network with its outputs as a group of units, where parameters map them."""
    whole = with_outputs(spec, apply, params, take(x, slice(2)))
    if whole != spec:
        with suppress(ModelError):  # outputs without a bias stay as they are
            return Network(apply, params, x, whole, key, samples)
    return Network(apply, params, x, spec, key, samples)


OUTPUTS = "outputs"  # the name of their group


def with_outputs(spec: PermutationSpec, apply: Apply, params: Tree, x: Any) -> PermutationSpec:
    """Returns the spec with the outputs as a group; as it is where they are tied to other units or to inputs."""
    found = output_shapes(apply, params, x)
    if not hasattr(found, "shape") or found.ndim < 2 or not jnp.issubdtype(found.dtype, jnp.floating):
        return spec
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LeftBehindWarning)  # the network's own spec has said it
        free = discover(lambda params, x: jnp.sum(jnp.square(apply(params, x)), -1), params, x)
    axes, known = spec.axes, set(spec.sizes) | set(spec.fixed_factors)
    # A network may have a group of that name already.
    name = next(name for name in (OUTPUTS, *(f"{OUTPUTS}{n}" for n in range(len(known)))) if name not in known)
    for group, size in free.sizes.items():
        places = {(path, axis) for path, axis, _ in free.touched_by(group)}
        if size == found.shape[-1] and all(_is_fixed(axes[path][axis], size) for path, axis in places):
            changed = {
                path: tuple(
                    ((Factor(size, name),),) if (path, at) in places else axis for at, axis in enumerate(of_path)
                )
                for path, of_path in axes.items()
            }
            return replace(spec, parameters=tuple(changed.items()))
    return spec


def _is_fixed(axis: Axis, size: int) -> bool:
    """Whether an axis is one fixed factor of this size."""
    return axis == ((Factor(size),),)
