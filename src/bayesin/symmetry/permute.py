"""The action of permutations on parameter trees, and the group that they form.

A tensor whose axes are products of factors is the same memory seen with one axis a factor. In that shape a
group is simply some of the axes, and a permutation acts by a gather along each of them,

    new[i] = old[perm[i]].

An indexed group has one permutation for each position of its outer factors. These move first, and the units inside
follow by the new position: `new[h, i] = old[outer[h], perm[h, i]]`. A tensor with a sum on some axis is cut into
pieces, one for each combination of terms, each of which is a tensor of its own.

Units that may change their sign do so after they have moved, `new[i] = sign[i] old[perm[i]]`, in every tensor that
the spec marks: order and signs together are signed permutations (the hyperoctahedral group).

This one action serves means, stds, momenta, stacks of samples and the features that matching compares.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import ArrayLike

from ..errors import SpecError
from ..trees import Tree, flatten, flatten_with_structure, placed_as
from .spec import (
    Axis,
    Factor,
    Perms,
    PermutationSpec,
    Signs,
    Term,
    alternatives,
    check_permutations,
    is_product,
    size_of_axis,
    size_of_term,
)


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
    flips: tuple[bool, ...] = ()  # for each factor, whether entries change their sign with its units
    scales: tuple[tuple[tuple[str, int], ...], ...] = ()  # for each factor, the powers of what multiplies entries

    def places(self, group: str) -> tuple[int, ...]:
        """The factors that count the units of a group."""
        return tuple(place for place, other in enumerate(self.groups) if other == group)

    @cached_property
    def takes(self) -> tuple[tuple[int, str], ...] | None:
        """The axes that move, counted from the last one, with their groups.

        None unless the piece is all of the array, with one axis a factor, and no group is indexed.
        """
        if self.steps or self.shape != self.full or any(self.outer):
            return None
        return tuple((place - len(self.shape), group) for place, group, _ in self.moves)

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

    @cached_property
    def flipped(self) -> tuple[tuple[int, str, tuple[int, ...]], ...]:
        """Those of `moves` whose units change the sign of entries."""
        # A layout that was made without flips has an empty tuple in place of one entry a factor.
        return tuple(move for move in self.moves if self.flips[move[0]]) if any(self.flips) else ()

    def factored(self, array: Any) -> Any:
        """Returns the piece of an array in factored shape, after any leading axes; a view where it can be one."""
        for step in self.steps:
            array = _seen(array[_index(step)], step)
        # What has been cut has the axes of the piece already; what has not, still those of the whole.
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


def permute(tree: Tree, spec: PermutationSpec, perms: Perms, signs: Signs | None = None) -> Tree:
    """Returns the tree with the units of every group reordered; the input is left as it is.

    Concrete permutations act on the host, without compilation; leaves keep their type, dtype and device. Traced
    permutations or leaves act inside the program that is traced.

    Args:
        tree: params, stds, gradients, or a stack of them with leading axes.
        spec: which axes move together.
        perms: one integer array of `spec.perm_shape(group)` for each group, `new[i] = old[perm[i]]`; or, for a
            stack, one with an axis of samples in front, permutations for each entry of the first leading axis.
        signs: 1 or −1 for every unit, after it has moved, of groups that may flip (`spec.signed`); leave them out
            for stds, which have no sign.

    Raises:
        SpecError: a parameter, a shape, a permutation or a sign does not fit the spec.

    Example:
        >>> spec = PermutationSpec.parse({"b": ["g0"], "w": ["2", "g0"]}, {"g0": 3})
        >>> tree = {"b": np.array([10, 20, 30]), "w": np.array([[1, 2, 3], [4, 5, 6]])}
        >>> permute(tree, spec, {"g0": np.array([2, 0, 1])})["w"].tolist()
        [[3, 1, 2], [6, 4, 5]]
        >>> heads = PermutationSpec.parse({"w": ["h * q[h]"]}, {"h": 2, "q[h]": 3})  # the units of each head
        >>> perms = {"h": np.array([1, 0]), "q": np.array([[0, 1, 2], [2, 0, 1]])}
        >>> permute({"w": np.array([1, 2, 3, 4, 5, 6])}, heads, perms)["w"].tolist()
        [4, 5, 6, 3, 1, 2]
        >>> odd = PermutationSpec.parse({"b": ["±g0"]}, {"g0": 3})
        >>> permute({"b": tree["b"]}, odd, {"g0": np.array([2, 0, 1])}, {"g0": np.array([1, -1, 1])})["b"].tolist()
        [30, -10, 20]
    """
    lead = spec.check(tree)
    # Lists become arrays; a traced value must not be touched by numpy.
    perms = {group: perm if isinstance(perm, Tracer) else np.asarray(perm) for group, perm in perms.items()}
    flat = flatten(tree)
    signs = {g: sign if isinstance(sign, Tracer) else np.asarray(sign) for g, sign in (signs or {}).items()}
    own = [(perms, g) for g in spec.sizes if g in perms] + [(signs, g) for g in spec.sizes if g in signs]
    # One axis more than the group has of its own: one setting for each sample.
    each = any(np.ndim(values[g]) == len(spec.perm_shape(g)) + 1 for values, g in own)
    if each:
        samples = np.shape(next(iter(flat.values())))[0] if lead and flat else 0
        perms, signs = _check_one_each(perms, signs, spec, samples)
    else:
        spec.check_perms(perms)
        spec.check_signs(signs)
    move = _move_each if each else _move
    return _moved_tree(tree, spec, _Action.of(perms, signs), move)


def reordered(tree: Tree, spec: PermutationSpec, perms: Perms, signs: Signs | None = None) -> Tree:
    """Returns what `permute` does, without its checks: of one tree, and of permutations, known to fit the spec."""
    return _moved_tree(tree, spec, _Action.of(perms, signs or {}), _move)


def move_one(leaf: Any, spec: PermutationSpec, perms: Perms, path: str, signs: Signs | None = None) -> Any:
    """Returns one parameter with its units reordered; `perms` and `signs` fit the spec."""
    return _move(leaf, layouts(spec)[path], _Action.of(perms, signs or {}))


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
            # "raise" would check every index again, which takes as long as the copy.
            array = array.take(perm, axis=place - rank, mode="wrap")
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


def identity_groups(perms: Mapping[str, ArrayLike]) -> frozenset[str]:
    """Returns the groups that permutations leave as they are; of traced ones that is not known."""
    return frozenset(
        [
            group
            for group, perm in perms.items()
            if not isinstance(perm, Tracer) and np.equal(perm, in_order(np.shape(perm)[-1])).all()
        ]
    )


@lru_cache(maxsize=64)
def in_order(size: int) -> np.ndarray:
    """Returns 0, 1, … as an array that is kept, and cannot be written to."""
    order = np.arange(size)
    order.flags.writeable = False
    return order


def multiply(tree: Tree, spec: PermutationSpec, scales: Mapping[str, ArrayLike]) -> Tree:
    """Returns the tree with the units of groups multiplied by positive numbers, which leaves the function as it is.

    Args:
        tree: params, stds, or a stack of them with leading axes; a std is multiplied as its mean is.
        spec: says which entries a scale multiplies, and with what power (`spec.scaled`).
        scales: for the name of a scale, one positive number a unit, of `spec.perm_shape` of its group.

    Raises:
        SpecError: a parameter or a scale does not fit the spec.

    Example:
        >>> spec = PermutationSpec.parse({"w0": ["1", "g0{s0}"], "w1": ["g0{-s0}", "1"]}, {"g0": 2})
        >>> tree = {"w0": np.array([[1.0, 2.0]]), "w1": np.array([[3.0], [4.0]])}
        >>> multiply(tree, spec, {"s0": np.array([2.0, 0.5])})["w0"].tolist()
        [[2.0, 1.0]]
    """
    spec.check(tree)
    for name, scale in scales.items():
        if name not in spec.scaled:
            raise SpecError(f"there is no scale '{name}'; the spec has {', '.join(spec.scaled) or 'none'}")
        shape = spec.perm_shape(spec.scaled[name])
        if np.shape(scale) != shape or not (np.asarray(scale) > 0).all():
            raise SpecError(f"the scale '{name}' needs positive numbers of shape {shape}, not {np.shape(scale)}")
    known = layouts(spec)
    changed = [_multiplied(leaf, known[path], scales) for path, leaf in flatten(tree).items()]
    return jax.tree.unflatten(jax.tree.structure(tree), changed)


def _multiplied(leaf: Any, pieces: tuple[Layout, ...], scales: Mapping[str, Any]) -> Any:
    if not any(name in scales for piece in pieces for powers in piece.scales for name, _ in powers):
        return leaf.copy() if isinstance(leaf, np.ndarray) else leaf
    # A copy in any case: `put` writes to arrays of numpy in place.
    array = np.array(leaf)
    for piece in pieces:
        part = piece.factored(array)
        for place, powers in enumerate(piece.scales):
            for name, power in powers:
                if name in scales:
                    places = (*piece.outer[place], place)
                    # A power in float64, and rounded once.
                    factor = spread(np.asarray(scales[name], np.float64) ** power, places, len(piece.shape))
                    part = part * factor.astype(array.dtype)
        array = piece.put(array, part) if len(pieces) > 1 else part.reshape(array.shape)
    return placed_as(leaf, array)


def compose(
    outer: Mapping[str, ArrayLike], inner: Mapping[str, ArrayLike], spec: PermutationSpec | None = None
) -> Perms:
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


def invert(perms: Mapping[str, ArrayLike], spec: PermutationSpec | None = None) -> Perms:
    """Returns the permutations that undo these; `spec` says how groups are indexed.

    Example:
        >>> invert({"g0": np.array([1, 2, 0])})["g0"].tolist()
        [2, 0, 1]
    """
    perms, undone = {group: _array(perm) for group, perm in perms.items()}, {}
    for group in sorted(perms, key=lambda group: perms[group].ndim):  # outer factors first
        # The inner units of position h went to where the outer permutation took h, and are undone there.
        *outer, _ = _axes_of(perms, group, spec)
        undone[group] = _invert_last(perms[group][_sources(undone, tuple(outer), spec)] if outer else perms[group])
    return {group: undone[group] for group in perms}


def compose_signs(outer: Mapping[str, ArrayLike], signs: tuple[Signs, Signs], spec: PermutationSpec) -> Signs:
    """Returns the signs that belong to `compose(outer, inner, spec)`.

    `signs` are those of the outer and of the inner setting: what the inner one flipped has been moved by the outer
    permutations, `outer_sign[i] inner_sign[outer[i]]`. Groups that are in neither stay as they are.

    Example:
        >>> spec = PermutationSpec.parse({"b": ["±g0"]}, {"g0": 3})
        >>> signs = {"g0": np.array([1, 1, -1])}, {"g0": np.array([-1, 1, 1])}
        >>> compose_signs({"g0": np.array([1, 2, 0])}, signs, spec)["g0"].tolist()
        [1, 1, 1]
    """
    last, first = ({group: _array(sign) for group, sign in part.items()} for part in signs)
    moves = {group: _array(perm) for group, perm in outer.items()}
    moved = {group: sign[_sources(moves, _axes_of(moves, group, spec), spec)] for group, sign in first.items()}
    return {
        group: last[group] * moved[group] if group in last and group in moved else (last | moved)[group]
        for group in spec.signed
        if group in last or group in moved
    }


def invert_signs(perms: Mapping[str, ArrayLike], signs: Signs, spec: PermutationSpec) -> Signs:
    """Returns the signs that belong to `invert(perms, spec)`.

    Example:
        >>> spec = PermutationSpec.parse({"b": ["±g0"]}, {"g0": 3})
        >>> invert_signs({"g0": np.array([1, 2, 0])}, {"g0": np.array([1, 1, -1])}, spec)["g0"].tolist()
        [-1, 1, 1]
    """
    return compose_signs(invert(perms, spec), ({}, signs), spec)


def transpositions(perms: Mapping[str, ArrayLike]) -> dict[str, int]:
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


def _combinations(path: str, axes: tuple[Axis, ...]) -> Iterator[tuple[_Part, ...]]:
    """One part of every axis, in all ways; of axes that choose, the option of the term they choose by."""
    sizes = [size_of_axis(axis) for axis in axes]
    for (by, start), chosen in alternatives(path, axes):
        parts = [_parts(axis) for axis in chosen]
        if chosen:
            moved = (part._replace(start=part.start + start, stop=part.stop + start) for part in parts[by])
            parts[by] = [part._replace(size=sizes[by]) for part in moved]
        yield from itertools.product(*parts)


def _parts(axis: tuple[Term, ...]) -> list[_Part]:
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
    for combination in _combinations(path, axes):
        steps: list[Step] = []
        seen: list[tuple[int, Any]] = list(enumerate(combination))  # (number of the axis, factor or part of it)
        # From the outside in: a part that is opened may hold parts again. Axes are counted from the last one, so that
        # the same steps serve a stack.
        while left := [place for place, (_, part) in enumerate(seen) if isinstance(part, _Part)]:
            number, part = seen[left[0]]
            sizes = tuple(inner.size for inner in part.parts)
            steps.append(Step(left[0] - len(seen), part.start, part.stop, sizes))
            seen[left[0] : left[0] + 1] = [(number, inner) for inner in part.parts]
        yield Layout(
            path,
            full,
            # Without sums one reshape of the whole array does it, which copies nothing.
            steps=() if all(map(is_product, axes)) else tuple(steps),
            shape=tuple(factor.size for _, factor in seen),
            groups=tuple(factor.group for _, factor in seen),
            outer=tuple(tuple(_outer_place(seen, number, name) for name in f.outer) for number, f in seen),
            flips=tuple(factor.flips for _, factor in seen),
            scales=tuple(factor.scales for _, factor in seen),
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
            # A factor that does not move, and only counts the positions of the group inside of it.
            size = spec.fixed_factors[name] if spec else 0
            index.append(spread(np.arange(size), (place,), len(names)))
    return tuple(index)


class _Action(NamedTuple):
    """Permutations and signs, and the groups whose order stays as it is."""

    perms: Perms
    signs: Signs  # without those that change nothing
    skip: frozenset[str]
    traced: frozenset[str]  # groups of which nothing is known yet
    is_plain: bool = False  # whether all is known, and nothing changes its sign

    @classmethod
    def of(cls, perms: Perms, signs: Signs, skip: frozenset[str] | None = None) -> "_Action":
        """The action, with what it leaves as it is."""
        # Signs of one are dropped here, once, rather than multiplied into every tensor.
        changing = {g: sign for g, sign in signs.items() if isinstance(sign, Tracer) or (sign != 1).any()}
        traced = frozenset(g for part in (perms, changing) for g, value in part.items() if isinstance(value, Tracer))
        skip = identity_groups(perms) if skip is None else skip
        return cls(perms, changing, skip, traced, not changing and not traced)

    def leaves(self, piece: Layout) -> bool:
        """Whether a piece stays as it is."""
        if not self.skip.issuperset(piece.present):
            return False
        return not self.signs or not any(group in self.signs for _, group, _ in piece.flipped)

    def leaves_all(self, pieces: tuple[Layout, ...]) -> bool:
        """Whether all pieces of a leaf do."""
        return all(map(self.leaves, pieces))

    def on(self, array: Any, piece: Layout) -> Any:
        """A piece in factored shape, moved and then flipped."""
        array, rank = gather(array, piece, self.perms, self.skip), len(piece.groups)
        for place, group, outer in piece.flipped:
            if group in self.signs:
                array = array * spread(self.signs[group], (*outer, place), rank).astype(array.dtype)
        return array

    def among(self, pieces: tuple[Layout, ...]) -> "_Action":
        """What of the action these pieces need."""
        present = {group for piece in pieces for group in piece.present}
        return self._replace(
            perms={group: self.perms[group] for group in present},
            signs={group: sign for group, sign in self.signs.items() if group in present},
        )

    def is_traced(self, pieces: tuple[Layout, ...]) -> bool:
        """Whether what moves these pieces is not known yet."""
        return bool(self.traced) and not all(self.traced.isdisjoint(piece.present) for piece in pieces)


def _moved_tree(tree: Tree, spec: PermutationSpec, action: _Action, move: Callable[..., Any]) -> Tree:
    known, (flat, structure) = layouts(spec), flatten_with_structure(tree)
    return jax.tree.unflatten(structure, [move(leaf, known[path], action) for path, leaf in flat.items()])


def _move(leaf: Any, pieces: tuple[Layout, ...], action: _Action) -> Any:
    """One leaf, all of whose leading axes are moved alike."""
    if action.is_plain and pieces[0].takes is not None and type(leaf) is np.ndarray:
        # as below, in fewer calls: of small networks most leaves are like this, and small
        moved, perms, skip = leaf, action.perms, action.skip
        for axis, group in pieces[0].takes:
            if group not in skip:
                moved = moved.take(perms[group], axis, mode="wrap")
        return leaf.copy() if moved is leaf else moved
    if action.leaves_all(pieces):  # an immutable array is shared, another one copied
        return leaf.copy() if isinstance(leaf, np.ndarray) else leaf
    if not _on_host(leaf, pieces, action):
        return _moved(jnp.asarray(leaf), pieces, action)
    return placed_as(leaf, _moved(np.asarray(leaf), pieces, action))


def _moved(array: Any, pieces: tuple[Layout, ...], action: _Action) -> Any:
    if len(pieces) == 1:
        return action.on(pieces[0].factored(array), pieces[0]).reshape(array.shape)
    result = array.copy() if isinstance(array, np.ndarray) else array
    for piece in pieces:
        if not action.leaves(piece):
            result = piece.put(result, action.on(piece.factored(array), piece))
    return result


def _move_each(leaf: Any, pieces: tuple[Layout, ...], action: _Action) -> Any:
    """One leaf of a stack, every entry of whose first axis has permutations of its own."""
    if action.leaves_all(pieces):
        return leaf.copy() if isinstance(leaf, np.ndarray) else leaf
    mine = action.among(pieces)

    def move(member: Any, perms: Perms, signs: Signs) -> Any:
        return _move(member, pieces, _Action.of(perms, signs, mine.skip))

    if not _on_host(leaf, pieces, mine):
        return jax.vmap(move)(jnp.asarray(leaf), mine.perms, mine.signs)
    array = np.asarray(leaf)
    result = np.empty_like(array)
    for index, member in enumerate(array):
        own = ({group: value[index] for group, value in part.items()} for part in (mine.perms, mine.signs))
        result[index] = move(member, *own)
    return placed_as(leaf, result)


def _on_host(leaf: Any, pieces: tuple[Layout, ...], action: _Action) -> bool:
    """Whether numpy can move the leaf, which needs no compilation."""
    if isinstance(leaf, Tracer) or action.is_traced(pieces):
        return False
    # Of an array on the devices of several processes none of them can read all.
    return not isinstance(leaf, jax.Array) or leaf.is_fully_addressable


def _check_one_each(perms: Perms, signs: Signs, spec: PermutationSpec, samples: int) -> tuple[Perms, Signs]:
    """Checks settings of each sample; a group that has one only once has it for all of them."""
    shapes = {group: spec.perm_shape(group) for group in spec.sizes}
    stacked = [
        {
            group: _repeat(value, samples) if np.ndim(value) == len(shapes.get(group, ())) else value
            for group, value in part.items()
        }
        for part in (perms, signs)
    ]
    for part, what in zip(stacked, ("permutations", "signs"), strict=True):
        for group, value in part.items():
            if len(value) != samples:
                raise SpecError(f"group '{group}' has {len(value)} {what}, but the stack has {samples} samples")
    perms, signs = stacked
    if samples:
        # Names and shapes are those of the first sample; that each is a permutation is seen for all at once.
        spec.check_perms({group: perm[0] for group, perm in perms.items()})
        for group, perm in perms.items():
            check_permutations(perm, (samples, *shapes[group]), group)
        for index in range(samples):
            spec.check_signs({group: sign[index] for group, sign in signs.items()})
    return perms, signs


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
