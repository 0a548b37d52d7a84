"""Alignment of many posteriors to their common barycentre.

Every posterior has one permutation, from its own order of units to the common one, so that maps between any
two of them are consistent around every cycle by construction. What falls is the mean over pairs,

    F = 1/n Σ_{i<j} c(Pᵢ#qᵢ, Pⱼ#qⱼ),

of any cost c of `bayesin.costs`; of one that is not symmetric, as KL, the mean of both ways is taken. Of costs that
are squared distances this is the sum of those to the mean of all: for `Wasserstein`

    F = Σᵢ W₂²(Pᵢ#qᵢ, b),    b = mean of the moved means, mean of the moved stds,

the Wasserstein barycentre of mean-field Gaussians whose coordinates are matched, and for `Activations` the spread of
what the members' units compute around their common mean. With all others held fixed, F depends on Pᵢ through its mean
cost to the others alone, which is linear in each group: features are compared with their mean over the others, and of
similarities that are given outright the mean over the others is taken, their units moved. So each step aligns one
posterior to the mean of the others, which pulls harder than the mean of all, of which it is itself a part.

References: Agueh and Carlier 2011 (barycentre); Crisostomi et al. 2024 (cycle consistency).
"""

import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from ..errors import ConfigError, PosteriorError
from ..posteriors import Gaussian, Posterior, Samples, is_posterior
from ..randomness import PRNGKey, check_key
from ..symmetry import Layout, Perms, PermutationSpec, Signs, gather
from ..trees import Tree, placed_as
from .costs import (
    Cost,
    CostLike,
    FeaturesAlone,
    GivenAmong,
    GroupSimilarity,
    Means,
    Wasserstein,
    as_cost,
    bound_among,
    name_of,
    value_of,
)
from .families import FlatPerms, Structure, structure_of
from .problem import (
    Problem,
    TensorPair,
    as_marginals,
    by_unit,
    norm,
    objective_of_flat,
    permuted,
    pose,
    unmoved,
    with_evidence,
)
from .search import DescentResult, Sweep, check_effort, descend, random_order
from .similarity import Similarities
from .twins import with_twins, without_twins

Arrays = list[tuple[np.ndarray, ...]]  # the features of every tensor: its mean, or its mean and std


class AlignmentMany(eqx.Module):
    """Permutations that bring many posteriors together, and how the search went.

    Example:
        >>> spec = PermutationSpec.parse({"w": ["2", "g0"]}, {"g0": 3})
        >>> p = np.array([[1.0, 2.0, 3.0], [6.0, 4.0, 5.0]])
        >>> found = align_many([{"w": np.roll(p, k, 1)} for k in range(3)], spec, key=jax.random.key(0))
        >>> found.objective, found.barycentre.std["w"].max().item()
        (0.0, 0.0)
    """

    perms: list[Perms]  # one for each posterior; new[i] = old[perm[i]]
    signs: list[Signs]  # of each, where the spec has signs; new[i] = sign[i] old[perm[i]]
    posteriors: list[Posterior | Tree]  # moved, each of the kind that was given
    history: Float[np.ndarray, "rounds"]  # F above at the start and after every round, never rising
    seconds: Mapping[str, float]
    sweeps: int = eqx.field(static=True)  # rounds through the whole list
    converged: bool = eqx.field(static=True)  # a whole round moved nothing

    @property
    def objective(self) -> float:
        """F that was reached: Σ W₂² to the barycentre unless another cost was asked for."""
        return float(self.history[-1])

    @property
    def barycentre(self) -> Gaussian:
        """Mean of the moved means and mean of the moved stds."""
        return barycentre(self.posteriors)

    def __repr__(self) -> str:
        fell = f"{self.history[0]:.6g} -> {self.objective:.6g}"
        ended = f"rounds {self.sweeps}, {'none moves alone' if self.converged else 'not ended'}"
        return f"AlignmentMany({len(self.posteriors)} posteriors, {fell}, {ended})"


def align_many(
    posteriors: Sequence[Posterior | Tree] | Samples,
    spec: PermutationSpec,
    *,
    key: PRNGKey,
    cost: CostLike = "wasserstein",
    max_sweeps: int = 100,
    exclude: Iterable[str] = (),
    relative_tolerance: float = 1e-7,
    on_sweep: Callable[[Sweep], None] | None = None,
) -> AlignmentMany:
    """Returns permutations that locally minimise the sum of W₂² of all posteriors to their barycentre, or a cost of
    your choice between all pairs of them.

    Args:
        posteriors: points or posteriors of one model, or `Samples`.
        spec: which axes move together, and where units may flip.
        key: decides the visiting orders.
        cost: one of `bayesin.costs` or its name, or a cost of your own whose features of either side are made of that
            side alone; its mean over all pairs falls.
        max_sweeps: bound on the rounds through the list.
        exclude: paths that are moved but kept out of the cost.
        relative_tolerance: a step must lower the distance of its posterior by more than this part of it.
        on_sweep: called with a `Sweep` after every round.

    Example:
        >>> from bayesin import permute
        >>> spec = PermutationSpec.parse({"w": ["2", "g0"]}, {"g0": 3})
        >>> p = {"w": np.array([[1.0, 2.0, 3.0], [6.0, 4.0, 5.0]])}
        >>> turned = [permute(p, spec, {"g0": np.roll(np.arange(3), k)}) for k in range(3)]
        >>> align_many(turned, spec, key=jax.random.key(0))
        AlignmentMany(3 posteriors, 12 -> 0, rounds 1, none moves alone)
    """
    check_key(key)
    measure = as_cost(cost)
    check_effort(1, max_sweeps)
    clock = time.perf_counter()
    members = _list(posteriors)
    search = _Search(_alike(members), spec, measure, frozenset(exclude), relative_tolerance)
    history = [search.total()]
    if search.begin(list(random_order(spec, key, 0, max_sweeps)), history[0]):
        history.append(search.total())
    # One alone has nobody to be aligned to.
    rounds, converged = 0, len(members) == 1
    while rounds < max_sweeps and not converged:
        rounds += 1
        order = list(random_order(spec, key, rounds, max_sweeps))
        moved = sum(search.visit(index, order) for index in range(len(members)))
        converged = moved == 0
        if moved:
            history.append(min(search.total(), history[-1]))  # equal up to rounding at worst
        if on_sweep is not None:
            on_sweep(Sweep(rounds, history[-1], moved))
    return AlignmentMany(
        perms=search.perms,
        signs=search.signs,
        posteriors=[permuted(q, spec, *move) for q, *move in zip(members, search.perms, search.signs, strict=True)],
        history=np.array(history),
        seconds={**search.seconds, "total": time.perf_counter() - clock},
        sweeps=rounds,
        converged=converged,
    )


def barycentre(posteriors: Sequence[Posterior | Tree]) -> Gaussian:
    """Returns the Gaussian with the mean of the means and the mean of the stds, units as they stand.

    For mean-field Gaussians with matched coordinates this minimises the sum of W₂² to all of them. Integer leaves
    have no mean: those of the first posterior are taken.

    Example:
        >>> p = Gaussian({"w": np.zeros(1)}, {"w": np.ones(1)})
        >>> q = Gaussian({"w": np.full(1, 4.0)}, {"w": np.full(1, 3.0)})
        >>> middle = barycentre([p, q])
        >>> middle.mean["w"].item(), middle.std["w"].item()
        (2.0, 2.0)
    """
    gaussians = [q if is_posterior(q) else Gaussian(q, _zeros_like(q)) for q in posteriors]
    return Gaussian(_average([q.mean for q in gaussians]), _average([q.std for q in gaussians]))


class _Member(NamedTuple):
    """One posterior, as what is moved and as a part of what others are moved onto."""

    problem: Problem  # its source arrays are those that are moved
    as_target: Arrays


class _Search:
    """Permutations of all members and the running sum of the moved ones."""

    def __init__(
        self,
        posteriors: list[Posterior | Tree],
        spec: PermutationSpec,
        cost: Cost,
        exclude: frozenset[str],
        relative_tolerance: float,
    ):
        self.relative_tolerance, self.structure = relative_tolerance, structure_of(spec)
        self.cost, given = bound_among(cost, posteriors, spec)
        self.members, self.symmetric = _members(posteriors, spec, self.cost, exclude)
        self.given = _by_pair(given, spec, self.structure, self.cost)
        self.spec = spec
        self._begin_with([spec.identity() for _ in posteriors])
        self.potentials: list[dict[str, np.ndarray]] = [{} for _ in posteriors]
        self.seconds = {"similarity": 0.0, "assignment": 0.0, "objective": 0.0}
        self.sums = self._sum_all()

    def begin(self, order: list[tuple[str, ...]], start: float) -> bool:
        """Aligns each member to the mean of those before it; keeps that only if it beats the given order."""
        self.sums = self._moved(0)
        for index in range(1, len(self.members)):
            self._take(index, self._align(index, self.sums, range(index), order, anchored=True))
            self.sums = _add(self.sums, self._moved(index), 1.0)
        if start - self.total() > self.relative_tolerance * abs(start):
            return True
        self._begin_with([self.spec.identity() for _ in self.members])
        self.sums = self._sum_all()
        return False

    def visit(self, index: int, order: list[tuple[str, ...]]) -> int:
        """Aligns one member to the mean of the others; returns how many units moved."""
        # The sums are kept and one member is taken out, so that a round costs a pass over the members and not one for
        # each pair.
        others = _add(self.sums, self._moved(index), -1.0)
        found = self._align(index, others, [at for at in range(len(self.members)) if at != index], order)
        if not found.gains:
            return 0
        before = self.flats[index]
        self._take(index, found)
        self.sums = _add(others, self._moved(index), 1.0)
        return sum(int((before[unit] != flat).sum()) for unit, flat in found.flat.items())

    def _take(self, index: int, found: DescentResult) -> None:
        self.perms[index], self.signs[index], self.flats[index] = found.perms, found.signs, found.flat

    def _begin_with(self, perms: list[Perms]) -> None:
        self.perms, self.signs = perms, [self.spec.identity_signs() for _ in perms]
        self.flats: list[FlatPerms] = list(map(self.structure.flat, perms))

    def total(self) -> float:
        """F of the moved members, computed directly."""
        among = sum(_value(part, self.flats[i], self.flats[j]) for (i, j), part in self.given.items())
        if not self.symmetric:
            return (among + self._of_pairs()) / len(self.members)
        # Squared distances to the mean add up to those of all pairs over their count: no pair is formed.
        mean = self._mean(self.sums, len(self.members))
        return among / len(self.members) + sum(
            objective_of_flat(_towards(member.problem, mean, {}), flat)
            for member, flat in zip(self.members, self.flats, strict=True)
        )

    def _of_pairs(self) -> float:
        """Σ over pairs of the mean of both ways, from the definition of a cost that is not symmetric."""
        moved = [
            [_gathered(member.problem, pair.layout, pair.source, flat) for pair in member.problem.marginals]
            for member, flat in zip(self.members, self.flats, strict=True)
        ]
        if hasattr(self.cost, "trees"):
            return self._of_features()
        tensors = (
            (as_marginals(ours), as_marginals(theirs))
            for first, second in itertools.permutations(moved, 2)
            for ours, theirs in zip(first, second, strict=True)
        )
        return 0.5 * value_of(self.cost, tensors)

    def _of_features(self) -> float:
        """Σ over pairs of −2 ⟨target, source⟩, of a cost that is known up to a constant."""
        everyone, total = range(len(self.members)), 0.0
        for index in everyone:
            others = _add(self.sums, self._moved(index), -1.0)
            source = self.members[index].problem
            for pair, target in zip(source.features, others, strict=True):
                moved = _gathered(source, pair.layout, pair.source, self.flats[index])
                total -= sum(float(np.vdot(t, s)) for t, s in zip(target, moved, strict=True))
        return total

    def _align(
        self, index: int, others: Arrays, among: Sequence[int], order: list[tuple[str, ...]], anchored: bool = False
    ) -> DescentResult:
        clock = time.perf_counter()
        towards = _towards(self.members[index].problem, self._mean(others, len(among)), self._given(index, among))
        similarities = Similarities(towards)
        self.seconds["similarity"] += time.perf_counter() - clock
        perms, signs, potentials = self.perms[index], self.signs[index], self.potentials[index]
        options = {"potentials": potentials, "anchored": anchored, "init_signs": signs}
        found = descend(similarities, perms, order, self.relative_tolerance, **options)
        for name, spent in found.seconds.items():
            self.seconds[name] += spent
        return found

    def _given(self, index: int, among: Sequence[int]) -> dict[str, GroupSimilarity]:
        """The mean of what is given for a member and each of these, whose units have been moved."""
        total: dict[str, GroupSimilarity] = {}
        for other in among:
            flat = self.flats[other]
            part = self.given.get((min(other, index), max(other, index)), {})
            for unit, (matrix, constant, _) in part.items():
                rows = (matrix if other < index else matrix.T)[flat[unit]]  # with twins on both sides
                before = total.get(unit)
                total[unit] = GroupSimilarity(
                    rows / len(among) + (0 if before is None else before.matrix),
                    constant / len(among) + (0.0 if before is None else before.constant),
                )
        return total

    def _moved(self, index: int) -> Arrays:
        member, flat = self.members[index], self.flats[index]
        return [
            # The running sums lose and gain a member at every visit; in float32 they would drift.
            tuple(array.astype(np.float64) for array in _gathered(member.problem, pair.layout, of_pair, flat))
            for pair, of_pair in zip(member.problem.features, member.as_target, strict=True)
        ]

    def _mean(self, sums: Arrays, count: int) -> Arrays:
        dtype = self.members[0].problem.dtype
        return [tuple((array / count).astype(dtype) for array in arrays) for arrays in sums]

    def _sum_all(self) -> Arrays:
        sums = self._moved(0)
        for index in range(1, len(self.members)):
            sums = _add(sums, self._moved(index), 1.0)
        return sums


def _list(posteriors: Sequence[Posterior | Tree] | Samples) -> list[Posterior | Tree]:
    if isinstance(posteriors, Samples):
        stacked = jax.tree.map(np.asarray, posteriors.params)
        return [jax.tree.map(lambda leaf, i=i: leaf[i], stacked) for i in range(len(posteriors))]
    if not isinstance(posteriors, Sequence) or not posteriors:
        raise PosteriorError("align_many takes a list of posteriors, such as fit.posteriors, with at least one in it")
    return list(posteriors)


def _alike(posteriors: list[Posterior | Tree]) -> list[Posterior | Tree]:
    """Among Gaussians a point is one with zero std."""
    mixed = len({is_posterior(q) for q in posteriors}) > 1
    return [Gaussian(q, _zeros_like(q)) if mixed and not is_posterior(q) else q for q in posteriors]


def _members(
    posteriors: list[Posterior | Tree], spec: PermutationSpec, cost: Cost, exclude: frozenset[str]
) -> tuple[list[_Member], bool]:
    """The features of every member, and whether they are the same as target and as source.

    Where they are not, half of either way is taken: a member is then moved by both kinds at once.
    """
    first = posteriors[0]
    if isinstance(cost, Wasserstein | Means):  # these two compare the arrays themselves, and give nothing outright
        posed = [pose(first, q, spec, cost, exclude) for q in posteriors]
        return [_Member(problem, [pair.source for pair in problem.features]) for problem in posed], True
    alone = FeaturesAlone(cost)
    there = [pose(first, q, spec, alone, exclude) for q in posteriors]
    back = [pose(q, first, spec, alone, exclude) for q in posteriors]
    for problem in there:
        if not _equal(problem, there[0]):
            raise ConfigError(
                f"align_many has no cost '{name_of(cost)}': the features of the target depend on the source"
            )
    if _equal(there[0], there[0], "source"):
        return [_Member(problem, [pair.source for pair in problem.features]) for problem in there], True
    members = []
    signed = there[0].structure.signed
    for own, other in zip(there, back, strict=True):
        features, as_target = [], []
        for pair, turned, like in zip(own.features, other.features, there[0].features, strict=True):
            # The search judges small steps by distances, whose digits suffice where both sides are of one size.
            sizes = [_ratio(t, s) for t, s in zip(like.target, like.source, strict=True)]
            moved = [(0.5**0.5 * r) * s.astype(np.float64) for r, s in zip(sizes, pair.source, strict=True)]
            still = [
                with_twins((0.5**0.5 / r) * t.astype(np.float64), pair.layout, signed, pair.is_odd(number))
                for number, (r, t) in enumerate(zip(sizes, turned.target, strict=True))
            ]
            target = (without_twins(array, pair.layout) for array in (*still, *moved))
            features.append(TensorPair(pair.piece, tuple(target), (*moved, *still), 2 * pair.odd))
            as_target.append((*still, *moved))
        wide = own._replace(features=tuple(features), dtype=np.dtype(np.float64))
        members.append(_Member(wide, as_target))
    return members, False


def _ratio(target: np.ndarray, source: np.ndarray) -> float:
    """The root of how much larger the one is than the other."""
    sizes = norm(target), norm(source)
    return (sizes[0] / sizes[1]) ** 0.5 if min(sizes) > 0 else 1.0


def _equal(first: Problem, second: Problem, side: str = "target") -> bool:
    """Whether the target arrays of a problem are arrays of another."""
    return all(
        np.array_equal(ours, without_twins(theirs, b.layout))  # those of the target have none
        for a, b in zip(first.features, second.features, strict=True)
        for ours, theirs in zip(a.target, getattr(b, side), strict=True)
    )


def _towards(problem: Problem, target: Arrays, given: Mapping[str, GroupSimilarity]) -> Problem:
    """The same source, and the mean of others as its target."""
    pairs = zip(problem.features, target, strict=True)
    return with_evidence(problem, tuple(pair._replace(target=arrays) for pair, arrays in pairs), given)


def _by_pair(
    given: GivenAmong, spec: PermutationSpec, structure: Structure, cost: Cost
) -> dict[tuple[int, int], dict[str, GroupSimilarity]]:
    """Similarities of pairs (first < second) by unit; of those that were said both ways, their mean."""
    found: dict[tuple[int, int], dict[str, GroupSimilarity]] = {}
    for (i, j), of_pair in given.items():
        share = 0.5 if (j, i) in given else 1.0
        into = found.setdefault((min(i, j), max(i, j)), {})
        for unit, (matrix, constant, _) in by_unit(of_pair, spec, structure, cost).items():
            if unit in structure.signed:  # what is flipped on both sides is as it was
                matrix = np.concatenate([matrix, np.roll(matrix, len(matrix), 1)])
            before = into.get(unit, GroupSimilarity(np.zeros_like(matrix)))
            matrix = matrix if i < j else matrix.T
            into[unit] = GroupSimilarity(before.matrix + share * matrix, before.constant + share * constant)
    return found


def _value(given: Mapping[str, GroupSimilarity], first: FlatPerms, second: FlatPerms) -> float:
    return sum(
        part.constant - 2.0 * float(part.matrix[first[unit], second[unit]].sum(dtype=np.float64))
        for unit, part in given.items()
    )


def _gathered(problem: Problem, layout: Layout, arrays: tuple[np.ndarray, ...], flat: FlatPerms) -> list[np.ndarray]:
    skip = unmoved(problem, flat)
    return [gather(array, layout, flat, skip) for array in arrays]


def _add(first: Arrays, second: Arrays, sign: float) -> Arrays:
    return [tuple(a + sign * b for a, b in zip(x, y, strict=True)) for x, y in zip(first, second, strict=True)]


def _zeros_like(tree: Tree) -> Tree:
    """The std of a point."""
    return jax.tree.map(lambda leaf: np.zeros_like(np.asarray(leaf)), tree)


def _average(trees: list[Tree]) -> Tree:
    return jax.tree.map(_average_leaf, *trees)


def _average_leaf(*leaves: np.ndarray | jax.Array) -> np.ndarray | jax.Array:
    first = np.asarray(leaves[0])
    if first.dtype.kind in "biu":
        return leaves[0]
    total = np.zeros(first.shape, np.float64)
    for leaf in leaves:
        total += np.asarray(leaf)
    mean = (total / len(leaves)).astype(first.dtype)
    return placed_as(leaves[0], mean)
