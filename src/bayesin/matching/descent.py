"""Coordinate descent over the groups: one exact assignment a step, accepted only if the objective falls.

A group is solved again only after a neighbour moved. The search has converged when nothing is left to
solve: no single group can be improved with the others held fixed.
"""

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from ..symmetry import Perms
from .assignment import assign
from .features import Problem
from .objective import gain_of_units, objective
from .similarity import Similarities
from .swaps import disjoint, swap_gains

ROUNDING = 1e-12  # of the problem's scale: differences of float64 sums below it are noise


class Sweep(NamedTuple):
    """What a callback learns after every sweep."""

    number: int
    objective: float
    moved: int  # units moved in this sweep


class Descent(NamedTuple):
    """Where a search ended and how it went."""

    perms: Perms
    start: float  # objective before the first step
    gains: tuple[float, ...]  # by which every accepted step lowered it, all positive
    sweeps: int
    converged: bool
    order: tuple[tuple[str, ...], ...]
    seconds: dict[str, float]

    @property
    def objective(self) -> float:
        """Objective reached, by subtraction of the gains."""
        return self.start - sum(self.gains)


class _Step(NamedTuple):
    perm: np.ndarray
    gain: float


def descend(
    similarities: Similarities,
    init: Perms,
    order: Iterable[tuple[str, ...]],
    relative_tolerance: float,
    on_sweep: Callable[[Sweep], None] | None = None,
    potentials: dict[str, np.ndarray] | None = None,
) -> Descent:
    """Runs sweeps in the given order until none helps or the order is used up.

    `potentials` of an earlier search on a similar problem make this one faster; they are updated in place.
    """
    problem = similarities.problem
    perms = {group: np.array(perm, np.int64) for group, perm in init.items()}
    start = value = objective(problem, perms)
    search = _Search(similarities, perms, {} if potentials is None else potentials)
    neighbours = _neighbours(problem)
    dirty, gains, used = set(perms), [], []
    for sweep in order:
        if not dirty:
            break
        used.append(tuple(sweep))
        moved = 0
        for group in sweep:
            if group not in dirty:
                continue
            dirty.discard(group)
            step = search.step(group, relative_tolerance * max(value, 0.0) + ROUNDING * problem.scale)
            if step is not None:
                moved += int((step.perm != perms[group]).sum())
                perms[group] = step.perm
                gains.append(step.gain)
                value -= step.gain
                dirty |= neighbours[group]
        if on_sweep is not None:
            on_sweep(Sweep(len(used), value, moved))
    return Descent(perms, start, tuple(gains), len(used), not dirty, tuple(used), search.seconds)


class _Search:
    """The state that steps share: permutations, potentials of each group, a clock."""

    def __init__(self, similarities: Similarities, perms: Perms, potentials: dict[str, np.ndarray]):
        self.similarities, self.perms, self.potentials = similarities, perms, potentials
        self.problem = similarities.problem
        self.work: dict[int, np.ndarray] = {}
        self.seconds = {"similarity": 0.0, "assignment": 0.0, "objective": 0.0}
        similarities.forget()

    def step(self, group: str, floor: float) -> _Step | None:
        """The step that lowers the objective by more than `floor`, or None."""
        alike = self._timed("similarity", self.similarities.of, group, self.perms)
        if len(alike) not in self.work:
            self.work[len(alike)] = np.empty((2, *alike.shape), alike.dtype)
        arguments = alike, self.potentials.get(group), self.work[len(alike)]
        perm, self.potentials[group] = self._timed("assignment", assign, *arguments)
        rows = np.arange(perm.size)
        gain = 2.0 * float((alike[rows, perm] - alike[rows, self.perms[group]]).sum(dtype=np.float64))
        if not self.similarities.is_linear(group):
            return self._checked(group, perm, floor) or self._swaps(group, alike, floor)
        if gain <= floor:
            return None
        if gain <= self.similarities.noise(group):
            gain = self._timed("objective", gain_of_units, self.problem, group, self.perms, perm)
        return _Step(perm, gain) if gain > floor else None

    def _checked(self, group: str, perm: np.ndarray, floor: float) -> _Step | None:
        """A step whose gain is taken from the objective itself."""
        if (perm == self.perms[group]).all():
            return None
        before = self._timed("objective", objective, self.problem, self.perms)
        after = self._timed("objective", objective, self.problem, {**self.perms, group: perm})
        return _Step(perm, before - after) if before - after > floor else None

    def _swaps(self, group: str, alike: np.ndarray, floor: float) -> _Step | None:
        """As many disjoint swaps at once as still lower the objective: all, half of them, … one."""
        pairs = disjoint(swap_gains(self.problem, group, self.perms, alike))
        while len(pairs):
            perm = self.perms[group].copy()
            perm[pairs] = perm[pairs[:, ::-1]]
            step = self._checked(group, perm, floor)
            if step is not None:
                return step
            pairs = pairs[: len(pairs) // 2]
        return None

    def _timed(self, name: str, function: Callable, *arguments):
        start = time.perf_counter()
        result = function(*arguments)
        self.seconds[name] += time.perf_counter() - start
        return result


def _neighbours(problem: Problem) -> dict[str, set[str]]:
    """Groups whose step depends on this one; a group on two factors of a tensor is its own neighbour."""
    result: dict[str, set[str]] = {group: set() for group in problem.spec.sizes}
    for term in problem.terms:
        present = term.layout.present
        for group in set(present):
            rest = list(present)
            rest.remove(group)
            result[group] |= set(rest)
    return result
