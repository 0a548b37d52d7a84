"""Signs and scales in use: alignment over signed permutations against all of them, and balanced networks."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayesin
from bayesin.compact import rebase
from bayesin.errors import ConfigError, PosteriorError, SpecError
from bayesin.matching.problem import objective, pose
from bayesin.store import align_files, load_alignment, load_posterior, save_alignment, save_posterior
from bayesin.symmetry import multiply
from symmetry_checks import normal

KEY = jax.random.key(0)


def gaussian(seed, **shapes):
    rng = np.random.default_rng(seed)
    mean = {path: rng.normal(size=shape).astype(np.float32) for path, shape in shapes.items()}
    return bayesin.Gaussian(mean, {path: rng.uniform(0.1, 1, a.shape).astype(np.float32) for path, a in mean.items()})


def shallow(p, x):
    return jnp.tanh(x @ p["w0"] + p["b0"][None]) @ p["w1"]


def deep(p, x, act=jnp.tanh):
    return act(act(x @ p["w0"] + p["b0"][None]) @ p["w1"] + p["b1"][None]) @ p["w2"]


def recurrent(p, x):
    step = lambda h, row: (jnp.tanh(row @ p["in"] + h @ p["h"]), None)  # noqa: E731
    return jax.lax.scan(step, jnp.zeros(6), x)[0] @ p["out"]


def attention(p, x):
    q, k, v = (jnp.einsum("td,dhk->thk", x, p[name]) for name in "qkv")
    scores = jax.nn.softmax(jnp.einsum("thk,shk->hts", q, k), axis=-1)
    return jnp.einsum("hts,shk,hkd->td", scores, v, p["o"])


SHALLOW = {"w0": (3, 3), "b0": (3,), "w1": (3, 2)}
DEEP = {"w0": (4, 8), "b0": (8,), "w1": (8, 6), "b1": (6,), "w2": (6, 3)}
X = normal(1, 5, 4, scale=1.0)


def distance(p, q):
    pairs = zip(jax.tree.leaves((p.mean, p.std)), jax.tree.leaves((q.mean, q.std)), strict=True)
    return sum(float(((np.asarray(a, np.float64) - np.asarray(b)) ** 2).sum()) for a, b in pairs)


def test_one_group_is_solved_exactly_over_all_signed_permutations():
    spec = bayesin.discover(shallow, gaussian(0, **SHALLOW).mean, X[:, :3], signs=True)
    for seed in range(4):
        p, q = gaussian(seed, **SHALLOW), gaussian(seed + 100, **SHALLOW)
        alignment = bayesin.align(p, q, spec, key=KEY)
        every = (
            distance(p, q.permute(spec, {"g0": np.array(perm)}, {"g0": np.array(signs)}))
            for perm in itertools.permutations(range(3))
            for signs in itertools.product([1, -1], repeat=3)
        )
        assert alignment.objective == pytest.approx(min(every), rel=1e-5)
        assert distance(p, alignment.posterior) == pytest.approx(alignment.objective, rel=1e-5)
        unsigned = bayesin.align(p, q, spec.without_signs, key=KEY)
        assert not unsigned.signs and alignment.objective <= unsigned.objective + 1e-4


PLANTED = {
    "deep": (deep, DEEP),
    "recurrent": (recurrent, {"in": (4, 6), "h": (6, 6), "out": (6, 2)}),
    "attention": (attention, {"q": (4, 3, 4), "k": (4, 3, 4), "v": (4, 3, 4), "o": (3, 4, 4)}),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_signed_permutations_are_found(name):
    apply, shapes = PLANTED[name]
    p = gaussian(0, **shapes)
    spec = bayesin.discover(apply, p.mean, X, signs=True)
    q = p.permute(spec, spec.random(jax.random.key(1)), spec.random_signs(jax.random.key(2)))
    found = bayesin.align(p, q, spec, key=KEY, check=(apply, X))
    assert found.objective < 1e-6 * found.history[0] and found.converged
    assert all(set(np.unique(sign)) <= {-1, 1} for sign in found.signs.values())
    assert (np.diff(found.history) <= 0).all() and "flipped" in repr(found)


def small():
    """Two groups, few enough for all 768 signed permutations."""
    shapes = {"w0": (3, 3), "b0": (3,), "w1": (3, 2), "b1": (2,), "w2": (2, 2)}
    p, q = gaussian(0, **shapes), gaussian(1, **shapes)
    return p, q, bayesin.discover(deep, p.mean, X[:, :3], signs=True)


COSTS = {
    "wasserstein": "wasserstein",
    "kl": "kl",
    "means": "means",
    "covariances": bayesin.costs.Activations(deep, normal(3, 64, 3, scale=1.0)),
    "correlations": bayesin.costs.Activations(deep, normal(3, 64, 3, scale=1.0), compare="correlation"),
    "blend": bayesin.costs.Blend("wasserstein", bayesin.costs.Activations(deep, normal(3, 64, 3, scale=1.0))),
}


@pytest.mark.parametrize("name", COSTS)
def test_every_cost_of_flat_permutations_is_that_of_the_moved_source_and_none_is_below_the_bound(name):
    """All 768 signed permutations: what the search computes of each, and what it says that they can gain."""
    p, q, spec = small()
    problem = pose(p, q, spec, bayesin.costs.as_cost(COSTS[name]), frozenset())
    found, best = bayesin.align(p, q, spec, key=KEY, cost=COSTS[name]), np.inf
    orders = [[np.array(perm) for perm in itertools.permutations(range(n))] for n in (3, 2)]
    flips = [[np.array(sign) for sign in itertools.product([1, -1], repeat=n)] for n in (3, 2)]
    for number, (a, b, s, t) in enumerate(itertools.product(*orders, *flips)):
        perms, signs = {"g0": a, "g1": b}, {"g0": s, "g1": t}
        value = objective(problem, perms, signs)
        best = min(best, value)
        if number % 50 == 0:
            moved = pose(p, q.permute(spec, perms, signs), spec, bayesin.costs.as_cost(COSTS[name]), frozenset())
            assert objective(moved, spec.identity()) == pytest.approx(value, rel=1e-4, abs=1e-4)
    assert found.objective >= best - 1e-4 and found.objective - found.gap <= best + 1e-4


@pytest.mark.parametrize("name", COSTS)
def test_many_that_were_moved_and_flipped_come_together(name):
    p, _, spec = small()
    turned = [p.permute(spec, spec.random(key), spec.random_signs(key)) for key in jax.random.split(KEY, 3)]
    found = bayesin.align_many(turned, spec, key=KEY, cost=COSTS[name])
    assert max(distance(found.posteriors[0], other) for other in found.posteriors) < 1e-8
    for q, perms, signs, moved in zip(turned, found.perms, found.signs, found.posteriors, strict=True):
        assert distance(q.permute(spec, perms, signs), moved) == 0
    assert any((sign < 0).any() for signs in found.signs for sign in signs.values())


def test_merge_and_compact_flip_units_and_files_keep_it(tmp_path):
    p, _, spec = small()
    turned = [p.permute(spec, spec.random(key), spec.random_signs(key)) for key in jax.random.split(KEY, 4)]
    assert distance(bayesin.merge(turned, spec, key=KEY).posterior, turned[0]) < 1e-8
    points, seen = [q.mean for q in turned], {"apply": deep, "x": normal(3, 64, 3, scale=1.0)}
    for options in ({}, {"reference": "first"}, {"match": "activations"} | seen, {"match": "correlations"} | seen):
        found = bayesin.compact(points, spec, key=KEY, **options)
        assert found.spread_after < 1e-6 < found.spread_before
        together = rebase(bayesin.Samples.stack(points), spec, found.perms, found.signs).params
        assert max(float(np.std(leaf, 0).max()) for leaf in jax.tree.leaves(together)) < 1e-6
    own = bayesin.compact(turned, spec, key=KEY).posterior.std  # of Gaussians: their own, moved without a sign
    assert sorted(np.ravel(own["w0"])) == pytest.approx(sorted(np.ravel(p.std["w0"])), rel=1e-5)
    paths = [save_posterior(tmp_path / f"{k}.safetensors", q, spec=spec) for k, q in enumerate(turned[:2])]
    found = align_files(*paths, tmp_path / "moved.safetensors", key=KEY)
    moved: Any = load_posterior(tmp_path / "moved.safetensors")
    assert found.flipped and distance(moved, turned[0]) < 1e-8
    with pytest.raises(ConfigError, match="needs apply= and x=, in which they are found"):
        bayesin.compact(points, spec, key=KEY, match="activations", activations=lambda p, x: {}, x=X)


def test_heads_that_share_one_order_of_samples_stay_first_in_a_fold():
    p = gaussian(0, **PLANTED["attention"][1]).mean
    spec = bayesin.discover(attention, p, X)
    turned = [bayesin.permute(p, spec, spec.random(key)) for key in jax.random.split(KEY, 3)]
    found = bayesin.compact(turned, spec, key=KEY, reference="first")
    assert found.spread_after < 1e-6 and (found.perms["g2"][0] == np.arange(4)).all()


def test_costs_that_say_nothing_of_signs_say_so(tmp_path):
    p, q = gaussian(0, **SHALLOW), gaussian(1, **SHALLOW)
    spec = bayesin.discover(shallow, p.mean, X[:, :3], signs=True)
    point = bayesin.align(p.mean, q.mean, spec, key=KEY)
    moved: Any = point.posterior
    reached = sum(float(((p.mean[path] - moved[path]) ** 2).sum()) for path in p.mean)
    assert point.objective == pytest.approx(reached, rel=1e-5)

    class Given:
        name = "given"

        def similarities(self, target, source, spec):
            return {"g0": bayesin.costs.GroupSimilarity(np.eye(3))}

    with pytest.raises(ConfigError, match="says nothing of the signs of group 'g0'"):
        bayesin.align(p, q, spec, key=KEY, cost=Given())
    with pytest.raises(ConfigError, match="does not say what a sign does to 'b0'"):
        bayesin.align(p, q, spec, key=KEY, cost=lambda t, s: [(t.mean, np.exp(s.mean))])
    save_alignment(tmp_path / "a.safetensors", point.perms, spec, signs=point.signs)
    stored = load_alignment(tmp_path / "a.safetensors")
    again = bayesin.permute(q.mean, stored.spec, stored.perms, stored.signs)
    assert all(np.array_equal(again[path], moved[path]) for path in again)


@pytest.mark.parametrize(
    "signs, message",
    [
        ({"g0": np.ones(2)}, r"signs of group 'g0' have shape \(2,\), expected \(3,\)"),
        ({"g0": np.ones((3, 1))}, "group 'g0' has 3 signs, but the stack has 0 samples"),
        ({"g0": np.array([1, 0, -1])}, "signs of group 'g0' hold other numbers than 1 and -1"),
        ({"g9": np.ones(3)}, "group 'g9' has no signs; of this spec g0 may flip"),
    ],
)
def test_signs_that_do_not_fit_are_refused(signs, message):
    spec = bayesin.PermutationSpec.parse({"w0": ["3", "±g0"], "b0": ["±g0"], "w1": ["±g0", "2"]}, {"g0": 3})
    with pytest.raises(SpecError, match=message):
        bayesin.permute(gaussian(0, **SHALLOW).mean, spec, spec.identity(), signs)


def test_a_planted_signed_pair_has_a_barrier_until_it_is_aligned_with_signs():
    """Networks between p and itself, moved and flipped: a straight line costs, and none is left once aligned."""
    point = gaussian(0, **SHALLOW).mean
    p = bayesin.Gaussian(point, jax.tree.map(lambda leaf: np.full_like(leaf, 1e-3), point))
    spec = bayesin.discover(shallow, point, X[:, :3], signs=True)
    q = p.permute(spec, {"g0": np.array([1, 2, 0])}, {"g0": np.array([-1, 1, -1])})
    data = (X[:, :3], np.asarray(jnp.argmax(shallow(point, X[:, :3]), -1)))
    aligned = bayesin.align(p, q, spec, key=KEY).posterior

    def height(other):
        path = bayesin.geodesic(p, other)
        return bayesin.barrier(path, shallow, data, key=KEY, samples=2, taus=3).value

    assert height(q) > 0.05 and abs(height(aligned)) < 1e-2


def relu_network():
    apply = lambda p, x: deep(p, x, jax.nn.relu)  # noqa: E731
    p = gaussian(0, **DEEP)
    return apply, p, bayesin.discover(apply, p.mean, X, scales=True)


def test_the_canonical_network_is_balanced_the_same_function_and_the_only_one():
    apply, p, spec = relu_network()
    found = bayesin.canonical(p, spec)
    assert np.allclose(apply(found.mean, X), apply(p.mean, X), rtol=1e-4, atol=1e-4)
    squares = {path: np.asarray(found.mean[path]) ** 2 + np.asarray(found.std[path]) ** 2 for path in DEEP}
    assert np.allclose(squares["w0"].sum(0) + squares["b0"], squares["w1"].sum(1), rtol=1e-4)
    assert np.allclose(squares["w1"].sum(0) + squares["b1"], squares["w2"].sum(1), rtol=1e-4)
    rng = np.random.default_rng(3)
    scales = {name: np.exp(rng.normal(size=spec.perm_shape(group))) for name, group in spec.scaled.items()}
    other = bayesin.Gaussian(*(multiply(tree, spec, scales) for tree in (p.mean, p.std)))
    assert distance(p, other) > 1 and distance(found, bayesin.canonical(other, spec)) < 1e-6


def test_canonical_takes_samples_and_leaves_units_without_weights():
    _, p, spec = relu_network()
    mean = {**p.mean, "w2": p.mean["w2"] * (np.arange(6) > 0)[:, None]}  # nothing reads one unit
    point = bayesin.canonical(mean, spec)
    assert np.allclose(point["b1"][0], mean["b1"][0]) and np.isfinite(point["w1"]).all()
    samples = bayesin.Samples(jax.tree.map(lambda a: jnp.stack([a, 2 * a]), p.mean))
    first = bayesin.canonical(p.mean, spec)
    assert np.allclose(bayesin.canonical(samples, spec).params["w1"][0], first["w1"], rtol=1e-4)
    with pytest.raises(PosteriorError, match="no scales; find them with discover"):
        bayesin.canonical(p, bayesin.PermutationSpec.parse({"w": ["3"]}, {}))


def test_canonical_multiplies_every_part_of_a_posterior_alike():
    _, p, spec = relu_network()
    factors = jax.tree.map(lambda std: jnp.stack([std, -0.5 * std]), p.std)
    for q in (bayesin.LowRankGaussian(p.mean, factors), bayesin.FactorGaussian(p.mean, factors, p.std)):
        found = bayesin.canonical(q, spec)
        ratio = {path: found.mean[path] / p.mean[path] for path in DEEP}
        moments = bayesin.canonical(bayesin.Gaussian(q.mean, q.std), spec)
        for path in DEEP:
            assert np.allclose(found.mean[path], moments.mean[path], rtol=1e-5)
            assert np.allclose(found.factors[path], ratio[path][None] * factors[path], rtol=1e-4)
            assert np.allclose(found.std[path], moments.std[path], rtol=1e-4)
    parts = [p, gaussian(1, **DEEP)]
    mixed: Any = bayesin.canonical(bayesin.GaussianMixture.of(parts, [0.25, 0.75]), spec)
    assert np.allclose(mixed.weights, [0.25, 0.75])
    for found, part in zip(mixed.components, [bayesin.canonical(part, spec) for part in parts], strict=True):
        assert distance(found, part) < 1e-8
