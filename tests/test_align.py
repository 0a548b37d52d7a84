"""Alignment against brute force, closed forms and the laws of the descent."""

import itertools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesin import Gaussian, PermutationSpec, align, compose, invert, permute
from bayesin.errors import ConfigError, PosteriorError, SpecError, SymmetryError
from bayesin.matching import assign
from bayesin.matching.costs import Wasserstein
from bayesin.matching.problem import pose
from bayesin.matching.similarity import Similarities
from matching_problems import (
    QUADRATIC,
    all_perms,
    assert_never_rises,
    assert_same_perms,
    cost_by_definition,
    mlp_spec,
    moved_by,
    random_gaussian,
    random_tree,
)

KEY = jax.random.key(0)


# Exactness


@pytest.mark.parametrize("seed", range(3))
def test_one_group_is_exact_for_points(seed):
    spec = mlp_spec(3, 6, 2)
    target, source = random_tree(spec, seed), random_tree(spec, seed + 50)
    result = align(target, source, spec, key=KEY)
    best = min(cost_by_definition(target, source, spec, perms) for perms in all_perms(spec))
    np.testing.assert_allclose(result.objective, best, rtol=1e-12)
    assert not isinstance(result.posterior, Gaussian)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", QUADRATIC)
def test_quadratic_groups_never_rise_and_end_where_no_swap_helps(name, seed):
    spec = QUADRATIC[name]
    target, source = random_gaussian(spec, seed), random_gaussian(spec, seed + 50)
    result = align(target, source, spec, key=KEY)
    assert_never_rises(result.history)
    assert result.converged
    reached = cost_by_definition(target, source, spec, result.perms)
    np.testing.assert_allclose([result.objective, result.history[-1]], reached, rtol=1e-12)
    perm = result.perms["g0"]
    for a, b in itertools.combinations(range(perm.size), 2):
        other = perm.copy()
        other[[a, b]] = other[[b, a]]
        assert cost_by_definition(target, source, spec, {"g0": other}) >= reached * (1 - 1e-6)
    best = min(cost_by_definition(target, source, spec, perms) for perms in all_perms(spec))
    many = align(target, source, spec, key=KEY, restarts=40)
    np.testing.assert_allclose(many.objective, best, rtol=1e-12)


def test_an_unguarded_linear_step_would_raise_the_objective():
    """The reason for the guard: on `x + Wx` the assignment on the gradient alone goes up, ours does not."""
    spec, raised = QUADRATIC["W alone"], 0
    for seed in range(20):
        target, source = random_tree(spec, seed), random_tree(spec, seed + 50)
        gradient = Similarities(pose(target, source, spec, Wasserstein(), frozenset())).matrix("g0", spec.identity())
        start = cost_by_definition(target, source, spec, spec.identity())
        raised += cost_by_definition(target, source, spec, {"g0": assign(gradient).perm}) > start
        assert align(target, source, spec, key=KEY).objective <= start
    assert raised > 0


def test_three_factors_of_one_tensor_never_rise():
    spec = PermutationSpec.parse({"w": ["g0", "g0", "g0"], "b": ["g0"]}, {"g0": 5})
    for seed in range(5):
        result = align(random_tree(spec, seed), random_tree(spec, seed + 50), spec, key=KEY)
        assert_never_rises(result.history)
        assert result.converged


def test_a_tensor_of_three_groups():
    spec = PermutationSpec.parse(
        {"w": ["g0", "g1", "g2"], "a": ["3", "g0"], "b": ["3", "g1"], "c": ["3", "g2"]}, {"g0": 3, "g1": 3, "g2": 3}
    )
    target, source = random_gaussian(spec, 0), random_gaussian(spec, 1)
    result = align(target, source, spec, key=KEY, restarts=20)
    best = min(cost_by_definition(target, source, spec, perms) for perms in all_perms(spec))
    np.testing.assert_allclose(result.objective, best, rtol=1e-12)


@pytest.mark.parametrize("cost", ["wasserstein", "means", "kl"])
@pytest.mark.parametrize("spec", [mlp_spec(3, 4, 4, 2), QUADRATIC["gates"]], ids=["mlp", "gates"])
def test_no_permutation_is_below_the_bound(spec, cost):
    for seed in range(3):
        target, source = random_gaussian(spec, seed), random_gaussian(spec, seed + 50)
        best = min(cost_by_definition(target, source, spec, perms, cost) for perms in all_perms(spec))
        results = [
            align(target, source, spec, key=KEY, cost=cost),
            align(target, source, spec, key=KEY, cost=cost, order=[]),
        ]
        for result in results:
            assert result.objective - result.gap <= best <= result.objective * (1 + 1e-12)
            assert f"at most {result.gap:.3g} above the best" in repr(result)
        bounds = [result.objective - result.largest_gain() for result in results]
        np.testing.assert_allclose(*bounds, rtol=1e-9, atol=1e-9)  # wherever a search has ended


def test_the_bound_is_near_where_the_evidence_is_fixed():
    spec = PermutationSpec.parse({"w": ["50", "g0"]}, {"g0": 8})
    target = random_tree(spec, 0)
    source = {"w": permute(target, spec, spec.random(KEY))["w"] + 0.1 * random_tree(spec, 1)["w"]}
    result = align(target, source, spec, key=KEY)
    assert result.objective > 1.0 and result.gap <= 1e-9 * result.objective


# The correct KL


def test_kl_sees_the_trace_term_that_the_paper_drops():
    """Rossi et al., appendix A: equal means and mirrored variances. The trace is 10.1 or 2, not constant."""
    spec = PermutationSpec.parse({"w": ["g0"]}, {"g0": 2})
    mean = {"w": np.ones(2)}
    target = Gaussian(mean, {"w": np.sqrt([0.1, 1.0])})
    source = Gaussian(mean, {"w": np.sqrt([1.0, 0.1])})
    result = align(target, source, spec, key=KEY, cost="kl")
    assert result.perms["g0"].tolist() == [1, 0]
    np.testing.assert_allclose(result.history, [4.05, 0.0], atol=1e-12)
    wasserstein = align(target, source, spec, key=KEY)
    np.testing.assert_allclose(wasserstein.history, [0.935089, 0.0], atol=1e-6)
    traces = [(source.std["w"][[a, b]] ** 2 / target.std["w"] ** 2).sum() for a, b in ((0, 1), (1, 0))]
    np.testing.assert_allclose(traces, [10.1, 2.0])
    # without the trace the two permutations tie, and the figure of the paper (KL keeps the identity) appears
    truncated = align(target, source, spec, key=KEY, cost="means")
    assert truncated.perms["g0"].tolist() == [0, 1]


# Laws of the descent


@pytest.mark.parametrize("kind", [random_tree, random_gaussian])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_history_is_the_objective_itself(kind, dtype):
    spec = mlp_spec(7, 20, 30, 20, 5)
    target, source = kind(spec, 0, dtype), kind(spec, 1, dtype)
    result = align(target, source, spec, key=KEY, init=spec.identity())  # an anchored first sweep would be one step
    assert_never_rises(result.history)
    assert len(result.history) > 5
    exact = 1e-12 if dtype is np.float64 else 2e-7  # a few roundings of the largest sum
    start = cost_by_definition(target, source, spec, spec.identity())
    np.testing.assert_allclose(result.history[0], start, rtol=exact)
    np.testing.assert_allclose(result.history[-1], cost_by_definition(target, source, spec, result.perms), rtol=exact)
    assert result.objective == result.history[-1]


@pytest.mark.parametrize("kind", [random_tree, random_gaussian])
def test_a_planted_permutation_is_recovered_where_the_network_is_well_anchored(kind):
    spec = mlp_spec(60, 40, 40, 30)
    target = kind(spec, 0, np.float32)
    planted = spec.random(jax.random.key(3))
    result = align(target, moved_by(target, spec, planted), spec, key=KEY, restarts=2)
    assert_same_perms(result.perms, invert(planted))
    assert result.objective == 0.0
    assert result.moved == {group: int((p != np.arange(p.size)).sum()) for group, p in invert(planted).items()}
    for leaf, moved in zip(jax.tree.leaves(target), jax.tree.leaves(result.posterior), strict=True):
        np.testing.assert_array_equal(leaf, moved)


def test_the_first_sweep_follows_the_evidence_and_recovers_weakly_anchored_networks():
    """Two inputs and one output: random orders from the identity recover some, the anchored first sweep all."""
    recovered, from_identity, spec = 0, 0, mlp_spec(2, 24, 24, 24, 1)
    for seed in range(10):
        target = random_tree(spec, seed)
        source = permute(target, spec, spec.random(jax.random.key(seed)))
        result = align(target, source, spec, key=jax.random.key(seed))
        recovered += result.objective == 0.0
        assert result.start == "anchored" and result.order[0] == ("g0", "g1", "g2")  # inputs outweigh the output
        start = spec.identity()
        from_identity += align(target, source, spec, key=jax.random.key(seed), init=start).objective == 0.0
    assert recovered == 10
    assert from_identity < 10


def test_a_first_sweep_that_raises_the_objective_is_taken_back():
    """All evidence at the ends says a swap; the large middle, which is no evidence at first, says none."""
    spec = PermutationSpec.parse({"a": ["1", "g0"], "w": ["g0", "g1"], "b": ["g1", "1"]}, {"g0": 2, "g1": 2})
    target = {"a": np.array([[1.0, 0.0]]), "w": np.array([[9.0, 0.0], [0.0, 0.0]]), "b": np.array([[1.0], [0.0]])}
    source = {**target, "a": np.array([[0.0, 1.0]])}
    result = align(target, source, spec, key=KEY)
    assert result.history.tolist() == [2.0] and set(result.moved.values()) == {0} and result.converged


def test_restarts_never_make_it_worse_and_name_their_start():
    spec = mlp_spec(4, 12, 12, 3)
    target, source = random_gaussian(spec, 0), random_gaussian(spec, 1)
    results = [align(target, source, spec, key=KEY, restarts=r) for r in (1, 2, 3, 6)]
    objectives = [result.objective for result in results]
    assert objectives == sorted(objectives, reverse=True)
    assert results[0].start == "anchored"
    assert results[-1].start in {"identity", "anchored", *(f"random {i}" for i in range(1, 5))}


def test_order_is_kept_and_decides_the_result():
    spec = mlp_spec(4, 12, 12, 12, 3)
    target, source = random_gaussian(spec, 0), random_gaussian(spec, 1)
    order = [["g2", "g0", "g1"]] * 30
    first, second = (align(target, source, spec, key=jax.random.key(i), order=order) for i in range(2))
    assert_same_perms(first.perms, second.perms)
    assert first.order == (("g2", "g0", "g1"),) * first.sweeps
    short = align(target, source, spec, key=KEY, order=[["g1"]])
    assert short.sweeps == 1 and not short.converged and short.moved["g0"] == 0


def test_the_same_key_gives_the_same_result():
    spec = mlp_spec(4, 12, 12, 3)
    target, source = random_gaussian(spec, 0), random_gaussian(spec, 1)
    first, second = (align(target, source, spec, key=KEY, restarts=4) for _ in range(2))
    assert_same_perms(first.perms, second.perms)
    np.testing.assert_array_equal(first.history, second.history)


def test_max_sweeps_bounds_the_search_and_is_reported():
    spec = mlp_spec(4, 30, 30, 30, 3)
    result = align(random_tree(spec, 0), random_tree(spec, 1), spec, key=KEY, max_sweeps=1)
    assert result.sweeps == 1 and not result.converged


def test_every_sweep_is_reported():
    spec, seen = mlp_spec(4, 12, 12, 3), []
    result = align(random_tree(spec, 0), random_tree(spec, 1), spec, key=KEY, on_sweep=seen.append)
    assert [sweep.number for sweep in seen] == list(range(1, result.sweeps + 1))
    np.testing.assert_allclose(seen[-1].objective, result.objective, rtol=1e-12)


def test_init_is_the_start_and_stays_as_it_was():
    spec = mlp_spec(4, 12, 12, 3)
    target, source = random_gaussian(spec, 0), random_gaussian(spec, 1)
    init = spec.random(jax.random.key(5))
    kept = {group: perm.copy() for group, perm in init.items()}
    result = align(target, source, spec, key=KEY, init=init)
    assert_same_perms(init, kept)
    np.testing.assert_allclose(result.history[0], cost_by_definition(target, source, spec, init), rtol=1e-12)
    again = align(target, source, spec, key=KEY, init=result.perms)
    assert_same_perms(again.perms, result.perms)
    assert len(again.history) == 1 and again.start == "init"


@pytest.mark.parametrize("array", [np.asarray, jnp.asarray])
def test_inputs_are_bit_identical_afterwards(array):
    spec = mlp_spec(4, 12, 12, 3)
    target, source = random_gaussian(spec, 0, np.float32), random_gaussian(spec, 1, np.float32)
    target, source = jax.tree.map(array, target), jax.tree.map(array, source)
    before = [np.array(leaf) for leaf in jax.tree.leaves((target, source))]
    result = align(target, source, spec, key=KEY)
    for old, new in zip(before, jax.tree.leaves((target, source)), strict=True):
        np.testing.assert_array_equal(old, new)
    for leaf, moved in zip(jax.tree.leaves(source), jax.tree.leaves(result.posterior), strict=True):
        assert type(leaf) is type(moved) and leaf.dtype == moved.dtype
        assert isinstance(leaf, jax.Array) or not np.shares_memory(leaf, moved)


def test_several_sources_are_refused():
    spec = mlp_spec(4, 10, 3)
    with pytest.raises(PosteriorError, match="align moves one source"):
        align(random_tree(spec, 0), [random_tree(spec, 1), random_tree(spec, 2)], spec, key=KEY)


# Degenerate cases


def test_no_group_at_all():
    spec = PermutationSpec.parse({"w": ["3", "2"]}, {})
    target, source = random_gaussian(spec, 0), random_gaussian(spec, 1)
    result = align(target, source, spec, key=KEY, restarts=3)
    assert result.perms == {} and result.converged and result.sweeps == 0
    np.testing.assert_allclose(result.history, [cost_by_definition(target, source, spec, {})])


def test_groups_of_size_one():
    spec = mlp_spec(3, 1, 4, 1, 2)
    target, source = random_gaussian(spec, 0), random_gaussian(spec, 1)
    result = align(target, source, spec, key=KEY)
    best = min(cost_by_definition(target, source, spec, perms) for perms in all_perms(spec))
    np.testing.assert_allclose(result.objective, best, rtol=1e-12)
    assert result.perms["g0"].tolist() == [0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_identical_posteriors_stay(dtype):
    spec = mlp_spec(6, 30, 30, 3)
    target = random_gaussian(spec, 0, dtype)
    result = align(target, target, spec, key=KEY)
    assert result.history.tolist() == [0.0] and result.converged
    assert set(result.moved.values()) == {0}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_duplicate_units_are_ties_and_stay(dtype):
    spec = mlp_spec(6, 30, 3)
    params = random_tree(spec, 0, dtype)
    params["w0"][:, 10:20], params["b0"][10:20], params["w1"][10:20] = (
        params["w0"][:, :10],
        params["b0"][:10],
        params["w1"][:10],
    )
    result = align(params, params, spec, key=KEY)
    assert result.history.tolist() == [0.0] and set(result.moved.values()) == {0}


def test_dead_units_with_equal_rows_against_brute_force():
    spec = mlp_spec(3, 6, 2)
    for seed in range(4):
        target, source = random_gaussian(spec, seed), random_gaussian(spec, seed + 50)
        for posterior in (target, source):
            for tree, value in ((posterior.mean, 0.0), (posterior.std, 0.1)):
                tree["w0"][:, 2:], tree["b0"][2:], tree["w1"][2:] = value, value, value
        result = align(target, source, spec, key=KEY)
        best = min(cost_by_definition(target, source, spec, perms) for perms in all_perms(spec))
        np.testing.assert_allclose(result.objective, best, rtol=1e-12)
        assert result.converged


def test_near_ties_of_pruned_units_converge_in_float32():
    spec = mlp_spec(20, 64, 64, 5)
    rng = np.random.default_rng(0)

    def pruned(seed):
        mean, std = random_tree(spec, seed, np.float32), {}
        for path, leaf in mean.items():
            alive = rng.random(leaf.shape[-1]) < 0.2
            mean[path] = np.where(alive, leaf, 1e-4 * leaf).astype(np.float32)
            std[path] = np.where(alive, 0.03, 0.1 + 1e-5 * leaf).astype(np.float32)
        return Gaussian(mean, std)

    result = align(pruned(0), pruned(1), spec, key=KEY)
    assert result.converged and result.sweeps < 50
    assert_never_rises(result.history)


def test_zero_stds_are_points():
    spec = mlp_spec(4, 12, 3)
    target, source = random_tree(spec, 0), random_tree(spec, 1)
    point = align(target, source, spec, key=KEY)
    gaussian = align(Gaussian.point(target), Gaussian.point(source), spec, key=KEY)
    mixed = align(target, Gaussian.point(source), spec, key=KEY)
    assert_same_perms(point.perms, gaussian.perms)
    assert_same_perms(point.perms, mixed.perms)
    np.testing.assert_allclose([gaussian.objective, mixed.objective], point.objective, rtol=1e-6)


def test_a_point_against_a_gaussian_counts_the_stds():
    spec = mlp_spec(4, 5, 3)
    target, source = random_gaussian(spec, 0), random_tree(spec, 1)
    zero = Gaussian(source, {path: np.zeros_like(leaf) for path, leaf in source.items()})
    result = align(target, source, spec, key=KEY)
    np.testing.assert_allclose(result.objective, cost_by_definition(target, zero, spec, result.perms), rtol=1e-12)


# Evidence


def test_biases_alone_decide():
    spec = PermutationSpec.parse({"w": ["2", "g0"], "b": ["g0"]}, {"g0": 5})
    target = {"w": np.ones((2, 5)), "b": np.arange(5.0)}
    source = {"w": np.ones((2, 5)), "b": np.array([3.0, 0.0, 4.0, 1.0, 2.0])}
    assert align(target, source, spec, key=KEY).perms["g0"].tolist() == [1, 3, 4, 0, 2]


def test_stds_alone_decide():
    spec = PermutationSpec.parse({"w": ["g0"]}, {"g0": 4})
    flat = {"w": np.zeros(4)}
    target, source = Gaussian(flat, {"w": np.array([1.0, 2, 3, 4])}), Gaussian(flat, {"w": np.array([4.0, 2, 1, 3])})
    assert align(target, source, spec, key=KEY).perms["g0"].tolist() == [2, 1, 3, 0]
    assert align(target, source, spec, key=KEY, cost="means").moved == {"g0": 0}


def test_outgoing_weights_tell_duplicated_incoming_ones_apart():
    spec = PermutationSpec.parse({"a": ["2", "g0"], "b": ["g0", "2"]}, {"g0": 3})
    target = {"a": np.ones((2, 3)), "b": np.array([[1.0, 0], [0, 1], [1, 1]])}
    source = permute(target, spec, {"g0": np.array([2, 0, 1])})
    assert align(target, source, spec, key=KEY).objective == 0.0


def test_an_anticorrelated_pair_does_not_match():
    spec = PermutationSpec.parse({"w": ["3", "g0"]}, {"g0": 2})
    first, second = np.array([1.0, 2.0, 3.0]), np.array([0.1, 0.0, -0.1])
    target, source = {"w": np.stack([first, second], 1)}, {"w": np.stack([-first, second], 1)}
    assert align(target, source, spec, key=KEY).perms["g0"].tolist() == [1, 0]


def test_excluded_and_integer_leaves_move_but_do_not_count():
    axes = {"w": ["2", "g0"], "variance": ["g0"], "steps": ["g0"]}
    spec = PermutationSpec.parse(axes, {"g0": 3})
    w = np.array([[1.0, 2.0, 3.0], [4.0, 0.0, 1.0]])
    target = {"w": w, "variance": np.array([1e6, 2e6, 3e6]), "steps": np.array([1, 2, 3])}
    source = {"w": w[:, [2, 0, 1]], "variance": np.array([1e6, 2e6, 3e6]), "steps": np.array([7, 8, 9])}
    counted = align(target, source, spec, key=KEY)
    assert counted.moved == {"g0": 0}  # the large variances dominate
    result = align(target, source, spec, key=KEY, exclude=["variance"])
    assert result.perms["g0"].tolist() == [1, 2, 0] and result.objective == 0.0
    assert result.posterior["variance"].tolist() == [2e6, 3e6, 1e6]
    assert result.posterior["steps"].tolist() == [8, 9, 7] and result.posterior["steps"].dtype == np.int64


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_half_precision_accumulates_in_float32(dtype):
    spec = mlp_spec(300, 40, 40, 10)
    target, source = (jax.tree.map(lambda x: jnp.asarray(x, dtype), random_gaussian(spec, seed)) for seed in (0, 1))
    wide = [jax.tree.map(lambda x: np.asarray(x, np.float64), q) for q in (target, source)]
    result, exact = align(target, source, spec, key=KEY), align(*wide, spec, key=KEY)
    assert_same_perms(result.perms, exact.perms)
    np.testing.assert_allclose(result.objective, exact.objective, rtol=1e-6)
    assert all(leaf.dtype == dtype for leaf in jax.tree.leaves(result.posterior))
    assert_never_rises(result.history)


def test_large_common_parts_do_not_hide_small_differences_from_float32():
    """Stds of 1 ± 1e-3: uncentred float32 products would round the difference away."""
    spec = PermutationSpec.parse({"a": ["400", "g0"], "b": ["g0", "g1"], "c": ["g1", "400"]}, {"g0": 50, "g1": 50})
    rng = np.random.default_rng(0)
    mean = {path: np.zeros(spec.shape(path), np.float32) for path, _ in spec.parameters}
    std = {p: (1 + 1e-3 * rng.normal(size=m.shape)).astype(np.float32) for p, m in mean.items()}
    target = Gaussian(mean, std)
    result = align(target, moved_by(target, spec, spec.random(jax.random.key(1))), spec, key=KEY, restarts=2)
    assert result.objective == 0.0


# Errors


def test_bad_input_is_named():
    spec = mlp_spec(3, 4, 2)
    good = random_gaussian(spec, 0)

    def spoiled(part, path, value):
        trees = {"mean": dict(good.mean), "std": dict(good.std)}
        trees[part][path] = trees[part][path].copy()
        trees[part][path][0] = value
        return Gaussian(**trees)

    for bad, words in [
        (spoiled("mean", "w1", np.nan), "'w1' of the source holds NaN"),
        (spoiled("mean", "b0", np.inf), "'b0' of the source holds an infinity"),
        (spoiled("std", "w0", np.nan), "'w0' of the source holds NaN"),
        (spoiled("std", "w0", -0.5), "std of 'w0' of the source is negative"),
    ]:
        with pytest.raises(PosteriorError, match=words):
            align(good, bad, spec, key=KEY)
    with pytest.raises(PosteriorError, match="of the target holds NaN"):
        align(spoiled("mean", "w1", np.nan), good, spec, key=KEY)
    with pytest.raises(PosteriorError, match="'w0' of the target holds a zero"):
        align(spoiled("std", "w0", 0.0), good, spec, key=KEY, cost="kl")
    with pytest.raises(PosteriorError, match="the target is a point"):
        align(good.mean, good.mean, spec, key=KEY, cost="kl")


def test_what_does_not_fit_is_refused():
    spec = mlp_spec(3, 4, 2)
    good = random_tree(spec, 0)
    with pytest.raises(SpecError, match="the spec says"):
        align(good, random_tree(mlp_spec(3, 5, 2), 1), spec, key=KEY)
    with pytest.raises(SpecError, match="missing"):
        align(good, {path: leaf for path, leaf in good.items() if path != "b1"}, spec, key=KEY)
    with pytest.raises(SpecError, match="not in the spec"):
        align(good, {**good, "extra": np.zeros(2)}, spec, key=KEY)
    with pytest.raises(SpecError):
        align(good, good, mlp_spec(3, 4, 4, 2), key=KEY)
    with pytest.raises(PosteriorError, match="leading axes"):
        align(good, {path: np.stack([leaf, leaf]) for path, leaf in good.items()}, spec, key=KEY)
    with pytest.raises(ConfigError, match="no cost 'euclid'"):
        align(good, good, spec, key=KEY, cost="euclid")
    with pytest.raises(ConfigError, match="exclude"):
        align(good, good, spec, key=KEY, exclude=["nowhere"])
    with pytest.raises(ConfigError, match="restarts"):
        align(good, good, spec, key=KEY, restarts=0)
    with pytest.raises(ConfigError, match="restarts is from 1 to 10,000, not 1,000,000,000,000"):
        align(good, good, spec, key=KEY, restarts=10**12)
    with pytest.raises(ConfigError, match="max_sweeps is from 1 to 100,000, not 1,000,000,000,000"):
        align(good, good, spec, key=KEY, max_sweeps=10**12)
    with pytest.raises(SpecError, match="no group 'g7'"):
        align(good, good, spec, key=KEY, order=[["g7"]])
    with pytest.raises(SpecError, match="list of group names"):
        align(good, good, spec, key=KEY, order=["g0"])
    with pytest.raises(SpecError, match="not a permutation"):
        align(good, good, spec, key=KEY, init={"g0": np.array([0, 0, 1, 2])})


# The check of the function


def mlp(params, x):
    return jax.nn.relu(x @ params["w0"] + params["b0"][None]) @ params["w1"] + params["b1"][None]


@pytest.mark.parametrize("kind", [random_tree, random_gaussian])
def test_check_passes_for_the_right_spec_and_fails_for_a_planted_wrong_one(kind):
    spec = mlp_spec(3, 16, 2)
    target, source = (jax.tree.map(jnp.asarray, kind(spec, seed, np.float32)) for seed in (0, 1))
    x = jax.random.normal(jax.random.key(1), (8, 3))
    align(target, source, spec, key=KEY, check=(mlp, x))
    axes = {"w0": ["3", "g0"], "b0": ["16"], "w1": ["g0", "2"], "b1": ["2"]}  # forgets that the bias moves too
    with pytest.raises(SymmetryError, match="another function"):
        align(target, source, PermutationSpec.parse(axes, {"g0": 16}), key=KEY, check=(mlp, x))


def test_alignments_compose():
    """Aligning a moved source gives the same place: the search depends on the posterior, not on its labels."""
    spec = mlp_spec(40, 12, 30)
    target, source = random_tree(spec, 0), random_tree(spec, 1)
    shuffle = spec.random(jax.random.key(2))
    direct = align(target, source, spec, key=KEY)
    moved = align(target, permute(source, spec, shuffle), spec, key=KEY)
    assert_same_perms(compose(moved.perms, shuffle), direct.perms)


def test_every_sweep_of_a_random_order_visits_every_group_and_the_key_decides_it():
    spec = mlp_spec(4, 8, 8, 8, 8, 3)
    target, source = random_tree(spec, 0), random_tree(spec, 1)
    orders = {align(target, source, spec, key=jax.random.key(seed)).order for seed in range(4)}
    assert len(orders) == 4
    assert all(sorted(sweep) == list(spec.sizes) for order in orders for sweep in order)


def test_a_generator_serves_as_order_for_all_starts():
    spec = mlp_spec(4, 8, 8, 3)
    order = (["g1", "g0"] for _ in range(20))
    alignment = align(random_tree(spec, 0), random_tree(spec, 1), spec, key=KEY, order=order, restarts=2)
    assert alignment.order[0] == ("g1", "g0") and alignment.converged


def dense_spec(layers: int, size: int) -> PermutationSpec:
    """Every layer sees all layers before it, so that each group is a neighbour of every other."""
    groups = [f"g{layer}" for layer in range(layers)]
    axes = {f"w{at}": [" + ".join(["6", *groups[:at]]), group] for at, group in enumerate(groups)}
    return PermutationSpec.parse(axes | {"head": [" + ".join(groups), "3"]}, dict.fromkeys(groups, size))


def star_spec() -> PermutationSpec:
    """A stream, and three layers that read from it and add to it."""
    axes = {"entry": ["6", "s"], "exit": ["s", "3"]}
    for layer in range(3):
        axes |= {f"up{layer}": ["s", f"m{layer}"], f"down{layer}": [f"m{layer}", "s"]}
    return PermutationSpec.parse(axes, {"s": 6} | {f"m{layer}": 8 for layer in range(3)})


def test_kicks_lower_what_a_search_ends_at_and_count_as_its_steps(monkeypatch):
    spec, ends = dense_spec(5, 16), []
    for seed in range(3):
        target, source = random_tree(spec, 2 * seed), random_tree(spec, 2 * seed + 1)
        kicked = align(target, source, spec, key=KEY)
        with monkeypatch.context() as patch:
            patch.setattr(sys.modules["bayesin.matching.align"], "KICKED", 0)
            plain = align(target, source, spec, key=KEY)
        assert (np.diff(kicked.history) < 0).all() and kicked.converged
        ends.append(kicked.objective / plain.objective)
    assert max(ends) <= 1 + 1e-6 and min(ends) < 1 - 1e-3


@pytest.mark.parametrize(
    ("spec", "thrown"),
    [
        (mlp_spec(5, 6, 6, 6, 6, 3), {"g1", "g2"}),  # the first and the last have one neighbour
        (dense_spec(3, 5), {"g0", "g1", "g2"}),
        (star_spec(), set()),  # a stream, and what hangs on it
    ],
)
def test_neither_streams_nor_groups_with_one_neighbour_are_kicked(spec, thrown, monkeypatch):
    search, seen = sys.modules["bayesin.matching.search"]._Search, set()
    kick = search._kick

    def noted(self, family, draws):
        seen.add(family)
        return kick(self, family, draws)

    monkeypatch.setattr(search, "_kick", noted)
    for seed in range(4):
        align(random_tree(spec, 2 * seed), random_tree(spec, 2 * seed + 1), spec, key=jax.random.key(seed))
    assert seen == thrown
