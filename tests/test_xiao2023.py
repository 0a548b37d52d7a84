"""Numbers of the second paper's figures, on networks and samples where the right answers are known."""

import collections
import dataclasses
import itertools
import json

import jax
import numpy as np
import optax
import pytest

from bayesin.compact import compact, prune, shrunk
from bayesin.data import load
from bayesin.errors import ConfigError
from bayesin.evaluation import evaluate
from bayesin.lab.papers.xiao2023.dynamics import training_dynamics
from bayesin.lab.papers.xiao2023.method_trio import Posteriors
from bayesin.lab.papers.xiao2023.small_networks import (
    SGDConfig,
    losses_and_errors,
    make_setting,
    match_pairs,
    trained,
    trained_end,
)
from bayesin.lab.papers.xiao2023.stds_and_pruning import FRACTIONS, std_histograms, stds_and_pruning
from bayesin.lab.papers.xiao2023.table1 import choose_scale, table_columns
from bayesin.lab.papers.xiao2023.transpositions import (
    permuted_starts,
    random_with_transpositions,
    transpositions_on_lines,
)
from bayesin.lab.papers.xiao2023.weight_space import PAIRS, plane, weight_space
from bayesin.models import build
from bayesin.posteriors import Gaussian, Samples
from bayesin.symmetry import permute, transpositions

KEY = jax.random.key(11)


@pytest.fixture(scope="module")
def digits():
    return load("digits", limit=300, normalise="unit")


@pytest.fixture(scope="module")
def setting(digits):
    model = build("mlp", (8, 8, 1), 10, width=12, depth=1)
    return make_setting(digits, model, SGDConfig(epochs=3, batch=32, learning_rate=0.05))


@pytest.fixture(scope="module")
def network(setting):
    longer = setting._replace(descent=dataclasses.replace(setting.descent, epochs=40))
    ends = trained_end(KEY, longer, Samples.stack([setting.model.init(KEY)]))
    return jax.tree.map(np.asarray, ends[0])


def shuffled(network, spec, count, noise, seed=0):
    rng = np.random.default_rng(seed)
    networks = []
    for _ in range(count):
        near = jax.tree.map(lambda leaf: leaf + noise * rng.standard_normal(leaf.shape, np.float32), network)
        networks.append(permute(near, spec, {"g0": rng.permutation(12)}))
    return Samples(jax.tree.map(np.asarray, Samples.stack(networks).params))


@pytest.mark.slow
def test_table_of_shuffled_copies(digits, setting, network):
    hmc, ensemble = shuffled(network, setting.spec, 12, 0.03), shuffled(network, setting.spec, 4, 0.03, 1)
    vi, seen = Gaussian(network, jax.tree.map(lambda leaf: 0 * leaf + 0.03, network)), []
    posteriors = Posteriors(hmc, ensemble, vi, setting.model, digits, setting.spec)
    foldings = (("activations", "first"), ("weights", "mean"))
    table = table_columns(posteriors, KEY, draws=20, foldings=foldings, tell=seen.append)
    assert seen == list(table) and json.dumps(table, allow_nan=False)
    assert table["hmc"]["agreement"] == 1 and table["hmc"]["total_variation"] == 0
    for method in ("hmc", "ensemble"):
        direct = table[f"{method} direct"]
        for match in ("activations/first", "weights/mean"):
            for family in ("diagonal", "lowrank", "diagonal shrunk", "lowrank shrunk"):
                column = table[f"{method} {match} {family}"]
                assert column["agreement"] > 0.95 and column["mean_agreement"] > 0.95
                assert column["agreement"] > direct["agreement"] and column["total_variation"] < 0.1
                assert column["spread"] < 0.05 < direct["spread"]
    assert table["vi"]["agreement"] > 0.95


def test_scale_is_the_best_on_the_training_set_and_the_test_set_is_not_looked_at(digits, setting, network):
    wide = Gaussian(network, jax.tree.map(lambda leaf: 0 * leaf + 0.5, network))
    networks = Samples(jax.tree.map(np.asarray, wide.sample(KEY, 20)))
    scale, losses = choose_scale(networks, network, setting.model, digits)
    narrow = shrunk(networks, network, scale)
    direct = evaluate(narrow, setting.model.apply, (digits.x_train, digits.y_train), key=None)
    assert losses[f"{scale:g}"] == pytest.approx(direct.nll, rel=1e-3) == min(losses.values())
    assert losses["1"] > losses["0"] and scale < 1
    blind = dataclasses.replace(digits, y_test=(digits.y_test + 1) % 10, x_test=1 - digits.x_test)
    assert choose_scale(networks, network, setting.model, blind) == (scale, losses)


@pytest.mark.slow
def test_every_network_is_pruned_by_every_std_in_one_frame(digits, setting, network):
    hmc, ensemble = shuffled(network, setting.spec, 8, 0.03), shuffled(network, setting.spec, 4, 0.1, 1)
    other = permute(network, setting.spec, {"g0": np.roll(np.arange(12), 5)})
    vi = Gaussian(other, jax.tree.map(lambda leaf: 0.02 + 0.01 * np.abs(leaf), other))
    posteriors = Posteriors(hmc, ensemble, vi, setting.model, digits, setting.spec)
    numbers = stds_and_pruning(posteriors, KEY, bins=20)
    json.dumps(numbers, allow_nan=False)
    means = numbers["stds"]["mean"]
    assert means["hmc after"] < 0.05 < means["hmc before"] and means["ensemble after"] < means["ensemble before"]
    curves = numbers["pruning"]["accuracy"]
    assert len(curves) == 5 * 3 * 2 and all(len(curve) == len(FRACTIONS) for curve in curves.values())
    # the frame changes nothing for a network and its own stds
    own = prune(vi.mean, vi.std, 0.3)
    log_probs = evaluate(own, setting.model.apply, (digits.x_test, digits.y_test), key=None).log_probs
    right = (log_probs.argmax(1) == digits.y_test).mean()
    assert curves["vi mean by vi"][FRACTIONS.index(0.3)] == pytest.approx(right)
    # unpruned, whatever the std, each network is itself: no curve begins where another ended
    for name in ("hmc mean", "ensemble mean", "vi mean", "hmc last", "ensemble last"):
        assert curves[f"{name} by hmc"][0] == curves[f"{name} by vi"][0] == curves[f"{name} by ensemble"][0] > 0.7


@pytest.mark.slow
def test_shuffled_copies_of_one_network_are_one_place_in_weight_space(digits, setting, network):
    hmc, ensemble = shuffled(network, setting.spec, 12, 0.03), shuffled(network, setting.spec, 4, 0.03, 1)
    other = permute(network, setting.spec, {"g0": np.roll(np.arange(12), 5)})
    vi = Gaussian(other, jax.tree.map(lambda leaf: 0 * leaf + 0.03, other))
    numbers = weight_space(Posteriors(hmc, ensemble, vi, setting.model, digits, setting.spec), 2, KEY)
    json.dumps(numbers, allow_nan=False)
    before, after = numbers["distances"]["before"], numbers["distances"]["after"]
    assert len(before) == len(after) == len(PAIRS)
    for pair in before:
        assert before[pair]["correlation of means"] < 0.9 and before[pair]["means"] > 5 * after[pair]["means"]
        assert after[pair]["correlation of means"] > 0.98
        assert after[pair]["w2"] == pytest.approx(np.hypot(after[pair]["means"], after[pair]["stds"]))
    places = numbers["plane"]["after"]["places"]
    assert len(places["hmc"]) == 12 and len(places["ensemble"]) == 4 and len(places["vi mean"]) == 1


def test_the_plane_keeps_distances_that_lie_in_it():
    """Points of a plane turned into a space of 30 dimensions."""
    rng = np.random.default_rng(0)
    points, (turn, _) = 5 * rng.normal(size=(6, 2)), np.linalg.qr(rng.normal(size=(30, 2)))
    found = plane({"a": (points @ turn.T)[:4], "b": (points @ turn.T)[4:]})
    there = np.concatenate([found["places"]["a"], found["places"]["b"]])
    gaps = lambda rows: np.linalg.norm(rows[:, None] - rows[None], axis=-1)  # noqa: E731
    np.testing.assert_allclose(gaps(there), gaps(points), atol=1e-9)
    assert found["share"] == pytest.approx(1)


def test_histograms_count_every_weight():
    stds = {"a": {"w": np.linspace(0, 1, 50), "b": np.ones(3)}, "b": {"w": np.full(7, 2.0)}}
    histograms = std_histograms(stds, bins=10)
    assert sum(histograms["counts"]["a"]) == 53 and histograms["counts"]["b"] == [0] * 9 + [7]
    assert histograms["mean"]["b"] == 2.0 and histograms["quantiles"]["b"]["0.5"] == 2.0


@pytest.mark.parametrize("size", [1, 2, 7, 60])
def test_random_permutations_have_exactly_as_many_transpositions_as_asked(size):
    for count in range(size):
        perm = random_with_transpositions(jax.random.fold_in(KEY, count), size, count)
        assert sorted(perm) == list(range(size)) and transpositions({"g": perm}) == {"g": count}
    with pytest.raises(ConfigError, match=f"0 to {size - 1}"):
        random_with_transpositions(KEY, size, size)


def test_random_permutations_follow_the_way_that_is_documented():
    """Four units, two swaps: two cycles, and each other unit joins either, so 3 + 1 and 2 + 2 are equally likely."""
    seen = collections.Counter(
        tuple(random_with_transpositions(jax.random.fold_in(KEY, i), 4, 2).tolist()) for i in range(2000)
    )
    wanted = [p for p in itertools.permutations(range(4)) if transpositions({"g": np.array(p)})["g"] == 2]
    assert set(seen) == set(wanted) and len(wanted) == 11  # 8 three-cycles, 3 pairs of swaps
    pairs = sum(n for p, n in seen.items() if all(p[p[i]] == i for i in range(4)))
    assert abs(pairs / 2000 - 0.5) < 4 * np.sqrt(0.25 / 2000)  # uniform would be 3/11


def test_training_from_given_starts_is_sgd_with_momentum(digits, setting):
    """Against a loop as one would write it, on one network of two; starts are those of PyTorch."""
    starts = Samples.stack([setting.model.init(jax.random.fold_in(KEY, i)) for i in range(2)])
    layer, bound = starts.params["layers"]["0"], 1 / np.sqrt(64)
    assert np.abs(layer["kernel"]).max() <= bound and 0.5 * bound < np.abs(layer["bias"]).max() <= bound
    x, y = digits.x_train[:70], digits.y_train[:70]  # six fill no batch
    descent = SGDConfig(epochs=2, batch=32, learning_rate=0.1)
    steps = list(trained(KEY, setting._replace(descent=descent, examples=(x, y)), starts))
    assert len(steps) == 3
    params = starts[1]
    velocity = jax.tree.map(np.zeros_like, params)

    @jax.jit
    def gradient(params, x, y):
        loss = optax.softmax_cross_entropy_with_integer_labels
        return jax.grad(lambda p: loss(setting.model.apply(p, x), y).mean())(params)

    for epoch in range(2):
        order = jax.random.permutation(jax.random.fold_in(jax.random.fold_in(KEY, 1), epoch), 70)
        for index in np.asarray(order)[:64].reshape(2, 32):
            slope = gradient(params, x[index], y[index])
            velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, slope)
            params = jax.tree.map(lambda p, v: p - 0.1 * v, params, velocity)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), steps[epoch + 1][1], params)
    with pytest.raises(ConfigError, match="make no sense"):
        SGDConfig(momentum=1.0)


def test_many_networks_at_once_have_the_losses_and_matches_of_each_alone(digits, setting):
    networks = Samples.stack([setting.model.init(jax.random.fold_in(KEY, i)) for i in range(3)])
    planted = np.stack([random_with_transpositions(KEY, 12, i) for i in range(3)])
    others = networks.permute(setting.spec, {"g0": planted})
    loss, error = losses_and_errors(setting, networks, "test")
    for i, network in enumerate(networks):
        alone = evaluate(network, setting.model.apply, (digits.x_test, digits.y_test), key=None)
        assert loss[i] == pytest.approx(alone.nll, rel=1e-5)
        assert error[i] == pytest.approx((alone.log_probs.argmax(1) != digits.y_test).mean())
    found = match_pairs(setting, networks, others)["g0"]
    for i in range(3):
        assert transpositions({"g0": found[i]}) == {"g0": i}  # what was planted
        both = Samples.stack([networks[i], others[i]])
        options = {"match": "activations", "reference": "first", "apply": setting.model.apply, "x": digits.x_train}
        np.testing.assert_array_equal(found[i], compact(both, setting.spec, key=KEY, **options).perms["g0"][1])


def test_a_permuted_start_stays_permuted_and_undoing_it_lowers_the_barrier(setting):
    rows = permuted_starts(KEY, setting, [0, 5, 11])
    assert [row["initial"] for row in rows] == [0, 5, 11] and json.dumps(rows, allow_nan=False)
    for row in rows:
        start = row["start"]
        assert start["transpositions"] == row["initial"]  # matching finds what was planted
        assert start["distance"] == pytest.approx(np.sqrt(sum(d**2 for d in start["distances"].values())))
        assert set(row["trained"]["loss_barrier"]) == set(row["trained"]["error_barrier"]) == {"train", "test"}
    assert rows[0]["start"]["distance"] == 0
    assert rows[0]["start"]["loss_barrier"]["train"] == pytest.approx(0, abs=1e-6)
    far = rows[-1]
    assert far["undone"]["distance"] < far["trained"]["distance"]
    assert far["undone"]["loss_barrier"]["train"] < far["trained"]["loss_barrier"]["train"]


def test_lines_begin_at_zero_and_end_at_the_other_network(setting):
    lines = transpositions_on_lines(KEY, setting, pairs=2, taus=3)
    for line in json.loads(json.dumps(lines, allow_nan=False))["lines"]:
        assert line["transpositions"][0] == 0 and line["distance"][0] == 0
        assert line["distance"][1] == pytest.approx(line["distance"][2] / 2, rel=1e-4)
        for part in ("train", "test"):  # moving units does not change the network at the end
            naive, matched = (np.array(line[kind][part]["loss"]) for kind in ("naive", "matched"))
            np.testing.assert_allclose(naive[[0, 2]], matched[[0, 2]], rtol=1e-4)


def test_dynamics_have_a_line_for_every_epoch(setting):
    told = []
    dynamics = training_dynamics(KEY, setting, taus=3, tell=told.append)
    assert told == [f"epoch {epoch}" for epoch in range(4)] and len(dynamics["transpositions"]) == 4
    json.dumps(dynamics, allow_nan=False)
    for part in ("train", "test"):
        naive, matched = (np.array(dynamics[f"{kind}_loss"][part]) for kind in ("naive", "matched"))
        assert naive.shape == np.shape(dynamics["matched_error"][part]) == (4, 3)
        np.testing.assert_allclose(naive[:, [0, 2]], matched[:, [0, 2]], rtol=1e-4)
        heights = (naive - naive[:, :1] - (naive[:, 2:] - naive[:, :1]) * [0, 0.5, 1]).max(1)
        np.testing.assert_allclose(dynamics["naive_barrier"][part], heights, atol=1e-12)
        assert dynamics["matched_barrier"][part][-1] <= dynamics["naive_barrier"][part][-1]
    losses = np.array(dynamics["naive_loss"]["train"])
    assert losses[-1, 0] < losses[0, 0]  # something was learned
