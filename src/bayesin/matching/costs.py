"""What a permutation costs, as objects: `align(…, cost=Wasserstein())`.

A cost is a sum over tensors and over groups, each part of a form that one linear assignment minimises when all
other groups are held fixed:

    constant − 2 Σ ⟨a, P b⟩           pairs (a, b) of features of one tensor, of the target's and of the source's
    constant − 2 Σ_i S[i, perm[i]]    the similarity S of a group's units, given outright

The costs here are of the first kind, with means m, stds s and the source at index 1:

    Wasserstein   |m₀ − P m₁|² + |s₀ − P s₁|²    pairs (m₀, m₁) and (s₀, s₁)
    Means         |m₀ − P m₁|²                   pair  (m₀, m₁)
    KL            KL[P#q₁ ‖ q₀]                  pairs (½ m₀/s₀², m₁) and (−¼ s₀⁻², s₁² + m₁²)

The trace term of the KL divergence, Σ P s₁² / s₀², depends on the permutation and is part of its cost.

A cost of your own is a class with `features`, or that function alone; with `similarities` in its place, or beside
it, for evidence that is not in the weights. See docs/extending.md.

References: Rossi et al. 2023, section 4; its appendix A drops the trace term by mistake.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from ..errors import ConfigError, PosteriorError
from ..posteriors import Posterior
from ..symmetry import PermutationSpec
from ..trees import Tree

CHUNK = 1 << 14  # numbers that stay in the cache between subtraction and sum


class Marginals(NamedTuple):
    """Mean and std of every weight of one tensor; of two points both stds are None."""

    mean: np.ndarray
    std: np.ndarray | None


class GroupSimilarity(NamedTuple):
    """How alike the units of one group are: the cost is `constant − 2 Σ_i matrix[i, perm[i]]`.

    The matrix of an indexed group has axes in front: its outer factors in the target, then those of them that are
    groups themselves in the source. Dimensions of heads: (heads of the target, heads of the source, units, units);
    units of scanned layers, which stay in their layer: (layers, units, units). See `similarity_shape`.
    """

    matrix: np.ndarray  # (…, units of the target, units of the source)
    constant: float = 0.0


Pair = tuple[np.ndarray, np.ndarray]


@runtime_checkable
class Cost(Protocol):
    """What `align` minimises. `features` or `similarities` is required; the rest is optional.

    `similarities(target, source, spec) -> {group: GroupSimilarity}` adds evidence that is given outright;
    `value(target, source) -> float` is the cost of one tensor whose source has been moved, where that is not the
    squared distance of the features; `check(marginals, path, role)` refuses tensors that the cost cannot compare;
    `name` is what results and pages call it.
    """

    def features(self, target: Marginals, source: Marginals) -> Iterable[Pair]:
        """Pairs of arrays shaped like the tensor; the cost falls by twice what their inner products gain."""
        ...


# Plain values: a Module builds an object at every access to a method, a fifth of the time where tensors are small.
@dataclass(frozen=True)
class Wasserstein:
    """The squared 2-Wasserstein distance of mean-field Gaussians; of points, that of their weights."""

    name = "wasserstein"

    def features(self, target: Marginals, source: Marginals) -> list[Pair]:
        """Means with means, stds with stds."""
        means = (target.mean, source.mean)
        return [means] if target.std is None or source.std is None else [means, (target.std, source.std)]


@dataclass(frozen=True)
class Means:
    """The squared distance of the means; stds are ignored."""

    name = "means"

    def features(self, target: Marginals, source: Marginals) -> list[Pair]:
        """Means with means."""
        return [(target.mean, source.mean)]


@dataclass(frozen=True)
class KL:
    """The divergence KL[P source ‖ target] of mean-field Gaussians: precision-weighted, not symmetric."""

    name = "kl"

    def features(self, target: Marginals, source: Marginals) -> list[Pair]:
        """½(s₁² + m₁²)/s₀² − m₀m₁/s₀², all of the divergence that depends on both sides, as −2 Σ ⟨target, source⟩."""
        mean0, std0, mean1, std1 = _wide(target, source)
        precision = std0**-2.0
        return [(0.5 * mean0 * precision, mean1), (-0.25 * precision, std1**2 + mean1**2)]

    def value(self, target: Marginals, source: Marginals) -> float:
        """KL[q₁ ‖ q₀] = ½ Σ [ (s₁² + (m₀ − m₁)²)/s₀² − 1 − log(s₁²/s₀²) ]."""
        mean0, std0, mean1, std1 = _wide(target, source)
        ratio = (std1 / std0) ** 2
        return 0.5 * float(np.sum(ratio + ((mean0 - mean1) / std0) ** 2 - 1.0 - np.log(ratio)))

    def check(self, marginals: Marginals, path: str, role: str) -> None:
        """Raises `PosteriorError` for a point and for stds that are not positive."""
        if marginals.std is None:
            raise PosteriorError(f"cost 'kl' needs Gaussians, but the {role} is a point; use 'wasserstein'")
        if not (marginals.std > 0).all():
            raise PosteriorError(f"cost 'kl' needs positive stds; '{path}' of the {role} holds a zero")


CostLike = str | Cost | Callable[[Marginals, Marginals], Iterable[Pair]]
NAMES: Mapping[str, Cost] = {"wasserstein": Wasserstein(), "means": Means(), "kl": KL()}


def as_cost(cost: CostLike) -> Cost:
    """Returns the cost of a name, of a function that returns feature pairs, or the cost itself.

    Example:
        >>> as_cost("kl").name, name_of(lambda target, source: [(target.mean, source.mean)])
        ('kl', 'a function')
    """
    if isinstance(cost, str):
        if cost not in NAMES:
            raise ConfigError(f"there is no cost '{cost}'; choose one of {', '.join(NAMES)}")
        return NAMES[cost]
    if not isinstance(cost, type) and (hasattr(cost, "features") or hasattr(cost, "similarities")):
        return cost  # pyright: ignore[reportReturnType]
    if callable(cost) and not isinstance(cost, type):
        return _FromFunction(cost)
    raise ConfigError(
        f"a cost is one of {', '.join(NAMES)}, an object with features(target, source), or that function; "
        f"not {cost!r:.60}"
    )


def name_of(cost: CostLike) -> str:
    """What results and pages call a cost."""
    named = as_cost(cost)
    return str(getattr(named, "name", type(named).__name__))


def feature_pairs(cost: Cost, target: Marginals, source: Marginals, path: str) -> list[Pair]:
    """Returns the pairs of one tensor, after checking that each has the tensor's shape."""
    if not hasattr(cost, "features"):
        return []
    pairs = [(np.asarray(ours), np.asarray(theirs)) for ours, theirs in cost.features(target, source)]
    for pair in pairs:
        if any(array.shape != target.mean.shape for array in pair):
            shapes = ", ".join(str(array.shape) for array in pair)
            raise ConfigError(
                f"the features of cost '{name_of(cost)}' for '{path}' have shapes {shapes}; "
                f"they are pairs of arrays like the tensor, {target.mean.shape}"
            )
    return pairs


def check_marginals(cost: Cost, marginals: Marginals, path: str, role: str) -> None:
    """Lets a cost refuse a tensor that it cannot compare."""
    check = getattr(cost, "check", None)
    if check is not None:
        check(marginals, path, role)


def group_similarities(
    cost: Cost, target: Posterior | Tree, source: Posterior | Tree, spec: PermutationSpec
) -> dict[str, GroupSimilarity]:
    """Returns the similarities that a cost gives outright, after checking their shapes."""
    similarities = getattr(cost, "similarities", None)
    if similarities is None:
        return {}
    given = {group: GroupSimilarity(*_entries(part)) for group, part in similarities(target, source, spec).items()}
    for group, (matrix, _) in given.items():
        if group not in spec.sizes:
            raise ConfigError(f"cost '{name_of(cost)}' gives a similarity of '{group}', which the spec does not have")
        shape = similarity_shape(spec, group)
        if matrix.shape != shape or not np.isfinite(matrix).all():
            raise ConfigError(
                f"cost '{name_of(cost)}' gives group '{group}' a similarity of shape {matrix.shape}; "
                f"it needs finite numbers of shape {shape}"
            )
    return given


def similarity_shape(spec: PermutationSpec, group: str) -> tuple[int, ...]:
    """Shape of the similarity of a group's units.

    Example:
        >>> spec = PermutationSpec.parse({"w": ["layer * h[layer] * q[layer, h]"]},
        ...                              {"h[layer]": 4, "q[layer, h]": 3}, fixed={"layer": 2})
        >>> similarity_shape(spec, "h"), similarity_shape(spec, "q")
        ((2, 4, 4), (2, 4, 4, 3, 3))
    """
    *outer, size = spec.perm_shape(group)
    twice = [n for n, name in zip(outer, spec.outer(group), strict=True) if name in spec.sizes]
    return (*outer, *twice, size, size)


def tensor_value(cost: Cost, target: Marginals, source: Marginals) -> float:
    """Returns the cost of one tensor whose source has been moved, from its definition."""
    value = getattr(cost, "value", None)
    if value is not None:
        return float(value(target, source))
    if not hasattr(cost, "features"):  # all its evidence is given outright
        return 0.0
    return sum(squared_distance(*pair) for pair in cost.features(target, source))


def squared_distance(first: np.ndarray, second: np.ndarray) -> float:
    """Returns Σ (a − b)², piece by piece: each summed by BLAS in its own precision, all of them in float64."""
    first, second = first.reshape(-1), second.reshape(-1)
    total = 0.0
    for start in range(0, first.size, CHUNK):
        gap = widened(first[start : start + CHUNK]) - widened(second[start : start + CHUNK])
        total += float(gap @ gap)
    return total


def inner_product(first: np.ndarray, second: np.ndarray) -> float:
    """Returns Σ a b in the same way."""
    first, second = first.reshape(-1), second.reshape(-1)
    parts = (slice(start, start + CHUNK) for start in range(0, first.size, CHUNK))
    return sum(float(widened(first[part]) @ widened(second[part])) for part in parts)


def widened(array: np.ndarray) -> np.ndarray:
    """Returns the array in at least single precision, in which half precision is summed."""
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)


@dataclass(frozen=True)
class _FromFunction:
    """A user's function of the marginals as a cost; its value is the squared distance of the features."""

    function: Callable[[Marginals, Marginals], Iterable[Pair]]
    name = "a function"

    def features(self, target: Marginals, source: Marginals) -> Iterable[Pair]:
        return self.function(target, source)


def _entries(part: GroupSimilarity | np.ndarray) -> tuple[np.ndarray, float]:
    matrix, constant = part if isinstance(part, tuple) else (part, 0.0)
    return np.asarray(matrix), float(constant)


def _wide(target: Marginals, source: Marginals) -> list[np.ndarray]:
    return [np.asarray(array, np.float64) for array in (*target, *source)]
