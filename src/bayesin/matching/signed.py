"""The search where units may also change their sign.

With all others held, the inner products of the units of one group have a part that flips with its signs, M, and one
that does not, E: stds have no sign. A match of unit i with unit j is worth E[i, j] + |M[i, j]|, whichever sign it
takes, so that one assignment on these values and the signs of M where it ends are the exact optimum of all signed
permutations of the group. Groups that index others are solved together with these, as without signs (`nested.py`).

Families are visited as in `search.py`: the first sweep goes by the evidence, later ones in the order given, until
none of them gains. A group on several axes of one tensor makes the objective quadratic: there the assignment is on
the gradient, is taken only if it gains, and single flips are tried beside it.
"""

import time
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ..errors import ConfigError
from ..symmetry import Layout, Perms, Signs
from .costs import feature_pairs, name_of
from .families import FlatPerms
from .nested import solve_family
from .problem import Problem, as_marginals, objective
from .search import ROUNDING, DescentResult


class _Tensor(NamedTuple):
    """One array of the target and of the source, with one axis a unit."""

    layout: Layout
    target: np.ndarray
    source: np.ndarray
    flips: tuple[bool, ...]  # for each axis, whether the source changes its sign with the unit


def descend_signed(
    problem: Problem,
    init: Perms,
    order: Iterable[tuple[str, ...]],
    relative_tolerance: float,
    anchored: bool = False,
) -> tuple[DescentResult, Signs]:
    """Runs sweeps over signed permutations until none helps or the order is used up; signs start at 1.

    Raises:
        ConfigError: the cost does not say what signs do to it.
    """
    clock = time.perf_counter()
    search = _SignedSearch(problem, init)
    start, used, gains, value = objective(problem, init), [], [], search.value()
    best, converged = search.copy(), False
    for groups in order:
        families = list(dict.fromkeys(root for group in groups for root in problem.structure.roots[group]))
        is_first = anchored and not used
        used.append(tuple(search.settle()) if is_first else tuple(groups))
        if not is_first:
            for family in families:
                search.step(family)
        gain = 2.0 * (search.value() - value)
        if gain <= relative_tolerance * max(start - sum(gains), 0.0) + ROUNDING * problem.scale:
            if is_first:
                search.restore(best)
                continue
            converged = set(families) == set(problem.structure.families)
            search.restore(best)
            if converged:
                break
            continue
        gains.append(gain)
        value, best = search.value(), search.copy()
    search.restore(best)
    seconds = {"similarity": 0.0, "assignment": time.perf_counter() - clock, "objective": 0.0}
    result = DescentResult(search.perms, start, tuple(gains), len(used), converged, tuple(used), seconds)
    return result, search.signs


class _SignedSearch:
    """Permutations and signs, and the tensors that they are judged by."""

    def __init__(self, problem: Problem, init: Perms):
        self.problem, self.structure = problem, problem.structure
        self.tensors = _tensors(problem)
        self.perms = {group: np.array(perm, np.int64) for group, perm in init.items()}
        self.signs = problem.spec.identity_signs()
        self.flat = self.structure.flat(self.perms)
        self.flat_signs: dict[str, np.ndarray] = {}
        for name, member in self.structure.members.items():
            if member.group in self.signs:
                self.flat_signs[name] = np.ones(self.structure.units[name].size)
        self.families = {
            family: [t for t in self.tensors if any(self._family(unit) == family for unit in t.layout.present)]
            for family in self.structure.families
        }

    def copy(self) -> tuple[Perms, Signs, FlatPerms, dict[str, np.ndarray]]:
        """The state, to come back to."""
        perms, signs = ({g: value.copy() for g, value in part.items()} for part in (self.perms, self.signs))
        return perms, signs, dict(self.flat), dict(self.flat_signs)

    def restore(self, state: tuple[Perms, Signs, FlatPerms, dict[str, np.ndarray]]) -> None:
        """Goes back."""
        perms, signs, self.flat, self.flat_signs = state[0], state[1], dict(state[2]), dict(state[3])
        self.perms, self.signs = ({g: value.copy() for g, value in part.items()} for part in (perms, signs))

    def value(self) -> float:
        """The inner products of target and moved source."""
        return sum(map(self._value, self.tensors))

    def settle(self) -> list[str]:
        """Solves every family once, that with most evidence first, by tensors whose other units are settled."""
        settled: list[str] = []
        among: set[str] = set()
        left = list(self.structure.families)
        while left:
            family = max(left, key=lambda name: self._evidence(name, among))
            left.remove(family)
            even, odd = self._matrices(family, among)
            if even:
                self._take(family, even, odd)
            settled.append(family)
            among |= set(self.structure.of_family(family))
        return settled

    def step(self, family: str) -> None:
        """Takes the best signed permutations of a family, where they gain."""
        even, odd = self._matrices(family, None)
        if not even:
            return
        before, value = self.copy(), self._value_of(family)
        self._take(family, even, odd)
        if self._value_of(family) < value:
            self.restore(before)
        if not self._is_linear(family):
            self._flip_one_by_one(family)

    def _flip_one_by_one(self, family: str) -> None:
        value = self._value_of(family)
        for unit in self.structure.of_family(family):
            for place in range(self.flat_signs[unit].size if unit in self.flat_signs else 0):
                before = self.flat_signs[unit]
                tried = before.copy()
                tried[place] *= -1
                self._put_signs(unit, tried)
                now = self._value_of(family)
                if now > value:
                    value = now
                else:
                    self._put_signs(unit, before)

    def _take(self, family: str, even: dict[str, np.ndarray], odd: dict[str, np.ndarray]) -> None:
        worth = {unit: matrix + np.abs(odd[unit]) if unit in odd else matrix for unit, matrix in even.items()}
        present = {name: self.structure.own(self.perms, name) for name in self.structure.families[family]}
        own = solve_family(self.structure, family, worth, present, {})
        for name, perm in own.items():
            member = self.structure.members[name]
            self.perms[member.group][member.at] = perm
        for name, unit in self.structure.of_family(family).items():
            self.flat[name] = self.structure.flat_of(unit, own)
            if name in odd:
                picked = odd[name][np.arange(unit.size), self.flat[name]]
                self._put_signs(name, np.where(picked < 0, -1.0, 1.0))

    def _put_signs(self, unit: str, signs: np.ndarray) -> None:
        member = self.structure.members[unit]
        self.flat_signs[unit] = signs
        part = self.signs[member.group][member.at]
        self.signs[member.group][member.at] = signs.reshape(part.shape)

    def _matrices(self, family: str, among: set[str] | None) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """The inner products of all places of each unit: those that keep their sign, and those that flip."""
        even: dict[str, np.ndarray] = {}
        odd: dict[str, np.ndarray] = {}
        for tensor in self.families[family]:
            for place, unit in enumerate(tensor.layout.groups):
                if unit is None or self._family(unit) != family or not self._counts(tensor, place, among):
                    continue
                size = self.structure.units[unit].size
                even.setdefault(unit, np.zeros((size, size)))
                kind = odd if tensor.flips[place] else even
                target = np.moveaxis(tensor.target, place, 0).reshape(size, -1)
                moved = np.moveaxis(self._moved(tensor, place), place, 0).reshape(size, -1)
                kind[unit] = kind.get(unit, 0.0) + target @ moved.T
        return even, odd

    def _counts(self, tensor: _Tensor, place: int, among: set[str] | None) -> bool:
        others = [unit for axis, unit in enumerate(tensor.layout.groups) if unit is not None and axis != place]
        return among is None or set(others) <= among

    def _evidence(self, family: str, among: set[str]) -> float:
        return sum(
            tensor.target.size / self.structure.units[unit].size
            for tensor in self.families[family]
            for place, unit in enumerate(tensor.layout.groups)
            if unit is not None and self._family(unit) == family and self._counts(tensor, place, among)
        )

    def _moved(self, tensor: _Tensor, left_out: int | None = None) -> np.ndarray:
        """The source, moved and flipped along all axes but one."""
        array = tensor.source
        for place, unit in enumerate(tensor.layout.groups):
            if unit is not None and place != left_out:
                array = array.take(self.flat[unit], place)
                if tensor.flips[place]:
                    shape = [array.shape[place] if axis == place else 1 for axis in range(array.ndim)]
                    array = array * self.flat_signs[unit].reshape(shape)
        return array

    def _value(self, tensor: _Tensor) -> float:
        return float(np.vdot(tensor.target, self._moved(tensor)))

    def _value_of(self, family: str) -> float:
        return sum(map(self._value, self.families[family]))

    def _is_linear(self, family: str) -> bool:
        return all(sum(self._family(u) == family for u in t.layout.present) == 1 for t in self.families[family])

    def _family(self, unit: str) -> str:
        return self.structure.units[unit].family


def _tensors(problem: Problem) -> list[_Tensor]:
    """The features of a problem, each with what a sign does to it: found by changing the sign of the means."""
    if problem.given:
        raise ConfigError(
            f"cost '{name_of(problem.cost)}' compares activations, which say nothing of signs; align with "
            "spec.without_signs"
        )
    tensors = []
    for piece, target, source in problem.marginals:
        ours, theirs = as_marginals(target), as_marginals(source)
        pairs = feature_pairs(problem.cost, ours, theirs, piece.layout.path)
        turned = feature_pairs(problem.cost, ours, theirs._replace(mean=-theirs.mean), piece.layout.path)
        for (left, right), (_, other) in zip(pairs, turned, strict=True):
            if not np.array_equal(other, right) and not np.array_equal(other, -right):
                raise ConfigError(
                    f"cost '{name_of(problem.cost)}' does not say what a sign does to '{piece.layout.path}'; "
                    "align with spec.without_signs"
                )
            is_odd = not np.array_equal(other, right)
            flips = tuple(is_odd and flip for flip in piece.layout.flips)
            for unit, flip in zip(piece.layout.groups, flips, strict=True):
                if flip and unit not in problem.structure.members:
                    raise ConfigError(
                        f"'{piece.layout.path}' has several signed groups on one axis; align with spec.without_signs"
                    )
            ours_wide, theirs_wide = (np.asarray(array, np.float64) for array in (left, right))
            tensors.append(_Tensor(piece.layout, ours_wide, theirs_wide, flips))
    return tensors
