"""Every cost against every oracle: its definition, brute force over all permutations, the laws of the descent."""

import itertools
import re
from pathlib import Path

import jax
import numpy as np
import pytest

import bayesin
from bayesin import Gaussian, LowRankGaussian, Samples, align, align_many, costs, permute
from bayesin.errors import ConfigError, PosteriorError
from bayesin.matching import Similarities, pose
from bayesin.matching.costs import CHUNK, joined, squared_distances
from bayesin.matching.problem import gain_of_units, objective
from matching_problems import (
    ONE_GROUP,
    QUADRATIC,
    all_perms,
    assert_never_rises,
    assert_same_perms,
    cost_by_definition,
    mlp_spec,
    random_gaussian,
    random_tree,
)

KEY = jax.random.key(0)
DOCUMENTED: dict = {}  # the costs of docs/extending.md
GUIDE = (Path(__file__).parents[1] / "docs" / "extending.md").read_text()
for block in re.findall(r"```python\n(.*?)```", GUIDE.split("## A matching cost")[1].split("\n## ")[0], re.DOTALL):
    exec(block, DOCUMENTED)


class ByWidth:
    """Features and given similarities at once: the means, and the rank of every unit by its number."""

    def features(self, target, source):
        return [(target.mean, source.mean)]

    def similarities(self, target, source, spec):
        return {g: costs.GroupSimilarity(np.eye(n)[::-1], constant=2.0 * n) for g, n in spec.sizes.items()}


def relative(target, source, spec, perms):
    moved = permute(source.mean, spec, perms)
    return sum((((target.mean[p] - moved[p]) / target.std[p]) ** 2).sum() for p in moved)


def magnitudes(target, source, spec, perms):
    moved = permute(source.mean, spec, perms)
    return sum(((abs(target.mean[p]) - abs(moved[p])) ** 2).sum() for p in moved)


def by_width(target, source, spec, perms):
    reversed_units = sum((perm[::-1] == np.arange(perm.size)).sum() for perm in perms.values())
    units = sum(spec.sizes.values())
    return cost_by_definition(target, source, spec, perms, "means") + 2.0 * (units - reversed_units)


def blended(target, source, spec, perms):
    """Three parts of W₂² and one of the means, each divided by as much as its products can be."""
    norms = [
        sum(np.linalg.norm(one[path]) * np.linalg.norm(other[path]) for path in one)
        for one, other in ((target.mean, source.mean), (target.std, source.std))
    ]
    first, second = (cost_by_definition(target, source, spec, perms, name) for name in ("wasserstein", "means"))
    return 0.75 * first / sum(norms) + 0.25 * second / norms[0]


def by_name(name):
    return lambda target, source, spec, perms: cost_by_definition(target, source, spec, perms, name)


COSTS = {  # what `align` takes, and the cost of a permutation straight from its formula
    "wasserstein": ("wasserstein", by_name("wasserstein")),
    "Wasserstein()": (costs.Wasserstein(), by_name("wasserstein")),
    "Means()": (costs.Means(), by_name("means")),
    "KL()": (costs.KL(), by_name("kl")),
    "Blend()": (costs.Blend("wasserstein", costs.Means(), 0.25), blended),
    "a class": (DOCUMENTED["Relative"](), relative),
    "a function": (DOCUMENTED["magnitudes"], magnitudes),
    "features and similarities": (ByWidth(), by_width),
}
every_cost = pytest.mark.parametrize("cost, definition", COSTS.values(), ids=COSTS)


@every_cost
@pytest.mark.parametrize("name", ONE_GROUP)
def test_one_group_is_exact(name, cost, definition):
    spec = ONE_GROUP[name]
    for seed in range(2):
        target, source = random_gaussian(spec, seed), random_gaussian(spec, seed + 50)
        alignment = align(target, source, spec, key=KEY, cost=cost)
        best = min(definition(target, source, spec, perms) for perms in all_perms(spec))
        np.testing.assert_allclose([alignment.objective, alignment.history[-1]], best, rtol=1e-12)
        assert alignment.converged
        assert_never_rises(alignment.history)


@every_cost
def test_two_groups_reach_a_coordinate_optimum_and_the_best_of_many_starts_the_global_one(cost, definition):
    spec = mlp_spec(3, 4, 4, 2)
    for seed in range(2):
        target, source = random_gaussian(spec, seed), random_gaussian(spec, seed + 50)
        every = {
            tuple(map(tuple, perms.values())): definition(target, source, spec, perms) for perms in all_perms(spec)
        }
        alignment = align(target, source, spec, key=KEY, cost=cost)
        reached = every[tuple(map(tuple, alignment.perms.values()))]
        np.testing.assert_allclose(alignment.objective, reached, rtol=1e-12)
        for group in spec.sizes:
            for perm in itertools.permutations(range(4)):
                other = {**alignment.perms, group: np.array(perm)}
                assert every[tuple(map(tuple, other.values()))] >= reached - 1e-9
        many = align(target, source, spec, key=KEY, cost=cost, restarts=30)
        np.testing.assert_allclose(many.objective, min(every.values()), rtol=1e-12)


@every_cost
@pytest.mark.parametrize("name", ["x + Wx", "gates"])
def test_quadratic_groups_end_where_no_swap_helps(name, cost, definition):
    spec = QUADRATIC[name]
    target, source = random_gaussian(spec, 0), random_gaussian(spec, 50)
    alignment = align(target, source, spec, key=KEY, cost=cost)
    assert_never_rises(alignment.history)
    reached = definition(target, source, spec, alignment.perms)
    np.testing.assert_allclose(alignment.objective, reached, rtol=1e-12)
    for a, b in itertools.combinations(range(spec.sizes["g0"]), 2):
        other = alignment.perms["g0"].copy()
        other[[a, b]] = other[[b, a]]
        assert definition(target, source, spec, {"g0": other}) >= reached * (1 - 1e-6)


@every_cost
def test_similarity_and_units_predict_the_change_of_the_cost(cost, definition):
    """2⟨P' − P, C⟩ is the difference of costs, whatever rows and columns were shifted by."""
    spec = mlp_spec(4, 7, 6, 5, 3)
    target, source = random_gaussian(spec, 0), random_gaussian(spec, 1)
    problem = pose(target, source, spec, costs.as_cost(cost), frozenset())
    similarities, perms = Similarities(problem), spec.random(jax.random.key(0))
    for group in spec.sizes:
        new = spec.random(jax.random.key(7))[group]
        before, after = (definition(target, source, spec, p) for p in (perms, {**perms, group: new}))
        np.testing.assert_allclose(objective(problem, perms), before, rtol=1e-12)
        matrix, rows = similarities.matrix(group, perms), np.arange(new.size)
        predicted = 2 * (matrix[rows, new] - matrix[rows, perms[group]]).sum()
        np.testing.assert_allclose(predicted, before - after, atol=1e-10 * before)
        np.testing.assert_allclose(gain_of_units(problem, group, perms, new), before - after, atol=1e-10 * before)
        perms = {**perms, group: new}


@pytest.mark.parametrize("name", [name for name in COSTS if name != "features and similarities"])
def test_the_unit_of_the_weights_does_not_matter(name):
    """Weights of 1e-30 or 1e30 have squares outside of float32, and must be aligned as those of 1."""
    cost, definition = COSTS[name]
    spec = mlp_spec(5, 16, 12, 3)

    def scaled(seed, power):
        return jax.tree.map(lambda leaf: np.ldexp(leaf, power), random_gaussian(spec, seed, np.float32))

    wide = [jax.tree.map(np.float64, scaled(seed, 0)) for seed in (0, 1)]  # ill-conditioned costs round in float32
    ordinary = align(*wide, spec, key=KEY, cost=cost, restarts=2)
    assert sum(ordinary.moved.values()) > 0
    for power in (-100, -50, 50, 100):
        alignment = align(scaled(0, power), scaled(1, power), spec, key=KEY, cost=cost, restarts=2)
        assert_same_perms(alignment.perms, ordinary.perms)
        assert alignment.converged and np.isfinite(alignment.history).all()
        homogeneous = 1.0 if definition in (relative, blended, COSTS["KL()"][1]) else 4.0**power
        np.testing.assert_allclose(alignment.objective, homogeneous * ordinary.objective, rtol=1e-4)


# Posteriors


class Own:
    """A user's posterior: uniform around its mean, with the four members and nothing else."""

    def __init__(self, mean, half):
        self.mean, self.half = mean, half

    @property
    def std(self):
        return {path: leaf / np.sqrt(leaf.dtype.type(3)) for path, leaf in self.half.items()}

    def sample(self, key, count):
        raise NotImplementedError

    def permute(self, spec, perms):
        return Own(permute(self.mean, spec, perms), permute(self.half, spec, perms))


def low_rank(spec, seed):
    return LowRankGaussian.from_samples(Samples.stack([random_tree(spec, seed + k, np.float32) for k in range(4)]))


KINDS = {
    "point": lambda spec, seed: random_tree(spec, seed, np.float32),
    "Gaussian": lambda spec, seed: random_gaussian(spec, seed, np.float32),
    "LowRankGaussian": low_rank,
    "a class of one's own": lambda spec, seed: Own(*vars(random_gaussian(spec, seed, np.float32)).values()),
}


def as_gaussian(q):
    return q if isinstance(q, Gaussian | dict) else Gaussian(*(jax.tree.map(np.asarray, t) for t in (q.mean, q.std)))


@pytest.mark.parametrize("target_kind", KINDS)
@pytest.mark.parametrize("source_kind", KINDS)
@pytest.mark.parametrize("name", ["wasserstein", "means", "kl"])
def test_every_posterior_is_aligned_by_its_mean_and_std(target_kind, source_kind, name):
    spec = mlp_spec(4, 6, 5, 3)
    target, source = KINDS[target_kind](spec, 0), KINDS[source_kind](spec, 10)
    if name == "kl" and "point" in (target_kind, source_kind):
        with pytest.raises(PosteriorError, match="is a point"):
            align(target, source, spec, key=KEY, cost=name)
        return
    alignment = align(target, source, spec, key=KEY, cost=name)
    plain = align(as_gaussian(target), as_gaussian(source), spec, key=KEY, cost=name)
    assert_same_perms(alignment.perms, plain.perms)
    np.testing.assert_allclose(alignment.objective, plain.objective, rtol=1e-6)
    assert type(alignment.posterior) is type(source)
    moved = as_gaussian(alignment.posterior)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), moved, plain.posterior)


@pytest.mark.parametrize("kind", KINDS)
def test_many_of_every_kind_come_together(kind):
    spec = mlp_spec(12, 8, 3)
    first = KINDS[kind](spec, 0)
    turned = [
        permute(first, spec, perms) if isinstance(first, dict) else first.permute(spec, perms)
        for perms in (spec.identity(), spec.random(jax.random.key(1)), spec.random(jax.random.key(2)))
    ]
    together = align_many(turned, spec, key=KEY)
    assert together.converged and together.objective <= 1e-9 * together.history[0]
    assert all(type(q) is type(first) for q in together.posteriors)
    assert isinstance(together.barycentre, Gaussian)


# The interface


def test_every_cost_of_ours_is_in_the_table():
    """Those that run a network have a file of their own; `FeaturesAlone` is a part of another."""
    ours = {
        name
        for name in vars(costs)
        if isinstance(getattr(costs, name), type) and hasattr(getattr(costs, name), "name")
    }
    in_the_table = {type(costs.as_cost(cost)).__name__ for cost, _ in COSTS.values()}
    assert in_the_table | {"Activations", "Incoming", "FeaturesAlone"} >= ours >= {"Blend", "KL"}


def test_similarities_alone_decide_where_they_are_all_there_is():
    spec = mlp_spec(4, 5, 3)
    labels = {"g0": np.array([3, 1, 4, 0, 2])}
    cost = DOCUMENTED["Labelled"]({"g0": np.arange(5)}, labels)
    for restarts in (1, 2):
        alignment = align(random_tree(spec, 0), random_tree(spec, 1), spec, key=KEY, cost=cost, restarts=restarts)
        assert alignment.perms["g0"].tolist() == np.argsort(labels["g0"]).tolist()
        assert alignment.cost == "Labelled" and alignment.objective == -10.0


def test_costs_are_public_and_named():
    assert bayesin.costs is costs
    assert isinstance(costs.as_cost("kl"), costs.KL) and costs.name_of("means") == "means"
    spec = mlp_spec(3, 4, 2)
    assert align(random_tree(spec, 0), random_tree(spec, 1), spec, key=KEY, cost=costs.Means()).cost == "means"


def test_what_is_no_cost_is_refused():
    spec = mlp_spec(3, 4, 2)
    p, q = random_gaussian(spec, 0), random_gaussian(spec, 1)

    class WrongGroup:
        def similarities(self, target, source, spec):
            return {"g9": np.zeros((4, 4))}

    class WrongShape:
        def similarities(self, target, source, spec):
            return {"g0": np.zeros((4, 3))}

    for cost, message in [
        ("euclid", "no cost 'euclid'"),
        (3, "a cost is one of"),
        (costs.KL, "not <class"),
        (lambda target, source: [(target.mean[0], source.mean[0])], "have shapes"),
        (WrongGroup(), "'g9', which the spec does not have"),
        (WrongShape(), r"needs finite numbers of shape \(4, 4\)"),
    ]:
        with pytest.raises(ConfigError, match=message):
            align(p, q, spec, key=KEY, cost=cost)

    class Entangled(DOCUMENTED["Relative"]):
        name = "entangled"

        def features(self, target, source):
            return [(target.mean * source.std, source.mean)]

    with pytest.raises(ConfigError, match="no cost 'entangled'"):
        align_many([p, q], spec, key=KEY, cost=Entangled())


def test_results_are_trees_that_say_what_happened_in_a_line():
    spec = mlp_spec(3, 4, 2)
    alignment = align(random_tree(spec, 0), random_tree(spec, 1), spec, key=KEY)
    assert repr(alignment).startswith("Alignment(wasserstein ") and len(repr(alignment)) < 120
    doubled = jax.tree.map(lambda leaf: leaf * 2, alignment)
    assert doubled.cost == "wasserstein" and doubled.objective == 2 * alignment.objective
    together = align_many([random_tree(spec, seed) for seed in range(3)], spec, key=KEY)
    assert repr(together).startswith("AlignmentMany(3 posteriors, ")


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_many_small_arrays_and_large_ones_are_summed_alike(dtype):
    draws, sizes = (
        np.random.default_rng(0),
        [3, CHUNK // 2, CHUNK // 2 + 1, 1, 0, 5 * CHUNK + 7, CHUNK // 3, CHUNK, 4],
    )
    pairs = [tuple(draws.standard_normal((2, size)).astype(dtype)) for size in sizes]
    expected = sum(float(((a.astype(np.float64) - b.astype(np.float64)) ** 2).sum()) for a, b in pairs)
    np.testing.assert_allclose(squared_distances(pairs), expected, rtol=1e-13 if dtype == np.float64 else 1e-6)
    rows = list(joined(pairs))
    assert sum(first.size for first, _ in rows) == sum(sizes)
    assert all(first.size == second.size for first, second in rows)
    assert len(rows) < len(pairs)
