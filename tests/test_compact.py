"""Folding samples into one Gaussian: planted permutations, definitions derived again, pitfalls of others."""

import importlib
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesin.compact import compact, keep_mask, moments, prune, rebase
from bayesin.errors import ConfigError, PosteriorError, SpecError
from bayesin.inference.hmc.draws import Draws, write_draws
from bayesin.matching import align, align_many
from bayesin.posteriors import Gaussian, LowRankGaussian, Samples
from bayesin.symmetry import PermutationSpec, compose, permute, transpositions

KEY = jax.random.key(3)
ONE = PermutationSpec.parse({"w0": ["5", "g0"], "b0": ["g0"], "w1": ["g0", "3"], "b1": ["3"]}, {"g0": 6})
TWO = PermutationSpec.parse(
    {"w0": ["5", "g0"], "b0": ["g0"], "w1": ["g0", "g1"], "b1": ["g1"], "w2": ["g1", "3"]}, {"g0": 6, "g1": 4}
)


def apply_one(params, x):
    return jax.nn.relu(x @ params["w0"] + params["b0"][None]) @ params["w1"] + params["b1"][None]


def apply_two(params, x):
    return (
        jax.nn.relu(jax.nn.relu(x @ params["w0"] + params["b0"][None]) @ params["w1"] + params["b1"][None])
        @ params["w2"]
    )


def planted(spec, count=7, noise=0.1, seed=0):
    """Noisy copies of one network, their units shuffled; the samples and the permutations that shuffled them."""
    rng = np.random.default_rng(seed)
    base = {path: rng.normal(size=spec.shape(path)) for path in spec.axes}
    shuffles = [{g: rng.permutation(n) for g, n in spec.sizes.items()} for _ in range(count)]
    nets = [{path: (leaf + noise * rng.normal(size=leaf.shape)).astype(np.float32) for path, leaf in base.items()}]
    nets += [
        {path: (leaf + noise * rng.normal(size=leaf.shape)).astype(np.float32) for path, leaf in base.items()}
        for _ in range(count - 1)
    ]
    return Samples.stack([permute(net, spec, p) for net, p in zip(nets, shuffles, strict=True)]), shuffles


def common_frame(perms, shuffles):
    """What every sample was moved by in all; the same for all of them when the shuffle was undone."""
    total = [compose({g: perm[k] for g, perm in perms.items()}, shuffle) for k, shuffle in enumerate(shuffles)]
    return [all((one[g] == total[0][g]).all() for g in one) for one in total]


INPUTS = np.random.default_rng(9).normal(size=(50, 5)).astype(np.float32)


@pytest.mark.parametrize("spec, apply", [(ONE, apply_one), (TWO, apply_two)], ids=["one group", "two groups"])
@pytest.mark.parametrize("reference", ["mean", "first", "given"])
@pytest.mark.parametrize("match", ["weights", "activations", "correlations"])
def test_planted_permutations_are_undone(spec, apply, reference, match):
    samples, shuffles = planted(spec, noise=0.05)
    given = jax.tree.map(np.asarray, samples[2]) if reference == "given" else reference
    data = {} if match == "weights" else {"apply": apply, "x": INPUTS}
    found = compact(samples, spec, key=KEY, reference=given, match=match, **data)
    assert all(common_frame(found.perms, shuffles))
    assert found.converged and found.spread_after < 0.06 < 0.5 < found.spread_before
    if reference == "first":
        assert found.total[0] == 0
    if reference == "given":
        assert found.total[2] == 0
    moved = rebase(samples, spec, found.perms)
    for k in range(len(samples)):
        np.testing.assert_allclose(apply(moved[k], INPUTS), apply(samples[k], INPUTS), atol=1e-4)
        counts = transpositions({g: perm[k] for g, perm in found.perms.items()})
        assert {g: found.transpositions[g][k] for g in counts} == counts and found.total[k] == sum(counts.values())


def test_the_gaussian_has_the_unbiased_moments_of_the_moved_samples():
    samples, _ = planted(TWO, count=5)
    found = compact(samples, TWO, key=KEY, reference="first")
    moved = [
        permute(jax.tree.map(np.asarray, samples[k]), TWO, {g: p[k] for g, p in found.perms.items()})
        for k in range(5)
    ]
    assert isinstance(found.posterior, Gaussian)
    widths = []
    for path in TWO.axes:
        stack = np.stack([net[path] for net in moved]).astype(np.float64)
        np.testing.assert_allclose(found.posterior.mean[path], stack.mean(0), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found.posterior.std[path], stack.std(0, ddof=1), rtol=1e-5, atol=1e-7)
        widths.append(stack.var(0, ddof=1).ravel())
    assert found.spread_after == pytest.approx(np.sqrt(np.concatenate(widths).mean()), rel=1e-6)
    raw = np.concatenate([np.asarray(leaf).var(0, ddof=1).ravel() for leaf in jax.tree.leaves(samples.params)])
    assert found.spread_before == pytest.approx(np.sqrt(raw.mean()), rel=1e-5)


def test_moments_of_large_offsets_keep_their_digits():
    rng = np.random.default_rng(0)
    leaf = (1000 + 1e-3 * rng.normal(size=(70, 4))).astype(np.float32)
    found = moments(Samples({"b1": leaf[:, :3]}), PermutationSpec.parse({"b1": ["3"]}, {}), {})
    np.testing.assert_allclose(found.std["b1"], leaf[:, :3].astype(np.float64).std(0, ddof=1), rtol=1e-5)


def test_the_low_rank_family_has_the_covariance_of_the_moved_samples():
    samples, _ = planted(ONE)
    found = compact(samples, ONE, key=KEY, family="lowrank")
    assert isinstance(found.posterior, LowRankGaussian)
    flat = [np.asarray(leaf).reshape(7, -1) for leaf in jax.tree.leaves(rebase(samples, ONE, found.perms).params)]
    factors = np.concatenate([np.asarray(f).reshape(7, -1) for f in jax.tree.leaves(found.posterior.factors)], 1)
    np.testing.assert_allclose(factors.T @ factors, np.cov(np.concatenate(flat, 1).T), atol=1e-5)
    assert compact(samples, ONE, key=KEY, family="lowrank", rank=2).posterior.rank == 2


def test_the_search_for_the_mean_ends_where_no_sample_alone_can_improve():
    """Against all permutations of three units; and no worse than the general search."""
    spec = PermutationSpec.parse({"w0": ["2", "g0"], "w1": ["g0", "2"]}, {"g0": 3})
    every = [np.array(p) for p in itertools.permutations(range(3))]
    for seed in range(5):
        samples, _ = planted(spec, count=4, noise=0.7, seed=seed)

        def cost(perms, samples=samples):
            return moments(samples, spec, {"g0": perms}).spread

        found = compact(samples, spec, key=KEY, tolerance=0.0)
        assert found.converged and found.spread_after == pytest.approx(cost(found.perms["g0"]))
        for k in range(4):
            for perm in every:
                other = found.perms["g0"].copy()
                other[k] = perm
                assert cost(other) >= found.spread_after * (1 - 1e-6)
        general = align_many(samples, spec, key=KEY)
        assert found.spread_after <= cost(np.stack([p["g0"] for p in general.perms])) * 1.1


def test_samples_in_good_order_are_not_made_worse():
    rng = np.random.default_rng(1)
    stack = {path: rng.normal(size=(5, *ONE.shape(path))).astype(np.float32) for path in ONE.axes}
    found = compact(Samples(stack), ONE, key=KEY)
    assert found.spread_after <= found.spread_before


def test_zero_rows_and_duplicated_incoming_weights():
    """First-layer cosine alone divides by zero on the one and cannot tell the other apart."""
    samples, shuffles = planted(ONE, noise=0.01)
    params = {path: np.array(leaf) for path, leaf in samples.params.items()}
    for k, shuffle in enumerate(shuffles):
        place = np.argsort(shuffle["g0"])
        dead, first, twin = place[0], place[1], place[2]
        for path in ("w0", "b0", "w1"):
            params[path][k][(slice(None), dead) if path == "w0" else dead] = 0.0
        params["w0"][k][:, twin], params["b0"][k][twin] = params["w0"][k][:, first], params["b0"][k][first]
    for match, data in (("weights", {}), ("correlations", {"apply": apply_one, "x": INPUTS})):
        found = compact(Samples(params), ONE, key=KEY, match=match, **data)
        assert np.isfinite(found.spread_after)
        if match == "weights":
            assert all(common_frame(found.perms, shuffles)) and found.spread_after < 0.02


def test_draws_on_disk_fold_like_samples_in_memory(tmp_path):
    samples, _ = planted(ONE, count=6)
    as_chain = [{path: np.asarray(leaf)[k : k + 1] for path, leaf in samples.params.items()} for k in range(6)]
    write_draws(tmp_path, 0, as_chain[:4])
    write_draws(tmp_path, 4, as_chain[4:])
    for reference in ("mean", "first"):
        here = compact(samples, ONE, key=KEY, reference=reference)
        there = compact(Draws(tmp_path), ONE, key=KEY, reference=reference)
        np.testing.assert_array_equal(here.perms["g0"], there.perms["g0"])
        jax.tree.map(np.testing.assert_array_equal, here.posterior.std, there.posterior.std)


def test_excluded_and_integer_leaves_move_but_do_not_count():
    spec = PermutationSpec.parse({"w": ["4", "g0"], "stat": ["g0"], "steps": ["g0"]}, {"g0": 3})
    rng = np.random.default_rng(0)
    w, turns = rng.normal(size=(4, 3)), [np.roll(np.arange(3), k) for k in range(3)]
    samples = Samples(
        {
            "w": np.stack([w[:, t] for t in turns]).astype(np.float32),
            "stat": np.stack([1e3 * rng.normal(size=3) for _ in turns]).astype(np.float32),
            "steps": np.stack([np.arange(3)[t] for t in turns]),
        }
    )
    found = compact(samples, spec, key=KEY, exclude=["stat"])
    assert found.spread_after == pytest.approx(0, abs=1e-6) and found.spread_before > 0.1
    assert found.posterior.std["steps"].max() == 0 and found.posterior.std["stat"].max() == 0
    moved = [samples.params["stat"][k][found.perms["g0"][k]] for k in range(3)]
    np.testing.assert_allclose(found.posterior.mean["stat"], np.mean(moved, 0), rtol=1e-5)


def test_misuse_is_one_clear_line():
    samples, _ = planted(ONE, count=4)
    for options, error, message in [
        ({"reference": "last"}, ConfigError, "reference must be mean, first"),
        ({"match": "cosine"}, ConfigError, "match must be one of"),
        ({"family": "full"}, ConfigError, "family must be one of"),
        ({"rank": 3}, ConfigError, "rank is for"),
        ({"match": "activations"}, ConfigError, "needs x="),
        ({"exclude": ["nothing"]}, ConfigError, "no parameter 'nothing'"),
    ]:
        with pytest.raises(error, match=message):
            compact(samples, ONE, key=KEY, **options)
    with pytest.raises(PosteriorError, match="at least two samples"):
        compact(samples[:1], ONE, key=KEY)
    for wrong, message in [
        (3, "folds Samples"),
        ([samples[0]], "at least two"),
        ([Gaussian.point(samples[0]), samples[1]], "networks alone or Gaussians alone"),
        ([samples[0], {"w": np.ones(2)}], "not of one network"),
    ]:
        with pytest.raises(PosteriorError, match=message):
            compact(wrong, ONE, key=KEY)
    for options, message in [
        ({"scale": "test"}, "held-out"),
        ({"scale": -1.0}, "not negative"),
        ({"scale": "held-out"}, "needs held_out"),
        ({"components": 99}, "half of"),
        ({"components": 2, "family": "lowrank"}, "diagonal components"),
    ]:
        with pytest.raises(ConfigError, match=message):
            compact(samples, ONE, key=KEY, **options)
    with pytest.raises(SpecError):
        compact(samples, TWO, key=KEY)
    broken = Samples({**samples.params, "b1": samples.params["b1"].at[1, 0].set(jnp.nan)})
    with pytest.raises(PosteriorError, match="NaN"):
        compact(broken, ONE, key=KEY)


@pytest.mark.parametrize("spec", [ONE, TWO], ids=["one group", "two groups"])
@pytest.mark.parametrize("reference", ["mean", "first"])
def test_the_unit_of_the_weights_does_not_matter(spec, reference):
    samples, _ = planted(spec)
    ordinary = compact(samples, spec, key=KEY, reference=reference)
    for power in (-100, 100):
        scaled = Samples({path: np.ldexp(np.asarray(leaf), power) for path, leaf in samples.params.items()})
        folded = compact(scaled, spec, key=KEY, reference=reference)
        for group, perm in ordinary.perms.items():
            np.testing.assert_array_equal(folded.perms[group], perm)
        assert folded.spread_after == pytest.approx(2.0**power * ordinary.spread_after, rel=1e-5)


def test_the_result_is_a_tree_that_says_what_happened_in_a_line():
    samples, _ = planted(ONE, count=3)
    folded = compact(samples, ONE, key=KEY)
    assert repr(folded).startswith("Compact(3 samples, spread ") and len(repr(folded)) < 100
    assert jax.tree.map(lambda leaf: leaf, folded).rounds == folded.rounds
    fixed = PermutationSpec.parse({path: [str(n) for n in ONE.shape(path)] for path in ONE.axes}, {})
    assert compact(samples, fixed, key=KEY).total.tolist() == [0, 0, 0]


def test_inputs_are_left_as_they_are():
    samples, _ = planted(ONE)
    copy = jax.tree.map(np.array, samples.params)
    compact(samples, ONE, key=KEY)
    jax.tree.map(np.testing.assert_array_equal, copy, samples.params)


@pytest.mark.parametrize("keep", [0.0, 0.01, 0.3, 0.999, 1.0])
def test_pruning_keeps_exactly_the_most_certain_weights(keep):
    rng = np.random.default_rng(0)
    mean = {"a": rng.normal(size=(7, 3)) + 5, "b": {"c": rng.normal(size=11) + 5}}
    std = {"a": rng.uniform(size=(7, 3)), "b": {"c": rng.uniform(size=11)}}
    pruned = prune(mean, std, keep)
    flat = [np.concatenate([tree["a"].ravel(), tree["b"]["c"]]) for tree in (mean, std, pruned)]
    kept = flat[2] != 0
    assert kept.sum() == int(keep * 32)
    np.testing.assert_array_equal(flat[2][kept], flat[0][kept])
    if 0 < kept.sum() < 32:
        assert flat[1][kept].max() < flat[1][~kept].min()


def test_pruning_with_ties_exclusions_and_bad_input():
    std = {"a": np.ones(4), "s": np.zeros(3)}
    assert keep_mask(std, 0.5, exclude=frozenset({"s"}))["a"].tolist() == [True, True, False, False]
    assert keep_mask(std, 0.0, exclude=frozenset({"s"}))["s"].all()
    with pytest.raises(ConfigError, match="between 0 and 1"):
        keep_mask(std, 1.5)
    with pytest.raises(PosteriorError, match="'b' is in the second"):
        prune({"a": np.ones(2)}, {"a": np.ones(2), "b": np.ones(2)}, 0.5)
    with pytest.raises(PosteriorError, match="NaN"):
        keep_mask({"a": np.array([np.nan])}, 0.5)


def test_a_single_network_is_pruned_in_the_frame_of_the_mask():
    """The mask of one posterior prunes another network sensibly only after alignment."""
    samples, _ = planted(ONE, noise=0.02)
    found = compact(samples, ONE, key=KEY)
    std = jax.tree.map(np.array, found.posterior.std)
    std["w0"][:, 2], std["b0"][2], std["w1"][2] = 9.0, 9.0, 9.0  # one unit is known to be useless
    network = samples[3]
    aligned = align(found.posterior.mean, network, ONE, key=KEY).posterior
    kept = 1 - 9 / sum(leaf.size for leaf in std.values())
    pruned = prune(aligned, std, kept)
    assert not np.asarray(pruned["w0"])[:, 2].any() and not np.asarray(pruned["w1"])[2].any()
    expected = np.array(found.posterior.mean["w0"])
    expected[:, 2] = 0
    np.testing.assert_allclose(pruned["w0"], expected, atol=0.1)


def test_many_samples_are_matched_several_at_a_time_and_always_alike():
    samples, shuffles = planted(ONE, count=70, noise=0.3)
    found = compact(samples, ONE, key=KEY)
    assert found.converged and all(common_frame(found.perms, shuffles))
    np.testing.assert_array_equal(found.perms["g0"], compact(samples, ONE, key=KEY).perms["g0"])
    seen = []
    compact(samples, ONE, key=KEY, on_round=lambda *progress: seen.append(progress))
    assert seen[0] == (1, 1, 70) and seen[69] == (1, 70, 70) and seen[-1][0] == found.rounds


def test_many_samples_begin_with_a_part_of_them_and_reach_the_same_order(monkeypatch):
    weights = importlib.import_module("bayesin.compact.sample_matching")
    spec = PermutationSpec.parse({"w0": ["30", "g0"], "w1": ["g0", "3"]}, {"g0": 8})
    rng = np.random.default_rng(3)
    base = {"w0": rng.normal(size=(30, 8)), "w1": rng.normal(size=(8, 3))}
    orders = [rng.permutation(8) for _ in range(40)]
    noisy = [{path: leaf + 0.8 * rng.normal(size=leaf.shape) for path, leaf in base.items()} for _ in orders]
    nets = [{"w0": net["w0"][:, p], "w1": net["w1"][p]} for net, p in zip(noisy, orders, strict=True)]
    samples = Samples({path: np.stack([net[path] for net in nets]).astype(np.float32) for path in base})
    plain = compact(samples, spec, key=jax.random.key(0))
    monkeypatch.setattr(weights, "FEW", 1)  # so that 40 are many
    begun = compact(samples, spec, key=jax.random.key(0))
    assert begun.spread_after == pytest.approx(plain.spread_after, rel=1e-6) and begun.converged
    restored = np.take_along_axis(np.stack(orders), begun.perms["g0"], 1)
    assert (restored == restored[0]).all()
