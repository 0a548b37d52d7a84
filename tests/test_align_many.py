"""Many posteriors, one barycentre: laws, and brute force where it is possible."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import networks
from bayesin import Gaussian, PermutationSpec, Samples, align, align_many, compose, costs, discover, invert, permute
from bayesin.errors import ConfigError, PosteriorError
from bayesin.matching import barycentre
from matching_problems import assert_never_rises, assert_same_perms, mlp_spec, moved_by, random_gaussian, random_tree

KEY = jax.random.key(0)


def spread(posteriors):
    """Σ W₂² to the barycentre, from the definition."""
    total = 0.0
    trees = [(q.mean, q.std) if isinstance(q, Gaussian) else (q,) for q in posteriors]
    for part in zip(*trees, strict=True):
        for path in part[0]:
            stacked = np.stack([np.asarray(tree[path], np.float64) for tree in part])
            total += ((stacked - stacked.mean(0)) ** 2).sum()
    return total


@pytest.mark.parametrize("kind", [random_tree, random_gaussian])
def test_the_sum_never_rises_and_is_what_it_says(kind):
    spec = mlp_spec(6, 10, 8, 3)
    posteriors = [kind(spec, seed) for seed in range(5)]
    result = align_many(posteriors, spec, key=KEY)
    assert_never_rises(result.history)
    assert result.converged
    np.testing.assert_allclose(result.history[0], spread(posteriors), rtol=1e-12)
    np.testing.assert_allclose(result.objective, spread(result.posteriors), rtol=1e-12)
    for q, perms, moved in zip(posteriors, result.perms, result.posteriors, strict=True):
        for left, right in zip(jax.tree.leaves(moved_by(q, spec, perms)), jax.tree.leaves(moved), strict=True):
            np.testing.assert_array_equal(left, right)


def test_no_single_posterior_can_be_improved_any_more():
    spec = mlp_spec(3, 4, 2)
    posteriors = [random_gaussian(spec, seed) for seed in range(4)]
    result = align_many(posteriors, spec, key=KEY)
    for index in range(4):
        for perm in itertools.permutations(range(4)):
            other = list(result.posteriors)
            other[index] = moved_by(posteriors[index], spec, {"g0": np.array(perm)})
            assert spread(other) >= result.objective * (1 - 1e-9)


def test_three_posteriors_against_brute_force():
    spec = PermutationSpec.parse({"w": ["3", "g0"], "b": ["g0"]}, {"g0": 4})
    exact = 0
    for seed in range(6):
        posteriors = [random_tree(spec, 10 * seed + i) for i in range(3)]
        orders = [{"g0": np.array(perm)} for perm in itertools.permutations(range(4))]
        moved = [[permute(q, spec, order) for order in orders] for q in posteriors[1:]]
        best = min(spread([posteriors[0], a, b]) for a in moved[0] for b in moved[1])
        result = align_many(posteriors, spec, key=KEY)
        assert result.objective >= best * (1 - 1e-12)
        exact += result.objective <= best * (1 + 1e-9)
    assert exact >= 4  # a local search, but a good one


def test_two_posteriors_are_as_close_as_align_brings_them():
    """Σ W₂² to the barycentre of two is half of W₂² between them."""
    spec = mlp_spec(4, 9, 3)
    first, second = random_gaussian(spec, 0), random_gaussian(spec, 1)
    result = align_many([first, second], spec, key=KEY)
    np.testing.assert_allclose(result.objective, align(first, second, spec, key=KEY).objective / 2, rtol=1e-12)


def test_planted_permutations_are_undone_and_consistent_around_cycles():
    spec = mlp_spec(40, 20, 20, 30)
    base = random_gaussian(spec, 0, np.float32)
    planted = [spec.random(jax.random.key(seed)) for seed in range(4)]
    result = align_many([moved_by(base, spec, perms) for perms in planted], spec, key=KEY)
    assert result.objective == 0.0
    # the map from i to j goes through the common order: i → common → j
    for i, j in itertools.permutations(range(4), 2):
        through = compose(invert(result.perms[j]), result.perms[i])
        assert_same_perms(through, compose(planted[j], invert(planted[i])))


def test_the_barycentre_is_the_mean_of_means_and_of_stds():
    spec = mlp_spec(4, 9, 3)
    result = align_many([random_gaussian(spec, seed) for seed in range(3)], spec, key=KEY)
    for part in ("mean", "std"):
        for path in getattr(result.barycentre, part):
            expected = np.mean([getattr(q, part)[path] for q in result.posteriors], axis=0)
            np.testing.assert_allclose(getattr(result.barycentre, part)[path], expected, rtol=1e-12)


def test_points_have_a_point_as_barycentre_and_integers_come_from_the_first():
    trees = [{"w": np.array([1.0, 2.0]), "n": np.array([1, 2])}, {"w": np.array([3.0, 4.0]), "n": np.array([5, 6])}]
    middle = barycentre(trees)
    assert middle.mean["w"].tolist() == [2.0, 3.0] and middle.mean["n"].tolist() == [1, 2]
    assert middle.std["w"].tolist() == [0.0, 0.0]


def test_already_aligned_posteriors_stay():
    spec = mlp_spec(6, 12, 3)
    base = random_tree(spec, 0)
    near = [{p: leaf + 1e-3 * random_tree(spec, s)[p] for p, leaf in base.items()} for s in range(1, 6)]
    result = align_many(near, spec, key=KEY)
    assert all((perm == np.arange(perm.size)).all() for perms in result.perms for perm in perms.values())
    assert result.sweeps == 1 and len(result.history) == 1


def test_samples_points_and_gaussians_mixed():
    spec = mlp_spec(4, 6, 3)
    trees = [random_tree(spec, seed, np.float32) for seed in range(4)]
    stacked = Samples.stack([jax.tree.map(jnp.asarray, tree) for tree in trees])
    from_samples, from_list = align_many(stacked, spec, key=KEY), align_many(trees, spec, key=KEY)
    for left, right in zip(from_samples.perms, from_list.perms, strict=True):
        assert_same_perms(left, right)
    mixed = align_many([trees[0], random_gaussian(spec, 9, np.float32)], spec, key=KEY)
    assert isinstance(mixed.posteriors[1], Gaussian) and not isinstance(mixed.posteriors[0], Gaussian)
    assert_never_rises(mixed.history)


def test_one_posterior_and_none():
    spec = mlp_spec(4, 6, 3)
    result = align_many([random_tree(spec, 0)], spec, key=KEY)
    assert result.converged and result.history.tolist() == [0.0]
    with pytest.raises(PosteriorError, match="at least one"):
        align_many([], spec, key=KEY)
    entangled = lambda target, source: [(target.mean * source.mean, source.mean)]  # noqa: E731
    with pytest.raises(ConfigError, match="features of the target depend on the source"):
        align_many([random_tree(spec, seed) for seed in range(3)], spec, key=KEY, cost=entangled)
    with pytest.raises(PosteriorError, match="the target is a point"):
        align_many([random_tree(spec, seed) for seed in range(3)], spec, key=KEY, cost="kl")


class OneWay:
    """Similarities that are not the same both ways, for one group."""

    def similarities(self, target, source, spec):
        ours, theirs = (np.asarray(q.mean["l0"]["kernel"]) for q in (target, source))
        return {"g0": costs.GroupSimilarity(np.exp(ours.T) @ theirs, 100.0)}


X, _ = networks.data(30)
NETS = [networks.gaussian(seed, (6, 4, 3)) for seed in range(3)]
OF_UNITS = costs.Activations(networks.apply, X)
COSTS = {"kl": "kl", "activations": OF_UNITS, "one way": OneWay(), "blend": costs.Blend("wasserstein", OF_UNITS, 0.3)}


def between(posteriors, spec, cost):
    """F from its definition: the cost of every two, both ways, at the permutations that they have."""
    ways = itertools.permutations(posteriors, 2)
    return sum(align(a, b, spec, key=KEY, cost=cost, order=[]).objective for a, b in ways) / 2 / len(posteriors)


@pytest.mark.parametrize("name", COSTS)
def test_every_cost_brings_many_together(name):
    """One group: of two members align finds the best; of three none can be improved with the others held."""
    spec, cost = discover(networks.apply, NETS[0].mean, X[:2]), COSTS[name]
    members = NETS[:2] if name == "blend" else NETS  # the scale of a blend is that of all pairs
    result = align_many(members, spec, key=KEY, cost=cost)
    assert_never_rises(result.history)
    np.testing.assert_allclose(result.history[0], between(members, spec, cost), rtol=1e-5)
    np.testing.assert_allclose(result.objective, between(result.posteriors, spec, cost), rtol=1e-5)
    for index, perm in itertools.product(range(1, len(members)), itertools.permutations(range(4))):
        changed = list(result.posteriors)
        changed[index] = members[index].permute(spec, {"g0": np.array(perm)})
        assert between(changed, spec, cost) >= result.objective * (1 - 1e-5)


def test_rounds_are_bounded_and_reported():
    spec, seen = mlp_spec(4, 20, 20, 3), []
    posteriors = [random_tree(spec, seed) for seed in range(5)]
    result = align_many(posteriors, spec, key=KEY, max_sweeps=1, on_sweep=seen.append)
    assert result.sweeps == 1 and len(seen) == 1 and seen[0].objective == result.objective
