"""Alignment of many posteriors to their common barycentre.

Every posterior has one permutation, from its own order of units to the common one, so that maps between any
two of them are consistent around every cycle by construction. What falls is

    F = Σᵢ W₂²(Pᵢ#qᵢ, b),    b = mean of the moved means, mean of the moved stds,

the Wasserstein barycentre of mean-field Gaussians whose coordinates are matched. With all others held
fixed, F depends on Pᵢ through W₂²(Pᵢ#qᵢ, bᵢ) alone, where bᵢ is the barycentre of the others:
ΔF = (n − 1)/n ΔW₂². So each step aligns one posterior to the mean of the others, which pulls harder than
the mean of all, of which it is itself a part.

References: Agueh and Carlier 2011 (barycentre); Crisostomi et al. 2024 (cycle consistency).
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from ..errors import ConfigError, PosteriorError
from ..posteriors import Gaussian, Posterior, Samples, is_posterior
from ..randomness import PRNGKey, check_key
from ..symmetry import Perms, PermutationSpec, gather, identity_groups
from ..trees import Tree
from .align import permuted
from .costs import Cost, CostLike, Means, Wasserstein, as_cost, name_of
from .problem import Problem, TensorPair, objective, pose
from .search import DescentResult, Sweep, descend, random_order
from .similarity import Similarities

Arrays = list[tuple[np.ndarray, ...]]  # the features of every tensor: its mean, or its mean and std


class AlignmentMany(eqx.Module):
    """Permutations that bring many posteriors together, and how the search went."""

    perms: list[Perms]  # one for each posterior; new[i] = old[perm[i]]
    posteriors: list[Posterior | Tree]  # moved, each of the kind that was given
    history: Float[np.ndarray, "rounds"]  # Σ W₂² to the barycentre at the start and after every round, never rising
    seconds: Mapping[str, float]
    sweeps: int = eqx.field(static=True)  # rounds through the whole list
    converged: bool = eqx.field(static=True)  # a whole round moved nothing

    @property
    def objective(self) -> float:
        """Σ W₂² to the barycentre that was reached."""
        return float(self.history[-1])

    @property
    def barycentre(self) -> Gaussian:
        """Mean of the moved means and mean of the moved stds."""
        return barycentre(self.posteriors)

    def __repr__(self) -> str:
        fell = f"{self.history[0]:.6g} -> {self.objective:.6g}"
        ended = f"rounds {self.sweeps}, {'' if self.converged else 'not '}converged"
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
    """Returns permutations that locally minimise the sum of W₂² of all posteriors to their barycentre.

    Args:
        posteriors: points or posteriors of one model, or `Samples`.
        spec: which axes move together.
        key: decides the visiting orders.
        cost: `Wasserstein()`, or `Means()` to leave the stds out; or their names.
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
        AlignmentMany(3 posteriors, 12 -> 0, rounds 1, converged)
    """
    check_key(key)
    measure = as_cost(cost)
    if not isinstance(measure, Wasserstein | Means):
        raise ConfigError(f"align_many has no cost '{name_of(measure)}': a barycentre needs 'wasserstein' or 'means'")
    if max_sweeps < 1:
        raise ConfigError(f"max_sweeps starts at 1, not {max_sweeps}")
    clock = time.perf_counter()
    members = _list(posteriors)
    search = _Search(_problems(members, spec, measure, frozenset(exclude)), relative_tolerance)
    history = [search.total()]
    if search.begin(random_order(spec, jax.random.fold_in(key, 0), max_sweeps), history[0]):
        history.append(search.total())
    rounds, converged = 0, len(members) == 1
    while rounds < max_sweeps and not converged:
        rounds += 1
        order = random_order(spec, jax.random.fold_in(key, rounds), max_sweeps)
        moved = sum(search.visit(index, order) for index in range(len(members)))
        converged = moved == 0
        if moved:
            history.append(min(search.total(), history[-1]))  # equal up to rounding at worst
        if on_sweep is not None:
            on_sweep(Sweep(rounds, history[-1], moved))
    return AlignmentMany(
        perms=search.perms,
        posteriors=[permuted(q, spec, perms) for q, perms in zip(members, search.perms, strict=True)],
        history=np.array(history),
        seconds={**search.seconds, "total": time.perf_counter() - clock},
        sweeps=rounds,
        converged=converged,
    )


def barycentre(posteriors: Sequence[Posterior | Tree]) -> Gaussian:
    """Returns the Gaussian with the mean of the means and the mean of the stds, units as they stand.

    For mean-field Gaussians with matched coordinates this minimises the sum of W₂² to all of them. Integer leaves
    have no mean: those of the first posterior are taken.
    """
    gaussians = [q if is_posterior(q) else Gaussian(q, _zeros_like(q)) for q in posteriors]
    return Gaussian(_average([q.mean for q in gaussians]), _average([q.std for q in gaussians]))


class _Search:
    """Permutations of all members and the running sum of the moved ones."""

    def __init__(self, problems: list[Problem], relative_tolerance: float):
        self.problems, self.relative_tolerance = problems, relative_tolerance
        self.perms = [problem.spec.identity() for problem in problems]
        self.potentials: list[dict[str, np.ndarray]] = [{} for _ in problems]
        self.seconds = {"similarity": 0.0, "assignment": 0.0, "objective": 0.0}
        self.sums = self._sum_all()

    def begin(self, order: list[tuple[str, ...]], start: float) -> bool:
        """Aligns each member to the mean of those before it; keeps that only if it beats the given order."""
        self.sums = self._moved(0)
        for index in range(1, len(self.problems)):
            self.perms[index] = self._align(index, self._mean(self.sums, index), order, anchored=True).perms
            self.sums = _add(self.sums, self._moved(index), 1.0)
        if self.total() < start * (1 - self.relative_tolerance):
            return True
        self.perms = [problem.spec.identity() for problem in self.problems]
        self.sums = self._sum_all()
        return False

    def visit(self, index: int, order: list[tuple[str, ...]]) -> int:
        """Aligns one member to the mean of the others; returns how many units moved."""
        others = _add(self.sums, self._moved(index), -1.0)
        found = self._align(index, self._mean(others, len(self.problems) - 1), order)
        if not found.gains:
            return 0
        before, self.perms[index] = self.perms[index], found.perms
        self.sums = _add(others, self._moved(index), 1.0)
        return sum(int((before[group] != perm).sum()) for group, perm in found.perms.items())

    def total(self) -> float:
        """Σ W₂² of the moved members to their barycentre, computed directly."""
        mean = self._mean(self.sums, len(self.problems))
        return sum(
            objective(_towards(problem, mean), perms)
            for problem, perms in zip(self.problems, self.perms, strict=True)
        )

    def _align(
        self, index: int, target: Arrays, order: list[tuple[str, ...]], anchored: bool = False
    ) -> DescentResult:
        clock = time.perf_counter()
        similarities = Similarities(_towards(self.problems[index], target))
        self.seconds["similarity"] += time.perf_counter() - clock
        perms, potentials = self.perms[index], self.potentials[index]
        found = descend(similarities, perms, order, self.relative_tolerance, None, potentials, anchored)
        for name, spent in found.seconds.items():
            self.seconds[name] += spent
        return found

    def _moved(self, index: int) -> Arrays:
        perms = self.perms[index]
        flat = self.problems[index].structure.flat(perms)
        skip = identity_groups(flat)
        return [
            tuple(gather(array, pair.layout, flat, skip).astype(np.float64) for array in pair.source)
            for pair in self.problems[index].features
        ]

    def _mean(self, sums: Arrays, count: int) -> Arrays:
        dtype = self.problems[0].dtype
        return [tuple((array / count).astype(dtype) for array in arrays) for arrays in sums]

    def _sum_all(self) -> Arrays:
        sums = self._moved(0)
        for index in range(1, len(self.problems)):
            sums = _add(sums, self._moved(index), 1.0)
        return sums


def _list(posteriors: Sequence[Posterior | Tree] | Samples) -> list[Posterior | Tree]:
    if isinstance(posteriors, Samples):
        stacked = jax.tree.map(np.asarray, posteriors.params)
        return [jax.tree.map(lambda leaf, i=i: leaf[i], stacked) for i in range(len(posteriors))]
    if not posteriors:
        raise PosteriorError("align_many needs at least one posterior")
    return list(posteriors)


def _problems(
    members: list[Posterior | Tree], spec: PermutationSpec, cost: Cost, exclude: frozenset[str]
) -> list[Problem]:
    mixed = len({is_posterior(q) for q in members}) > 1  # then a point is a Gaussian with zero std
    alike = [Gaussian(q, _zeros_like(q)) if mixed and not is_posterior(q) else q for q in members]
    return [pose(alike[0], q, spec, cost, exclude) for q in alike]


def _towards(problem: Problem, target: Arrays) -> Problem:
    """The same source, and the mean of others as its target."""
    pairs = zip(problem.features, target, strict=True)
    return problem._replace(features=tuple(TensorPair(pair.piece, arrays, pair.source) for pair, arrays in pairs))


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
    return jax.device_put(mean, leaves[0].sharding) if isinstance(leaves[0], jax.Array) else mean
