"""Alignment of two posteriors by coordinate descent over permutation groups.

For mean-field Gaussians

    W₂²(p, P#q) = |mean_p − P mean_q|² + |std_p − P std_q|²,

so with the other groups held fixed, one group is one linear assignment on the summed inner products of
means and of stds. A point has no second term, which gives ordinary weight matching. Other posteriors are compared
by mean and marginal std, which bounds their W₂² from below.

References: Ainsworth et al. 2023 (points); Rossi et al. 2023 (distributions).
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import equinox as eqx
import numpy as np
from jaxtyping import Float, PyTree

from ..errors import SpecError
from ..posteriors import Posterior, is_posterior
from ..randomness import PRNGKey, check_key, generator
from ..symmetry import Apply, Perms, PermutationSpec, Signs, check_same_function
from ..trees import Tree
from .bound import LargestGain
from .costs import CostLike, as_cost, name_of
from .problem import Problem, objective_of_moved, permuted, pose
from .search import DescentResult, Sweep, check_effort, descend, random_order, starts
from .similarity import Similarities

KICKED = 1 << 19  # numbers up to which a search that found nothing in common goes on by kicks: they cost some more


class Alignment(eqx.Module):
    """Permutations that move `source` onto `target`, and how the search went.

    Example:
        >>> import jax
        >>> from bayesin import permute
        >>> spec = PermutationSpec.parse({"w": ["2", "g0"]}, {"g0": 3})
        >>> p = {"w": np.array([[1.0, 2.0, 3.0], [6.0, 4.0, 5.0]])}
        >>> found = align(p, permute(p, spec, {"g0": np.array([2, 0, 1])}), spec, key=jax.random.key(0))
        >>> found.moved, found.objective, found.sweeps
        ({'g0': 3}, 0.0, 1)
    """

    perms: Perms  # {group: integer array, of an indexed group with its outer axes first}; new[i] = old[perm[i]]
    posterior: Posterior | Tree  # the source, moved; of the kind that was given
    history: Float[np.ndarray, "steps"]  # objective at the start and after every accepted step, never rising
    seconds: Mapping[str, float]  # spent in "similarity", "assignment" and "objective", and "total"
    sweeps: int = eqx.field(static=True)
    converged: bool = eqx.field(static=True)  # no group, with those that it indexes, can be improved any more
    order: tuple[tuple[str, ...], ...] = eqx.field(static=True)  # groups visited, one tuple a sweep
    cost: str = eqx.field(static=True)
    start: str = eqx.field(static=True)  # which start won: "anchored", "identity", "init", "random 1", …
    largest_gain: LargestGain = eqx.field(static=True)  # see `gap`
    signs: Signs = eqx.field(default_factory=dict)  # {group of `spec.signed`: 1 or −1}; new[i] = sign[i] old[perm[i]]

    @property
    def objective(self) -> float:
        """Cost reached, computed directly: W₂² unless another cost was asked for."""
        return float(self.history[-1])

    @property
    def gap(self) -> float:
        """The most by which another permutation can be better than this one, by a cheap bound (`bound.py`)."""
        gain = self.largest_gain()
        return gain if self.objective < 0 else min(gain, self.objective)  # no cost of tensors is below zero

    @property
    def moved(self) -> dict[str, int]:
        """Units not in their place, for each group."""
        return {group: int((perm != np.arange(perm.shape[-1])).sum()) for group, perm in self.perms.items()}

    @property
    def flipped(self) -> dict[str, int]:
        """Units that change their sign, for each group that may."""
        return {group: int((sign < 0).sum()) for group, sign in self.signs.items()}

    @property
    def ended(self) -> str:
        """How the search ended, in words; never that it converged without how far from the best that may be."""
        return f"{'' if self.converged else 'not '}converged, at most {self.gap:.3g} above the best"

    def __repr__(self) -> str:
        fell = f"{self.cost} {self.history[0]:.6g} -> {self.objective:.6g}"
        units = f"{sum(self.moved.values())} of {sum(perm.size for perm in self.perms.values())} units moved"
        if self.signs:
            units += f", {sum(self.flipped.values())} flipped"
        return f"Alignment({fell}, {units}, sweeps {self.sweeps}, {self.ended})"


def align(
    target: Posterior | Tree,
    source: Posterior | Tree,
    spec: PermutationSpec,
    *,
    key: PRNGKey,
    cost: CostLike = "wasserstein",
    order: Iterable[Sequence[str]] | None = None,
    restarts: int = 1,
    init: Perms | None = None,
    max_sweeps: int = 100,
    exclude: Iterable[str] = (),
    check: tuple[Apply, PyTree] | None = None,
    relative_tolerance: float = 1e-7,
    on_sweep: Callable[[Sweep], None] | None = None,
    move: Callable[[Posterior | Tree, PermutationSpec, Perms, Signs], Posterior | Tree] | None = None,
) -> Alignment:
    """Returns the permutations of `source` that locally minimise its distance to `target`.

    Args:
        target: a posterior with mean and std, or a point as a plain parameter tree. It stays where it is. A sample
            set is compared by the mean and std of its members, which should stand in one order of units (`compact`).
        source: what is moved, of the same kinds.
        spec: which axes move together; where units may change their sign (`discover(…, signs=True)`), they do.
        key: decides the visiting order after the first sweep, which follows the evidence, and the random starts.
        cost: one of `bayesin.costs` or its name: `"wasserstein"`, `"means"` (ignore the stds) or `"kl"` (KL of the
            moved source from the target); or a cost of your own.
        order: groups to visit, one list a sweep; the search ends when they are used up.
        restarts: starts (anchored, identity, then random), 10,000 at most, of which the best is returned.
        init: permutations to start from in place of an anchored first sweep; left as they are.
        max_sweeps: bound on the sweeps of each start; at most 100,000.
        exclude: paths that are moved but kept out of the cost, such as running statistics. Integer leaves
            are treated so without being named.
        check: `(apply, x)`; the moved mean must compute the same function of `x`.
        relative_tolerance: a step must lower the objective by more than this part of it.
        on_sweep: called with a `Sweep` after every sweep.
        move: moves the source at the end, in place of `permute`: to keep it elsewhere than in memory (`align_files`).

    Raises:
        PosteriorError: mismatched trees, NaN, infinities, negative stds.
        SpecError: the spec, the order or the start do not fit.
        SymmetryError: `check` found that the function changed, so the spec is wrong for this model.

    Example:
        >>> import jax
        >>> from bayesin import permute
        >>> spec = PermutationSpec.parse({"w0": ["2", "g0"], "w1": ["g0", "1"]}, {"g0": 3})
        >>> p = {"w0": np.array([[1.0, 2.0, 3.0], [3.0, 1.0, 2.0]]), "w1": np.array([[1.0], [5.0], [9.0]])}
        >>> q = permute(p, spec, {"g0": np.array([2, 0, 1])})
        >>> alignment = align(p, q, spec, key=jax.random.key(0))
        >>> alignment.perms["g0"].tolist(), alignment.objective, alignment.converged
        ([1, 2, 0], 0.0, True)
        >>> alignment
        Alignment(wasserstein 108 -> 0, 3 of 3 units moved, sweeps 1, converged, at most 0 above the best)
    """
    check_key(key)
    check_effort(restarts, max_sweeps)
    if init is not None:
        spec.check_perms(init)
    given_order = None if order is None else _checked_order(order, spec)[:max_sweeps]
    clock = time.perf_counter()
    problem = pose(target, source, spec, as_cost(cost), frozenset(exclude))
    similarities = Similarities(problem)
    prepared = time.perf_counter() - clock
    searches: list[tuple[str, DescentResult]] = []
    for index, begin in enumerate(starts(spec, key, restarts, init, given_order is not None)):
        drawn = random_order(spec, key, index, max_sweeps) if given_order is None else given_order
        kicks = generator(key, "kicks", index) if begin.anchored and similarities.numbers <= KICKED else None
        options = {"anchored": begin.anchored, "kicks": kicks}
        searches.append(
            (begin.name, descend(similarities, begin.perms, drawn, relative_tolerance, on_sweep, **options))
        )
    start, best = min(searches, key=lambda search: search[1].objective)  # the first of equals
    seconds = {name: sum(search.seconds[name] for _, search in searches) for name in best.seconds}
    seconds["similarity"] += prepared
    del similarities  # what the search has kept makes room for the moved posterior
    moved = (move or permuted)(source, spec, best.perms, best.signs)
    if check is not None:
        apply, x = check
        before, after = (q.mean if is_posterior(q) else q for q in (source, moved))
        check_same_function(apply, before, after, x)
    return Alignment(
        perms=best.perms,
        posterior=moved,
        history=_history(best, problem, moved),
        seconds={**seconds, "total": time.perf_counter() - clock},
        sweeps=best.sweeps,
        converged=best.converged,
        order=best.order,
        cost=name_of(problem.cost),
        start=start,
        largest_gain=LargestGain(problem, best.flat),
        signs=best.signs,
    )


def _history(best: DescentResult, problem: Problem, moved: Posterior | Tree) -> np.ndarray:
    """The objective after every step, counted back from the end, where it is computed directly."""
    reached = objective_of_moved(problem, best.flat, moved)
    after = reached + np.cumsum((0.0, *best.gains[::-1]))[::-1]
    after[0] = max(best.start, after[0]) if best.gains else reached
    return after


def _checked_order(order: Iterable[Sequence[str]], spec: PermutationSpec) -> list[tuple[str, ...]]:
    sizes, sweeps = spec.sizes, []
    known = frozenset(sizes)
    for number, sweep in enumerate(order):
        if isinstance(sweep, str):
            raise SpecError(f"order: sweep {number} is the text '{sweep}'; give a list of group names for each sweep")
        sweep = tuple(sweep)
        if not known.issuperset(sweep):
            group = next(group for group in sweep if group not in sizes)
            raise SpecError(f"order: there is no group '{group}'; the spec has {', '.join(sizes) or 'none'}")
        sweeps.append(sweep)
    return sweeps
