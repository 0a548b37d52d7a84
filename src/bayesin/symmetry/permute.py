"""The action of permutations on parameter trees, and the group that they form.

A tensor whose axes are products of factors is the same memory seen with one axis a factor. In that shape a
group is simply some of the axes, and a permutation acts by a gather along each of them,

    new[i] = old[perm[i]].

This one action serves means, stds, momenta, stacks of samples and the features that matching compares.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..errors import SpecError
from ..trees import Tree, flatten
from .spec import Perms, PermutationSpec, check_permutation


@dataclass(frozen=True)
class Layout:
    """The factored shape of one tensor, and the group of each of its factors (None where fixed)."""

    path: str
    full: tuple[int, ...]  # shape of the array as it is
    shape: tuple[int, ...]  # the same memory with one axis a factor
    groups: tuple[str | None, ...]

    def places(self, group: str) -> tuple[int, ...]:
        """The factors that count the units of a group."""
        return tuple(place for place, other in enumerate(self.groups) if other == group)

    @property
    def present(self) -> list[str]:
        """The groups, once for each factor they stand on."""
        return [group for group in self.groups if group is not None]


@lru_cache(maxsize=16)
def layouts(spec: PermutationSpec) -> Mapping[str, Layout]:
    """Returns the layout of every parameter of a spec, by path."""
    result = {}
    for path, axes in spec.parameters:
        factors = [factor for axis in axes for factor in axis]
        full = tuple(math.prod(factor.size for factor in axis) for axis in axes)
        result[path] = Layout(path, full, tuple(f.size for f in factors), tuple(f.group for f in factors))
    return MappingProxyType(result)


def permute(tree: Tree, spec: PermutationSpec, perms: Perms) -> Tree:
    """Returns the tree with the units of every group reordered; the input is left as it is.

    Concrete permutations act on the host, without compilation; leaves keep their type, dtype and device. Traced
    permutations or leaves act inside the program that is traced.

    Args:
        tree: params, stds, gradients, or a stack of them with leading axes.
        spec: which axes move together.
        perms: one integer array for each group, `new[i] = old[perm[i]]`; or, for a stack, one of shape
            (samples, units), a permutation for each entry of the first leading axis.

    Raises:
        SpecError: a parameter, a shape or a permutation does not fit the spec.

    Example:
        >>> spec = PermutationSpec.parse({"b": ["g0"], "w": ["2", "g0"]}, {"g0": 3})
        >>> tree = {"b": np.array([10, 20, 30]), "w": np.array([[1, 2, 3], [4, 5, 6]])}
        >>> permute(tree, spec, {"g0": np.array([2, 0, 1])})["w"].tolist()
        [[3, 1, 2], [6, 4, 5]]
    """
    lead = spec.check(tree)
    perms = {group: perm if isinstance(perm, Tracer) else np.asarray(perm) for group, perm in perms.items()}
    flat = flatten(tree)
    each = any(np.ndim(perm) == 2 for perm in perms.values())
    if each:
        samples = np.shape(next(iter(flat.values())))[0] if lead and flat else 0
        perms = _check_one_each(perms, spec, samples)
    else:
        spec.check_perms(perms)
    skip, known = identity_groups(perms), layouts(spec)
    move = _move_each if each else _move
    moved = [move(leaf, known[path], perms, skip) for path, leaf in flat.items()]
    return jax.tree.unflatten(jax.tree.structure(tree), moved)


def gather(array: Any, layout: Layout, perms: Mapping[str, Any], skip: frozenset[str] = frozenset()) -> Any:
    """Returns an array in factored shape, leading axes allowed, with every group moved except those in `skip`."""
    for place, group in enumerate(layout.groups, -len(layout.groups)):
        if group is not None and group not in skip:
            if isinstance(array, np.ndarray):
                array = array.take(perms[group], axis=place)
            else:  # indices are in range by construction; JAX's own mode would check them and fill with NaN
                array = jnp.take(array, perms[group], axis=place, mode="clip")
    return array


def identity_groups(perms: Mapping[str, Any]) -> frozenset[str]:
    """Returns the groups that permutations leave as they are; of traced ones that is not known."""
    return frozenset(
        group
        for group, perm in perms.items()
        if not isinstance(perm, Tracer) and (perm == np.arange(np.shape(perm)[-1])).all()
    )


def compose(outer: Mapping[str, Any], inner: Mapping[str, Any]) -> Perms:
    """Returns the permutations that act as `inner` first and `outer` after it.

    `permute(permute(t, inner), outer) == permute(t, compose(outer, inner))`, which in the gather
    convention is `inner[g][outer[g]]`.

    Example:
        >>> compose({"g0": np.array([1, 2, 0])}, {"g0": np.array([0, 2, 1])})["g0"].tolist()
        [2, 1, 0]
    """
    if set(outer) != set(inner):
        odd = sorted(set(outer) ^ set(inner))[0]
        raise SpecError(f"group '{odd}' is in one of the two permutations only")
    for group in outer:
        if np.shape(outer[group]) != np.shape(inner[group]):
            raise SpecError(
                f"group '{group}' has size {np.shape(outer[group])} in one permutation "
                f"and {np.shape(inner[group])} in the other"
            )
    return {group: _array(inner[group])[_array(outer[group])] for group in outer}


def invert(perms: Mapping[str, Any]) -> Perms:
    """Returns the permutations that undo these.

    Example:
        >>> invert({"g0": np.array([1, 2, 0])})["g0"].tolist()
        [2, 0, 1]
    """
    return {group: _invert_one(_array(perm)) for group, perm in perms.items()}


def transpositions(perms: Mapping[str, Any]) -> dict[str, int]:
    """Returns, for each group, the least number of swaps that make the permutation: n minus its cycles.

    Example:
        >>> transpositions({"g0": np.array([1, 2, 0, 3]), "g1": np.array([1, 0])})
        {'g0': 2, 'g1': 1}
    """
    return {group: _transpositions_of_one(perm, group) for group, perm in perms.items()}


def _move(leaf: Any, layout: Layout, perms: Perms, skip: frozenset[str]) -> Any:
    """One leaf, all of whose leading axes are moved alike."""
    if set(layout.present) <= skip:  # an immutable array is shared, another one copied
        return leaf.copy() if isinstance(leaf, np.ndarray) else leaf
    if not _on_host(leaf, layout, perms):
        leaf = jnp.asarray(leaf)
        lead = leaf.shape[: leaf.ndim - len(layout.full)]
        return gather(leaf.reshape(*lead, *layout.shape), layout, perms, skip).reshape(leaf.shape)
    array = np.asarray(leaf)
    lead = array.shape[: array.ndim - len(layout.full)]
    return _like(leaf, gather(array.reshape(*lead, *layout.shape), layout, perms, skip).reshape(array.shape))


def _move_each(leaf: Any, layout: Layout, perms: Perms, skip: frozenset[str]) -> Any:
    """One leaf of a stack, every entry of whose first axis has permutations of its own."""
    if set(layout.present) <= skip:
        return leaf.copy() if isinstance(leaf, np.ndarray) else leaf
    mine = {group: perms[group] for group in layout.present}
    if not _on_host(leaf, layout, perms):
        return jax.vmap(lambda member, own: _move(member, layout, own, skip))(jnp.asarray(leaf), mine)
    array = np.asarray(leaf)
    result = np.empty_like(array)
    for index, member in enumerate(array):
        result[index] = _move(member, layout, {group: perm[index] for group, perm in mine.items()}, skip)
    return _like(leaf, result)


def _on_host(leaf: Any, layout: Layout, perms: Perms) -> bool:
    """Whether numpy can move the leaf, which needs no compilation."""
    if isinstance(leaf, Tracer) or any(isinstance(perms[group], Tracer) for group in layout.present):
        return False
    return not isinstance(leaf, jax.Array) or leaf.is_fully_addressable


def _like(leaf: Any, result: np.ndarray) -> Any:
    return jax.device_put(result, leaf.sharding) if isinstance(leaf, jax.Array) else result


def _check_one_each(perms: Perms, spec: PermutationSpec, samples: int) -> Perms:
    """Checks one permutation a sample; a group with only one has it for all of them."""
    stacked = {group: perm if np.ndim(perm) == 2 else _repeat(perm, samples) for group, perm in perms.items()}
    for group, perm in stacked.items():
        if len(perm) != samples:
            raise SpecError(f"group '{group}' has {len(perm)} permutations, but the stack has {samples} samples")
    if samples:
        spec.check_perms({group: perm[0] for group, perm in stacked.items()})
    for group, perm in stacked.items():
        if not isinstance(perm, Tracer):
            wrong = (np.sort(perm, -1) != np.arange(perm.shape[-1])).any(-1)
            if wrong.any():
                check_permutation(perm[wrong.argmax()], perm.shape[-1], group)  # says what is wrong
    return stacked


def _repeat(perm: Any, samples: int) -> Any:
    return (jnp if isinstance(perm, Tracer) else np).broadcast_to(perm, (samples, *perm.shape))


def _transpositions_of_one(perm: Any, group: str) -> int:
    perm = np.asarray(perm)
    check_permutation(perm, perm.size, group)
    seen, cycles = np.zeros(perm.size, bool), 0
    for start in range(perm.size):
        cycles += not seen[start]
        while not seen[start]:
            seen[start], start = True, perm[start]
    return perm.size - cycles


def _invert_one(perm: Any) -> Any:
    if isinstance(perm, np.ndarray):
        return np.argsort(perm, kind="stable")
    return jnp.argsort(perm)


def _array(perm: Any) -> Any:
    return perm if isinstance(perm, jax.Array | np.ndarray) else np.asarray(perm)
