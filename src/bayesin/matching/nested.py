"""The best permutations of a whole family: assignments inside assignments.

Where dimensions belong to heads, a head of the target may take any head of the source, and each such pair has its own
best order of dimensions. So the dimensions of every pair of heads are assigned first; what they are worth is what the
pair is worth; then the heads are assigned on these values. With V the worth of a member's units at one pair of
positions (a, b) of its outer members, from the innermost members outwards,

    V(a, b) = max over perm of Σ_i ( S[a i, b perm(i)] + Σ of V((a, i), (b, perm(i))) over what it indexes ).

That is the exact optimum of the family while each tensor counts one chain of members. Where a tensor has two members
side by side (`h * u[h] * w[h]`), its share is bilinear in their permutations: each of them is assigned with the other
held, from what the other tensors say, and the better of that and of the present permutations is kept for
the pairs of positions that are matched at present, so that the family never gets worse.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from .assignment import assign, assign_each
from .families import Structure, Unit

ROUNDS = 2  # of assignments of members that stand side by side in a tensor

Own = Mapping[str, np.ndarray]  # {member: (*outer members, units)}


class _Pairs(NamedTuple):
    """What is known of a member at all pairs of positions of its outer members."""

    perms: np.ndarray  # (target positions, source positions, units): the best permutation of each pair
    worth: np.ndarray  # (target positions, source positions)


def solve_family(
    structure: Structure,
    family: str,
    matrices: Mapping[str, np.ndarray],
    own: Own,
    potentials: dict[str, np.ndarray],
    work: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Returns permutations of all members of a family that maximise `Σ matrices[unit][i, flat[i]]` over its units.

    `own` are the present ones; `potentials` of the last solution of the family make this one faster, and are updated.
    """
    members = structure.families[family]
    if len(members) == 1:
        if family in matrices:
            perm, potentials[family] = assign(matrices[family], potentials.get(family), work)
            return {family: perm}
        return {family: own[family]}
    return _Nest(structure, members, matrices, own).solve(potentials)


class _Nest:
    """The assignments of one family with inner members."""

    def __init__(self, structure: Structure, members: tuple[str, ...], matrices: Mapping[str, np.ndarray], own: Own):
        self.structure, self.members, self.own = structure, members, own
        self.alone = {name: by_pairs(matrices[name], structure.units[name]) for name in members if name in matrices}
        self.beside = {name: matrices[name] for name in matrices if name not in members}
        self.solved: dict[str, _Pairs] = {}

    def solve(self, potentials: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        root, *inner = self.members
        depths = sorted({len(self.structure.members[name].outer) for name in inner}, reverse=True)
        for depth in depths:
            for outer in dict.fromkeys(self.structure.members[name].outer for name in inner):
                if len(outer) == depth:
                    self._solve_siblings([name for name in inner if self.structure.members[name].outer == outer])
        perm, potentials[root] = assign(self._similarity(root)[0, 0], potentials.get(root))
        chosen = {root: perm}
        for name in inner:
            outer, pairs = self.structure.members[name].outer, self.solved[name]
            source = self.structure.flat_of(self.structure.units[outer[-1]], chosen)
            chosen[name] = pairs.perms[np.arange(source.size), source].reshape(self.own[name].shape)
        return chosen

    def _similarity(self, name: str) -> np.ndarray:
        """(target positions, source positions, units, units) of a member, with the worth of what it indexes."""
        unit = self.structure.units[name]
        count, size = unit.size // unit.sizes[-1], unit.sizes[-1]
        total = self.alone.get(name, np.zeros((count, count, size, size), np.float32))
        for child, pairs in self.solved.items():
            if self.structure.members[child].outer[-1] == name:
                total = total + by_pairs(pairs.worth, unit)
        return total

    def _solve_siblings(self, names: list[str]) -> None:
        """Assigns members with the same outer ones, at every pair of positions of these."""
        alone = {name: self._similarity(name) for name in names}
        beside = [self._beside(unit) for unit in self.beside if set(names) & set(self.structure.units[unit].members)]
        perms = {name: _assigned(matrix) for name, matrix in alone.items()}
        for _ in range(ROUNDS if beside else 0):
            for name in names:
                perms[name] = _assigned(alone[name] + sum(part.given_the_others(name, perms) for part in beside))
        if beside:
            self._keep_present(names, alone, beside, perms)
        shared = sum((part.worth(perms) for part in beside), np.zeros((), np.float32))
        for name in names:
            self.solved[name] = _Pairs(perms[name], _picked(alone[name], perms[name]) + shared)
            shared = np.zeros((), np.float32)  # counted once, with the first of them

    def _beside(self, unit: str) -> "_Beside":
        return _Beside(self.beside[unit], self.structure, self.structure.units[unit])

    def _keep_present(
        self, names: list[str], alone: Own, beside: list["_Beside"], perms: dict[str, np.ndarray]
    ) -> None:
        """Takes the present permutations of all siblings back where they are better than those found."""
        outer = self.structure.members[names[0]].outer
        source = self.structure.flat_of(self.structure.units[outer[-1]], self.own)
        at = np.arange(source.size), source
        present = {name: perm.copy() for name, perm in perms.items()}
        for name in names:
            present[name][at] = self.own[name].reshape(source.size, -1)

        def worth(candidate: Own) -> np.ndarray:
            parts = [_picked(alone[name], candidate[name])[at] for name in names]
            return np.sum(parts + [part.worth(candidate)[at] for part in beside], axis=0)

        better = worth(present) >= worth(perms)
        for name in names:
            perms[name][at[0][better], at[1][better]] = present[name][at[0][better], at[1][better]]


class _Beside:
    """A tensor's similarity of members that stand side by side under the same outer ones."""

    def __init__(self, matrix: np.ndarray, structure: Structure, unit: Unit):
        depth = len(structure.members[unit.members[-1]].outer)
        self.leaves, sizes = unit.members[depth:], unit.sizes[depth:]
        count = unit.size // int(np.prod(sizes))
        self.matrix = matrix.reshape(count, *sizes, count, *sizes)

    def given_the_others(self, name: str, perms: Own) -> np.ndarray | float:
        """(target positions, source positions, units, units) of one member with all others at `perms`."""
        total: np.ndarray | float = 0.0
        for place, leaf in enumerate(self.leaves):
            if leaf == name:
                total = total + self._picked(perms, place)
        return total

    def worth(self, perms: Own) -> np.ndarray:
        """(target positions, source positions) of all members at `perms`."""
        return self._picked(perms, None)

    def _picked(self, perms: Own, free: int | None) -> np.ndarray:
        """The sum over all members but the free one, which keeps both its axes, behind those of the positions."""
        count, rank = self.matrix.shape[0], 2 + len(self.leaves)
        target, source = (np.arange(count).reshape(_at(axis, count, rank)) for axis in (0, 1))
        ours, theirs = [], []
        for place, leaf in enumerate(self.leaves):
            size = self.matrix.shape[1 + place]
            perm = perms[leaf].reshape(count, count, *_at(place, size, len(self.leaves)))
            ours.append(slice(None) if place == free else np.arange(size).reshape(_at(2 + place, size, rank)))
            theirs.append(slice(None) if place == free else perm)
        picked = self.matrix[(target, *ours, source, *theirs)]
        return picked.sum(tuple(range(2, rank)))  # among these axes that of the free member has size 1


def _at(axis: int, size: int, rank: int) -> tuple[int, ...]:
    return tuple(size if other == axis else 1 for other in range(rank))


def by_pairs(matrix: np.ndarray, unit: Unit) -> np.ndarray:
    """Returns a similarity of all that a chain counts as (outer positions, outer positions, units, units)."""
    size = unit.sizes[-1]
    count = unit.size // size
    return matrix.reshape(count, size, count, size).transpose(0, 2, 1, 3)


def _assigned(similarity: np.ndarray) -> np.ndarray:
    """The best permutation of every pair of positions."""
    positions, size = similarity.shape[:2], similarity.shape[-1]
    return assign_each(similarity.reshape(-1, size, size)).reshape(*positions, size)


def _picked(similarity: np.ndarray, perms: np.ndarray) -> np.ndarray:
    """What the permutation of every pair of positions is worth."""
    return np.take_along_axis(similarity, perms[..., None], -1).sum((-2, -1))
