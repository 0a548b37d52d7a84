"""Which parameters give every unit at a site an affine map of its own: `a · value + b`.

After a norm they are its gain and bias, after a dense layer or a convolution its incoming weights and bias. They are
found by trial, as sites are, so that no layer need be named:

    bias    adding δ to it adds c · δ to the unit's value, one c for all units and inputs
    gain    multiplying it by a makes of the value v − c · bias, which is what the bias does not add, a times that

and neither reaches a site that is computed before. Then gain and bias times a, and b / c added to the bias, make
`a · v + b` of the unit's value v, to rounding, whatever the parameters and the input are.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..inputs import Inputs, take
from ..trees import Tree, common_dtype, flatten, map_with_path
from .activations import FEW, Sites, as_numbers, on_host
from .permute import Layout, layouts
from .spec import PermutationSpec
from .verify import perturbed

TOLERANCE = 1e-3  # of the largest value at a site; sums of float32 in another order differ by less
ROUNDING = 1e-4  # of a factor that is one


class Part(NamedTuple):
    """A parameter, or the piece of it that belongs to these units where one of its axes is a sum."""

    path: str
    piece: int = 0


class UnitMap(NamedTuple):
    """The parameters that map the units at one site."""

    site: int  # its number among the joined sites
    groups: tuple[str, ...]
    gain: Part
    bias: Part
    factor: float  # c above


Tried = tuple[Part, tuple[str, ...]]  # a part, and the groups whose units were changed in it
Maps = Sequence[tuple[Float[Array, " units"], Float[Array, " units"]]]  # (a, b) for each unit map


def find_unit_maps(sites: Sites, params: Tree, x: Any, spec: PermutationSpec) -> tuple[UnitMap, ...]:
    """Returns the map of every joined site that has one, in the order of evaluation; each parameter serves one site.

    Raises:
        ModelError: a group shows at no site where gain and bias act; says which.

    Example:
        >>> from bayesin.symmetry import find_sites
        >>> apply = lambda p, x: jax.nn.relu(x @ p["w0"] + p["b0"]) @ p["w1"]
        >>> params = {"w0": np.ones((4, 6)), "b0": np.ones(6), "w1": np.ones((6, 2))}
        >>> spec = PermutationSpec.parse({"b0": ["g0"], "w0": ["4", "g0"], "w1": ["g0", "2"]}, {"g0": 6})
        >>> x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
        >>> [found] = find_unit_maps(find_sites(apply, params, x, spec), params, x, spec)
        >>> found.gain.path, found.bias.path, round(found.factor, 6)
        ('w0', 'b0', 1.0)
    """
    if lacking := groups_without_map(sites, params, x, spec):
        raise ModelError(
            f"the units of group '{lacking[0]}' have no gain and bias (or incoming weights and bias) of their own "
            "that could rescale them; give each layer a bias, or merge without x= (--no-rescale)"
        )
    return _remembered(_known(sites, params, x, spec))[0]


def groups_without_map(sites: Sites, params: Tree, x: Any, spec: PermutationSpec) -> tuple[str, ...]:
    """Returns the groups that no gain and bias act on."""
    return _remembered(_known(sites, params, x, spec))[1]


def apply_unit_maps(
    tree: Tree, spec: PermutationSpec, unit_maps: Sequence[UnitMap], maps: Maps, *, std: bool
) -> Tree:
    """Returns parameters, or with `std` their stds, with every unit's value v made `a · v + b`. May be traced."""
    flat, known = dict(flatten(tree)), _parts(spec)
    for unit_map, (a, b) in zip(unit_maps, maps, strict=True):
        for part in (unit_map.gain, unit_map.bias):
            flat[part.path] = _scaled(flat[part.path], known[part], unit_map.groups, jnp.abs(a) if std else a)
        if not std:
            path, layout = unit_map.bias.path, known[unit_map.bias]
            flat[path] = _shifted(flat[path], layout, unit_map.groups, b / unit_map.factor)
    return map_with_path(lambda path, leaf: flat[path], tree)


def _parts(spec: PermutationSpec) -> dict[Part, Layout]:
    return {
        Part(path, number): piece for path, pieces in layouts(spec).items() for number, piece in enumerate(pieces)
    }


class _Known:
    """What decides the unit maps: equal for equal sites, which a network has once."""

    def __init__(self, sites: Sites, spec: PermutationSpec, shapes: Tree, x: Inputs):
        self.sites, self.spec, self.shapes, self.x = sites, spec, shapes, x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Known) and self.sites is other.sites and self.spec == other.spec

    def __hash__(self) -> int:
        return hash((id(self.sites), self.spec))


def _known(sites: Sites, params: Tree, x: Any, spec: PermutationSpec) -> _Known:
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf), leaf.dtype), params)
    return _Known(sites.joined, spec, shapes, jax.tree.map(np.asarray, take(x, slice(FEW))))


@lru_cache(maxsize=16)
def _remembered(known: _Known) -> tuple[tuple[UnitMap, ...], tuple[str, ...]]:
    with on_host(), jax.default_matmul_precision("highest"):
        trial = _Trial(known)
        found, used, covered = [], set(), set()
        for number, site in enumerate(known.sites.sites):
            candidates = trial.unit_maps(number)
            covered.update(site.groups if candidates else ())
            for candidate in candidates:
                if not {candidate.gain, candidate.bias} & used:
                    found.append(candidate)
                    used.update((candidate.gain, candidate.bias))
                    break
    return tuple(found), tuple(group for group in known.spec.sizes if group not in covered)


class _Trial:
    """A network at random parameters, and what the change of each of them does at its sites."""

    def __init__(self, known: _Known):
        self.sites, self.layouts = known.sites, _parts(known.spec)
        self.params = perturbed(jax.tree.map(as_numbers, known.shapes), jax.random.key(1), 0.3)
        self.flat: Mapping[str, Any] = flatten(self.params)
        self.draws, self.x = np.random.default_rng(2), known.x
        self.values = self._run(self.params)
        self.added: dict[Tried, tuple[np.ndarray, list[np.ndarray]]] = {}
        self.scaled: dict[Tried, tuple[np.ndarray, list[np.ndarray]]] = {}
        for groups in {site.groups for site in self.sites.sites}:
            units = int(np.prod([known.spec.sizes[group] for group in groups]))
            for part, layout in self.layouts.items():
                once = all(layout.present.count(group) == 1 for group in groups)
                if once and np.issubdtype(self.flat[part.path].dtype, np.floating):
                    self._try(part, layout, groups, units)

    def unit_maps(self, number: int) -> list[UnitMap]:
        """The maps of one site; small gains first, as those of norms."""
        groups = self.sites.sites[number].groups
        added = {bias: tried for (bias, of), tried in self.added.items() if of == groups}
        factors = {bias: c for bias, tried in added.items() if (c := self._factor(number, tried))}
        found = []
        for bias, factor in factors.items():
            for gain in (part for part, of in self.scaled if of == groups and part.path != bias.path):
                if self._is_gain(number, gain, bias, factor):
                    found.append(UnitMap(number, groups, gain, bias, factor))
        return sorted(found, key=lambda unit_map: math.prod(self.layouts[unit_map.gain].shape))

    def _try(self, part: Part, layout: Layout, groups: tuple[str, ...], units: int) -> None:
        leaf, factors = self.flat[part.path], self.draws.uniform(0.5, 1.5, units).astype(np.float32)
        self.scaled[part, groups] = factors, self._changed(part.path, _scaled(leaf, layout, groups, factors))
        if math.prod(layout.shape) == units:  # one number for each unit
            steps = self.draws.normal(size=units).astype(np.float32)
            self.added[part, groups] = steps, self._changed(part.path, _shifted(leaf, layout, groups, steps))

    def _factor(self, number: int, tried: tuple[np.ndarray, list[np.ndarray]]) -> float | None:
        """c, where a step of the bias adds it times the step."""
        steps, after = tried
        change = after[number] - self.values[number]
        added = np.broadcast_to(steps, change.shape)
        factor = float(np.vdot(change, added) / np.vdot(added, added))
        factor = 1.0 if abs(factor - 1) < ROUNDING else factor
        fits = self._close(number, change, factor * steps) and abs(factor) > TOLERANCE
        return factor if fits and self._leaves_earlier(number, after) else None

    def _is_gain(self, number: int, gain: Part, bias: Part, factor: float) -> bool:
        groups = self.sites.sites[number].groups
        factors, after = self.scaled[gain, groups]
        layout = self.layouts[bias]
        added = layout.factored(np.asarray(self.flat[bias.path]))
        added = np.transpose(added, [place for group in groups for place in layout.places(group)])
        rest = self.values[number] - factor * added.reshape(-1)
        expected = (factors - 1) * rest
        fits = self._close(number, after[number] - self.values[number], expected)
        return fits and self._leaves_earlier(number, after)

    def _leaves_earlier(self, number: int, after: list[np.ndarray]) -> bool:
        return all(self._close(at, after[at] - self.values[at], 0.0) for at in range(number))

    def _close(self, number: int, change: np.ndarray, expected: Any) -> bool:
        return bool(np.abs(change - expected).max() <= TOLERANCE * np.abs(self.values[number]).max())

    def _changed(self, path: str, leaf: Any) -> list[np.ndarray]:
        return self._run(map_with_path(lambda at, old: leaf if at == path else old, self.params))

    def _run(self, params: Tree) -> list[np.ndarray]:
        return [np.asarray(value) for value in self.sites(params, self.x)]


def _scaled(leaf: Any, layout: Layout, groups: tuple[str, ...], factors: Any) -> Any:
    return _by_unit(leaf, layout, groups, factors, lambda array, unit: array * unit)


def _shifted(leaf: Any, layout: Layout, groups: tuple[str, ...], steps: Any) -> Any:
    return _by_unit(leaf, layout, groups, steps, lambda array, unit: array + unit)


def _by_unit(leaf: Any, layout: Layout, groups: tuple[str, ...], of_units: Any, change: Any) -> Any:
    """The array with each unit's numbers changed by that unit's own; computed wide, kept in the array's precision."""
    places = [place for group in groups for place in layout.places(group)]
    unit = jnp.asarray(of_units).reshape([layout.shape[place] for place in places])
    unit = unit.transpose(np.argsort(places)).reshape([n if i in places else 1 for i, n in enumerate(layout.shape)])
    array = jnp.asarray(leaf)
    wide = layout.factored(array.astype(common_dtype(array.dtype, jnp.float32)))
    return layout.put(array, change(wide, unit).astype(array.dtype))
