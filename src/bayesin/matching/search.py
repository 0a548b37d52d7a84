"""Coordinate descent over the groups: one exact assignment a step, accepted only if the objective falls.

A group is solved again only after a neighbour moved. The search has converged when nothing is left to
solve: no single group can be improved with the others held fixed.

A group on several factors of one tensor (`x + Wx`) makes the objective quadratic in its permutation: an assignment
on the gradient may raise it. Such a step is accepted only if the objective itself falls; else swaps of two units
are tried, whose gain is known exactly for two factors from the gradient G and the 2 × 2 corners of the tensor
that a swap moves along both factors at once:

    gain(a, b) = G[a,b] + G[b,a] − G[a,a] − G[b,b] + corner(a, b).

A search starts from the identity, from random permutations, or anchored: groups are settled from the fixed axes
inwards, and a tensor is evidence for a group only once all its other factors are fixed or settled, so that
the first decisions rest on what no permutation can change.
"""

import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, ParamSpec, TypeVar

import jax
import numpy as np

from ..symmetry import Perms, PermutationSpec, gather
from .assignment import assign
from .problem import Problem, gain_of_units, objective
from .similarity import Similarities

ROUNDING = 1e-12  # of the problem's scale: differences of float64 sums below it are noise

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Sweep(NamedTuple):
    """What a callback learns after every sweep."""

    number: int
    objective: float
    moved: int  # units moved in this sweep
    perms: Perms | None = None  # after it; None where several posteriors move at once


class DescentResult(NamedTuple):
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
) -> DescentResult:
    """Runs sweeps in the given order until none helps or the order is used up.

    `potentials` of an earlier search on a similar problem make this one faster; they are updated in place.
    """
    problem = similarities.problem
    perms = {group: np.array(perm, np.int64) for group, perm in init.items()}
    start = value = objective(problem, perms)
    search = _Search(similarities, perms, {} if potentials is None else potentials)
    neighbours = _neighbours(problem)
    unsolved, gains, used = set(perms), [], []
    for sweep in order:
        if not unsolved:
            break
        used.append(tuple(sweep))
        moved = 0
        for group in sweep:
            if group not in unsolved:
                continue
            unsolved.discard(group)
            step = search.step(group, relative_tolerance * max(value, 0.0) + ROUNDING * problem.scale)
            if step is not None:
                moved += int((step.perm != perms[group]).sum())
                perms[group] = step.perm
                gains.append(step.gain)
                value -= step.gain
                unsolved |= neighbours[group]
        if on_sweep is not None:
            on_sweep(Sweep(len(used), value, moved, dict(perms)))
    return DescentResult(perms, start, tuple(gains), len(used), not unsolved, tuple(used), search.seconds)


def starts(similarities: Similarities, key: jax.Array, count: int, init: Perms | None) -> Iterator[tuple[str, Perms]]:
    """Yields `count` named starts: the given one or the identity, then anchored, then random ones."""
    spec = similarities.problem.spec
    for index in range(count):
        if index == 0:
            yield ("identity", spec.identity()) if init is None else ("init", init)
        elif index == 1:
            yield "anchored", anchored_start(similarities)
        else:
            yield f"random {index - 1}", spec.random(jax.random.fold_in(key, index))


def anchored_start(similarities: Similarities) -> Perms:
    """Returns permutations settled one group at a time, the group with most evidence a unit first."""
    perms = similarities.problem.spec.identity()
    settled: set[str] = set()
    while len(settled) < len(perms):
        counts = {group: similarities.evidence(group, settled) for group in perms if group not in settled}
        group = max(counts, key=lambda name: counts[name])  # the first of equals, in the order of the spec
        if counts[group]:
            perms[group] = assign(similarities.anchored_matrix(group, perms, settled)).perm
        settled.add(group)
    return perms


def random_order(spec: PermutationSpec, key: jax.Array, sweeps: int) -> list[tuple[str, ...]]:
    """Returns the groups in a fresh random order for each sweep."""
    groups = list(spec.sizes)
    draws = jax.random.uniform(jax.random.fold_in(key, zlib.crc32(b"order")), (sweeps, len(groups)))
    return [tuple(groups[i] for i in np.argsort(row, kind="stable")) for row in np.asarray(draws)]


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
        similarity = self._timed("similarity", self.similarities.matrix, group, self.perms)
        if len(similarity) not in self.work:
            self.work[len(similarity)] = np.empty((2, *similarity.shape), similarity.dtype)
        arguments = similarity, self.potentials.get(group), self.work[len(similarity)]
        perm, self.potentials[group] = self._timed("assignment", assign, *arguments)
        rows = np.arange(perm.size)
        gain = 2.0 * float((similarity[rows, perm] - similarity[rows, self.perms[group]]).sum(dtype=np.float64))
        if not self.similarities.is_linear(group):
            return self._checked(group, perm, floor) or self._swaps(group, similarity, floor)
        if gain <= floor:
            return None
        if gain <= self.similarities.rounding_bound(group):
            gain = self._timed("objective", gain_of_units, self.problem, group, self.perms, perm)
        return _Step(perm, gain) if gain > floor else None

    def _checked(self, group: str, perm: np.ndarray, floor: float) -> _Step | None:
        """A step whose gain is taken from the objective itself."""
        if (perm == self.perms[group]).all():
            return None
        before = self._timed("objective", objective, self.problem, self.perms)
        after = self._timed("objective", objective, self.problem, {**self.perms, group: perm})
        return _Step(perm, before - after) if before - after > floor else None

    def _swaps(self, group: str, similarity: np.ndarray, floor: float) -> _Step | None:
        """As many disjoint swaps at once as still lower the objective: all, half of them, … one."""
        pairs = disjoint_swaps(swap_gains(self.problem, group, self.perms, similarity))
        while len(pairs):
            perm = self.perms[group].copy()
            perm[pairs] = perm[pairs[:, ::-1]]
            step = self._checked(group, perm, floor)
            if step is not None:
                return step
            pairs = pairs[: len(pairs) // 2]
        return None

    def _timed(
        self, name: str, function: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        start = time.perf_counter()
        result = function(*args, **kwargs)
        self.seconds[name] += time.perf_counter() - start
        return result


def swap_gains(problem: Problem, group: str, perms: Perms, similarity: np.ndarray) -> np.ndarray:
    """Returns how much each swap of two placed units raises the similarity; exact up to two factors."""
    placed = similarity[:, perms[group]].astype(np.float64)
    kept = np.diag(placed)
    gains = placed + placed.T - kept[:, None] - kept[None, :]
    for layout, target, source in problem.features:
        places = layout.places(group)
        if len(places) == 2:
            for t, s in zip(target, source, strict=True):
                moved = gather(s, layout, perms)
                gains += _corners(np.moveaxis(t, places, (0, 1)), np.moveaxis(moved, places, (0, 1)))
    return gains


def disjoint_swaps(gains: np.ndarray) -> np.ndarray:
    """Returns swaps with a positive gain that share no unit, the most promising first, as rows (a, b)."""
    upper = np.triu(gains, 1)
    a, b = np.unravel_index(np.argsort(-upper, axis=None, kind="stable")[: int((upper > 0).sum())], upper.shape)
    free, chosen = np.ones(len(gains), bool), []
    for pair in zip(a.tolist(), b.tolist(), strict=True):
        if free[pair[0]] and free[pair[1]]:
            free[list(pair)] = False
            chosen.append(pair)
    return np.array(chosen, np.int64).reshape(-1, 2)


def _corners(target: np.ndarray, source: np.ndarray) -> np.ndarray:
    """What the linear gain counts wrongly where both indices of an entry are among the swapped two."""
    size = target.shape[0]
    t, s = (array.reshape(size, size, -1).astype(np.float64) for array in (target, source))
    tt, ss = t.transpose(1, 0, 2), s.transpose(1, 0, 2)
    td, sd = t[np.arange(size), np.arange(size)], s[np.arange(size), np.arange(size)]
    ta, tb, sa, sb = td[:, None], td[None, :], sd[:, None], sd[None, :]
    rows = _dot(ta - tt, ss - sa) + _dot(t - tb, sb - s)  # Σ_j over j in {a, b} of (t_aj − t_bj)(s_bj − s_aj)
    columns = _dot(ta - t, s - sa) + _dot(tt - tb, sb - ss)
    return _dot(ta - tb, sb - sa) + _dot(t - tt, ss - s) - rows - columns


def _dot(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return (first * second).sum(-1)


def _neighbours(problem: Problem) -> dict[str, set[str]]:
    """Groups whose step depends on this one; a group on two factors of a tensor is its own neighbour."""
    result: dict[str, set[str]] = {group: set() for group in problem.spec.sizes}
    for pair in problem.features:
        present = pair.layout.present
        for group in set(present):
            rest = list(present)
            rest.remove(group)
            result[group] |= set(rest)
    return result
