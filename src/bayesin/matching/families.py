"""Which groups are solved together, and how the tensors look to them.

Three views of one spec, made once:

    member    a group at one position of the fixed factors that index it: `g1[layer]` has a member for each layer.
              What indexes a member is other members
    family    a root that nothing indexes, and all members that it indexes: heads, with the dimensions of each.
              A family is solved in one step
    unit      what an axis counts: a set of members of one family, outer ones first. The 768 places of the axis
              `heads * dimensions[heads]` are moved by one *flat* permutation, in which all its members act

A piece of a tensor is seen with one axis a unit: fixed factors that index a group are cut apart, factors that belong
to one unit are brought together and merged. What is left is a tensor that plain permutations move.

Of units that may change their sign, a flat permutation says which do: it counts their flipped twins behind them
(`twins.py`).
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import jax
import numpy as np

from ..errors import SpecError
from ..file_arrays import FileArray
from ..symmetry import Layout, Perms, PermutationSpec, Signs, layouts

FlatPerms = Mapping[str, np.ndarray]  # {unit: permutation of all that the axis counts}; see `twins.py` for signs


class Member(NamedTuple):
    """A group at one position of the fixed factors that index it; a plain group has one member, of its own name."""

    group: str
    at: tuple[int | slice, ...]  # where its permutations stand in those of the group
    outer: tuple[str, ...]  # members that index it, each indexed by all before it
    size: int


class Unit(NamedTuple):
    """What an axis counts: members of one family, each after those that index it."""

    family: str
    members: tuple[str, ...]
    sizes: tuple[int, ...]

    @property
    def size(self) -> int:
        """Length of the axis."""
        return prod(self.sizes)


class Piece(NamedTuple):
    """A part of a tensor with one axis a unit, or one a fixed factor."""

    source: Layout  # of the part, with one axis a factor
    index: tuple[int | slice, ...]  # positions of the fixed factors that index a group
    order: tuple[int, ...]  # of the axes that are left, so that those of one unit stand together
    layout: Layout  # with one axis a unit; its groups are the names of units
    is_whole: bool  # whether it is all of the tensor, its axes in their order

    def of(self, array: Any) -> Any:
        """Returns the piece of an array; a view wherever numpy has one. One that lies in a file stays there."""
        if self.is_whole:
            shape = self.layout.shape
            return array if array.shape == shape else array.reshape(shape)
        if isinstance(array, FileArray):
            return array.seen_as(self.of, self.layout.shape)
        return self.source.factored(array)[self.index].transpose(self.order).reshape(self.layout.shape)


@dataclass(frozen=True)
class Structure:
    """Members, families, units and pieces of one spec."""

    members: dict[str, Member]
    families: dict[str, tuple[str, ...]]  # by root: its members, outer ones first
    units: dict[str, Unit]
    pieces: tuple[Piece, ...]
    roots: dict[str, tuple[str, ...]]  # by group: the families in which it has a member
    signed: frozenset[str]  # units that have twins

    def flat(self, perms: Perms, signs: Signs | None = None) -> dict[str, np.ndarray]:
        """Returns the permutation of every unit."""
        flat = {
            name: self.flat_of(unit, {m: self.own(perms, m) for m in unit.members})
            for name, unit in self.units.items()
        }
        if signs:
            for name in self.signed:
                sign = self.own(signs, name).reshape(-1)
                flat[name] = flat[name] + np.where(sign < 0, sign.size, 0)
        return flat

    def signs(self, flat: FlatPerms, spec: PermutationSpec) -> Signs:
        """Returns the signs that flat permutations say."""
        signs = spec.identity_signs()
        for name in self.signed:
            member = self.members[name]
            own = signs[member.group][member.at]
            signs[member.group][member.at] = np.where(flat[name] < own.size, 1, -1).reshape(own.shape)
        return signs

    def flat_of(self, unit: Unit, own: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns the permutation of one unit from those of its members."""
        if len(unit.members) == 1:
            return own[unit.members[0]]
        return np.ravel_multi_index(tuple(np.broadcast_arrays(*self._sources(unit, own))), unit.sizes).reshape(-1)

    def own(self, perms: Mapping[str, jax.Array | np.ndarray], member: str) -> np.ndarray:
        """Returns the permutations of a member among those of its group: (*outer members, units)."""
        return np.asarray(perms[self.members[member].group])[self.members[member].at]

    def of_family(self, family: str) -> dict[str, Unit]:
        """Returns the units that a family counts, by name."""
        return {name: unit for name, unit in self.units.items() if unit.family == family}

    def _sources(self, unit: Unit, own: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Where each member takes its units from, at every target position of all members of a unit."""
        grid = np.ogrid[tuple(slice(size) for size in unit.sizes)]
        position: dict[str, np.ndarray] = {}
        sources = []
        for member, at in zip(
            unit.members, grid, strict=True
        ):  # the second of two equal ones has the same outer ones
            outer = tuple(position[name] for name in self.members[member].outer)
            sources.append(own[member][(*outer, at)])
            position.setdefault(member, at)
        return sources


@lru_cache(maxsize=16)
def structure_of(spec: PermutationSpec) -> Structure:
    """Returns the structure of a spec.

    Raises:
        SpecError: a group is indexed in a way that no sequence of assignments solves.
    """
    members, of_group = _members(spec)
    families: dict[str, list[str]] = {}
    for name, member in sorted(members.items(), key=lambda item: len(item[1].outer)):
        families.setdefault(member.outer[0] if member.outer else name, []).append(name)
    units = {name: _unit((*member.outer, name), members) for name, member in members.items()}
    pieces = []
    for layout in (layout for parts in layouts(spec).values() for layout in parts):
        pieces += _pieces(layout, spec, members, units)
    roots = {group: tuple(dict.fromkeys(units[name].family for name in names)) for group, names in of_group.items()}
    order = {root: tuple(families[root]) for group in spec.sizes for root in roots[group]}
    signed = {
        unit
        for piece in pieces
        for unit, flips in zip(piece.layout.groups, piece.layout.flips, strict=True)
        if unit is not None and flips
    }
    return Structure(members, order, units, tuple(pieces), roots, frozenset(signed))


def _members(spec: PermutationSpec) -> tuple[dict[str, Member], dict[str, list[str]]]:
    members: dict[str, Member] = {}
    of_group: dict[str, list[str]] = {}
    for group, size in spec.sizes.items():
        names = spec.outer(group)
        fixed = {name: spec.fixed_factors[name] for name in names if name not in spec.sizes}
        for position in itertools.product(*map(range, fixed.values())):
            at = dict(zip(fixed, position, strict=True))
            outer = tuple(_name(spec, name, at) for name in names if name not in fixed)
            index = (*(at.get(name, slice(None)) for name in names), slice(None))
            members[_name(spec, group, at)] = Member(group, index, outer, size)
            of_group.setdefault(group, []).append(_name(spec, group, at))
    for member in members.values():
        for place, outer in enumerate(member.outer):
            if members[outer].outer != member.outer[:place]:
                independent = " and ".join(f"'{members[other].group}'" for other in member.outer[: place + 1][-2:])
                raise SpecError(
                    f"align cannot solve group '{member.group}', which is indexed by the independent groups "
                    f"{independent}; write one of them as a fixed factor in the spec"
                )
    return members, of_group


def _name(spec: PermutationSpec, group: str, at: Mapping[str, int]) -> str:
    """A member's name; `@` stands in no name of a group."""
    position = [str(at[name]) for name in spec.outer(group) if name in at]
    return f"{group}@{'.'.join(position)}" if position else group


def _unit(names: tuple[str, ...], members: dict[str, Member]) -> Unit:
    sizes = tuple(members[name].size for name in names)
    return Unit(members[names[0]].outer[0] if members[names[0]].outer else names[0], names, sizes)


def _pieces(layout: Layout, spec: PermutationSpec, members: dict[str, Member], units: dict[str, Unit]) -> list[Piece]:
    """One piece for each position of the fixed factors that index a group here; new units are added to `units`."""
    called: dict[int, str] = {}  # the names of factors, where they index a group
    for group, places in zip(layout.groups, layout.outer, strict=True):
        if group is not None:
            called |= dict(zip(places, spec.outer(group), strict=True))
    cut = [place for place in called if layout.groups[place] is None]
    pieces = []
    for position in itertools.product(*(range(layout.shape[place]) for place in cut)):
        where = dict(zip(cut, position, strict=True))
        names: dict[int, str] = {}  # the member of each factor that is one
        for place, group in enumerate(layout.groups):
            if group is not None:
                at = {called[outer]: where[outer] for outer in layout.outer[place] if outer in where}
                names[place] = _name(spec, group, at)
        left = [place for place in range(len(layout.shape)) if place not in where]
        axes = _axes(layout, left, names)
        shape = tuple(prod(layout.shape[place] for place in axis) for axis in axes)
        groups = tuple(
            _unit_name(tuple(names[place] for place in axis if place in names), members, units, layout)
            for axis in axes
        )
        index = tuple(where.get(place, slice(None)) for place in range(len(layout.shape)))
        order = tuple(left.index(place) for axis in axes for place in axis)
        flips = tuple(any(layout.flips[place] for place in axis) for axis in axes)
        for unit, axis in zip(groups, axes, strict=True):
            if any(layout.flips[place] for place in axis) and (unit != names[axis[-1]] or not layout.flips[axis[-1]]):
                raise SpecError(
                    f"align cannot flip units of '{layout.path}' that stand side by side or index others; "
                    "use spec.without_signs"
                )
        flat = Layout(layout.path, layout.full, layout.steps, shape, groups, ((),) * len(shape), flips)
        is_whole = not (layout.steps or cut) and order == tuple(range(len(order)))
        pieces.append(Piece(layout, index, order, flat, is_whole))
    return pieces


def _axes(layout: Layout, left: list[int], names: dict[int, str]) -> list[tuple[int, ...]]:
    """The factors of each merged axis, outer ones first: those that index each other belong together."""
    together = {place: {place} for place in left}
    for place in left:
        for outer in layout.outer[place]:
            if outer in together and together[outer] is not together[place]:
                merged = together[outer] | together[place]
                for each in merged:
                    together[each] = merged
    axes, seen = [], set()
    for place in left:
        if place not in seen:
            seen |= together[place]
            axes.append(tuple(sorted(together[place], key=lambda p: (len(layout.outer[p]), p))))
    return axes


def _unit_name(
    names: tuple[str, ...], members: dict[str, Member], units: dict[str, Unit], layout: Layout
) -> str | None:
    """The unit of these members: named after the last one where each indexes the next, else after all that differ."""
    if not names:
        return None
    if (*members[names[-1]].outer, names[-1]) == names:
        return names[-1]
    shared = members[names[-1]].outer
    leaves = names[len(shared) :]
    if names[: len(shared)] != shared or any(members[leaf].outer != shared for leaf in leaves):
        odd = " and ".join(dict.fromkeys(f"'{members[name].group}'" for name in names[1:]))
        raise SpecError(
            f"align cannot solve {odd}, which '{layout.path}' has side by side at different depths; "
            "write one of them as a fixed factor in the spec"
        )
    name = "+".join(leaves)
    units[name] = _unit(names, members)
    return name
