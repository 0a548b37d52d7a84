"""Matching samples by their weights, to one reference or to their common mean.

With one group, as in the networks with one hidden layer of Xiao et al. 2023, a sample is matched by a single
exact assignment, a few milliseconds for 512 units. To the common mean: every sample in turn is matched to the
mean of the others, while the sum of all is kept up to date; what falls is

    F = Σ_k |P_k w_k − mean|² = Σ_k |w_k|² − |Σ_k P_k w_k|² / K.

Networks with several groups go through the general coordinate descent, `align` and `align_many`, whose
objective is the same.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any, NamedTuple

import jax
import numpy as np

from ..inference.hmc import Draws
from ..matching import align, align_many
from ..matching.assignment import Assignment, assign
from ..posteriors import Samples
from ..symmetry import PermutationSpec
from ..trees import Tree, flatten
from .rows import BATCH, Rows, batches, identity, one, rows_of

TOGETHER = 4  # samples matched at the same time, whatever the number of cores, so that results do not depend on it
FEW = 64  # those do not see each other move; among so few that would matter
SUBSET = 8  # of many samples, one in so many is brought into a common order first; the others then find it at once
SUBSET_ROUNDS = 8  # among those; a common order that takes longer to find is looked for among all
PATIENCE = 7  # rounds that a sample sits out at most; late in a search nine in ten stay where they are

OnRound = Callable[[int, int, int], Any]  # (round, samples matched in it, samples)


class Matched(NamedTuple):
    """One permutation for each sample, and how the search went."""

    perms: dict[str, np.ndarray]  # {group: (samples, units)}
    rounds: int
    converged: bool


def match_to(
    reference: Tree,
    samples: Samples | Draws,
    spec: PermutationSpec,
    *,
    key: jax.Array,
    exclude: frozenset[str],
    on_round: OnRound | None = None,
) -> Matched:
    """Returns the permutations that bring each sample closest to the reference."""
    perms = identity(spec, len(samples))
    rows = rows_of(spec, reference, exclude)
    if rows is not None:
        target = rows.of({path: np.asarray(leaf) for path, leaf in flatten(reference).items()})
        found = ({rows.group: _assign(target, units).perm} for units in _units(rows, samples))
    else:
        found = _aligned(reference, samples, spec, key, exclude)
    with one_thread():
        for index, mine in enumerate(found):
            for group, perm in mine.items():
                perms[group][index] = perm
            _tell(on_round, 1, index, len(samples))
    return Matched(perms, 1, True)


def match_to_mean(
    samples: Samples | Draws,
    spec: PermutationSpec,
    *,
    key: jax.Array,
    exclude: frozenset[str],
    max_rounds: int,
    tolerance: float,
    on_round: OnRound | None = None,
) -> Matched:
    """Returns permutations that locally minimise the sum of squared distances to the common mean."""
    rows = rows_of(spec, samples[0], exclude)
    if rows is not None:
        with one_thread(), ThreadPoolExecutor(os.cpu_count()) as pool:
            return _Search(rows, samples, spec.sizes[rows.group], pool, on_round).run(max_rounds, tolerance)
    members = samples if isinstance(samples, Samples) else samples.load()
    found = align_many(
        members,
        spec,
        key=key,
        exclude=exclude,
        max_sweeps=max_rounds,
        relative_tolerance=tolerance,
        on_sweep=lambda sweep: _tell(on_round, sweep.number, len(samples) - 1, len(samples)),
    )
    perms = {group: np.stack([mine[group] for mine in found.perms]) for group in spec.sizes}
    return Matched(perms, found.sweeps, found.converged)


class _Search:
    """The permutations of all samples of a network with one group, and the sum of the moved samples."""

    def __init__(self, rows: Rows, samples: Samples | Draws, units: int, pool: Executor, on_round: Any):
        self.rows, self.samples, self.pool, self.on_round = rows, samples, pool, on_round
        self.together = TOGETHER if len(samples) > FEW else 1
        self.perms = np.tile(np.arange(units), (len(samples), 1))
        self.potentials: list[np.ndarray | None] = [None] * len(samples)  # of the last visit, to start from
        self.resting = np.zeros(len(samples), int)  # rounds that a sample sits out
        self.patience = np.zeros(len(samples), int)
        self.sum = np.zeros(())
        self.squares = 0.0

    def run(self, max_rounds: int, tolerance: float) -> Matched:
        self._begin(max_rounds, tolerance)
        rounds, converged = 1, False
        while rounds < max_rounds and not converged:
            rounds += 1
            whole, before = not self.resting.any(), self._spread(self.sum)
            self._round(rounds)
            small = before - self._spread(self.sum) <= tolerance * before
            converged = whole and small
            if small:
                self.resting[:] = 0  # only a round through all samples can say that nothing is left to gain
        return Matched({self.rows.group: self.perms}, rounds, converged)

    def _round(self, number: int) -> None:
        """Matches samples to the mean of the others. Those that stay put are left alone for ever more rounds."""
        for group in _groups(self._awake(), self.together):
            for (index, units), found in zip(group, self._matched(group), strict=True):
                before, (self.perms[index], self.potentials[index]) = self.perms[index].copy(), found
                if (before == found.perm).all():
                    self.patience[index] = min(2 * self.patience[index] + 1, PATIENCE)
                else:
                    self.patience[index] = 0
                    self.sum += units[found.perm]
                    self.sum -= units[before]
                self.resting[index] = self.patience[index]
                _tell(self.on_round, number, index, len(self.samples))

    def _awake(self) -> Iterator[tuple[int, np.ndarray]]:
        for part, stack in batches(self.samples):
            for index in range(part.start, part.stop):
                if self.resting[index]:
                    self.resting[index] -= 1
                else:
                    yield index, self.rows.of(one(stack, index - part.start))

    def _matched(self, group: list[tuple[int, np.ndarray]]) -> list[Assignment]:
        """Each sample of a group against the mean of all others; none moves before all are matched."""

        def match(item: tuple[int, np.ndarray]) -> Assignment:
            index, units = item
            return self._assign(index, units, self.sum - units[self.perms[index]])

        return list(self.pool.map(match, group) if len(group) > 1 else map(match, group))

    def _begin(self, max_rounds: int, tolerance: float) -> None:
        """Finds a first order; keeps it only if it beats the given one."""
        if len(self.samples) > SUBSET * FEW:
            self._begin_with_few(max_rounds, tolerance)
        else:
            self._begin_one_by_one()
        given = np.zeros(())
        for units in _units(self.rows, self.samples):
            self.squares += float(np.vdot(units, units))
            given = given + units
        if self._spread(self.sum) >= self._spread(given):
            self.perms[:] = np.arange(self.perms.shape[1])
            self.sum = given

    def _begin_one_by_one(self) -> None:
        """Matches each sample to the mean of those before it."""
        for index, units in enumerate(_units(self.rows, self.samples)):
            if index:
                self.perms[index], self.potentials[index] = self._assign(index, units, self.sum)
            self.sum = self.sum + units[self.perms[index]].astype(np.float64)
            _tell(self.on_round, 1, index, len(self.samples))

    def _begin_with_few(self, max_rounds: int, tolerance: float) -> None:
        """Searches among a part of the samples, whose passes are cheap, and matches all to the mean they find."""
        few = np.arange(0, len(self.samples), SUBSET)
        part = self.samples.take(few) if isinstance(self.samples, Draws) else self.samples[few]
        search = _Search(self.rows, Samples(part), self.perms.shape[1], self.pool, None)
        search.run(min(max_rounds, SUBSET_ROUNDS), tolerance)
        target = (search.sum / len(few)).astype(np.float32)
        self.sum = np.zeros(target.shape)
        everyone = enumerate(_units(self.rows, self.samples))
        for group in _groups(everyone, self.together):
            found = self.pool.map(lambda item: _assign(target, item[1]), group)
            for (index, units), assignment in zip(group, found, strict=True):
                self.perms[index], self.potentials[index] = assignment
                self.sum += units[assignment.perm]
                _tell(self.on_round, 1, index, len(self.samples))

    def _assign(self, index: int, units: np.ndarray, others: np.ndarray) -> Assignment:
        # the target's scale decides nothing; that of one sample keeps float32 in range
        return _assign((others / len(self.samples)).astype(np.float32), units, self.potentials[index])

    def _spread(self, total: np.ndarray) -> float:
        """F above, of the weights that the group touches."""
        return self.squares - float(np.vdot(total, total)) / len(self.samples)


def _assign(target: np.ndarray, units: np.ndarray, potentials: np.ndarray | None = None) -> Assignment:
    """The order of `units` that is most like `target`; what all units share is taken out, as it decides nothing."""
    return assign(target @ (units - units.mean(0)).T, potentials)


def _groups(items: Iterator[Any], size: int) -> Iterator[list[Any]]:
    while group := list(islice(items, size)):
        yield group


def _units(rows: Rows, samples: Samples | Draws) -> Iterator[np.ndarray]:
    for part, stack in batches(samples):
        for index in range(part.stop - part.start):
            yield rows.of(one(stack, index))


def _aligned(reference: Tree, samples: Samples | Draws, spec: PermutationSpec, key: jax.Array, exclude) -> Iterator:
    for start in range(0, len(samples), BATCH):
        stack = samples[start : start + BATCH]
        for index in range(min(BATCH, len(samples) - start)):
            source = jax.tree.map(lambda leaf, index=index: np.asarray(leaf[index]), stack)
            step = jax.random.fold_in(key, start + index)
            yield align(reference, source, spec, key=step, exclude=exclude).perms


def one_thread() -> AbstractContextManager:
    """Each matrix product on one core: they are so short that sharing one between cores costs more than it saves."""
    try:
        from threadpoolctl import threadpool_limits  # comes with scikit-learn
    except ImportError:
        return nullcontext()
    return threadpool_limits(1, user_api="blas")


def _tell(on_round: OnRound | None, number: int, index: int, count: int) -> None:
    if on_round is not None:
        on_round(number, index + 1, count)
