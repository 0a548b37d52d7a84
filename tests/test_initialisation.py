"""How much of an initialisation survives: the share by hand, the prediction by a weight that nothing else moves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesin.inference import VI, Ensemble, fit_vi, initialise
from bayesin.lab.papers import CATALOGUE
from bayesin.lab.papers.rossi2023.initialisation import decay_left, drawn_leaves, drift_of
from bayesin.models import Model

KEY = jax.random.key(3)


def init(key):
    return {"w": jax.random.normal(key, (3, 2)), "b": jnp.zeros(2)}


MODEL = Model(init, lambda params, x: x @ params["w"] + params["b"][None])


def data():
    """Labels that follow the first input; the last input is zero everywhere, as pixels at the edge of digits are."""
    x = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    x[:, 2] = 0
    return x, (x[:, 0] > 0).astype(np.int32)


@pytest.mark.parametrize("settings", [
    {"temperature": 0.5, "prior_variance": 0.1},
    {"temperature": 5.0, "prior_variance": 1.0},  # the same T/v
    {"prior_variance": 0.1, "momentum": 0.0, "schedule": "constant"},
    {"temperature": 0.01, "temperature_meaning": "posterior", "prior_variance": 0.3},  # T leaves the prior alone
])  # fmt: skip
def test_a_weight_of_a_dead_input_keeps_what_is_predicted(settings):
    """Nothing but the prior moves it, so that the formula is all of its training, but for the size of the steps."""
    config = VI(epochs=200, batch=20, optimiser="sgd", learning_rate=0.02, **settings)
    fit = fit_vi(KEY, MODEL, data(), config)
    begun, ended = initialise(MODEL, jax.random.fold_in(KEY, 0))["w"][2], fit.posterior.mean["w"][2]
    predicted = decay_left(config, 200)
    assert 0 < predicted < 1
    np.testing.assert_allclose(np.log(ended / begun), np.log(predicted), rtol=0.05)


def test_other_optimisers_have_no_prediction():
    assert decay_left(VI(), 1_000) is None and decay_left(Ensemble(members=2), 1_000) is None


def test_a_share_by_projection():
    start, other = init(jax.random.key(0)), init(jax.random.key(1))
    leaves = drawn_leaves(start, other)
    assert leaves == ["w"]  # biases start alike and remember nothing
    across = other["w"] - jnp.vdot(start["w"], other["w"]) / jnp.vdot(start["w"], start["w"]) * start["w"]
    found = drift_of(start, {"w": 0.25 * start["w"] + across, "b": jnp.ones(2)}, leaves)
    one, two = float(jnp.linalg.norm(start["w"])), float(jnp.linalg.norm(across))
    assert found["kept"] == pytest.approx(0.25, rel=1e-5)
    assert found["cosine"] == pytest.approx(0.25 * one / np.hypot(0.25 * one, two), rel=1e-5)
    assert found["distance"] == pytest.approx(np.hypot(0.75 * one, two) / one, rel=1e-5)


def setting(ratio, variance, kept, share, spread=0.001, predicted=None, epochs=100):
    """Records of one run with two pairs that share no posterior."""
    name = f"{ratio}-{variance}-{epochs}"
    training = {"prior_variance": variance, "temperature": ratio * variance, "epochs": epochs}
    config = {"hash": name, "model": {"name": "mlp"}, "data": {"name": "mnist"}, "training": training}
    done = {"state": "done", "title": name}
    curves = [
        {"naive": {"test": {"value": 1.0}}, "aligned": {"test": {"value": share + way * spread}}} for way in (-1, 1)
    ]
    members = [{"kept": kept, "distance": 1.0, "std": 0.01}] * 4
    drift = {"members": members, "predicted": predicted}
    records = [done | {"settings": {"kind": "train", "config": config}, "numbers": {}}]
    records += [done | {"settings": {"kind": "drift", "config": config}, "numbers": drift}]
    for first, curve in zip((0, 2), curves, strict=True):
        ends = {"first": first, "second": first + 1}
        records += [done | {"settings": {"kind": "pair", "config": config} | ends, "numbers": curve}]
    return records


def verdicts(settings):
    return [
        finding.verdict for finding in CATALOGUE["initialisation"].judge([record for s in settings for record in s])
    ]


def test_one_axis_is_judged_by_settings_that_share_it():
    rest = [setting(10, 0.01, 0.6, 0.1), setting(100, 0.01, 0.1, 0.01, 1e-4)]
    assert verdicts([*rest, setting(10, 0.1, 0.6, 0.11)])[0] == "confirmed"
    assert verdicts([*rest, setting(10, 0.1, 0.6, 0.3)])[0] == "not confirmed"
    assert (
        verdicts([*rest, setting(10, 0.1, 0.6, 0.15)])[0] == "not decided"
    )  # a factor of 1.5, sure to a few per cent
    assert verdicts([*rest, setting(10, 0.1, 0.6, 0.11), setting(100, 0.1, 0.6, 0.4)])[0] == "partly"
    assert len(verdicts([*rest, setting(10, 0.1, 0.6, 0.3, epochs=10)])) == 1  # of other epochs: nothing to compare


def test_the_share_left_follows_what_survives_or_does_not():
    shares = (0.01, 0.05, 0.1, 0.2)
    rising = [setting(10**n, 0.01, 1 - 0.2 * n, share) for n, share in enumerate(shares[::-1])]
    falling = [setting(10**n, 0.01, 0.2 + 0.2 * n, share) for n, share in enumerate(shares[::-1])]
    unsure = [setting(10**n, 0.01, 1 - 0.2 * n, share, spread=0.3) for n, share in enumerate(shares[::-1])]
    assert [verdicts(case) for case in (rising, falling, unsure)] == [
        ["confirmed"],
        ["not confirmed"],
        ["not decided"],
    ]


def test_the_prediction_is_judged_where_there_is_one():
    near = [setting(10, 0.01, 0.6, 0.1, predicted=0.55), setting(100, 0.01, 0.1, 0.01, predicted=0.02)]
    far = setting(1, 0.01, 0.9, 0.3, predicted=0.2)
    assert verdicts(near)[-1] == "confirmed" and verdicts([far])[-1] == "not confirmed"
    assert verdicts([*near, far])[-1] == "partly"
