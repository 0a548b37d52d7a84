"""What the units of a group compute, found in any `apply` without naming its layers.

A value inside the network carries a group when it follows the group's permutation: computed with permuted
parameters, it is the same value with one axis permuted. So the network is run twice on a few inputs, once with
a group permuted, and every intermediate value of its jaxpr is compared. Two questions are answered from that:

`hidden_activations`   what the group hands on to the next layer: the last value that carries it
`find_sites`           everywhere the group shows *before* a non-linearity: after every norm, after every sum of a
                       residual stream, before every rectifier. A site is a value made by a contraction, a sum or a
                       norm, and then used by a non-linearity, by a contraction, or as a term of another sum

Calls inside the jaxpr (`jit`, `relu`'s custom derivative) are entered; loops and branches are not, but what
they return is looked at. A loop that was written out (`jaxprs.unrolled`) shows what its state is in every turn.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import ModelError
from ..inputs import Inputs, take
from ..jaxprs import INPUT, Apply, Step, hashable, steps, values
from ..trees import Tree
from .permute import permute
from .spec import PermutationSpec
from .verify import perturbed

# (params, x) -> {group: (..., units)}, the inputs' axes first
Activations = Callable[[Tree, Inputs], dict[str, Array]]

FEW = 4  # inputs on which values are compared
LOOPS = ("scan", "while", "cond")

# What moves numbers about, or changes each by a constant of its own, leaves a value what it is.
PASSING = (
    "neg",
    "convert_element_type",
    "reshape",
    "transpose",
    "broadcast_in_dim",
    "squeeze",
    "copy",
    "slice",
    "split",
)
CONTRACTIONS = ("dot_general", "conv_general_dilated")
SUMS, PRODUCTS = ("add", "sub", "add_any"), ("mul", "div")
POOLING = ("reduce_sum", "reduce_max", "reduce_window_sum", "reduce_window_max")
# Powers and roots are missing: they stand in norms, which are taken as a whole.
NON_LINEAR = ("max", "min", "tanh", "logistic", "exp", "erf", "erfc", "log1p", "log", "sin", "cos", "abs", "clamp")
NON_LINEAR += ("select_n", "gt", "ge", "lt", "le")  # a leaky rectifier chooses


class Site(NamedTuple):
    """A value, and the axes along which its units are counted, each by one group.

    The units of an indexed group are those of each of its outer groups, whose axes come first. Where an outer factor
    is fixed, as the layers of a scan are, a site is of one of them.
    """

    number: int  # of the value in the order of evaluation
    groups: tuple[str, ...]
    axes: tuple[int, ...]
    parity: int | None = 1  # what the sign of a unit multiplies its values by: 1 or −1; None where neither is so
    layer: tuple[int, ...] = ()  # the place in each fixed outer factor of the last group


class Sites:
    """The sites of a network, in the order of evaluation; called with (params, x) it computes what stands there."""

    def __init__(self, apply: Apply, sites: tuple[Site, ...], sizes: Mapping[str, int]):
        self.apply, self.sites, self.sizes = apply, sites, dict(sizes)
        self._run = jax.jit(self.values)

    @property
    def joined(self) -> "Sites":
        """The sites with all groups of one value together: heads, and the units inside each.

        Raises:
            ModelError: a group has units of its own in every layer of a stack.
        """
        for site in self.sites:
            _refuse_layers(site)
        return _joined(self)

    def __call__(self, params: Tree, x: Any) -> list[jax.Array]:
        """Arrays (..., units), one for each site, the inputs' axes first; one compiled program."""
        return self._run(params, x)

    def values(self, params: Tree, x: Any) -> list[jax.Array]:
        """The same, to be traced."""
        computed = values(self.apply, params, x)
        return [_pick(computed, site, self.sizes) for site in self.sites]

    def of(self, group: str) -> list[int]:
        """The numbers of a group's sites in the list, less those where another group shows in the same value.

        There units can only be compared once the order of the other is known, as features of heads when that of the
        heads is; an indexed group and its outer ones are compared as one.
        """
        values = [site.number for site in self.sites]
        own = [number for number, site in enumerate(self.sites) if site.groups[-1] == group]
        return [number for number in own if values.count(values[number]) == 1]

    def units(self, number: int) -> tuple[int, ...]:
        """How many units a site has, by group."""
        return tuple(self.sizes[group] for group in self.sites[number].groups)


def hidden_activations(apply: Apply, params: Tree, x: Any, spec: PermutationSpec, *, key: jax.Array) -> Activations:
    """Returns the function that computes the activations of every group, after its last non-linearity.

    Args:
        apply: the network.
        params: parameters of one network; they are perturbed, so freshly initialised ones will do.
        x: a few inputs that differ from each other; two to eight are enough.
        spec: the groups to look for.
        key: decides perturbation and permutations.

    Raises:
        ModelError: no value inside the network follows a group.

    Example:
        >>> import jax.numpy as jnp
        >>> apply = lambda p, x: jax.nn.relu(x @ p["w0"]) @ p["w1"]
        >>> params = {"w0": jax.random.normal(jax.random.key(0), (4, 6)), "w1": jnp.ones((6, 2))}
        >>> spec = PermutationSpec.parse({"w0": ["4", "g0"], "w1": ["g0", "2"]}, {"g0": 6})
        >>> x = jax.random.normal(jax.random.key(1), (3, 4))
        >>> activations = hidden_activations(apply, params, x, spec, key=jax.random.key(2))
        >>> bool(jnp.allclose(activations(params, x)["g0"], jax.nn.relu(x @ params["w0"])))
        True
    """
    sites = {group: found[-1] for group, found in _followers(apply, params, x, spec, key).items()}
    for site in sites.values():
        _refuse_layers(site)

    def activations(params: Tree, x: Any) -> dict[str, Any]:
        computed = values(apply, params, x)
        return {group: _pick(computed, site, spec.sizes) for group, site in sites.items()}

    return activations


def find_sites(apply: Apply, params: Tree, x: Any, spec: PermutationSpec) -> Sites:
    """Returns every place where the groups show before a non-linearity.

    What is found depends on the shapes of parameters and inputs alone, and is remembered for each network.

    Args:
        apply: the network.
        params: parameters of one network.
        x: inputs that differ from each other, of which the first few are used.
        spec: the groups to look for.

    Raises:
        ModelError: no value inside the network follows a group.

    Example:
        >>> import jax.numpy as jnp
        >>> apply = lambda p, x: jax.nn.relu(x @ p["w0"]) @ p["w1"]
        >>> params = {"w0": jax.random.normal(jax.random.key(0), (4, 6)), "w1": jnp.ones((6, 2))}
        >>> spec = PermutationSpec.parse({"w0": ["4", "g0"], "w1": ["g0", "2"]}, {"g0": 6})
        >>> x = jax.random.normal(jax.random.key(1), (3, 4))
        >>> [hidden] = find_sites(apply, params, x, spec)(params, x)
        >>> bool(jnp.allclose(hidden, x @ params["w0"]))
        True
    """
    leaves, structure = jax.tree.flatten(params)
    shapes = tuple((tuple(np.shape(leaf)), np.dtype(leaf.dtype).name) for leaf in leaves)
    return _remembered(hashable(apply), spec, structure, shapes, _Inputs(take(x, slice(FEW))))


@contextmanager
def on_host() -> Iterator[None]:
    """Computes on the processor even beside an accelerator: a few inputs are not worth a compilation there."""
    try:
        processor = jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # it was not asked for when JAX started
        yield
        return
    with jax.default_device(processor):
        yield


class _Inputs:
    """A few inputs, equal to others of their shape: which ones they are decides nothing."""

    def __init__(self, x: Inputs):
        self.x = jax.tree.map(np.asarray, x)
        leaves, structure = jax.tree.flatten(self.x)
        self.kind = structure, tuple((leaf.shape, leaf.dtype.name) for leaf in leaves)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Inputs) and self.kind == other.kind

    def __hash__(self) -> int:
        return hash(self.kind)


@lru_cache(maxsize=16)
def _remembered(
    apply: Apply, spec: PermutationSpec, structure: Any, shapes: tuple[tuple[Any, str], ...], inputs: _Inputs
) -> Sites:
    params = jax.tree.unflatten(structure, [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in shapes])
    with on_host():
        follows = _followers(apply, params, inputs.x, spec, jax.random.key(0))
    flow = _Flow(steps(apply, params, inputs.x))
    found = []
    for group, carriers in follows.items():
        carried = {site.number for site in carriers}
        # Where the units of heads show, the heads are compared by them, in whatever order they are.
        inside = {site.number for other, sites in follows.items() if group in spec.outer(other) for site in sites}
        sites = [site for site in carriers if site.number not in inside]
        found += [site for site in sites if flow.is_site(site.number, carried)] or sites[-1:]
    return Sites(apply, tuple(sorted(found)), spec.sizes)


@lru_cache(maxsize=16)
def _joined(sites: Sites) -> Sites:
    """Built once, since each is a program of its own; the same where no value has two groups."""
    by_value: dict[int, list[Site]] = {}
    for site in sites.sites:
        by_value.setdefault(site.number, []).append(site)
    if len(by_value) == len(sites.sites):
        return sites
    together = []
    for number, of_value in by_value.items():
        group_of = {axis: group for site in of_value for axis, group in zip(site.axes, site.groups, strict=True)}
        axes = tuple(sorted(group_of))
        together.append(Site(number, tuple(group_of[axis] for axis in axes), axes))
    return Sites(sites.apply, tuple(together), sites.sizes)


class _Flow:
    """What each value of a network is: before or after a non-linearity, and what uses it.

    `pooled` values have lost places or units to a sum: the statistics of norms. A product with one of them is a norm,
    a product of two others a gate, which is a non-linearity. `root` is the value that one is computed from number by
    number: the sum of a value and a power of it, inside a GELU, is no stream but part of a non-linearity.
    """

    def __init__(self, taken: list[Step]):
        self.steps = taken
        self.data, self.before, self.pooled = ([False] * len(taken) for _ in range(3))
        self.root, self.users = list(range(len(taken))), [[] for _ in taken]
        for number, step in enumerate(taken):
            for source in {source for source in step.inputs if source >= 0}:
                self.users[source].append(number)
            self._describe(number, step)

    def is_site(self, number: int, carried: set[int]) -> bool:
        """Whether the value stands before a non-linearity, a contraction or a sum with another that is carried."""
        return self.before[number] and any(self._ends(number, user, carried) for user in self.users[number])

    def _ends(self, number: int, user: int, carried: set[int]) -> bool:
        name = self.steps[user].primitive
        if name in NON_LINEAR or name in CONTRACTIONS:
            return True
        others = [other for other in self._data(self.steps[user]) if other != number]
        return name in SUMS and any(other in carried and not self.pooled[other] for other in others)

    def _data(self, step: Step) -> list[int]:
        return [source for source in step.inputs if source == INPUT or (source >= 0 and self.data[source])]

    def _describe(self, number: int, step: Step) -> None:
        data = self._data(step)
        self.data[number] = bool(data)
        if not data:
            return
        whole = [source for source in data if source == INPUT or not self.pooled[source]]
        before = [source >= 0 and self.before[source] for source in whole or data]
        self.pooled[number] = not whole or step.primitive in POOLING
        if step.primitive in CONTRACTIONS:
            self.before[number], self.pooled[number] = True, False
            return
        roots = {self.root[source] if source >= 0 else source for source in data}
        if len(roots) == 1 and not self.pooled[number]:
            (self.root[number],) = roots
        if step.primitive in (*SUMS, *PASSING, *POOLING):
            self.before[number] = all(before) if len(roots) == 1 else any(before)
        elif step.primitive in PRODUCTS:
            self.before[number] = len(before) == 1 and before[0]


def _numbers(value: Any) -> np.ndarray:
    """A value as numbers; a random key, which a recurrent network may carry, as the integers behind it."""
    is_key = jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(value) if is_key else value)


def _followers(apply: Apply, params: Tree, x: Any, spec: PermutationSpec, key: jax.Array) -> dict[str, list[Site]]:
    """The values of the network that carry each group, in the order of evaluation; at least one."""
    params = perturbed(jax.tree.map(as_numbers, params), key, 0.3)

    @jax.jit
    def run(params: Tree, x: Any) -> list[Any]:
        with jax.default_matmul_precision("highest"):
            return values(apply, params, x)

    before, shuffled = [_numbers(value) for value in run(params, x)], spec.random(key)
    found = {}
    for group, size in spec.sizes.items():
        names = (*spec.outer(group), group)
        layers = [name for name in names if name not in spec.sizes]
        perm, flips = np.asarray(shuffled[group]), np.where(np.arange(size) % 2, 1, -1).astype(np.int8)
        perm = np.where((perm == np.arange(size)).all(-1, keepdims=True), np.roll(perm, 1, -1), perm)
        found[group] = []
        # One layer after the other, as small ones may have the same permutation.
        for layer in np.ndindex(perm.shape[: len(layers)]) if names[: len(layers)] == tuple(layers) else ():
            moved, signs = spec.identity(), np.ones(perm.shape, np.int8)
            moved[group][layer], signs[layer] = perm[layer], flips
            after = run(permute(params, spec, moved), x)
            axes = [_axes(value, _numbers(one), perm[layer]) for value, one in zip(before, after, strict=True)]
            places = [(number, those) for number, those in enumerate(axes) if those is not None]
            sites = [Site(number, names[len(layers) :], those, layer=layer) for number, those in places]
            if group in spec.signed:
                flipped = run(permute(params, spec, spec.identity(), {group: signs}), x)
                sites = [
                    site._replace(
                        parity=_parity(before[site.number], _numbers(flipped[site.number]), site.axes, signs[layer])
                    )
                    for site in sites
                ]
            found[group] += sites
            if not sites:
                found[group] = []
                break  # what is known of other layers says nothing of this one
        if not found[group]:
            loops = sorted({step.primitive for step in steps(apply, params, x)} & set(LOOPS))
            inside = f" (the inside of {' and '.join(loops)} is not looked at)" if loops else ""
            raise ModelError(
                f"no value inside the network follows group '{group}'{inside}; pass activations=, a function of "
                "(params, x) that returns them by group, or match by weights"
            )
    return found


def _refuse_layers(site: Site) -> None:
    """Of such a group each site shows the units of one layer alone."""
    if site.layer:
        raise ModelError(
            f"group '{site.groups[-1]}' has units of its own in every layer of a stack, which can be matched by "
            "costs.Activations, but not rescaled or folded by activations; write the layers out, or match by weights"
        )


def _parity(before: np.ndarray, after: np.ndarray, axes: tuple[int, ...], signs: np.ndarray) -> int | None:
    """By what the values of units are multiplied whose sign was changed."""
    old, new = (np.moveaxis(value, axes, range(-signs.ndim, 0)) for value in (before, after))
    for parity, factor in ((-1, signs), (1, 1)):
        if np.abs(old * factor - new).max() <= 1e-4 * np.abs(old).max():
            return parity
    return None


def as_numbers(leaf: Any) -> Any:
    """A leaf on the host; a shape without values stays one."""
    return leaf if isinstance(leaf, jax.ShapeDtypeStruct) else np.asarray(leaf)


def _axes(before: np.ndarray, after: np.ndarray, perm: np.ndarray) -> tuple[int, ...] | None:
    """The axes of the outer factors and of the units that were permuted; None where none were.

    None as well where all inputs have one value: a parameter that is broadcast over the batch.
    """
    if before.ndim < 2 or before.dtype.kind != "f" or np.array_equal(before, after) or (before == before[:1]).all():
        return None
    tolerance = 1e-4 * np.abs(before).max()  # sums over units were reordered
    if not tolerance < np.abs(before - after).max():
        return None
    for axes in itertools.permutations(range(before.ndim - 1, 0, -1), perm.ndim):
        if tuple(before.shape[axis] for axis in axes) == perm.shape:
            old, new = (np.moveaxis(value, axes, range(-perm.ndim, 0)) for value in (before, after))
            index = perm.reshape((1,) * (old.ndim - perm.ndim) + perm.shape)
            if np.abs(np.take_along_axis(old, index, -1) - new).max() <= tolerance:
                return axes
    return None


def _pick(computed: list[Any], site: Site, sizes: Mapping[str, int]) -> Any:
    """The value at a site with its units last, all groups in one axis."""
    value = computed[site.number] if site.number < len(computed) else None
    units = [sizes[group] for group in site.groups]
    if value is None or value.ndim <= max(site.axes) or [value.shape[axis] for axis in site.axes] != units:
        names = " and ".join(f"'{group}'" for group in site.groups)
        raise ModelError(f"the network computes group {names} elsewhere for this input; pass activations=")
    last = jax.numpy.moveaxis(value, site.axes, range(-len(units), 0))
    return last.reshape(*last.shape[: last.ndim - len(units)], -1)
