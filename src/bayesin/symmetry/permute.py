"""The action of permutations on parameter trees, and the group that they form.

A tensor whose axes are products of factors is the same memory seen with one axis a factor. In that shape a
group is simply some of the axes, and a permutation acts by a gather along each of them,

    new[i] = old[perm[i]].

An indexed group has one permutation for each position of its outer factors. These move first, and the units inside
follow by the new position: `new[h, i] = old[outer[h], perm[h, i]]`. A tensor with a sum on some axis is cut into
pieces, one for each combination of terms, each of which is a tensor of its own.

This one action serves means, stds, momenta, stacks of samples and the features that matching compares.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..errors import SpecError
from ..trees import Tree, flatten
from .spec import Axis, Factor, Perms, PermutationSpec, check_permutations, is_product, size_of_axis, size_of_term


class Step(NamedTuple):
    """A part of one axis, seen as several: `array[…, start:stop, …]`, and then one axis for each of `sizes`."""

    axis: int  # counted from the last one
    start: int
    stop: int
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """One piece of a tensor: where it stands, its factored shape, and the group of each of its factors.

    A tensor without sums has one piece, which is all of it.
    """

    path: str
    full: tuple[int, ...]  # shape of the whole array
    steps: tuple[Step, ...]  # from the array to the piece; none where the piece is all of it
    shape: tuple[int, ...]  # the piece with one axis a factor
    groups: tuple[str | None, ...]  # None where fixed
    outer: tuple[tuple[int, ...], ...]  # for each factor, the factors of this piece that its group is indexed by

    def places(self, group: str) -> tuple[int, ...]:
        """The factors that count the units of a group."""
        return tuple(place for place, other in enumerate(self.groups) if other == group)

    @cached_property
    def present(self) -> tuple[str, ...]:
        """The groups, once for each factor they stand on."""
        return tuple(group for group in self.groups if group is not None)

    @cached_property
    def moves(self) -> tuple[tuple[int, str, tuple[int, ...]], ...]:
        """The factors that move, with their groups and the factors that index these, outer factors first."""
        moves = [
            (place, group, outer)
            for place, (group, outer) in enumerate(zip(self.groups, self.outer, strict=True))
            if group is not None
        ]
        return tuple(sorted(moves, key=lambda move: len(move[2])))

    def factored(self, array: Any) -> Any:
        """Returns the piece of an array in factored shape, after any leading axes; a view where it can be one."""
        for step in self.steps:
            array = _seen(array[_index(step)], step)
        lead = array.shape[: array.ndim - len(self.shape if self.steps else self.full)]
        return array.reshape((*lead, *self.shape))

    def put(self, array: Any, piece: Any) -> Any:
        """Returns the array with another piece in its place, given in factored shape; numpy's is changed itself."""
        return _put(array, piece, self.steps)


@lru_cache(maxsize=16)
def layouts(spec: PermutationSpec) -> Mapping[str, tuple[Layout, ...]]:
    """Returns the pieces of every parameter of a spec, by path.

    Example:
        >>> spec = PermutationSpec.parse({"w": ["a + b", "2 * a"]}, {"a": 3, "b": 5})
        >>> [(piece.shape, piece.groups) for piece in layouts(spec)["w"]]
        [((3, 2, 3), ('a', None, 'a')), ((5, 2, 3), ('b', None, 'a'))]
        >>> layouts(spec)["w"][1].factored(np.zeros((8, 6))).shape
        (5, 2, 3)
    """
    return MappingProxyType({path: tuple(_pieces(path, axes)) for path, axes in spec.parameters})


def permute(tree: Tree, spec: PermutationSpec, perms: Perms) -> Tree:
    """Returns the tree with the units of every group reordered; the input is left as it is.

    Concrete permutations act on the host, without compilation; leaves keep their type, dtype and device. Traced
    permutations or leaves act inside the program that is traced.

    Args:
        tree: params, stds, gradients, or a stack of them with leading axes.
        spec: which axes move together.
        perms: one integer array of `spec.perm_shape(group)` for each group, `new[i] = old[perm[i]]`; or, for a
            stack, one with an axis of samples in front, permutations for each entry of the first leading axis.

    Raises:
        SpecError: a parameter, a shape or a permutation does not fit the spec.

    Example:
        >>> spec = PermutationSpec.parse({"b": ["g0"], "w": ["2", "g0"]}, {"g0": 3})
        >>> tree = {"b": np.array([10, 20, 30]), "w": np.array([[1, 2, 3], [4, 5, 6]])}
        >>> permute(tree, spec, {"g0": np.array([2, 0, 1])})["w"].tolist()
        [[3, 1, 2], [6, 4, 5]]
        >>> heads = PermutationSpec.parse({"w": ["h * q[h]"]}, {"h": 2, "q[h]": 3})  # the units of each head
        >>> perms = {"h": np.array([1, 0]), "q": np.array([[0, 1, 2], [2, 0, 1]])}
        >>> permute({"w": np.array([1, 2, 3, 4, 5, 6])}, heads, perms)["w"].tolist()
        [4, 5, 6, 3, 1, 2]
    """
    lead = spec.check(tree)
    perms = {group: perm if isinstance(perm, Tracer) else np.asarray(perm) for group, perm in perms.items()}
    flat = flatten(tree)
    each = any(np.ndim(perms[g]) == len(spec.perm_shape(g)) + 1 for g in spec.sizes if g in perms)
    if each:
        samples = np.shape(next(iter(flat.values())))[0] if lead and flat else 0
        perms = _check_one_each(perms, spec, samples)
    else:
        spec.check_perms(perms)
    skip, known = identity_groups(perms), layouts(spec)
    move = _move_each if each else _move
    moved = [move(leaf, known[path], perms, skip) for path, leaf in flat.items()]
    return jax.tree.unflatten(jax.tree.structure(tree), moved)


def move_one(leaf: Any, spec: PermutationSpec, perms: Perms, path: str) -> Any:
    """Returns one parameter with its units reordered; `perms` fit the spec."""
    return _move(leaf, layouts(spec)[path], perms, identity_groups(perms))


def gather(array: Any, layout: Layout, perms: Mapping[str, Any], skip: frozenset[str] = frozenset()) -> Any:
    """Returns a piece in factored shape, leading axes allowed, with every group moved except those in `skip`."""
    rank = len(layout.groups)
    for place, group, outer in layout.moves:
        if group in skip:
            continue
        perm, host = perms[group], isinstance(array, np.ndarray)
        if outer:
            index = spread(perm, (*outer, place), rank)
            index = index.reshape((1,) * (array.ndim - rank) + index.shape)
            # Indices are in range by construction; JAX's own mode would check them and fill with NaN.
            along = np.take_along_axis if host else partial(jnp.take_along_axis, mode="clip")
            array = along(array, index, axis=place - rank)
        elif host:
            array = array.take(perm, axis=place - rank)
        else:
            array = jnp.take(array, perm, axis=place - rank, mode="clip")
    return array


def spread(perm: Any, places: tuple[int, ...], rank: int) -> Any:
    """Returns an array with its axes at the given places among `rank` axes, the others of size 1.

    Example:
        >>> spread(np.zeros((2, 3)), (2, 0), 4).shape
        (3, 1, 2, 1)
    """
    order = sorted(range(len(places)), key=lambda axis: places[axis])
    shape = [1] * rank
    for axis, place in enumerate(places):
        shape[place] = perm.shape[axis]
    return perm.transpose(order).reshape(shape)


def identity_groups(perms: Mapping[str, Any]) -> frozenset[str]:
    """Returns the groups that permutations leave as they are; of traced ones that is not known."""
    return frozenset(
        group
        for group, perm in perms.items()
        if not isinstance(perm, Tracer) and (perm == np.arange(np.shape(perm)[-1])).all()
    )


def compose(outer: Mapping[str, Any], inner: Mapping[str, Any], spec: PermutationSpec | None = None) -> Perms:
    """Returns the permutations that act as `inner` first and `outer` after it.

    `permute(permute(t, inner), outer) == permute(t, compose(outer, inner))`, which in the gather
    convention is `inner[g][outer[g]]`; of a group indexed by h, `inner[g][outer[h]]` at each of its positions.

    Args:
        outer: what acts last.
        inner: what acts first.
        spec: says how groups are indexed; without it all of them are plain.

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
    outer = {group: _array(perm) for group, perm in outer.items()}
    return {group: _array(inner[group])[_sources(outer, _axes_of(outer, group, spec), spec)] for group in outer}


def invert(perms: Mapping[str, Any], spec: PermutationSpec | None = None) -> Perms:
    """Returns the permutations that undo these; `spec` says how groups are indexed.

    Example:
        >>> invert({"g0": np.array([1, 2, 0])})["g0"].tolist()
        [2, 0, 1]
    """
    perms, undone = {group: _array(perm) for group, perm in perms.items()}, {}
    for group in sorted(perms, key=lambda group: perms[group].ndim):  # outer factors first
        *outer, _ = _axes_of(perms, group, spec)
        undone[group] = _invert_last(perms[group][_sources(undone, tuple(outer), spec)] if outer else perms[group])
    return {group: undone[group] for group in perms}


def transpositions(perms: Mapping[str, Any]) -> dict[str, int]:
    """Returns, for each group, the least number of swaps that make the permutation: n minus its cycles.

    For an indexed group that is the sum over its permutations.

    Example:
        >>> transpositions({"g0": np.array([1, 2, 0, 3]), "g1": np.array([[1, 0], [1, 0], [0, 1]])})
        {'g0': 2, 'g1': 2}
    """
    return {group: _transpositions(np.asarray(perm), group) for group, perm in perms.items()}


class _Part(NamedTuple):
    """One term of an axis, with one term chosen of every sum inside of it."""

    start: int
    stop: int
    size: int  # of the whole axis
    parts: tuple[Any, ...]  # factors, or parts again


def _parts(axis: Axis) -> list[_Part]:
    parts, start, size = [], 0, size_of_axis(axis)
    for term in axis:
        stop = start + size_of_term(term)
        inside = [[part] if isinstance(part, Factor) else _parts(part) for part in term]
        parts += [_Part(start, stop, size, choice) for choice in itertools.product(*inside)]
        start = stop
    return parts


def _pieces(path: str, axes: tuple[Axis, ...]) -> Iterator[Layout]:
    """One layout for each combination of terms."""
    full = tuple(map(size_of_axis, axes))
    for combination in itertools.product(*map(_parts, axes)):
        steps: list[Step] = []
        seen: list[tuple[int, Any]] = list(enumerate(combination))  # (number of the axis, factor or part of it)
        while left := [place for place, (_, part) in enumerate(seen) if isinstance(part, _Part)]:
            number, part = seen[left[0]]
            sizes = tuple(inner.size for inner in part.parts)
            steps.append(Step(left[0] - len(seen), part.start, part.stop, sizes))
            seen[left[0] : left[0] + 1] = [(number, inner) for inner in part.parts]
        yield Layout(
            path,
            full,
            steps=() if all(map(is_product, axes)) else tuple(steps),
            shape=tuple(factor.size for _, factor in seen),
            groups=tuple(factor.group for _, factor in seen),
            outer=tuple(tuple(_outer_place(seen, number, name) for name in f.outer) for number, f in seen),
        )


def _outer_place(factors: list[tuple[int, Any]], number: int, name: str) -> int:
    """Where an outer factor stands; one on the same axis is meant first, as in a kernel of `h * q[h]` twice."""
    places = [(axis != number, place) for place, (axis, factor) in enumerate(factors) if factor.called == name]
    return min(places)[1]


def _index(step: Step) -> tuple[Any, ...]:
    return (..., slice(step.start, step.stop), *[slice(None)] * (-step.axis - 1))


def _seen(array: Any, step: Step) -> Any:
    """The array with one axis cut into several."""
    shape = array.shape
    place = array.ndim + step.axis
    return array.reshape((*shape[:place], *step.sizes, *shape[place + 1 :]))


def _put(array: Any, piece: Any, steps: tuple[Step, ...]) -> Any:
    if not steps:
        return piece.reshape(array.shape)
    part = array[_index(steps[0])]
    changed = _put(_seen(part, steps[0]), piece, steps[1:]).reshape(part.shape)
    if not isinstance(array, np.ndarray):
        return array.at[_index(steps[0])].set(changed)
    array[_index(steps[0])] = changed
    return array


def _axes_of(perms: Mapping[str, Any], group: str, spec: PermutationSpec | None) -> tuple[str, ...]:
    """Names of the axes of a group's permutations: its outer factors, and itself."""
    if spec is not None and group not in spec.sizes:
        raise SpecError(f"there is no group '{group}'; the spec has {', '.join(spec.sizes) or 'none'}")
    names = (group,) if spec is None else (*spec.outer(group), group)
    if perms[group].ndim != len(names) or (spec is not None and perms[group].shape != spec.perm_shape(group)):
        hint = "; pass the spec if the group is indexed" if spec is None else f", expected {spec.perm_shape(group)}"
        raise SpecError(f"the permutation of group '{group}' has shape {perms[group].shape}{hint}")
    return names


def _sources(perms: Mapping[str, Any], names: tuple[str, ...], spec: PermutationSpec | None) -> tuple[Any, ...]:
    """For an array whose axes have these names, the index that gathers it: one array of positions an axis."""
    index = []
    for place, name in enumerate(names):
        if name in perms:
            own = (*(names.index(other) for other in (spec.outer(name) if spec else ())), place)
            index.append(spread(perms[name], own, len(names)))
        else:
            size = spec.fixed_factors[name] if spec else 0
            index.append(spread(np.arange(size), (place,), len(names)))
    return tuple(index)


def _move(leaf: Any, pieces: tuple[Layout, ...], perms: Perms, skip: frozenset[str]) -> Any:
    """One leaf, all of whose leading axes are moved alike."""
    if all(set(piece.present) <= skip for piece in pieces):  # an immutable array is shared, another one copied
        return leaf.copy() if isinstance(leaf, np.ndarray) else leaf
    if not _on_host(leaf, pieces, perms):
        return _moved(jnp.asarray(leaf), pieces, perms, skip)
    return _like(leaf, _moved(np.asarray(leaf), pieces, perms, skip))


def _moved(array: Any, pieces: tuple[Layout, ...], perms: Perms, skip: frozenset[str]) -> Any:
    if len(pieces) == 1:
        return gather(pieces[0].factored(array), pieces[0], perms, skip).reshape(array.shape)
    result = array.copy() if isinstance(array, np.ndarray) else array
    for piece in pieces:
        if not set(piece.present) <= skip:
            result = piece.put(result, gather(piece.factored(array), piece, perms, skip))
    return result


def _move_each(leaf: Any, pieces: tuple[Layout, ...], perms: Perms, skip: frozenset[str]) -> Any:
    """One leaf of a stack, every entry of whose first axis has permutations of its own."""
    present = {group for piece in pieces for group in piece.present}
    if present <= skip:
        return leaf.copy() if isinstance(leaf, np.ndarray) else leaf
    mine = {group: perms[group] for group in present}
    if not _on_host(leaf, pieces, perms):
        return jax.vmap(lambda member, own: _move(member, pieces, own, skip))(jnp.asarray(leaf), mine)
    array = np.asarray(leaf)
    result = np.empty_like(array)
    for index, member in enumerate(array):
        result[index] = _move(member, pieces, {group: perm[index] for group, perm in mine.items()}, skip)
    return _like(leaf, result)


def _on_host(leaf: Any, pieces: tuple[Layout, ...], perms: Perms) -> bool:
    """Whether numpy can move the leaf, which needs no compilation."""
    traced = (isinstance(perms[group], Tracer) for piece in pieces for group in piece.present)
    if isinstance(leaf, Tracer) or any(traced):
        return False
    return not isinstance(leaf, jax.Array) or leaf.is_fully_addressable


def _like(leaf: Any, result: np.ndarray) -> Any:
    return jax.device_put(result, leaf.sharding) if isinstance(leaf, jax.Array) else result


def _check_one_each(perms: Perms, spec: PermutationSpec, samples: int) -> Perms:
    """Checks permutations of each sample; a group that has them only once has them for all of them."""
    shapes = {group: spec.perm_shape(group) for group in spec.sizes}
    stacked = {
        group: _repeat(perm, samples) if np.ndim(perm) == len(shapes.get(group, ())) else perm
        for group, perm in perms.items()
    }
    for group, perm in stacked.items():
        if len(perm) != samples:
            raise SpecError(f"group '{group}' has {len(perm)} permutations, but the stack has {samples} samples")
    if samples:
        spec.check_perms({group: perm[0] for group, perm in stacked.items()})
        for group, perm in stacked.items():
            check_permutations(perm, (samples, *shapes[group]), group)
    return stacked


def _repeat(perm: Any, samples: int) -> Any:
    return (jnp if isinstance(perm, Tracer) else np).broadcast_to(perm, (samples, *perm.shape))


def _transpositions(perm: np.ndarray, group: str) -> int:
    check_permutations(perm, perm.shape, group)
    return sum(map(_transpositions_of_one, perm.reshape(-1, perm.shape[-1])))


def _transpositions_of_one(perm: np.ndarray) -> int:
    seen, cycles = np.zeros(perm.size, bool), 0
    for start in range(perm.size):
        cycles += not seen[start]
        while not seen[start]:
            seen[start], start = True, perm[start]
    return perm.size - cycles


def _invert_last(perm: Any) -> Any:
    if isinstance(perm, np.ndarray):
        return np.argsort(perm, axis=-1, kind="stable")
    return jnp.argsort(perm, axis=-1)


def _array(perm: Any) -> Any:
    return perm if isinstance(perm, jax.Array | np.ndarray) else np.asarray(perm)
