"""Matching samples, by their weights or by what their units do on data, to one reference or to their common mean.

All go through the search of `align`. With one group, as in the networks with one hidden layer of Xiao et al. 2023,
that is a single exact assignment, a few milliseconds for 512 units. To the common mean of weights: every sample in
turn is matched to the mean of the others, while the sum of all is kept up to date; what falls is

    F = Σ_k |P_k w_k − mean|² = Σ_k |w_k|² − |Σ_k P_k w_k|² / K.

Networks with several groups are brought together by `align_many`, whose objective is the same.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import TypeVar

import jax
import numpy as np

from ..inference import Draws
from ..inputs import Inputs
from ..matching import (
    MatchedSamples,
    OnRound,
    Similarities,
    align,
    align_many,
    batches,
    descend,
    identity_of_each,
    match_activations,
    pose_given,
)
from ..posteriors import Samples
from ..randomness import PRNGKey
from ..symmetry import Activations, Perms, PermutationSpec, Signs
from ..trees import Tree, flatten
from .moments import moments
from .unit_matrix import SampleSet, UnitMatrix, each_member, member, unit_matrix

TOGETHER = 4  # samples matched at the same time, whatever the number of cores, so that results do not depend on it
FEW = 64  # those do not see each other move; among so few that would matter
SUBSET = 8  # of many samples, one in so many is brought into a common order first; the others then find it at once
SUBSET_ROUNDS = 8  # among those; a common order that takes longer to find is looked for among all
NARROW = 32  # features of a piece that is copied for a product with others
PATIENCE = 7  # rounds that a sample sits out at most; late in a search nine in ten stay where they are

Potentials = dict[str, np.ndarray]  # of the last assignment, which make the next one faster
Item = TypeVar("Item")


def match_weights(
    reference: Tree,
    samples: SampleSet,
    spec: PermutationSpec,
    *,
    key: PRNGKey,
    exclude: frozenset[str] = frozenset(),
    on_round: OnRound | None = None,
) -> MatchedSamples:
    """Returns the permutations that bring the weights of each sample closest to those of the reference."""
    rows = unit_matrix(spec, reference, exclude)
    perms, signs = identity_of_each(spec, len(samples)), no_signs_of_each(spec, len(samples))
    with one_thread(), ThreadPoolExecutor(os.cpu_count()) as pool:
        if rows is not None:
            each = ((own, {}) for own in _match_each(rows, reference, samples, spec, pool))
        else:
            each = _align_each(reference, samples, spec, key, exclude)
        for index, (own, flips) in enumerate(each):
            for group, perm in own.items():
                perms[group][index] = perm
            for group, sign in flips.items():
                signs[group][index] = sign
            _tell(on_round, 1, index, len(samples))
    return MatchedSamples(perms, 1, True, signs)


def match_weights_to_mean(
    samples: SampleSet,
    spec: PermutationSpec,
    *,
    key: PRNGKey,
    exclude: frozenset[str],
    max_rounds: int,
    tolerance: float,
    on_round: OnRound | None = None,
) -> MatchedSamples:
    """Returns permutations that locally minimise the sum of squared distances to the common mean."""
    rows = unit_matrix(spec, samples[0], exclude)
    if rows is not None:
        with one_thread(), ThreadPoolExecutor(os.cpu_count()) as pool:
            return _MeanSearch(rows, samples, spec, pool, on_round).run(max_rounds, tolerance)
    together = align_many(
        samples if isinstance(samples, Samples) else samples.load(),
        spec,
        key=key,
        exclude=exclude,
        max_sweeps=max_rounds,
        relative_tolerance=tolerance,
        on_sweep=lambda sweep: _tell(on_round, sweep.number, len(samples) - 1, len(samples)),
    )
    return stacked(together.perms, together.signs, together.sweeps, together.converged, spec)


def stacked(
    perms: Sequence[Perms], signs: Sequence[Signs], rounds: int, converged: bool, spec: PermutationSpec
) -> MatchedSamples:
    """Returns what was found for one sample after the other as one array for each group."""
    every, flips = ({g: np.stack([np.asarray(own[g]) for own in part]) for g in part[0]} for part in (perms, signs))
    return MatchedSamples({group: every[group] for group in spec.sizes}, rounds, converged, flips)


def no_signs_of_each(spec: PermutationSpec, count: int) -> dict[str, np.ndarray]:
    """Signs that leave every sample as it is."""
    return {group: np.stack([sign] * count) for group, sign in spec.identity_signs().items()}


def match_activations_to_mean(
    samples: SampleSet,
    spec: PermutationSpec,
    activations: Activations,
    x: Inputs,
    *,
    correlation: bool,
    exclude: frozenset[str],
    max_rounds: int,
    on_round: OnRound | None = None,
) -> MatchedSamples:
    """Returns permutations to the mean of the last pass, until nothing changes or the spread no longer falls."""
    options = {"correlation": correlation, "on_round": on_round}
    last = match_activations(samples[0], samples, spec, activations, x, **options)
    folded = moments(samples, spec, last.perms, exclude)
    while last.rounds < max_rounds:
        again = match_activations(folded.mean, samples, spec, activations, x, number=last.rounds + 1, **options)
        narrower = moments(samples, spec, again.perms, exclude)
        same = all((again.perms[group] == perm).all() for group, perm in last.perms.items())
        if same or narrower.spread >= folded.spread:
            return last._replace(rounds=again.rounds)
        last, folded = again, narrower
    return last._replace(converged=False)


class _MeanSearch:
    """The permutations of all samples of a network with one group, and the sum of the moved samples."""

    def __init__(
        self, rows: UnitMatrix, samples: SampleSet, spec: PermutationSpec, pool: Executor, on_round: OnRound | None
    ):
        self.rows, self.samples, self.spec, self.pool, self.on_round = rows, samples, spec, pool, on_round
        self.together = TOGETHER if len(samples) > FEW else 1
        self.perms = identity_of_each(spec, len(samples))[rows.group]
        self.potentials: list[Potentials] = [{} for _ in range(len(samples))]
        self.resting = np.zeros(len(samples), int)  # rounds that a sample sits out
        self.patience = np.zeros(len(samples), int)
        self.sum = np.zeros(())
        self.squares = 0.0

    def run(self, max_rounds: int, tolerance: float) -> MatchedSamples:
        self._begin(max_rounds, tolerance)
        rounds, converged = 1, False
        while rounds < max_rounds and not converged:
            rounds += 1
            # Known before the round: while it runs, samples come to rest.
            whole, before = not self.resting.any(), self._spread(self.sum)
            self._round(rounds)
            small = before - self._spread(self.sum) <= tolerance * before
            converged = whole and small
            if small:
                self.resting[:] = 0  # only a round through all samples can say that nothing is left to gain
        return MatchedSamples({self.rows.group: self.perms}, rounds, converged)

    def _round(self, number: int) -> None:
        """Matches samples to the mean of the others. Those that stay put are left alone for ever more rounds."""
        for group in _batched(self._awake(), self.together):
            for (index, units), perm in zip(group, self._match_to_others(group), strict=True):
                before = self.perms[index].copy()
                # Late in a search most samples stay put: one that did rests for twice as many rounds as the last
                # time.
                if (before == perm).all():
                    self.patience[index] = min(2 * self.patience[index] + 1, PATIENCE)
                else:
                    self.patience[index] = 0
                    self.perms[index] = perm
                    # The sum is corrected by what moved: to add up all samples again would be one more pass over
                    # them, and they may be on disk.
                    self.sum += units[perm]
                    self.sum -= units[before]
                self.resting[index] = self.patience[index]
                _tell(self.on_round, number, index, len(self.samples))

    def _awake(self) -> Iterator[tuple[int, np.ndarray]]:
        for part, stack in batches(self.samples):
            for index in range(part.start, part.stop):
                if self.resting[index]:
                    self.resting[index] -= 1
                else:
                    yield index, self.rows.of(member(stack, index - part.start))

    def _match_to_others(self, group: list[tuple[int, np.ndarray]]) -> list[np.ndarray]:
        """Each sample of a group against the mean of all others; none moves before all are matched."""

        def match(item: tuple[int, np.ndarray]) -> np.ndarray:
            index, units = item
            return self._match(index, units, self._scaled(self.sum - units[self.perms[index]]))

        return list(self.pool.map(match, group) if len(group) > 1 else map(match, group))

    def _begin(self, max_rounds: int, tolerance: float) -> None:
        """Finds a first order; keeps it only if it beats the given one."""
        if len(self.samples) > SUBSET * FEW:
            self._begin_with_few(max_rounds, tolerance)
        else:
            self._begin_one_by_one()
        given = np.zeros(())
        for units in self.rows.of_each(self.samples):
            self.squares += float(np.vdot(units, units))
            given = given + units
        if self._spread(self.sum) >= self._spread(given):
            self.perms[:] = np.arange(self.perms.shape[1])
            self.sum = given

    def _begin_one_by_one(self) -> None:
        """Matches each sample to the mean of those before it."""
        for index, units in enumerate(self.rows.of_each(self.samples)):
            if index:
                self.perms[index] = self._match(index, units, self._scaled(self.sum))
            self.sum = self.sum + units[self.perms[index]].astype(np.float64)
            _tell(self.on_round, 1, index, len(self.samples))

    def _begin_with_few(self, max_rounds: int, tolerance: float) -> None:
        """Searches among a part of the samples, whose passes are cheap, and matches all to the mean they find."""
        # Every so many rather than the first: draws of one chain resemble their neighbours.
        few = np.arange(0, len(self.samples), SUBSET)
        part = Samples(self.samples.take(few)) if isinstance(self.samples, Draws) else self.samples[few]
        search = _MeanSearch(self.rows, part, self.spec, self.pool, None)
        search.run(min(max_rounds, SUBSET_ROUNDS), tolerance)
        target = (search.sum / len(few)).astype(np.float32)
        self.sum = np.zeros(target.shape)
        everyone = enumerate(self.rows.of_each(self.samples))
        for group in _batched(everyone, self.together):
            perms = self.pool.map(lambda item: self._match(item[0], item[1], target), group)
            for (index, units), perm in zip(group, perms, strict=True):
                self.perms[index] = perm
                self.sum += units[perm]
                _tell(self.on_round, 1, index, len(self.samples))

    def _match(self, index: int, units: np.ndarray, target: np.ndarray) -> np.ndarray:
        own = {self.rows.group: self.perms[index]}
        return np.asarray(_match_rows(self.spec, target, units, own, self.potentials[index])[self.rows.group])

    def _scaled(self, total: np.ndarray) -> np.ndarray:
        """The target's scale decides nothing; that of one sample keeps float32 in range."""
        return (total / len(self.samples)).astype(np.float32)

    def _spread(self, total: np.ndarray) -> float:
        """F above, of the weights that the group touches."""
        return self.squares - float(np.vdot(total, total)) / len(self.samples)


def _match_each(
    rows: UnitMatrix, reference: Tree, samples: SampleSet, spec: PermutationSpec, pool: Executor
) -> Iterator[Perms]:
    """Every sample matched to the reference, as many at the same time as there are cores.

    What all units of the reference share is taken out: it decides nothing.
    """
    target = rows.pieces({path: np.asarray(leaf) for path, leaf in flatten(reference).items()})
    target = _narrow_joined([piece - piece.mean(0) for piece in target])

    def match(flat: dict[str, np.ndarray]) -> Perms:
        first, *rest = zip(target, _narrow_joined(rows.pieces(flat)), strict=True)
        similarity = first[0] @ first[1].T
        for ours, theirs in rest:
            similarity += ours @ theirs.T
        return _best_order(spec, similarity, spec.identity(), {})

    for group in _batched(each_member(samples), 4 * (os.cpu_count() or 1)):
        yield from pool.map(match, group)


def _narrow_joined(pieces: list[np.ndarray]) -> list[np.ndarray]:
    """Pieces of few features side by side as one: a product of one feature costs as much as one of twenty."""
    narrow = [piece for piece in pieces if piece.shape[1] <= NARROW]
    wide = [piece for piece in pieces if piece.shape[1] > NARROW]
    return [*wide, np.concatenate(narrow, 1)] if narrow else wide


def _match_rows(
    spec: PermutationSpec, target: np.ndarray, units: np.ndarray, own: Perms, potentials: Potentials
) -> Perms:
    """The order of `units` that is most like `target`; what all units share is taken out, as it decides nothing."""
    return _best_order(spec, target @ (units - units.mean(0)).T, own, potentials)


def _best_order(spec: PermutationSpec, similarity: np.ndarray, own: Perms, potentials: Potentials) -> Perms:
    (group,) = spec.sizes
    problem = pose_given(spec, {group: similarity})
    return descend(Similarities(problem), own, [(group,)], 0.0, potentials=potentials).perms


def _align_each(
    reference: Tree, samples: SampleSet, spec: PermutationSpec, key: PRNGKey, exclude: frozenset[str]
) -> Iterator[tuple[Perms, Signs]]:
    for part, stack in batches(samples):
        for index in range(part.start, part.stop):
            source = jax.tree.map(lambda leaf, at=index - part.start: leaf[at], stack)
            found = align(reference, source, spec, key=jax.random.fold_in(key, index), exclude=exclude)
            yield found.perms, found.signs


def _batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    iterator = iter(items)
    while group := list(islice(iterator, size)):
        yield group


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
