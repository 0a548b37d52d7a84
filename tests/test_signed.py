"""Signs and scales in use: alignment over signed permutations against all of them, and balanced networks."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayesin
from bayesin.errors import ConfigError, PosteriorError, SpecError
from bayesin.store import load_alignment, save_alignment
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


def test_points_and_other_costs_know_signs_and_those_that_do_not_say_so(tmp_path):
    p, q = gaussian(0, **SHALLOW), gaussian(1, **SHALLOW)
    spec = bayesin.discover(shallow, p.mean, X[:, :3], signs=True)
    for cost in ("means", "kl"):
        signed, plain = (bayesin.align(p, q, s, key=KEY, cost=cost) for s in (spec, spec.without_signs))
        assert signed.objective <= plain.objective + 1e-4
    point = bayesin.align(p.mean, q.mean, spec, key=KEY)
    moved: Any = point.posterior
    reached = sum(float(((p.mean[path] - moved[path]) ** 2).sum()) for path in p.mean)
    assert point.objective == pytest.approx(reached, rel=1e-5)
    with pytest.raises(ConfigError, match="say nothing of signs"):
        bayesin.align(p, q, spec, key=KEY, cost=bayesin.costs.Activations(shallow, X[:, :3]))
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
