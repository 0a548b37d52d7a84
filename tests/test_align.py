"""Alignment against brute force, closed forms and the laws of the descent."""

import itertools

import jax
import numpy as np
import pytest

from bayesin import Gaussian, PermutationSpec, align, permute

KEY = jax.random.key(0)


def mlp_spec(*widths, bias=True):
    """Spec of a plain MLP: one group for each hidden layer."""
    names = [str(widths[0])] + [f"g{i}" for i in range(len(widths) - 2)] + [str(widths[-1])]
    axes = {f"w{i}": [names[i], names[i + 1]] for i in range(len(widths) - 1)}
    if bias:
        axes |= {f"b{i}": [names[i + 1]] for i in range(len(widths) - 1)}
    return PermutationSpec.parse(axes, {f"g{i}": n for i, n in enumerate(widths[1:-1])})


def random_tree(spec, seed, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return {path: rng.normal(size=spec.shape(path)).astype(dtype) for path, _ in spec.parameters}


def random_gaussian(spec, seed, dtype=np.float64):
    std = {path: np.abs(leaf) + 0.1 for path, leaf in random_tree(spec, seed + 1000, dtype).items()}
    return Gaussian(random_tree(spec, seed, dtype), std)


def all_perms(spec):
    orders = [itertools.permutations(range(size)) for size in spec.sizes.values()]
    for choice in itertools.product(*orders):
        yield dict(zip(spec.sizes, map(np.array, choice), strict=True))


def cost_by_definition(target, source, spec, perms, cost):
    """W₂², squared distance of means or KL, straight from the formula and `permute`."""
    gaussian = isinstance(target, Gaussian)
    m0, m1 = (target.mean, source.mean) if gaussian else (target, source)
    m1 = permute(m1, spec, perms)
    total = sum(((m0[p] - m1[p]) ** 2).sum() for p in m0)
    if not gaussian or cost == "means":
        return total
    s0, s1 = target.std, permute(source.std, spec, perms)
    if cost == "wasserstein":
        return total + sum(((s0[p] - s1[p]) ** 2).sum() for p in s0)
    terms = [np.log(s0[p] / s1[p]) + (s1[p] ** 2 + (m0[p] - m1[p]) ** 2) / (2 * s0[p] ** 2) - 0.5 for p in s0]
    return sum(term.sum() for term in terms)


def assert_never_rises(history):
    assert (np.diff(history) <= 0).all()


ONE_GROUP = {
    "one hidden layer": mlp_spec(3, 5, 2),
    "no bias": mlp_spec(2, 6, 3, bias=False),
    "flattened map": PermutationSpec.parse({"k": ["3", "3", "2", "g0"], "d": ["4 * g0", "3"]}, {"g0": 5}),
    "group before fixed": PermutationSpec.parse({"k": ["2", "g0 * 3"], "d": ["g0", "2"]}, {"g0": 4}),
}
QUADRATIC = {
    "x + Wx": PermutationSpec.parse({"in": ["2", "g0"], "w": ["g0", "g0"], "out": ["g0", "2"]}, {"g0": 6}),
    "W alone": PermutationSpec.parse({"w": ["g0", "g0"]}, {"g0": 5}),
    "one axis": PermutationSpec.parse({"in": ["2", "g0"], "w": ["g0 * g0", "3"]}, {"g0": 5}),
    "gates": PermutationSpec.parse({"in": ["2", "4 * g0"], "w": ["g0", "4 * g0"], "b": ["4 * g0"]}, {"g0": 5}),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cost", ["wasserstein", "means", "kl"])
@pytest.mark.parametrize("name", ONE_GROUP)
def test_one_group_is_exact(name, cost, seed):
    spec = ONE_GROUP[name]
    target, source = random_gaussian(spec, seed), random_gaussian(spec, seed + 50)
    result = align(target, source, spec, key=KEY, cost=cost)
    best = min(cost_by_definition(target, source, spec, perms, cost) for perms in all_perms(spec))
    np.testing.assert_allclose(result.objective, best, rtol=1e-12)
    np.testing.assert_allclose(result.history[-1], best, rtol=1e-12)
    assert result.converged
    assert_never_rises(result.history)


@pytest.mark.parametrize("seed", range(3))
def test_one_group_is_exact_for_points(seed):
    spec = mlp_spec(3, 6, 2)
    target, source = random_tree(spec, seed), random_tree(spec, seed + 50)
    result = align(target, source, spec, key=KEY)
    best = min(cost_by_definition(target, source, spec, perms, "means") for perms in all_perms(spec))
    np.testing.assert_allclose(result.objective, best, rtol=1e-12)


@pytest.mark.parametrize("cost", ["wasserstein", "means", "kl"])
@pytest.mark.parametrize("seed", range(4))
def test_two_groups_reach_a_coordinate_optimum_and_the_best_of_many_starts_the_global_one(seed, cost):
    spec = mlp_spec(3, 4, 4, 2)
    target, source = random_gaussian(spec, seed), random_gaussian(spec, seed + 50)
    everything = {
        tuple(map(tuple, perms.values())): cost_by_definition(target, source, spec, perms, cost)
        for perms in all_perms(spec)
    }
    result = align(target, source, spec, key=KEY, cost=cost)
    reached = everything[tuple(map(tuple, result.perms.values()))]
    np.testing.assert_allclose(result.objective, reached, rtol=1e-12)
    for group in spec.sizes:
        for perm in itertools.permutations(range(4)):
            other = {**result.perms, group: np.array(perm)}
            assert everything[tuple(map(tuple, other.values()))] >= reached - 1e-9
    many = align(target, source, spec, key=KEY, cost=cost, restarts=30)
    np.testing.assert_allclose(many.objective, min(everything.values()), rtol=1e-12)
    assert many.objective <= result.objective


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", QUADRATIC)
def test_quadratic_groups_never_rise_and_end_where_no_swap_helps(name, seed):
    spec = QUADRATIC[name]
    target, source = random_gaussian(spec, seed), random_gaussian(spec, seed + 50)
    result = align(target, source, spec, key=KEY)
    assert_never_rises(result.history)
    assert result.converged
    reached = cost_by_definition(target, source, spec, result.perms, "wasserstein")
    np.testing.assert_allclose([result.objective, result.history[-1]], reached, rtol=1e-12)
    perm = result.perms["g0"]
    for a, b in itertools.combinations(range(perm.size), 2):
        other = perm.copy()
        other[[a, b]] = other[[b, a]]
        assert cost_by_definition(target, source, spec, {"g0": other}, "wasserstein") >= reached * (1 - 1e-6)
    best = min(cost_by_definition(target, source, spec, perms, "wasserstein") for perms in all_perms(spec))
    many = align(target, source, spec, key=KEY, restarts=40)
    np.testing.assert_allclose(many.objective, best, rtol=1e-12)


def test_three_factors_of_one_tensor_never_rise():
    spec = PermutationSpec.parse({"w": ["g0", "g0", "g0"], "b": ["g0"]}, {"g0": 5})
    for seed in range(5):
        result = align(random_tree(spec, seed), random_tree(spec, seed + 50), spec, key=KEY)
        assert_never_rises(result.history)
        assert result.converged
