"""What a permutation costs, as objects: `align(…, cost=Wasserstein())`.

A cost is a sum over tensors and over groups, each part of a form that one linear assignment minimises when all
other groups are held fixed:

    constant − 2 Σ ⟨a, P b⟩           pairs (a, b) of features of one tensor, of the target's and of the source's
    constant − 2 Σ_i S[i, perm[i]]    the similarity S of a group's units, given outright

The costs of weights are of the first kind, with means m, stds s and the source at index 1:

    Wasserstein   |m₀ − P m₁|² + |s₀ − P s₁|²    pairs (m₀, m₁) and (s₀, s₁)
    Means         |m₀ − P m₁|²                   pair  (m₀, m₁)
    KL            KL[P#q₁ ‖ q₀]                  pairs (½ m₀/s₀², m₁) and (−¼ s₀⁻², s₁² + m₁²)

and more take evidence from elsewhere:

    Activations   Σ_sites E|a − P b|²             what the units of target and source compute on data
    Blend         (1 − w) A/|A| + w B/|B|         two costs, each in units of the largest that its products can be
    Incoming      E|(W₀ − P W₁) h|²               weights, by what they do to what enters them

The trace term of the KL divergence, Σ P s₁² / s₀², depends on the permutation and is part of its cost.

A cost of your own is a class with `features`, or that function alone; with `similarities` in its place, or beside
it, for evidence that is not in the weights. See docs/extending.md.

References: Rossi et al. 2023, section 4; its appendix A drops the trace term by mistake.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol, get_args, runtime_checkable

import jax
import numpy as np

from ..errors import ConfigError, PosteriorError
from ..inputs import shapes_of, some_inputs
from ..jaxprs import unrolled
from ..posteriors import Posterior, is_posterior
from ..randomness import PRNGKey
from ..symmetry import Apply, PermutationSpec, find_sites
from ..trees import Flat, Tree, flatten
from .activation_similarity import CrossMoments, correlated, cross_moments, draws_of
from .incoming import incoming_moments, weighted

KEPT_BYTES = 8 << 30  # that units × units matrices of all pairs of many networks may take
CHUNK = 1 << 14  # numbers that stay in the cache between subtraction and sum
WIDE = (np.dtype(np.float32), np.dtype(np.float64))  # dtypes, not types: found by identity, in every product and sum


class Marginals(NamedTuple):
    """Mean and std of every weight of one tensor; of two points both stds are None.

    Example:
        >>> Marginals(np.ones(2), None).std is None  # of a point
        True
    """

    mean: np.ndarray
    std: np.ndarray | None


class GroupSimilarity(NamedTuple):
    """How alike the units of one group are: the cost is `constant − 2 Σ_i matrix[i, perm[i]]`.

    The matrix of an indexed group has axes in front: its outer factors in the target, then those of them that are
    groups themselves in the source. Dimensions of heads: (heads of the target, heads of the source, units, units);
    units of scanned layers, which stay in their layer: (layers, units, units). See `similarity_shape`.

    Example:
        >>> found = GroupSimilarity(np.eye(3), constant=6.0)
        >>> float(found.constant - 2 * np.trace(found.matrix))  # the cost of leaving every unit where it is
        0.0
    """

    matrix: np.ndarray  # (…, units of the target, units of the source)
    constant: float = 0.0
    flipped: np.ndarray | None = None  # the same for units whose sign is changed; needed where a spec has signs


Pair = tuple[np.ndarray, np.ndarray]


@runtime_checkable
class Cost(Protocol):
    """What `align` minimises. `features` or `similarities` is required; the rest is optional.

    `trees(target, source, spec) -> [(by path, by path)]` are features made of whole networks and shaped like them;
    `bound(target, source, spec) -> Cost` is asked first: the cost of this pair, where it needs the whole of both;
    `similarities(target, source, spec) -> {group: GroupSimilarity}` adds evidence that is given outright;
    `value(target, source) -> float` is the cost of one tensor whose source has been moved, where that is not the
    squared distance of the features; `check(marginals, path, role)` refuses tensors that the cost cannot compare;
    `name` is what results and pages call it.

    Example:
        >>> class Signs:  # one of your own
        ...     name = "signs"
        ...     def features(self, target, source):
        ...         return [(np.sign(target.mean), np.sign(source.mean))]
        >>> from bayesin import PermutationSpec, align
        >>> spec = PermutationSpec.parse({"w": ["g0"]}, {"g0": 2})
        >>> p, q = {"w": np.array([3.0, -1.0])}, {"w": np.array([-5.0, 2.0])}
        >>> align(p, q, spec, cost=Signs(), key=jax.random.key(0))
        Alignment(signs 8 -> 0, 2 of 2 units moved, sweeps 1, converged, at most 0 above the best)
    """

    def features(self, target: Marginals, source: Marginals) -> Iterable[Pair]:
        """Pairs of arrays shaped like the tensor; the cost falls by twice what their inner products gain."""
        ...


@runtime_checkable
class GivenCost(Protocol):
    """A cost all of whose evidence is given outright."""

    def similarities(
        self, target: Posterior | Tree, source: Posterior | Tree, spec: PermutationSpec
    ) -> Mapping[str, GroupSimilarity]:
        """How alike the units of each group are."""
        ...


# Plain values: a Module builds an object at every access to a method, a fifth of the time where tensors are small.
@dataclass(frozen=True)
class Wasserstein:
    """The squared 2-Wasserstein distance of mean-field Gaussians; of points, that of their weights.

    Example:
        >>> one, other = Marginals(np.array([1.0]), np.array([3.0])), Marginals(np.array([0.0]), np.array([1.0]))
        >>> Wasserstein().features(one, other)
        [(array([1.]), array([0.])), (array([3.]), array([1.]))]
    """

    name = "wasserstein"

    def features(self, target: Marginals, source: Marginals) -> list[Pair]:
        """Means with means, stds with stds."""
        means = (target.mean, source.mean)
        return [means] if target.std is None or source.std is None else [means, (target.std, source.std)]


@dataclass(frozen=True)
class Means:
    """The squared distance of the means; stds are ignored.

    Example:
        >>> one, other = Marginals(np.array([1.0]), np.array([3.0])), Marginals(np.array([0.0]), np.array([1.0]))
        >>> Means().features(one, other)
        [(array([1.]), array([0.]))]
    """

    name = "means"

    def features(self, target: Marginals, source: Marginals) -> list[Pair]:
        """Means with means."""
        return [(target.mean, source.mean)]


@dataclass(frozen=True)
class KL:
    """The divergence KL[P source ‖ target] of mean-field Gaussians: precision-weighted, not symmetric.

    Example:
        >>> one, other = Marginals(np.array([1.0]), np.array([1.0])), Marginals(np.array([0.0]), np.array([1.0]))
        >>> KL().value(one, other)
        0.5
    """

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


Compared = Literal["covariance", "correlation"]


@dataclass(frozen=True, eq=False)
class Activations:
    """How differently units act on data: Σ E|a_i − b_p(i)|² over every site of a group, before its non-linearity.

    Deep networks are matched better by this than by weights; see docs/matching.md. The data need no labels, and are
    streamed: of what units compute only units × units matrices are kept. A group that shows only together with
    another in one value, as the features of attention heads where the spec has one order of them for all heads, has
    no such evidence: it stays as it is, or follows the other part of a `Blend`. Units that may flip are compared with
    the better of their signs.

    Args:
        apply: the network.
        x: inputs, a thousand or so, of the training set.
        compare: `"covariance"`, which leaves units their importance, or `"correlation"`, in which all count alike.
        samples: draws of each posterior; 0 takes their means.
        key: decides the draws.

    Example:
        >>> import jax.numpy as jnp
        >>> from bayesin import align, permute
        >>> apply = lambda p, x: jnp.tanh(x @ p["w0"]) @ p["w1"]
        >>> net = {"w0": jax.random.normal(jax.random.key(0), (4, 5)), "w1": jnp.ones((5, 2))}
        >>> spec = PermutationSpec.parse({"w0": ["4", "g0"], "w1": ["g0", "2"]}, {"g0": 5})
        >>> turned = permute(net, spec, {"g0": np.array([4, 0, 1, 2, 3])})
        >>> cost = Activations(apply, jax.random.normal(jax.random.key(1), (64, 4)))
        >>> align(net, turned, spec, key=jax.random.key(2), cost=cost).perms["g0"].tolist()
        [1, 2, 3, 4, 0]
    """

    apply: Apply
    x: Any = field(repr=False)
    compare: Compared = "covariance"
    samples: int = 0
    key: PRNGKey | None = field(default=None, repr=False)
    name = "activations"

    def __post_init__(self):
        if self.compare not in get_args(Compared):
            raise ConfigError(f"compare must be one of {', '.join(get_args(Compared))}, not {self.compare!r}")
        some_inputs(self.x)
        if self.samples < 0:
            raise ConfigError(f"samples starts at 0, not {self.samples}")

    def similarities(
        self, target: Posterior | Tree, source: Posterior | Tree, spec: PermutationSpec
    ) -> dict[str, GroupSimilarity]:
        """Covariances or correlations, summed over the sites where a group shows alone; none where it never does."""
        return self.similarities_among([target, source], spec)[0, 1]

    def similarities_among(
        self, members: Sequence[Posterior | Tree], spec: PermutationSpec
    ) -> dict[tuple[int, int], dict[str, GroupSimilarity]]:
        """The same of every two of several networks, each of which runs once."""
        samples = self.samples if any(map(is_posterior, members)) else 0
        draws = [draws_of(q, samples, self.key, stream) for stream, q in enumerate(members)]
        x = some_inputs(self.x)
        seen = unrolled(self.apply, draws[0][0], shapes_of(x, 1))  # a state shows in every turn of its loop
        sites = find_sites(seen, draws[0][0], x, spec)
        kept = math.comb(len(members), 2) * sum(8 * math.prod(sites.units(at)) ** 2 for at in range(len(sites.sites)))
        if kept > KEPT_BYTES:
            raise ConfigError(
                f"the activations of every two of {len(members)} networks take {kept / 2**30:.0f} GiB to compare; "
                "take fewer, or match each to one reference"
            )
        moments = cross_moments(sites, draws, x)
        known = {
            group: [(at, (site.layer, site.parity)) for at in sites.of(group) if (site := sites.sites[at]).parity]
            for group in spec.sizes
        }
        return {
            pair: {
                group: self._of_group([(of_sites[at], *where) for at, where in here], spec.perm_shape(group))
                for group, here in known.items()
                if here
            }
            for pair, of_sites in moments.items()
        }

    def _of_group(
        self, moments: list[tuple[CrossMoments, tuple[int, ...], int]], shape: tuple[int, ...]
    ) -> GroupSimilarity:
        """The sum over sites; in a stack, over those of each layer."""
        stack, units = np.split(np.array(shape), [len(moments[0][1])])
        layers = [
            self._of_layer([(part, parity) for part, of, parity in moments if of == layer], tuple(units))
            for layer in np.ndindex(*stack)
        ]
        as_they_are, flipped, constants = zip(*layers, strict=True)
        shape = (*stack, *as_they_are[0].shape)
        return GroupSimilarity(np.stack(as_they_are).reshape(shape), sum(constants), np.stack(flipped).reshape(shape))

    def _of_layer(
        self, moments: list[tuple[CrossMoments, int]], units: tuple[int, ...]
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """The sum of units as they are, that of units that change their sign with what a site does, the constant."""
        if self.compare == "correlation":
            each = [(correlated(part), parity) for part, parity in moments]
            constant = 2.0 * len(moments) * math.prod(units)
        else:
            each = [(part.covariance, parity) for part, parity in moments]
            constant = sum(float(variance.sum()) for part, _ in moments for variance in part.variances)
        nothing = np.zeros((math.prod(units),) * 2)  # where a layer shows nowhere
        # From (units of all heads, the same) to (heads, heads, units, units).
        outer = len(units) - 1
        order = [*range(outer), *range(outer + 1, 2 * outer + 1), outer, 2 * outer + 1]
        as_they_are, flipped = (
            sum((matrix * parity**turned for matrix, parity in each), nothing).reshape(*units, *units)
            for turned in (0, 1)
        )
        return as_they_are.transpose(order), flipped.transpose(order), constant


@dataclass(frozen=True, eq=False)
class Incoming:
    """Weights by what they do to what enters them: E|(W₀ − P W₁) h|² of every layer, before its bias and norm.

    With C = E[h hᵀ] of what enters a layer on data, the cost between an output of the target and one of the source is
    δᵀ C δ, δ the difference of their incoming weights: full covariances, of convolutions those of patches. The mean
    over h of the target and h of the source is taken, each C in its own network's order of units:

        ½ ⟨C₀ W₀, P W₁⟩ + ½ ⟨W₀, P C₁ W₁⟩

    is what falls. For the units that a layer puts out, with those that enter it held, this is exact. For those that
    enter it the terms that are quadratic in their own permutation, Σ P W₁ W₁ᵀ Pᵀ C₀ and its like, are left out: they
    are constant where C₀ and P C₁ Pᵀ agree. Stds count with the diagonal of C, and what enters no contraction, as
    biases and gains, as it is. `objective` is therefore known up to a constant.

    Args:
        apply: the network.
        x: inputs, a thousand or so, of the training set; they need no labels.

    Example:
        >>> import jax.numpy as jnp
        >>> from bayesin import align, permute
        >>> apply = lambda p, x: jnp.tanh(x @ p["w0"]) @ p["w1"]
        >>> net = {"w0": jax.random.normal(jax.random.key(0), (4, 5)), "w1": jnp.ones((5, 2))}
        >>> spec = PermutationSpec.parse({"w0": ["4", "g0"], "w1": ["g0", "2"]}, {"g0": 5})
        >>> turned = permute(net, spec, {"g0": np.array([4, 0, 1, 2, 3])})
        >>> cost = Incoming(apply, jax.random.normal(jax.random.key(1), (64, 4)))
        >>> align(net, turned, spec, key=jax.random.key(2), cost=cost).perms["g0"].tolist()
        [1, 2, 3, 4, 0]
    """

    apply: Apply
    x: Any = field(repr=False)
    name = "incoming"

    def trees(
        self, target: Posterior | Tree, source: Posterior | Tree, spec: PermutationSpec
    ) -> list[tuple[Flat, Flat]]:
        """Pairs of whole trees: (C₀ m₀, m₁) and (m₀, C₁ m₁), and those of stds."""
        sides, x = [], some_inputs(self.x)
        for posterior in (target, source):
            mean = posterior.mean if is_posterior(posterior) else posterior
            moments = incoming_moments(unrolled(self.apply, mean, shapes_of(x, 1)), [mean], x)
            parts = [(flatten(mean), weighted(moments, flatten(mean)))]
            if is_posterior(target) and is_posterior(source):
                std = flatten(posterior.std)
                parts.append((std, weighted(moments, std, std=True)))
            sides.append(parts)
        pairs = []
        for (ours, our_weighted), (theirs, their_weighted) in zip(*sides, strict=True):
            pairs += [(our_weighted, theirs), (ours, their_weighted)]
        return [(_halved(ours), _halved(theirs)) for ours, theirs in pairs]


def _halved(flat: Flat) -> Flat:
    return {path: 0.5**0.5 * np.asarray(leaf, np.float64) for path, leaf in flat.items()}


@dataclass(frozen=True, eq=False)
class Blend:
    """Two costs at once: `(1 − weight) · first + weight · second`, on a common scale.

    The scale of each is that of its products ⟨a, P b⟩: of features `Σ |a| |b|`, of given similarities half of their
    constant, which is as much as a perfect match gains. So weight ½ gives both an equal say, whatever their units.

    Example:
        >>> both = Blend(Wasserstein(), Means(), 0.25)
        >>> both.name
        'blend of wasserstein and means, 0.25'
    """

    first: "CostLike"
    second: "CostLike"
    weight: float = 0.5

    def __post_init__(self):
        if not 0 <= self.weight <= 1:
            raise ConfigError(f"the weight of a blend lies between 0 and 1, not at {self.weight:g}")
        for part in self._parts:
            if hasattr(part, "value") or hasattr(part, "trees"):
                raise ConfigError(f"'{name_of(part)}' is no sum of squares and has no part in a blend")

    @property
    def name(self) -> str:
        """What is blended, and how."""
        return f"blend of {name_of(self.first)} and {name_of(self.second)}, {self.weight:g}"

    @property
    def _parts(self) -> tuple[Cost, Cost]:
        return as_cost(self.first), as_cost(self.second)

    def features(self, target: Marginals, source: Marginals) -> list[Pair]:
        """Those of both parts."""
        return [pair for part in self._parts if hasattr(part, "features") for pair in part.features(target, source)]

    def bound(self, target: Posterior | Tree, source: Posterior | Tree, spec: PermutationSpec) -> Cost:
        """The blend for one pair of posteriors, on whose sizes the common scale depends."""
        parts = []
        for part, weight in zip(self._parts, (1.0 - self.weight, self.weight), strict=True):
            part = bound_to(part, target, source, spec)
            given = group_similarities(part, target, source, spec)
            scale = _scale_of(part, [given], [target, source])
            parts.append(_Weighted(part, weight / scale if scale > 0 else 0.0, given))
        return _Blended(self.name, tuple(parts))

    def bound_among(self, members: Sequence[Posterior | Tree], spec: PermutationSpec) -> tuple[Cost, "GivenAmong"]:
        """The blend for many posteriors: one common scale, of the mean over all pairs."""
        parts, total = [], {}
        for part, weight in zip(self._parts, (1.0 - self.weight, self.weight), strict=True):
            part, among = bound_among(part, members, spec)
            scale = _scale_of(part, list(among.values()), members)
            parts.append(_Weighted(part, weight / scale if scale > 0 else 0.0, {}))
            for pair, given in among.items():
                total.setdefault(pair, []).append(_Weighted(part, parts[-1].weight, given))
        given = {pair: _Blended(self.name, tuple(of_pair)).given() for pair, of_pair in total.items()}
        return _Blended(self.name, tuple(parts)), given


@dataclass(frozen=True, eq=False)
class _Weighted:
    cost: Cost
    weight: float
    given: Mapping[str, GroupSimilarity]


@dataclass(frozen=True, eq=False)
class _Blended:
    """Costs with their weights, for one pair of posteriors."""

    name: str
    parts: tuple[_Weighted, ...]

    def features(self, target: Marginals, source: Marginals) -> list[Pair]:
        pairs = []
        for part in self.parts:
            if hasattr(part.cost, "features") and part.weight:
                root = np.sqrt(part.weight).astype(target.mean.dtype)
                pairs += [(root * ours, root * theirs) for ours, theirs in part.cost.features(target, source)]
        return pairs

    def similarities(
        self, target: Posterior | Tree, source: Posterior | Tree, spec: PermutationSpec
    ) -> dict[str, GroupSimilarity]:
        return self.given()

    def given(self) -> dict[str, GroupSimilarity]:
        total: dict[str, GroupSimilarity] = {}
        for part in self.parts:
            for group, (matrix, constant, flipped) in part.given.items():
                before = total.get(group, GroupSimilarity(np.zeros_like(matrix), 0.0, np.zeros_like(matrix)))
                known = (before.flipped, flipped)
                total[group] = GroupSimilarity(
                    before.matrix + part.weight * matrix,
                    before.constant + part.weight * constant,
                    None if known[0] is None or known[1] is None else known[0] + part.weight * known[1],
                )
        return total


@dataclass(frozen=True, eq=False)
class FeaturesAlone:
    """A cost without what it gives outright."""

    cost: Cost

    @property
    def name(self) -> str:
        """That of the cost."""
        return name_of(self.cost)

    def features(self, target: Marginals, source: Marginals) -> Iterable[Pair]:
        """Those of the cost, if it has any."""
        return self.cost.features(target, source) if hasattr(self.cost, "features") else []

    def trees(
        self, target: Posterior | Tree, source: Posterior | Tree, spec: PermutationSpec
    ) -> list[tuple[Flat, Flat]]:
        """Those of the cost, likewise."""
        return feature_trees(self.cost, target, source, spec)

    def check(self, marginals: Marginals, path: str, role: str) -> None:
        """Lets the cost refuse a tensor."""
        check_marginals(self.cost, marginals, path, role)


CostLike = str | Cost | GivenCost | Callable[[Marginals, Marginals], Iterable[Pair]]
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
    if not isinstance(cost, type) and any(map(partial(hasattr, cost), ("features", "similarities", "trees"))):
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


def bound_to(cost: Cost, target: Posterior | Tree, source: Posterior | Tree, spec: PermutationSpec) -> Cost:
    """The cost of this pair of posteriors: the cost itself, unless it must look at both as a whole first."""
    bound = getattr(cost, "bound", None)
    return cost if bound is None else bound(target, source, spec)


GivenAmong = dict[tuple[int, int], dict[str, GroupSimilarity]]  # of pairs of many, by group


def bound_among(cost: Cost, members: Sequence[Posterior | Tree], spec: PermutationSpec) -> tuple[Cost, GivenAmong]:
    """The cost of many posteriors, and the similarities that it gives of every two of them: once where the cost says
    them all together, which makes it the same both ways, else both ways."""
    bound = getattr(cost, "bound_among", None)
    if bound is not None:
        return bound(members, spec)
    if not hasattr(cost, "similarities"):
        return cost, {}
    among = getattr(cost, "similarities_among", None)
    if among is not None:
        checked = {pair: _checked_similarities(cost, given, spec) for pair, given in among(members, spec).items()}
        return cost, checked
    pairs = itertools.permutations(range(len(members)), 2)
    return cost, {(i, j): group_similarities(cost, members[i], members[j], spec) for i, j in pairs}


def feature_trees(
    cost: Cost, target: Posterior | Tree, source: Posterior | Tree, spec: PermutationSpec
) -> list[tuple[Flat, Flat]]:
    """The features of a cost that makes them of whole networks, by path; a cost has these or `features`."""
    trees = getattr(cost, "trees", None)
    return [] if trees is None else trees(target, source, spec)


def feature_pairs(cost: Cost, target: Marginals, source: Marginals, path: str) -> list[Pair]:
    """Returns the pairs of one tensor, after checking that each has the tensor's shape."""
    if not hasattr(cost, "features"):
        return []
    found: Any = cost.features(target, source)  # of a function of the user's, whatever it returns
    listed: list[Any] = list(found) if isinstance(found, Iterable) and getattr(found, "ndim", 1) else [found]
    if any(not hasattr(pair, "__len__") or getattr(pair, "ndim", 1) == 0 or len(pair) != 2 for pair in listed):
        raise ConfigError(
            f"the features of cost '{name_of(cost)}' for '{path}' are {found!r:.60}; return a list of pairs of "
            "arrays, such as [(target.mean, source.mean)], whose inner products are what matching makes large"
        )
    pairs = [(np.asarray(ours), np.asarray(theirs)) for ours, theirs in listed]
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
    return _checked_similarities(cost, similarities(target, source, spec), spec)


def _checked_similarities(
    cost: Cost, similarities: Mapping[str, GroupSimilarity], spec: PermutationSpec
) -> dict[str, GroupSimilarity]:
    given = {}
    for group, part in similarities.items():
        if group not in spec.sizes:
            raise ConfigError(f"cost '{name_of(cost)}' gives a similarity of '{group}', which the spec does not have")
        entries = GroupSimilarity(*part) if isinstance(part, tuple) else GroupSimilarity(part)
        matrix = _checked_matrix(cost, entries.matrix, spec, group)
        flipped = None if entries.flipped is None else _checked_matrix(cost, entries.flipped, spec, group)
        given[group] = GroupSimilarity(matrix, float(entries.constant), flipped)
    return given


def _checked_matrix(cost: Cost, given: Any, spec: PermutationSpec, group: str) -> np.ndarray:
    matrix, shape = np.asarray(given), similarity_shape(spec, group)
    if matrix.shape != shape and matrix.ndim == 2 * len(spec.perm_shape(group)):
        matrix = _within_fixed(matrix, spec, group)
    if matrix.shape != shape or not np.isfinite(matrix).all():
        raise ConfigError(
            f"cost '{name_of(cost)}' gives group '{group}' a similarity of shape {matrix.shape}; "
            f"it needs finite numbers of shape {shape}"
        )
    return matrix


def _within_fixed(matrix: np.ndarray, spec: PermutationSpec, group: str) -> np.ndarray:
    """A similarity with all outer factors of both sides, less what is across fixed ones, which no unit leaves."""
    outer = spec.outer(group)
    for place in reversed([i for i, name in enumerate(outer) if name not in spec.sizes]):
        if matrix.shape[place] == matrix.shape[len(outer) + place]:
            # a diagonal stands last; taken from the last factor on, they leave the places before it as they are
            matrix = np.moveaxis(np.diagonal(matrix, 0, place, len(outer) + place), -1, place)
    return matrix


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


def value_of(cost: Cost, tensors: Iterable[tuple[Marginals, Marginals]]) -> float:
    """Returns the cost of tensors whose sources have been moved, from its definition."""
    value = getattr(cost, "value", None)
    if value is not None:
        return sum((float(value(*tensor)) for tensor in tensors), 0.0)
    if not hasattr(cost, "features"):  # all its evidence is given outright
        return 0.0
    return squared_distances(pair for tensor in tensors for pair in cost.features(*tensor))


def squared_distances(pairs: Iterable[Pair]) -> float:
    """Returns Σ (a − b)² over all pairs."""
    return sum(itertools.starmap(squared_distance, joined(pairs)), 0.0)


def joined(rows: Iterable[tuple[np.ndarray, ...]]) -> Iterator[tuple[np.ndarray, ...]]:
    """The same numbers in fewer rows: those of small arrays, flat and behind one another, up to `CHUNK` of them.

    What a call into numpy costs is the time of some thousand numbers. The arrays of a row have one size.
    """
    small: list[tuple[np.ndarray, ...]] = []
    count = 0
    for row in rows:
        size = row[0].size
        if 2 * size > CHUNK:
            yield row
            continue
        if count + size > CHUNK:
            yield tuple(map(_behind_one_another, zip(*small, strict=True)))
            small, count = [], 0
        small.append(row)
        count += size
    if small:
        yield tuple(map(_behind_one_another, zip(*small, strict=True)))


def _behind_one_another(arrays: Sequence[np.ndarray]) -> np.ndarray:
    if len({array.dtype for array in arrays}) > 1:
        arrays = list(map(widened, arrays))
    return np.concatenate(arrays, axis=None)


def squared_distance(first: np.ndarray, second: np.ndarray) -> float:
    """Returns Σ (a − b)², piece by piece: each summed by BLAS in its own precision, all of them in float64."""
    first, second, total = np.asarray(first).reshape(-1), np.asarray(second).reshape(-1), 0.0
    is_wide = first.dtype in WIDE and second.dtype in WIDE
    for start in range(0, first.size, CHUNK):
        part = slice(start, start + CHUNK)
        gap = first[part] - second[part] if is_wide else widened(first[part]) - widened(second[part])
        total += float(gap.dot(gap))
    return total


def inner_product(first: np.ndarray, second: np.ndarray) -> float:
    """Returns Σ a b in the same way."""
    first, second = (np.asarray(array).reshape(-1) for array in (first, second))
    parts = (slice(start, start + CHUNK) for start in range(0, first.size, CHUNK))
    return sum(float(widened(first[part]) @ widened(second[part])) for part in parts)


def widened(array: np.ndarray) -> np.ndarray:
    """Returns the array in at least single precision, in which half precision is summed."""
    return np.asarray(array) if array.dtype in WIDE else array.astype(np.float32)


@dataclass(frozen=True)
class _FromFunction:
    """A user's function of the marginals as a cost; its value is the squared distance of the features."""

    function: Callable[[Marginals, Marginals], Iterable[Pair]]
    name = "a function"

    def features(self, target: Marginals, source: Marginals) -> Iterable[Pair]:
        return self.function(target, source)


def _scale_of(
    cost: Cost, given: Sequence[Mapping[str, GroupSimilarity]], members: Sequence[Posterior | Tree]
) -> float:
    """As much as the products of a cost can be: Σ |a| |b| over features, and half of the constants given.

    The mean over pairs where there are more than two members.
    """
    total = 0.0
    for of_pair in given:
        own = (0.5 * part.constant or float(np.abs(part.matrix).max(-1).sum()) for part in of_pair.values())
        total += sum(own) / len(given)
    if hasattr(cost, "features"):
        pairs = list(itertools.combinations(map(_all_marginals, members), 2))
        for target, source in pairs:
            for ours, theirs in zip(target, source, strict=True):
                if (ours.std is None) != (theirs.std is None):
                    ours, theirs = Marginals(ours.mean, None), Marginals(theirs.mean, None)
                total += sum(
                    float(np.linalg.norm(np.ravel(a)) * np.linalg.norm(np.ravel(b)))
                    for a, b in cost.features(ours, theirs)
                ) / len(pairs)
    return total


def _all_marginals(posterior: Posterior | Tree) -> list[Marginals]:
    """Mean and std of every tensor of real numbers."""
    trees = (posterior.mean, posterior.std) if is_posterior(posterior) else (posterior,)
    leaves = [[np.asarray(leaf) for leaf in jax.tree.leaves(tree)] for tree in trees]
    return [
        Marginals(*(leaf.astype(np.float64) for leaf in each), *([None] if len(each) == 1 else []))
        for each in zip(*leaves, strict=True)
        if each[0].dtype.kind not in "biu"
    ]


def _wide(target: Marginals, source: Marginals) -> list[np.ndarray]:
    return [np.asarray(array, np.float64) for array in (*target, *source)]
