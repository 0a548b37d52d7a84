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
from .features import Problem, objective
from .similarity import is_linear, similarity
from .swaps import swap_gains

ROUNDING = 1e-12  # of the summed magnitudes: float64 differences below it are noise


class Sweep(NamedTuple):
    """What a callback learns after every sweep."""

    number: int
    objective: float
    moved: int  # units moved in this sweep


class Descent(NamedTuple):
    """Where a search ended and how it went."""

    perms: Perms
    history: tuple[float, ...]
    sweeps: int
    converged: bool
    order: tuple[tuple[str, ...], ...]
    seconds: dict[str, float]


def descend(
    problem: Problem,
    init: Perms,
    order: Iterable[tuple[str, ...]],
    relative_tolerance: float,
    on_sweep: Callable[[Sweep], None] | None = None,
) -> Descent:
    """Runs sweeps in the given order until none helps or the order is used up."""
    perms = {group: np.array(perm, np.int64) for group, perm in init.items()}
    neighbours = _neighbours(problem)
    dirty = set(perms)
    history = [objective(problem, perms)]
    seconds = {"similarity": 0.0, "assignment": 0.0}
    used: list[tuple[str, ...]] = []
    for sweep in order:
        if not dirty:
            break
        used.append(tuple(sweep))
        moved = 0
        for group in sweep:
            if group not in dirty:
                continue
            dirty.discard(group)
            floor = relative_tolerance * max(history[-1], 0.0) + ROUNDING * problem.scale
            step = _step(problem, group, perms, history[-1], floor, seconds)
            if step is None:
                continue
            moved += int((step[0] != perms[group]).sum())
            perms[group] = step[0]
            history.append(step[1])
            dirty |= neighbours[group]
        if on_sweep is not None:
            on_sweep(Sweep(len(used), history[-1], moved))
    return Descent(perms, tuple(history), len(used), not dirty, tuple(used), seconds)


def _step(problem: Problem, group: str, perms: Perms, now: float, floor: float, seconds: dict[str, float]):
    """The permutation and the objective after one improving step, or None where there is none."""
    start = time.perf_counter()
    alike = similarity(problem, group, perms)
    middle = time.perf_counter()
    candidate = assign(alike)
    seconds["similarity"] += middle - start
    seconds["assignment"] += time.perf_counter() - middle
    if (candidate != perms[group]).any():
        value = objective(problem, {**perms, group: candidate})
        if value < now - floor:
            return candidate, value
    return None if is_linear(problem, group) else _best_swap(problem, group, perms, now, floor)


def _best_swap(problem: Problem, group: str, perms: Perms, now: float, floor: float):
    """Swaps in order of promise; beyond two factors a tensor the promise is only an estimate, so try a few."""
    gains = np.triu(swap_gains(problem, group, perms), 1)
    for flat in np.argsort(-gains, axis=None, kind="stable")[: perms[group].size]:
        a, b = np.unravel_index(flat, gains.shape)
        if gains[a, b] <= 0:
            return None
        candidate = perms[group].copy()
        candidate[[a, b]] = candidate[[b, a]]
        value = objective(problem, {**perms, group: candidate})
        if value < now - floor:
            return candidate, value
    return None


def _neighbours(problem: Problem) -> dict[str, set[str]]:
    """Groups whose step depends on this one; a group on two factors of a tensor is its own neighbour."""
    result: dict[str, set[str]] = {group: set() for group in problem.spec.sizes}
    for pair in problem.pairs:
        present = [group for group in pair.layout.groups if group]
        for group in set(present):
            rest = list(present)
            rest.remove(group)
            result[group] |= set(rest)
    return result
