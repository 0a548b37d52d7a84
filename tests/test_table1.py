"""Table 1 and the spread study, on shuffled copies of one network, where the right answers are known."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from bayesin.compact import prune
from bayesin.data import load
from bayesin.evaluation import evaluate
from bayesin.experiments.points import Descent, trained_end
from bayesin.experiments.spread import FRACTIONS, spread_study, std_histograms
from bayesin.experiments.table1 import choose_scale, shrunk, table1
from bayesin.models import build
from bayesin.posteriors import Gaussian, Samples
from bayesin.symmetry import discover, permute

KEY = jax.random.key(5)
MODEL = build("mlp", (8, 8, 1), 10, width=12, depth=1)


@pytest.fixture(scope="module")
def digits():
    return load("digits", limit=400, normalise="unit")


@pytest.fixture(scope="module")
def spec():
    return discover(MODEL.apply, MODEL.init(KEY), np.zeros((2, 8, 8, 1), np.float32))


@pytest.fixture(scope="module")
def network(digits):
    start = jax.tree.map(lambda leaf: leaf[None], MODEL.init(KEY))
    data = (digits.x_train, digits.y_train)
    end = trained_end(KEY, MODEL.apply, start, data, Descent(epochs=30, batch=32, learning_rate=0.05))
    return jax.tree.map(lambda leaf: leaf[0], end)


def shuffled(network, spec, count, noise, seed=0):
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        near = jax.tree.map(lambda leaf: leaf + noise * rng.standard_normal(leaf.shape, np.float32), network)
        found.append(permute(near, spec, {"g0": rng.permutation(12)}))
    return Samples(jax.tree.map(np.asarray, Samples.stack(found).params))


@pytest.mark.slow
def test_table_of_shuffled_copies(digits, spec, network):
    hmc, ensemble = shuffled(network, spec, 12, 0.03), shuffled(network, spec, 4, 0.03, 1)
    vi, seen = Gaussian(network, jax.tree.map(lambda leaf: 0 * leaf + 0.03, network)), []
    foldings = (("activations", "first"), ("weights", "mean"))
    table = table1(
        hmc, ensemble, vi, MODEL, digits, spec, key=KEY, draws=20, foldings=foldings,
        on_column=lambda name, column: seen.append(name),
    )  # fmt: skip
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


def test_scale_is_the_best_on_the_training_set_and_the_test_set_is_not_looked_at(digits, network):
    wide = Gaussian(network, jax.tree.map(lambda leaf: 0 * leaf + 0.5, network))
    networks = Samples(jax.tree.map(np.asarray, wide.sample(KEY, 20)))
    scale, losses = choose_scale(networks, network, MODEL, digits)
    direct = evaluate(shrunk(networks, network, scale), MODEL.apply, (digits.x_train, digits.y_train), key=None)
    assert losses[f"{scale:g}"] == pytest.approx(direct.nll, rel=1e-3) and losses[f"{scale:g}"] == min(
        losses.values()
    )
    assert losses["1"] > losses["0"] and scale < 1
    blind = dataclasses.replace(digits, y_test=(digits.y_test + 1) % 10, x_test=1 - digits.x_test)
    assert choose_scale(networks, network, MODEL, blind) == (scale, losses)


@pytest.mark.slow
def test_spread_study_prunes_every_network_by_every_std_in_one_frame(digits, spec, network):
    hmc, ensemble = shuffled(network, spec, 8, 0.03), shuffled(network, spec, 4, 0.1, 1)
    other = permute(network, spec, {"g0": np.roll(np.arange(12), 5)})
    vi = Gaussian(other, jax.tree.map(lambda leaf: 0.02 + 0.01 * np.abs(leaf), other))
    study = spread_study(hmc, ensemble, vi, MODEL, digits, spec, key=KEY, bins=20)
    json.dumps(study, allow_nan=False)
    means = study["stds"]["mean"]
    assert means["hmc after"] < 0.05 < means["hmc before"] and means["ensemble after"] < means["ensemble before"]
    curves = study["pruning"]["accuracy"]
    assert len(curves) == 5 * 3 and all(len(curve) == len(FRACTIONS) for curve in curves.values())
    # the frame changes nothing for a network and its own stds
    own = prune(vi.mean, vi.std, 0.3)
    right = evaluate(own, MODEL.apply, (digits.x_test, digits.y_test), key=None).log_probs.argmax(1) == digits.y_test
    assert curves["vi mean by vi"][FRACTIONS.index(0.3)] == pytest.approx(right.mean())
    # unpruned, whatever the std, each network is itself: no curve begins where another ended
    for name in ("hmc mean", "ensemble mean", "vi mean", "hmc last", "ensemble last"):
        assert curves[f"{name} by hmc"][0] == curves[f"{name} by vi"][0] == curves[f"{name} by ensemble"][0] > 0.7


def test_histograms_count_every_weight():
    stds = {"a": {"w": np.linspace(0, 1, 50), "b": np.ones(3)}, "b": {"w": np.full(7, 2.0)}}
    found = std_histograms(stds, bins=10)
    assert sum(found["counts"]["a"]) == 53 and found["counts"]["b"] == [0] * 9 + [7]
    assert found["mean"]["b"] == 2.0 and found["quantiles"]["b"]["0.5"] == 2.0
