"""A matching problem: what two posteriors are compared on, and the cost of a permutation between them.

The search itself only needs differences of the cost, which the similarity gives. The cost computed directly, here,
is where the search starts from, where it ends, and the judge of every step too small to be read off a float32
similarity.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np

from ..errors import ConfigError, PosteriorError
from ..file_arrays import on_host
from ..posteriors import Gaussian, Posterior, is_posterior
from ..symmetry import Layout, Perms, PermutationSpec, Signs, gather, identity_groups, reordered
from ..trees import OF_TORCH, Tree, flatten, of_torch
from .costs import (
    Cost,
    GroupSimilarity,
    Marginals,
    Means,
    Pair,
    Wasserstein,
    bound_to,
    check_marginals,
    feature_pairs,
    feature_trees,
    group_similarities,
    joined,
    squared_distance,
    squared_distances,
    value_of,
    widened,
)
from .families import FlatPerms, Piece, Structure, structure_of
from .twins import halves_of, is_odd_tree, odd_features, with_twins

# Products of the norms of target and source between which float32 holds squares of small differences, and squares of
# features that are squares themselves. Others are compared in float64, so that the unit of weights does not matter.
ORDINARY = (1e-12, 1e16)

Flat = dict[str, np.ndarray]


class TensorPair(NamedTuple):
    """One piece of a tensor, an axis a unit: arrays of the target, and those of the source that belong to them."""

    piece: Piece
    target: tuple[np.ndarray, ...]
    source: tuple[np.ndarray, ...]  # with twins behind the units that may flip (`twins.py`)
    odd: tuple[bool, ...] = ()  # for each array, whether it changes its sign with units; none where nothing flips

    def is_odd(self, number: int) -> bool:
        """Whether an array changes its sign with some of its units."""
        return bool(self.odd) and self.odd[number] and any(self.layout.flips)

    def first(self, count: int) -> "TensorPair":
        """The pair with the first of its arrays alone."""
        if count == len(self.target):
            return self
        return self._replace(target=self.target[:count], source=self.source[:count], odd=self.odd[:count])

    def keeps_constants(self, number: int, place: int | None = None) -> bool:
        """Whether what all places of the target share (or those of one axis) decides nothing: not where signs turn
        it."""
        return not self.odd or not self.is_odd(number) or (place is not None and not self.layout.flips[place])

    @property
    def layout(self) -> Layout:
        """Shape of the arrays, and the unit that each axis counts."""
        return self.piece.layout


class Problem(NamedTuple):
    """A target, a source and the cost of a permutation between them."""

    spec: PermutationSpec
    structure: Structure  # of the spec: what is solved together, what axes count
    cost: Cost
    dtype: np.dtype  # of the similarity; never below float32
    features: tuple[TensorPair, ...]  # what is multiplied in the similarity
    marginals: tuple[TensorPair, ...]  # the tensors themselves, (mean,) or (mean, std)
    given: Mapping[
        str, GroupSimilarity
    ]  # similarities that come with the problem, by unit: all by all that it counts
    scale: float  # Σ |target| |source|: what rounding errors of the objective are relative to
    # Paths without features, where those of all others are the tensors themselves; and the objective with every unit
    # in its place, where it is known from looking at them.
    left_out: frozenset[str] | None = None
    at_rest: float | None = None


def pose(
    target: Posterior | Tree, source: Posterior | Tree, spec: PermutationSpec, cost: Cost, exclude: frozenset[str]
) -> Problem:
    """Returns the matching problem of two posteriors, after checking that there is one.

    Raises:
        ConfigError: an excluded path that is in no tree.
        PosteriorError: mismatched trees, NaN, infinities, negative stds, or what the cost refuses.
        SpecError: the spec belongs to another model.
    """
    both = [_host_arrays(posterior, spec) for posterior in (target, source)]
    squares = _squares(*both)
    if squares is None:
        norms = [_checked_norm(flats, role) for flats, role in zip(both, ("target", "source"), strict=True)]
    else:
        norms = [squares[0] ** 0.5, squares[1] ** 0.5]
    (means0, stds0), (means1, stds1) = [(flats[0], flats[1] if len(flats) > 1 else None) for flats in both]
    cost = bound_to(cost, target, source, spec)
    for path in exclude - set(means0):
        raise ConfigError(f"exclude: there is no parameter '{path}'")
    product = norms[0] * norms[1]
    wide = not ORDINARY[0] < product < ORDINARY[1]  # NaN, an overflow times zero, is not between them either
    plain = isinstance(cost, Wasserstein | Means)  # these two compare the arrays themselves
    dtype = np.dtype(np.float64) if wide else None if plain else np.dtype(np.float32)
    structure, marginals, features = structure_of(spec), [], []
    trees = turned = feature_trees(cost, target, source, spec)
    flips = spec.random_signs(jax.random.key(0)) if trees and structure.signed else {}  # to try what they do
    if flips:
        turned = feature_trees(cost, target, permuted(source, spec, spec.identity(), flips), spec)
    flat = structure.flat(spec.identity(), flips) if flips else {}
    left_out = exclude | _integers(means0) | _integers(means1)
    pieces = structure.pieces
    if left_out:
        pieces = [piece for piece in pieces if piece.layout.path not in left_out]
    arrays_alone = plain and dtype is None and not structure.signed and (stds0 is None) == (stds1 is None)
    if arrays_alone:  # as below, in fewer calls: on small networks they would take longer than the search
        count = 1 if isinstance(cost, Means) else len(both[0])
        ours, theirs = (
            zip(*([piece.of(flat[piece.layout.path]) for piece in pieces] for flat in side), strict=True)
            for side in both
        )
        marginals = list(map(TensorPair, pieces, ours, theirs))
        features = marginals if count == len(both[0]) else [pair.first(count) for pair in marginals]
    for piece in pieces if not arrays_alone else ():
        path = piece.layout.path
        ours, theirs = _marginals(means0, stds0, piece, dtype), _marginals(means1, stds1, piece, dtype)
        check_marginals(cost, ours, path, "target")
        check_marginals(cost, theirs, path, "source")
        ours, theirs = _both_or_none(ours, theirs)
        arrays = [(a, b) for a, b in zip(ours, theirs, strict=True) if a is not None and b is not None]
        marginals.append(pair_of(piece, arrays, (True, False)[: len(arrays)], structure))
        if plain:  # its features are the marginals, or the means of them
            features.append(marginals[-1].first(len(cost.features(ours, theirs))))
            continue
        pairs = feature_pairs(cost, ours, theirs, path)
        odd = odd_features(cost, ours, theirs, pairs, piece.layout)
        pairs += [(piece.of(t[path]), piece.of(s[path])) for t, s in trees]
        odd += tuple(is_odd_tree(piece, s, t, flat, cost) for (_, s), (_, t) in zip(trees, turned, strict=True))
        if pairs:
            features.append(pair_of(piece, pairs, odd, structure))
    given = by_unit(group_similarities(cost, target, source, spec), spec, structure, cost)
    scale = product if plain and not wide else sum(map(magnitude, features))
    dtypes = {array.dtype for pair in features for side in pair[1:3] for array in side}
    dtype = np.result_type(np.float32, *(dtypes or [part.matrix for part in given.values()]))
    problem = Problem(spec, structure, cost, dtype, tuple(features), tuple(marginals), given, scale)
    if arrays_alone:
        is_all = not left_out and features is marginals
        problem = problem._replace(left_out=left_out, at_rest=squares[2] if is_all and squares is not None else None)
    return _finished(problem)


def with_evidence(
    problem: Problem, features: tuple[TensorPair, ...], given: Mapping[str, GroupSimilarity]
) -> Problem:
    """Returns a problem with other evidence in place of its own; its cost is the squared distance of the features."""
    if not given and isinstance(problem.cost, Wasserstein | Means):
        return problem._replace(features=features, at_rest=None)
    scale = sum(map(magnitude, features))
    other = problem._replace(cost=_GivenOutright(), features=features, given=given, scale=scale)
    return _finished(other._replace(left_out=None, at_rest=None))


def pose_given(spec: PermutationSpec, similarities: Mapping[str, np.ndarray]) -> Problem:
    """Returns the problem in which all evidence is similarities of units, shaped as in `GroupSimilarity`."""
    structure = structure_of(spec)
    given = {group: GroupSimilarity(matrix) for group, matrix in similarities.items()}
    dtype, cost = np.result_type(np.float32, *similarities.values()), _GivenOutright()
    return _finished(Problem(spec, structure, cost, dtype, (), (), by_unit(given, spec, structure, cost), 0.0))


def pair_of(piece: Piece, pairs: Sequence[Pair], odd: tuple[bool, ...], structure: Structure) -> TensorPair:
    """Returns the features of one piece, with twins where units may flip."""
    if not structure.signed:
        return TensorPair(piece, *zip(*pairs, strict=True))
    source = (
        with_twins(theirs, piece.layout, structure.signed, is_odd)
        for (_, theirs), is_odd in zip(pairs, odd, strict=True)
    )
    return TensorPair(piece, tuple(ours for ours, _ in pairs), tuple(source), odd)


def permuted(
    posterior: Posterior | Tree, spec: PermutationSpec, perms: Perms, signs: Signs | None = None
) -> Posterior | Tree:
    """Returns a posterior or a point with its units reordered, and flipped where there are signs."""
    if type(posterior) is Gaussian:
        both = reordered(posterior.mean, spec, perms, signs), reordered(posterior.std, spec, perms)
        # not by its constructor, which would check again that both have one structure
        return jax.tree.unflatten(jax.tree.structure(posterior), jax.tree.leaves(both))
    if not is_posterior(posterior):
        return reordered(posterior, spec, perms, signs)
    if not signs:
        return posterior.permute(spec, perms)
    try:
        return posterior.permute(spec, perms, signs)  # pyright: ignore[reportCallIssue]
    except TypeError:
        raise PosteriorError(
            f"the `permute` of {type(posterior).__name__} takes no signs; give it a third argument, or align with "
            "spec.without_signs"
        ) from None


def objective(problem: Problem, perms: Perms, signs: Signs | None = None) -> float:
    """Returns the cost after the source has moved, computed from its definition."""
    return objective_of_flat(problem, problem.structure.flat(perms, signs))


def objective_of_flat(problem: Problem, flat: FlatPerms) -> float:
    """Returns the same from the permutation of every unit."""
    skip = unmoved(problem, flat)
    if problem.at_rest is not None and skip.issuperset(flat):
        return problem.at_rest
    moved = (
        (
            pair.target,
            pair.source
            if skip.issuperset(pair.layout.present)
            else [gather(np.asarray(array), pair.layout, flat, skip) for array in pair.source],
        )
        for pair in _compared(problem)
    )
    return _of_groups(problem, flat) + _cost(problem, moved)


def objective_of_moved(problem: Problem, flat: FlatPerms, moved: Posterior | Tree) -> float:
    """Returns the same from the source that was moved already, whose gathers need not be made again."""
    if is_posterior(moved) and not isinstance(moved, Gaussian):  # its std may be costly
        return objective_of_flat(problem, flat)
    trees = (moved.mean, moved.std) if is_posterior(moved) else (moved,)
    if not problem.marginals or len(problem.marginals[0].source) != len(trees):  # a point against a Gaussian
        return objective_of_flat(problem, flat)
    if hasattr(problem.cost, "trees"):  # its features are not made of the marginals alone
        return objective_of_flat(problem, flat)
    first = flatten(trees[0])
    leaves = [first.values(), *map(jax.tree.leaves, trees[1:])]
    arrays_of = [dict(zip(first, map(on_host, each), strict=True)) for each in leaves]
    if problem.left_out is not None:  # as below, in fewer calls
        return _of_groups(problem, flat) + squared_distances(
            [
                (target, piece.of(of[piece.layout.path]))
                for piece, targets, _, _ in problem.features
                for target, of in zip(targets, arrays_of, strict=False)  # stds may be left out
            ]
        )
    tensors = (
        (as_marginals(target), as_marginals([_seen_in(of, piece, source[0].dtype) for of in arrays_of]))
        for piece, target, source, _ in problem.marginals
    )
    return _of_groups(problem, flat) + value_of(problem.cost, tensors)


def unmoved(problem: Problem, flat: FlatPerms) -> frozenset[str]:
    """Returns the units that need no gather: all are in their places, and there are no twins to leave out."""
    return identity_groups({unit: perm for unit, perm in flat.items() if unit not in problem.structure.signed})


def gain_of_units(problem: Problem, unit: str, flat: FlatPerms, new: np.ndarray) -> float:
    """Returns by how much the objective falls when a unit takes another permutation, from what is moved alone.

    Only for units that stand on at most one axis of each tensor: there each number belongs to one place.
    """
    moved = np.flatnonzero(new != flat[unit])
    skip = unmoved(problem, flat) | {unit}
    total = 0.0
    if unit in problem.given:
        matrix = problem.given[unit].matrix
        total += 2.0 * float((matrix[moved, new[moved]] - matrix[moved, flat[unit][moved]]).sum(dtype=np.float64))
    for pair in _compared(problem):
        for place in pair.layout.places(unit):
            part = tuple(array.take(moved, place) for array in pair.target)
            source = [np.asarray(array) for array in pair.source]
            before, after = (
                [gather(array.take(units[moved], place), pair.layout, flat, skip) for array in source]
                for units in (flat[unit], new)
            )
            total += _cost(problem, [(part, before)]) - _cost(problem, [(part, after)])
    return total


def norm(array: np.ndarray) -> float:
    """Returns the Euclidean norm of all entries."""
    with np.errstate(over="ignore"):  # whoever asks refuses what is not finite
        return _square(array) ** 0.5


def sum_bound(matrix: np.ndarray) -> float:
    """Returns a bound on |Σ_i matrix[i, perm[i]]|, by Cauchy and Schwarz."""
    return norm(matrix) * len(matrix) ** 0.5


def magnitude(pair: TensorPair) -> float:
    """Returns Σ |target| |source|, a bound on the inner products of one tensor."""
    return sum(norm(a) * norm(b) for a, b in zip(pair.target, pair.source, strict=True))


class _GivenOutright(NamedTuple):
    """The cost of a problem that compares no tensor."""

    def features(self, target: Marginals, source: Marginals) -> list[Pair]:
        return []


def _host_arrays(posterior: Posterior | Tree, spec: PermutationSpec) -> list[Flat]:
    """The means, and of a posterior the stds, by path, on the host; shapes are checked."""
    trees = (posterior.mean, posterior.std) if is_posterior(posterior) else (posterior,)
    first = _fitting(trees[0], spec)
    leaves = [first.values(), *map(jax.tree.leaves, trees[1:])]
    return [dict(zip(first, map(on_host, each), strict=True)) for each in leaves]


def _squares(target: list[Flat], source: list[Flat]) -> tuple[float, float, float] | None:
    """Σ t², Σ s² and Σ (t − s)², in one pass; None where a number is to be refused, or the sides are not alike."""
    if list(map(list, target)) != list(map(list, source)) or any(map(_integers, (*target, *source))):
        return None
    ours = theirs = between = 0.0
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused
        for number, sides in enumerate(zip(target, source, strict=True)):
            for t, s in joined(zip(*(flat.values() for flat in sides), strict=True)):
                t, s = np.asarray(t), np.asarray(s)  # one in a file is read once
                if number == 1 and min(t.min(initial=0), s.min(initial=0)) < 0:  # stds
                    return None
                ours += _square(t)
                theirs += _square(s)
                between += squared_distance(t, s)
    return (ours, theirs, between) if math.isfinite(ours + theirs) else None  # finite sums mean finite entries


def _checked_norm(flats: list[Flat], role: str) -> float:
    """The common norm of means and stds, which are refused where they are not finite, or stds below zero."""
    weights = [(path, leaf) for flat in flats for path, leaf in flat.items() if not _is_integer(leaf)]
    with np.errstate(over="ignore", invalid="ignore"):
        total = sum(_square(part) for (part,) in joined((leaf,) for _, leaf in weights))
    if not math.isfinite(total):
        for path, leaf in weights:
            if not np.isfinite(leaf).all():
                what = "NaN" if np.isnan(leaf).any() else "an infinity"
                raise PosteriorError(f"'{path}' of the {role} holds {what}; the fit that wrote it has diverged")
    for path, std in flats[1].items() if len(flats) > 1 else ():
        if std.min(initial=0) < 0:
            raise PosteriorError(f"the std of '{path}' of the {role} is negative; pass stds, not their logarithms")
    return total**0.5


def _fitting(tree: Tree, spec: PermutationSpec) -> dict[str, Any]:
    """The leaves of a tree that fits the spec and has no leading axes, by path."""
    flat = flatten(tree)
    if _shapes_at(spec, tuple(flat)) == [*map(np.shape, flat.values())]:
        return flat
    known = spec.axes
    if isinstance(tree, list | tuple) and flat.keys() != known.keys():
        raise PosteriorError("align moves one source; call it once for each, or bring all together with align_many")
    for path, leaf in flat.items():
        if of_torch(leaf):
            raise PosteriorError(f"'{path}' {OF_TORCH}" if path else f"what was given {OF_TORCH}")
    spec.check(tree)  # says what is wrong
    raise PosteriorError("these parameters have leading axes; align takes one posterior at a time")


@lru_cache(maxsize=16)
def _shapes_at(spec: PermutationSpec, paths: tuple[str, ...]) -> list[tuple[int, ...]] | None:
    """The shapes that a spec expects at these paths; None where it has others."""
    return list(map(spec.shape, paths)) if set(paths) == set(spec.axes) else None


def _marginals(means: Flat, stds: Flat | None, piece: Piece, dtype: np.dtype | None) -> Marginals:
    """One piece of both trees, in their own precision where no other is asked for."""

    arrays = [piece.of(flat[piece.layout.path]) for flat in ((means,) if stds is None else (means, stds))]
    if dtype is not None:
        arrays = [array.astype(np.result_type(array, dtype), copy=False) for array in arrays]
    return as_marginals(arrays)


def _seen_in(flat: Flat, piece: Piece, dtype: np.dtype) -> np.ndarray:
    """One piece of a tree, in this precision."""
    return piece.of(flat[piece.layout.path]).astype(dtype, copy=False)


def _both_or_none(first: Marginals, second: Marginals) -> tuple[Marginals, Marginals]:
    """A point is a Gaussian with zero std where the other is a Gaussian."""
    if (first.std is None) == (second.std is None):
        return first, second
    first, second = (m if m.std is not None else m._replace(std=_zeros(m.mean)) for m in (first, second))
    return first, second


def _zeros(like: np.ndarray) -> np.ndarray:
    """Zeros that take no memory."""
    return np.broadcast_to(np.zeros((), like.dtype), like.shape)


def by_unit(
    given: Mapping[str, GroupSimilarity], spec: PermutationSpec, structure: Structure, cost: Cost
) -> dict[str, GroupSimilarity]:
    """Similarities of groups as one of all that each unit counts by all of it, and by its twins where it has some."""
    result = {}
    for group, part in given.items():
        constant, fixed = part.constant, [name not in spec.sizes for name in spec.outer(group)]
        for name, member in structure.members.items():
            if member.group == group:
                halves = halves_of(part, group, cost) if name in structure.signed else (part.matrix,)
                index = tuple(at for at, is_fixed in zip(member.at, fixed, strict=False) if is_fixed)
                depth, size = len(member.outer), structure.units[name].size
                order = (*range(depth), 2 * depth, *range(depth, 2 * depth), 2 * depth + 1)
                both = []
                for half in halves:
                    # positions of fixed factors stand among those of the target, in the order of the spec
                    own = np.moveaxis(half, [i for i, f in enumerate(fixed) if f], range(sum(fixed)))[index]
                    both.append(own.transpose(order).reshape(size, size))
                result[name] = GroupSimilarity(both[0] if len(both) == 1 else np.concatenate(both, 1), constant)
                constant = 0.0  # once
    return result


def _finished(problem: Problem) -> Problem:
    """Similarities in the precision of the others, and their share of the scale."""
    given = {
        group: part._replace(matrix=part.matrix.astype(problem.dtype, copy=False))
        for group, part in problem.given.items()
    }
    scale = problem.scale + sum(sum_bound(part.matrix) for part in given.values())
    if not np.isfinite(scale):
        raise PosteriorError("squares of these weights are beyond float64; divide all of them by one large number")
    return problem._replace(given=given, scale=scale)


def _compared(problem: Problem) -> tuple[TensorPair, ...]:
    """The pairs that the cost is computed from: the tensors where it has a value of its own, else the features."""
    return problem.marginals if hasattr(problem.cost, "value") else problem.features


def _cost(problem: Problem, tensors: Iterable[tuple[Sequence[np.ndarray], Sequence[np.ndarray]]]) -> float:
    """The cost of tensors, each given as the arrays of the target and those of the source, which have been moved."""
    if hasattr(problem.cost, "value"):
        return value_of(problem.cost, ((as_marginals(target), as_marginals(source)) for target, source in tensors))
    return squared_distances(pair for tensor in tensors for pair in zip(*tensor, strict=True))


def _of_groups(problem: Problem, flat: FlatPerms) -> float:
    """The share of the similarities that were given: constant − 2 Σ_i S[i, perm[i]]."""
    return sum(
        part.constant - 2.0 * float(part.matrix[np.arange(len(part.matrix)), flat[unit]].sum(dtype=np.float64))
        for unit, part in problem.given.items()
    )


def as_marginals(arrays: Any) -> Marginals:
    """One array of a tensor as its mean, two as mean and std."""
    return Marginals(arrays[0], arrays[1] if len(arrays) > 1 else None)


def _integers(flat: Flat) -> set[str]:
    """The paths of integers."""
    if not any(dtype.kind in "biu" for dtype in {array.dtype for array in flat.values()}):
        return set()
    return {path for path, array in flat.items() if _is_integer(array)}


def _is_integer(array: np.ndarray) -> bool:
    return array.dtype.kind in "biu"


def _square(array: np.ndarray) -> float:
    """Σ x² in at least single precision."""
    flat = widened(array.reshape(-1))
    return float(flat.dot(flat))
