"""Alignment of two posteriors by coordinate descent over permutation groups.

For mean-field Gaussians

    W₂²(p, P#q) = |mean_p − P mean_q|² + |std_p − P std_q|²,

so with the other groups held fixed, one group is one linear assignment on the summed inner products of
means and of stds. A point has no second term, which gives ordinary weight matching.

References: Ainsworth et al. 2023 (points); Rossi et al. 2023 (distributions).
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from ..errors import ConfigError, PosteriorError, SpecError, SymmetryError
from ..keys import check_key
from ..posteriors import Gaussian, LowRankGaussian, Samples
from ..symmetry import Perms, PermutationSpec
from .descent import Descent, Sweep, descend
from .features import build
from .move import move
from .objective import objective_reached
from .similarity import Similarities
from .starts import random_order, starts


@dataclass(frozen=True)
class Alignment:
    """Permutations that move `source` onto `target`, and how the search went."""

    perms: Perms  # {group: integer array}; new[i] = old[perm[i]]
    posterior: Any  # the source, moved; of the kind that was given
    history: np.ndarray  # objective at the start and after every accepted step, never rising
    sweeps: int
    converged: bool  # no single group can be improved any more
    moved: dict[str, int]  # units not in their place, for each group
    seconds: dict[str, float]  # spent in "similarity" and in "assignment", and "total"
    order: tuple[tuple[str, ...], ...]  # groups visited, one tuple a sweep
    objective: float  # cost reached, computed directly: W₂² unless another cost was asked for
    cost: str
    start: str  # which start won: "identity", "init", "anchored", "random 1", …


def align(
    target: Any,
    source: Any,
    spec: PermutationSpec,
    *,
    key: jax.Array,
    cost: str = "wasserstein",
    order: Iterable[Sequence[str]] | None = None,
    restarts: int = 1,
    init: Perms | None = None,
    max_sweeps: int = 100,
    exclude: Iterable[str] = (),
    check: tuple[Callable[[Any, Any], Any], Any] | None = None,
    relative_tolerance: float = 1e-7,
    on_sweep: Callable[[Sweep], None] | None = None,
) -> Any:
    """Returns the permutations of `source` that locally minimise its distance to `target`.

    Args:
        target: a `Gaussian`, mean-field or low-rank, or a point as a plain parameter tree. It stays where it is.
        source: what is moved; or a list, and the result is a list.
        spec: which axes move together.
        key: decides the visiting order and the random starts.
        cost: `"wasserstein"`, `"means"` (ignore the stds) or `"kl"` (KL of the moved source from the target).
        order: groups to visit, one list a sweep; the search ends when they are used up.
        restarts: number of starts (identity, anchored, then random), of which the best is returned.
        init: permutations to start from in place of the identity; left as they are.
        max_sweeps: bound on the sweeps of each start.
        exclude: paths that are moved but kept out of the cost, such as running statistics. Integer leaves
            are treated so without being named.
        check: `(apply, x)`; the moved mean must compute the same function of `x`.
        relative_tolerance: a step must lower the objective by more than this part of it.
        on_sweep: called with a `Sweep` after every sweep.

    Raises:
        PosteriorError: mismatched trees, NaN, infinities, negative stds.
        SpecError: the spec, the order or the start do not fit.
        SymmetryError: `check` found that the function changed, so the spec is wrong for this model.

    Example:
        >>> spec = PermutationSpec.parse({"w0": ["2", "g0"], "w1": ["g0", "1"]}, {"g0": 3})
        >>> p = {"w0": np.array([[1.0, 2.0, 3.0], [3.0, 1.0, 2.0]]), "w1": np.array([[1.0], [5.0], [9.0]])}
        >>> q = move(p, spec, {"g0": np.array([2, 0, 1])})
        >>> result = align(p, q, spec, key=jax.random.key(0))
        >>> result.perms["g0"].tolist(), result.objective, result.converged
        ([1, 2, 0], 0.0, True)
    """
    check_key(key)
    for one in (target, source):
        if isinstance(one, Samples):
            raise PosteriorError(
                "align moves Gaussians and points; for samples give a list of members, [*samples], or fold them with "
                "bayesin.compact"
            )
    if restarts < 1 or max_sweeps < 1:
        raise ConfigError(f"restarts and max_sweeps start at 1, not {restarts} and {max_sweeps}")
    if init is not None:
        spec.check_perms(init)
    sweeps = None if order is None else _checked_order(order, spec)[:max_sweeps]
    options = (
        spec,
        cost,
        sweeps,
        restarts,
        init,
        max_sweeps,
        frozenset(exclude),
        check,
        relative_tolerance,
        on_sweep,
    )
    if isinstance(source, list):
        return [_align_any(target, one, jax.random.fold_in(key, i), *options) for i, one in enumerate(source)]
    return _align_any(target, source, key, *options)


def _align_any(target: Any, source: Any, key: jax.Array, spec: PermutationSpec, *options: Any) -> Alignment:
    """Low-rank Gaussians are compared by mean and marginal std, which bounds their W₂² from below."""
    target = target.marginal if isinstance(target, LowRankGaussian) else target
    if not isinstance(source, LowRankGaussian):
        return _align(target, source, key, spec, *options)
    found = _align(target, source.marginal, key, spec, *options)
    return replace(found, posterior=source.permute(spec, found.perms))


def _align(
    target, source, key, spec, cost, order, restarts, init, max_sweeps, exclude, check, tolerance, on_sweep
) -> Alignment:
    clock = time.perf_counter()
    problem = build(target, source, spec, cost, exclude)
    similarities = Similarities(problem)
    prepared = time.perf_counter() - clock
    searches: list[tuple[str, Descent]] = []
    for index, (name, perms) in enumerate(starts(similarities, key, restarts, init)):
        sweeps = random_order(spec, jax.random.fold_in(key, index), max_sweeps) if order is None else order
        searches.append((name, descend(similarities, perms, sweeps, tolerance, on_sweep)))
    start, found = min(searches, key=lambda search: search[1].objective)  # the first of equals
    seconds = {name: sum(search.seconds[name] for _, search in searches) for name in found.seconds}
    seconds["similarity"] += prepared
    return _result(problem, source, check, start, found, seconds, clock)


def _result(problem, source, check, start: str, found: Descent, seconds: dict[str, float], clock: float) -> Alignment:
    posterior = move(source, problem.spec, found.perms)
    if check is not None:
        _check_function(source, posterior, *check)
    reached = objective_reached(problem, found.perms, posterior)
    return Alignment(
        perms=found.perms,
        posterior=posterior,
        history=_history(found, reached),
        sweeps=found.sweeps,
        converged=found.converged,
        moved={group: int((perm != np.arange(perm.size)).sum()) for group, perm in found.perms.items()},
        seconds={**seconds, "total": time.perf_counter() - clock},
        order=found.order,
        objective=reached,
        cost=problem.cost,
        start=start,
    )


def _history(found: Descent, reached: float) -> np.ndarray:
    """The objective after every step, counted back from the end, where it was computed directly."""
    after = reached + np.cumsum((0.0, *found.gains[::-1]))[::-1]
    after[0] = max(found.start, after[0]) if found.gains else reached
    return after


def _checked_order(order: Iterable[Sequence[str]], spec: PermutationSpec) -> list[tuple[str, ...]]:
    sizes, sweeps = spec.sizes, []
    for number, sweep in enumerate(order):
        if isinstance(sweep, str):
            raise SpecError(f"order: sweep {number} is the text '{sweep}'; give a list of group names for each sweep")
        for group in sweep:
            if group not in sizes:
                raise SpecError(f"order: there is no group '{group}'; the spec has {', '.join(sizes) or 'none'}")
        sweeps.append(tuple(sweep))
    return sweeps


def _check_function(source: Any, moved: Any, apply: Callable[[Any, Any], Any], x: Any) -> None:
    with jax.default_matmul_precision("highest"):  # reduced precision would hide a small change behind its own error
        before, after = (np.asarray(apply(q.mean if isinstance(q, Gaussian) else q, x)) for q in (source, moved))
    gap, scale = float(np.abs(after - before).max()), float(np.abs(before).max())
    # sums over a layer are reordered, which costs some roundings of its largest terms and no more
    if not gap <= 1e3 * float(jax.numpy.finfo(before.dtype).eps) * max(scale, 1.0):
        raise SymmetryError(
            f"the aligned network computes another function: outputs differ by {gap:.3g} of {scale:.3g}; "
            "the spec is wrong for this model, discover and verify it again"
        )
