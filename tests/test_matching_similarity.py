"""The similarity: against its definition, kept up to date incrementally, on the host and on a device."""

import importlib.util
from pathlib import Path

import jax
import numpy as np
import pytest

from bayesin import PermutationSpec, align
from bayesin.matching import similarity as module
from bayesin.matching.costs import as_cost
from bayesin.matching.problem import gain_of_units, objective, pose
from bayesin.matching.search import disjoint_swaps, swap_gains
from bayesin.matching.similarity import Similarities
from matching_problems import QUADRATIC, assert_same_perms, mlp_spec, random_gaussian, random_tree

RESNET = PermutationSpec.parse(
    {
        "stem": ["3", "3", "2", "s"],
        "a": ["3", "3", "s", "i"],
        "b": ["3", "3", "i", "s"],
        "scale": ["s"],
        "inner": ["i"],
        "flat": ["4 * s", "j"],
        "out": ["j", "3"],
    },
    {"s": 6, "i": 5, "j": 7},
)
SPECS = {"mlp": mlp_spec(4, 7, 6, 5, 3), "resnet": RESNET, **QUADRATIC}
SPECS["three groups"] = PermutationSpec.parse({"w": ["g0", "g1", "g2"], "b": ["g1"]}, {"g0": 3, "g1": 4, "g2": 3})


def problem_of(spec, dtype=np.float64, cost="wasserstein"):
    return pose(random_gaussian(spec, 0, dtype), random_gaussian(spec, 1, dtype), spec, as_cost(cost), frozenset())


def plain_align():
    path = Path(__file__).parents[1] / "benchmarks" / "_plain_align.py"
    spec = importlib.util.spec_from_file_location("_plain_align", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.plain_align


@pytest.mark.parametrize(("laid_out", "packed"), [(True, True), (True, False), (False, False)])
@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("name", [name for name in SPECS if name not in QUADRATIC])
def test_differences_of_the_similarity_are_differences_of_w2(name, on_device, laid_out, packed):
    """2⟨P' − P, C⟩ = W₂²(P) − W₂²(P'), whatever rows and columns were shifted by."""
    spec, rng = SPECS[name], np.random.default_rng(0)
    dtype = np.float32 if on_device else np.float64
    problem = problem_of(spec, dtype)
    similarities = Similarities(problem, on_device=on_device, laid_out=laid_out, packed=packed and not on_device)
    perms = spec.identity()
    for step in range(12):
        group = list(spec.sizes)[step % len(spec.sizes)]
        alike = similarities.matrix(group, perms)
        new = rng.permutation(spec.sizes[group])
        if step % 2:  # also small moves, which are exchanged for few units only
            new = perms[group].copy()
            new[[0, 1]] = new[[1, 0]]
        rows = np.arange(new.size)
        predicted = 2 * (alike[rows, new] - alike[rows, perms[group]]).sum(dtype=np.float64)
        before, after = objective(problem, perms), objective(problem, {**perms, group: new})
        tolerance = 1e-10 if dtype is np.float64 else 1e-5
        np.testing.assert_allclose(predicted, before - after, atol=tolerance * before)
        np.testing.assert_allclose(gain_of_units(problem, group, perms, new), before - after, atol=tolerance * before)
        perms = {**perms, group: new}


def test_blocks_smaller_than_a_tensor_give_the_same(monkeypatch):
    problem, perms = problem_of(RESNET), RESNET.random(jax.random.key(0))
    whole = {group: Similarities(problem, packed=False).matrix(group, perms) for group in RESNET.sizes}
    monkeypatch.setattr(module, "BLOCK", 100)
    similarities = Similarities(problem, packed=False)
    for group in RESNET.sizes:
        similarities.matrix(group, RESNET.identity())
        np.testing.assert_allclose(similarities.matrix(group, perms), whole[group], atol=1e-12)


@pytest.mark.parametrize("name", [name for name in SPECS if name not in QUADRATIC])
def test_packed_says_the_same_of_a_part_of_the_tensors(name):
    """Units are added and left out again; rows and columns may be shifted."""
    spec, rng = SPECS[name], np.random.default_rng(0)
    problem, units = problem_of(spec), list(spec.sizes)
    packed, plain = (Similarities(problem, packed=on) for on in (True, False))
    for step in range(20):
        perms = spec.random(jax.random.key(step // 2))
        among = None if step % 4 == 3 else {unit for unit in units if rng.random() < 0.5}
        for unit in units:
            ours, theirs = (part.matrix(unit, perms, among) for part in (packed, plain))
            np.testing.assert_allclose(doubly_centred(ours), doubly_centred(theirs), atol=1e-10)


def doubly_centred(matrix):
    return matrix - matrix.mean(0) - matrix.mean(1, keepdims=True) + matrix.mean()


def test_a_large_mean_of_a_small_problem_costs_no_digits():
    spec = mlp_spec(4, 20, 16, 3)
    shifted = [
        jax.tree.map(lambda leaf: leaf + np.float32(100), random_tree(spec, seed, np.float32)) for seed in (0, 1)
    ]
    problem, perms = pose(*shifted, spec, as_cost("wasserstein"), frozenset()), spec.random(jax.random.key(0))
    packed = Similarities(problem, packed=True)
    wide = [{path: leaf.astype(np.float64) for path, leaf in tree.items()} for tree in shifted]
    exact = Similarities(pose(*wide, spec, as_cost("wasserstein"), frozenset()), packed=False)
    for among in ({"g1"}, None):
        for unit in spec.sizes:
            found, expected = (doubly_centred(part.matrix(unit, perms, among)) for part in (packed, exact))
            np.testing.assert_allclose(found, expected, atol=1e-3)


@pytest.mark.parametrize("packed", [True, False])
def test_forget_starts_over(packed):
    problem = problem_of(SPECS["mlp"])
    similarities = Similarities(problem, packed=packed)
    first = similarities.matrix("g1", SPECS["mlp"].identity()).copy()
    similarities.matrix("g1", SPECS["mlp"].random(jax.random.key(0)))
    similarities.forget()
    np.testing.assert_array_equal(similarities.matrix("g1", SPECS["mlp"].identity()), first)


@pytest.mark.parametrize("name", QUADRATIC)
def test_a_unit_on_several_axes_is_streamed_through_a_device(name):
    spec = SPECS[name]
    problem, perms = problem_of(spec, np.float32), spec.random(jax.random.key(0))
    host, device = (Similarities(problem, on_device=on, laid_out=False) for on in (False, True))
    for group in spec.sizes:
        np.testing.assert_allclose(device.matrix(group, perms), host.matrix(group, perms), atol=1e-4)


@pytest.mark.parametrize("name", QUADRATIC)
def test_swap_gains_are_exact(name):
    spec = SPECS[name]
    problem, perms = problem_of(spec), spec.random(jax.random.key(0))
    gains = 2 * swap_gains(problem, "g0", perms, Similarities(problem).matrix("g0", perms))
    before = objective(problem, perms)
    for a in range(spec.sizes["g0"]):
        for b in range(a):
            new = perms["g0"].copy()
            new[[a, b]] = new[[b, a]]
            np.testing.assert_allclose(gains[a, b], before - objective(problem, {"g0": new}), atol=1e-10 * before)
    pairs = disjoint_swaps(gains)
    assert len(set(pairs.reshape(-1).tolist())) == pairs.size
    assert (gains[pairs[:, 0], pairs[:, 1]] > 0).all()


@pytest.mark.parametrize("kind", [random_tree, random_gaussian])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("spec", [mlp_spec(20, 40, 50, 40, 10), RESNET], ids=["mlp", "resnet"])
def test_same_permutations_as_the_plain_loop_at_equal_order(spec, kind, dtype):
    if spec is RESNET:  # the plain loop knows axes of one factor only
        spec = PermutationSpec.parse(
            {"stem": ["3", "3", "2", "s"], "a": ["3", "3", "s", "i"], "b": ["3", "3", "i", "s"], "d": ["s", "5"]},
            {"s": 24, "i": 32},
        )
    target, source = kind(spec, 0, dtype), kind(spec, 1, dtype)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        order = [list(map(str, rng.permutation(list(spec.sizes)))) for _ in range(60)]
        ours = align(target, source, spec, key=jax.random.key(0), order=order)
        trees = (
            ([target], [source]) if kind is random_tree else ([target.mean, target.std], [source.mean, source.std])
        )
        wide = [[{p: leaf.astype(np.float64) for p, leaf in tree.items()} for tree in side] for side in trees]
        perms, history = plain_align()(*wide, spec, order)
        assert_same_perms(ours.perms, perms)
        np.testing.assert_allclose(ours.history, history, rtol=1e-6)
        assert ours.converged


@pytest.mark.parametrize("limit", [0, 1 << 20])
def test_the_device_path_finds_the_same_alignment(limit, monkeypatch):
    spec = mlp_spec(20, 30, 30, 10)
    target, source = random_gaussian(spec, 0, np.float32), random_gaussian(spec, 1, np.float32)
    host = align(target, source, spec, key=jax.random.key(0), restarts=3)
    monkeypatch.setattr(module, "is_worth_a_device", lambda problem, tensors: True)
    monkeypatch.setattr(module, "LAID_OUT_ON_DEVICE", limit)
    device = align(target, source, spec, key=jax.random.key(0), restarts=3)
    assert_same_perms(host.perms, device.perms)
    np.testing.assert_allclose(host.history, device.history, rtol=1e-6)
