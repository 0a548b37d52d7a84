"""Transpositions and training dynamics: definitions, and small runs on the digits."""

import collections
import itertools
import json

import jax
import numpy as np
import optax
import pytest

from bayesin.compact import hidden_activations
from bayesin.data import Dataset, load
from bayesin.errors import ConfigError
from bayesin.evaluation import evaluate
from bayesin.experiments.device import losses, match_pairs, on_device, stack
from bayesin.experiments.dynamics import training_dynamics
from bayesin.experiments.points import Descent, trained
from bayesin.experiments.studies import dynamics_study, interpolation_study, study_setting, transposition_study
from bayesin.experiments.transpositions import (
    along_interpolation,
    by_activations,
    by_weights,
    permuted_initialisation,
    random_with_transpositions,
)
from bayesin.models import build
from bayesin.posteriors import Samples
from bayesin.symmetry import discover, permute, transpositions

KEY = jax.random.key(11)
MODEL = build("mlp", (8, 8, 1), 10, width=12, depth=1)
QUICK = Descent(epochs=3, batch=32, learning_rate=0.05)


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load("digits", limit=300)


@pytest.fixture(scope="module")
def spec():
    return discover(MODEL.apply, MODEL.init(KEY), np.zeros((2, 8, 8, 1), np.float32))


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


def test_training_from_given_starts_is_sgd_with_momentum(digits):
    """Against a loop as one would write it, on one network of two."""
    data = (digits.x_train[:64], digits.y_train[:64])
    starts = Samples.stack([MODEL.init(jax.random.fold_in(KEY, i)) for i in range(2)]).params
    steps = list(trained(KEY, MODEL.apply, starts, data, Descent(epochs=2, batch=32, learning_rate=0.1)))
    assert len(steps) == 3
    params = jax.tree.map(lambda leaf: leaf[1], starts)
    velocity = jax.tree.map(np.zeros_like, params)

    @jax.jit
    def gradient(params, x, y):
        return jax.grad(lambda p: optax.softmax_cross_entropy_with_integer_labels(MODEL.apply(p, x), y).mean())(
            params
        )

    for epoch in range(2):
        order = jax.random.permutation(jax.random.fold_in(jax.random.fold_in(KEY, 1), epoch), 64)
        for index in np.asarray(order).reshape(2, 32):
            slope = gradient(params, data[0][index], data[1][index])
            velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, slope)
            params = jax.tree.map(lambda p, v: p - 0.1 * v, params, velocity)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a[1], b, rtol=1e-4, atol=1e-5), steps[epoch + 1], params)
    with pytest.raises(ConfigError, match="make no sense"):
        Descent(momentum=1.0)


def test_a_permuted_start_stays_permuted_and_undoing_it_lowers_the_barrier(digits, spec):
    seen = []
    rows = permuted_initialisation(KEY, MODEL, digits, spec, [0, 5, 11], QUICK, pairs_at_once=2, on_row=seen.append)
    assert [row.initial for row in rows] == [0, 5, 11] and rows == seen
    for row in rows:
        assert row.start.transpositions == row.initial  # matching finds what was planted
        assert row.start.distance == pytest.approx(np.sqrt(sum(d**2 for d in row.start.distances.values())))
        assert set(row.trained.loss_barrier) == {"train", "test"}
    assert rows[0].start.distance == 0 and rows[0].start.loss_barrier["train"] == pytest.approx(0, abs=1e-6)
    far = rows[-1]
    assert far.undone.distance < far.trained.distance
    assert far.undone.loss_barrier["train"] < far.trained.loss_barrier["train"]


def test_transpositions_along_a_line_begin_at_zero_and_end_at_those_of_its_end(digits, spec):
    first = MODEL.init(KEY)
    second = permute(first, spec, {"g0": random_with_transpositions(KEY, 12, 7)})
    for match in (
        by_weights(spec, key=KEY),
        by_activations(MODEL.apply, first, digits.x_train, spec, key=KEY),
        by_activations(MODEL.apply, first, digits.x_train, spec, key=KEY, correlation=True),
    ):
        counts, distances = along_interpolation(first, second, match, [0.0, 0.5, 1.0])
        assert counts[0] == 0 and counts[-1] == 7
        assert distances[0] == 0 and distances[1] == pytest.approx(distances[2] / 2, rel=1e-4)


def test_dynamics_have_a_line_for_every_epoch(digits, spec):
    epochs = []
    found = training_dynamics(KEY, MODEL, digits, spec, QUICK, taus=3, on_epoch=lambda e, both: epochs.append(e))
    assert epochs == [0, 1, 2, 3] and found.transpositions.shape == (4,)
    for part in ("train", "test"):
        assert found.naive_loss[part].shape == found.matched_error[part].shape == (4, 3)
        # moving units does not change the networks at the ends
        np.testing.assert_allclose(found.naive_loss[part][:, [0, 2]], found.matched_loss[part][:, [0, 2]], rtol=1e-4)
        assert found.matched_barrier[part][-1] <= found.naive_barrier[part][-1]
    assert found.naive_loss["train"][-1, 0] < found.naive_loss["train"][0, 0]  # something was learned


def test_many_networks_at_once_have_the_losses_and_matches_of_each_alone(digits, spec):
    nets = [MODEL.init(jax.random.fold_in(KEY, i)) for i in range(3)]
    others = [permute(net, spec, {"g0": random_with_transpositions(KEY, 12, i)}) for i, net in enumerate(nets)]
    parts = on_device(digits)
    loss, error = losses(MODEL.apply, stack(nets), parts.test)
    activations = hidden_activations(MODEL.apply, nets[0], digits.x_train[:8], spec, key=KEY)
    for correlation in (False, True):
        perms = match_pairs(activations, stack(nets), stack(others), parts.train, correlation=correlation)
        alone = by_activations(MODEL.apply, nets[0], digits.x_train, spec, key=KEY, correlation=correlation)
        for i, (net, other) in enumerate(zip(nets, others, strict=True)):
            np.testing.assert_array_equal(perms["g0"][i], alone(net, other)["g0"])
            assert transpositions({"g0": perms["g0"][i]}) == {"g0": i}
    for i, net in enumerate(nets):
        found = evaluate(net, MODEL.apply, (digits.x_test, digits.y_test), key=None)
        assert loss[i] == pytest.approx(found.nll, rel=1e-5)
        assert error[i] == pytest.approx((found.log_probs.argmax(1) != digits.y_test).mean())


def test_studies_return_plain_numbers():
    data = load("digits", limit=300, normalise="unit")
    setting = study_setting(data, build("mlp", data.input_shape, 10, width=12, depth=1), Descent(epochs=2))
    start = setting.model.init(KEY)["layers"]["0"]
    bound = 1 / np.sqrt(64)
    assert np.abs(start["kernel"]).max() <= bound and 0.5 * bound < np.abs(start["bias"]).max() <= bound
    rows = []
    study = transposition_study(
        KEY, setting, values=3, runs=(0, 2), pairs_at_once=2, on_row=lambda run, row: rows.append(run)
    )
    assert rows == [0, 0, 0, 2, 2, 2] and study["counts"] == [1, 6, 11]
    again = transposition_study(KEY, setting, values=3, runs=(2,), pairs_at_once=2)
    assert again["runs"]["2"] == study["runs"]["2"]  # runs can be made in parts
    lines = interpolation_study(KEY, setting, pairs=2, taus=3)
    assert lines["lines"][1]["transpositions"][0] == 0 and lines["lines"][0]["distance"][0] == 0
    dynamics = dynamics_study(KEY, setting, taus=3)
    assert np.shape(dynamics["naive_loss"]["train"]) == (3, 3) and len(dynamics["transpositions"]) == 3
    json.dumps([study, lines, dynamics], allow_nan=False)
