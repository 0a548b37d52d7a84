"""Variational inference: gradients, the conjugate case, members, grids, options, errors."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import training_toys as toys
from bayesin import VI, Gaussian, fit_vi
from bayesin.errors import ConfigError, DataError, ModelError, TrainingError
from bayesin.inference import fit_vi_grid, kl_divergence
from bayesin.inference import training_step as program
from bayesin.inference.elbo import elbo_of_draws
from bayesin.inference.training_problem import Problem, prepare, training_arrays
from bayesin.likelihoods import Categorical
from bayesin.models import Model

KEY = jax.random.key(7)
QUICK = VI(epochs=3, batch=20, learning_rate=1e-2)


# The meaning of temperature is a matter of the prior, the number of samples one of the likelihood.
@pytest.mark.parametrize("meaning, temperature, samples", [("kl", 1.0, 1), ("kl", 0.3, 1), ("posterior", 0.3, 3)])
def test_the_step_follows_the_gradient_of_the_elbo(meaning, temperature, samples):
    """One step of SGD is minus the rate times the gradient that autodiff finds of the public ELBO."""
    model, (x, y) = toys.gained(), map(jnp.asarray, toys.blobs())
    rate, variance = 0.5, 0.04
    config = VI(epochs=1, batch=60, optimiser="sgd", momentum=0.0, learning_rate=rate, schedule="constant")
    config = dataclasses.replace(
        config, temperature=temperature, temperature_meaning=meaning, train_samples=samples, prior_variance=variance
    )
    found = fit_vi(KEY, model, (x, y), config).posterior

    member = jax.random.fold_in(KEY, 0)
    start = model.init(jax.random.fold_in(member, program.INIT))
    names, fixed = ("gain", "w"), {name: start[name] for name in ("seen", "count")}  # the vector's order
    key = jax.random.fold_in(jax.random.fold_in(member, program.NOISE), 0)
    noise = jax.random.normal(key, (samples, 4 + 12))
    rho = jnp.log(jnp.expm1(jnp.float32(0.01)))
    centre = {"gain": 1.0, "w": 0.0}

    class AtTheStart:
        def moments(self, start):
            return start | {"gain": jnp.ones(4)}, {name: variance for name in start}

    def loss(mean, rho):
        std = jax.tree.map(jax.nn.softplus, rho)
        q = Gaussian(mean | fixed, std | jax.tree.map(jnp.zeros_like, fixed))
        drawn = {"gain": noise[:, :4], "w": noise[:, 4:].reshape(-1, 4, 3)}
        draws = {name: mean[name][None] + std[name][None] * drawn[name] for name in names}
        draws |= {name: jnp.stack([leaf] * samples) for name, leaf in fixed.items()}
        options = {"likelihood": Categorical(), "prior": AtTheStart(), "examples": len(x)}
        if meaning == "kl":
            return elbo_of_draws(q, draws, model.apply, (x, y), temperature=temperature, **options)
        energy = sum(jnp.sum((mean[n] - centre[n]) ** 2 + std[n] ** 2) / (2 * variance) for n in names)
        prior = (energy - temperature * sum(jnp.sum(jnp.log(std[n])) for n in names)) / len(x)
        return elbo_of_draws(q, draws, model.apply, (x, y), temperature=0.0, **options) + prior

    mean = {name: start[name] for name in names}
    rhos = jax.tree.map(lambda leaf: jnp.full(leaf.shape, rho), mean)
    by_mean, by_rho = jax.grad(loss, argnums=(0, 1))(mean, rhos)
    for name in names:
        np.testing.assert_allclose(found.mean[name], mean[name] - rate * by_mean[name], rtol=2e-5, atol=2e-6)
        expected = jax.nn.softplus(rhos[name] - rate * by_rho[name])
        np.testing.assert_allclose(found.std[name], expected, rtol=2e-4)


def test_members_do_not_depend_on_their_number():
    model, data = toys.mlp(), toys.blobs()
    one = fit_vi(KEY, model, data, QUICK).posterior
    three = fit_vi(KEY, model, data, dataclasses.replace(QUICK, members=3)).posteriors
    assert toys.same_bits(one, three[0])
    assert not toys.same_bits(three[0], three[1])


def test_members_side_by_side_are_members_in_sequence():
    model, data = toys.mlp(), toys.blobs()
    first = fit_vi(KEY, model, data, dataclasses.replace(QUICK, members=2, parallel="sequence"))
    second = fit_vi(KEY, model, data, dataclasses.replace(QUICK, members=2, parallel="vmap"))
    for a, b in zip(jax.tree.leaves(first.posteriors), jax.tree.leaves(second.posteriors), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_steps_of_a_convolutional_network_one_by_one_are_those_of_a_loop(monkeypatch):
    """On a CPU such a network is trained with a call for each step; the loop that other devices run says the same."""
    model, data = toys.convolution(), toys.images()
    config = VI(epochs=2, batch=10, learning_rate=1e-2, members=2)
    called = fit_vi(KEY, model, data, config)
    monkeypatch.setattr("bayesin.inference.training_loop.has_convolution", lambda *_: False)
    looped = fit_vi(KEY, model, data, config)
    assert set(called.trace) == set(looped.trace)
    for name in set(called.trace) - {"seconds", "steps_per_second"}:
        np.testing.assert_allclose(called.trace[name], looped.trace[name], rtol=1e-5)
    for a, b in zip(jax.tree.leaves(called.posteriors), jax.tree.leaves(looped.posteriors), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_a_grid_is_its_fits():
    model, data = toys.mlp(), toys.blobs()
    base = dataclasses.replace(QUICK, members=2, parallel="sequence")
    grid = [dataclasses.replace(base, prior_variance=v, temperature=t) for v in (0.01, 1.0) for t in (0.1, 1.0)]
    together = fit_vi_grid(KEY, model, data, grid)
    assert len(together) == 4 and together[2].config == grid[2]
    for config, fit in zip(grid, together, strict=True):
        alone = fit_vi(KEY, model, data, config)
        assert toys.same_bits(alone.posteriors, fit.posteriors)
        np.testing.assert_array_equal(alone.trace["loss"], fit.trace["loss"])
    assert len({float(fit.trace["loss"][-1, 0]) for fit in together}) == 4
    with pytest.raises(ConfigError, match="differ in prior_variance"):
        fit_vi_grid(KEY, model, data, [base, dataclasses.replace(base, epochs=9)])
    with pytest.raises(ConfigError, match="at least one"):
        fit_vi_grid(KEY, model, data, [])


def test_nothing_is_traced_again():
    """Not from interval to interval, nor for other keys, variances, temperatures and rates."""
    calls = []
    inner = toys.mlp()

    def apply(params, x):
        calls.append(1)
        return inner.apply(params, x)

    model, data = Model(inner.init, apply), toys.blobs()
    fit_vi(KEY, model, data, QUICK)
    once = len(calls)
    fit_vi(KEY, model, data, dataclasses.replace(QUICK, parallel="sequence", members=3))
    for change in ({"prior_variance": 2.0}, {"temperature": 0.1}, {"learning_rate": 0.1}):
        fit_vi(jax.random.key(1), model, data, dataclasses.replace(QUICK, **change))
    assert len(calls) == once


def test_log_interval_does_not_change_the_result():
    model, data = toys.mlp(), toys.blobs()
    whole = fit_vi(KEY, model, data, QUICK)
    parts = fit_vi(KEY, model, data, dataclasses.replace(QUICK, log_every=4))
    assert parts.trace["step"].tolist() == [4, 8, 9]
    for a, b in zip(jax.tree.leaves(whole.posterior), jax.tree.leaves(parts.posterior), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_every_epoch_is_a_permutation():
    model, data = toys.mlp(), toys.blobs(65)
    for every in (0, 2):
        config = VI(epochs=4, batch=20, log_every=every)
        problem = Problem(model, training_arrays(data, Categorical()), (config,), (1.0,))
        plan = prepare(KEY, problem).plan
        assert plan.steps_per_epoch == 3 and plan.steps == 12
        order_from = jax.jit(lambda start, plan=plan: program.batch_order(plan, KEY, start))
        parts = [order_from(np.int32(start)) for start in range(0, plan.steps, plan.length)]
        order = np.concatenate(parts).reshape(4, 60)
        assert all(len(set(epoch)) == 60 and epoch.min() >= 0 and epoch.max() < 65 for epoch in order)
        assert len({tuple(epoch) for epoch in order}) == 4


def test_statistics_and_integers_are_held_fixed():
    model, data = toys.gained(), toys.blobs()
    posterior = fit_vi(KEY, model, data, QUICK).posterior
    np.testing.assert_array_equal(posterior.mean["seen"], np.full(4, 0.5, np.float32))
    np.testing.assert_array_equal(posterior.std["seen"], 0)
    np.testing.assert_array_equal(posterior.mean["count"], [0, 1])
    np.testing.assert_array_equal(posterior.std["count"], 0)
    assert posterior.mean["count"].dtype == jnp.int32 and (posterior.std["gain"] > 0).all()


def test_prior_of_gains_sits_where_they_start():
    """With a strong prior and little else to learn from, gains stay at 1, or are pulled to 0."""
    model, (x, y) = toys.gained(), toys.blobs()
    config = VI(epochs=300, batch=60, learning_rate=0.03, prior_variance=1e-4, schedule="constant")
    at_start = fit_vi(KEY, model, (x, y), config).posterior.mean["gain"]
    at_zero = fit_vi(KEY, model, (x, y), dataclasses.replace(config, prior_centre="zero")).posterior.mean["gain"]
    assert np.abs(np.asarray(at_start) - 1).max() < 0.1 and np.abs(np.asarray(at_zero)).max() < 0.1


def test_gains_can_stay_points():
    posterior = fit_vi(KEY, toys.gained(), toys.blobs(), dataclasses.replace(QUICK, gains="points")).posterior
    np.testing.assert_array_equal(posterior.std["gain"], 0)
    assert np.abs(np.asarray(posterior.mean["gain"]) - 1).max() > 0 and (posterior.std["w"] > 0).all()


def test_a_cold_kl_forgets_the_prior_and_a_hot_one_returns_to_it():
    model, data = toys.mlp(), toys.blobs()
    config = VI(epochs=400, batch=60, learning_rate=0.02, prior_variance=0.04)
    cold = fit_vi(KEY, model, data, dataclasses.replace(config, temperature=1e-6))
    hot = fit_vi(KEY, model, data, dataclasses.replace(config, temperature=1e4))
    assert cold.trace["nll"][-1, 0] < 0.1
    assert hot.trace["std_mean"][-1, 0] == pytest.approx(0.2, rel=0.05)
    assert np.abs(np.asarray(hot.posterior.mean["layer1"]["w"])).max() < 0.02


def test_cold_posterior_shrinks_stds_by_the_root_of_the_temperature():
    """exp(−U/T) without a likelihood: variance T·v; tempered KL: variance v whatever T."""
    model = Model(lambda key: {"w": jnp.zeros((2, 2))}, lambda params, x: 0.0 * x @ params["w"])
    data = (np.ones((10, 2), np.float32), np.zeros(10, np.int32))
    config = VI(epochs=1500, batch=10, learning_rate=0.03, prior_variance=0.25, temperature=0.25, log_every=500)
    tempered = fit_vi(KEY, model, data, config).posterior
    cold = fit_vi(KEY, model, data, dataclasses.replace(config, temperature_meaning="posterior")).posterior
    np.testing.assert_allclose(tempered.std["w"], 0.5, rtol=0.01)
    np.testing.assert_allclose(cold.std["w"], 0.25, rtol=0.01)


def test_bfloat16_computes_coarsely_and_stores_float32():
    model, data = toys.mlp(), toys.blobs()
    fine = fit_vi(KEY, model, data, QUICK)
    coarse = fit_vi(KEY, model, data, dataclasses.replace(QUICK, compute="bfloat16"))
    assert coarse.posterior.mean["layer0"]["w"].dtype == jnp.float32
    assert not toys.same_bits(fine.posterior, coarse.posterior)
    np.testing.assert_allclose(coarse.trace["nll"], fine.trace["nll"], rtol=0.05)


def test_trace_and_progress():
    model, data, seen = toys.mlp(), toys.blobs(), []
    fit = fit_vi(KEY, model, data, dataclasses.replace(QUICK, members=2), on_progress=seen.append)
    assert fit.trace["step"].tolist() == [3, 6, 9] and fit.trace["epoch"].tolist() == [1, 2, 3]
    for name in ("loss", "nll", "kl", "accuracy", "std_mean", "std_min", "std_max"):
        assert fit.trace[name].shape == (3, 2) and np.isfinite(fit.trace[name]).all()
    assert [p.step for p in seen] == [3, 6, 9] and seen[0].steps == 9 and len(seen[-1].rows) == 3
    expected = fit.trace["nll"] + fit.trace["kl"] / 60
    np.testing.assert_allclose(fit.trace["loss"], expected, rtol=1e-5)
    kl = kl_divergence(*(jnp.concatenate([a.ravel() for a in jax.tree.leaves(t)]) for t in
                         (fit.posteriors[1].mean, fit.posteriors[1].std)), 0.0, 0.01)  # fmt: skip
    assert float(kl) == pytest.approx(float(fit.trace["kl"][-1, 1]), rel=1e-4)
    assert fit.memory.member == 4 * 6 * fit.posteriors[0].size + 4 and fit.memory.data > 0


def test_test_set_is_looked_at():
    class Data:
        x_train, y_train = toys.blobs(60)
        x_test, y_test = toys.blobs(33)

    fit = fit_vi(KEY, toys.mlp(), Data, dataclasses.replace(QUICK, members=2, eval_every=3))
    assert np.isnan(fit.trace["test_nll"][:2]).all()
    outputs = toys.mlp().apply(fit.posteriors[1].mean, jnp.asarray(Data.x_test))
    accuracy = float((outputs.argmax(-1) == Data.y_test).mean())
    assert float(fit.trace["test_accuracy"][-1, 1]) == pytest.approx(accuracy)


@pytest.mark.parametrize("parallel", ["sequence", "vmap"])
def test_divergence_stops_within_an_interval(parallel):
    config = dataclasses.replace(QUICK, optimiser="sgd", learning_rate=1e6, epochs=50, members=2, parallel=parallel)
    with pytest.raises(TrainingError, match=r"learning_rate \(now 1e\+06\).*warmup.*clip.*no checkpoint") as caught:
        fit_vi(KEY, toys.mlp(), toys.blobs(), config)
    assert caught.value.step is not None and caught.value.step <= 9
    assert caught.value.trace["step"][-1] == caught.value.step


def test_explosion_without_nan_is_seen():
    config = dataclasses.replace(QUICK, optimiser="sgd", learning_rate=30.0, epochs=50, explosion=3.0)
    with pytest.raises(TrainingError, match="diverged"):
        fit_vi(KEY, toys.mlp(), toys.blobs(), config)


@pytest.mark.parametrize(
    "field, value",
    [
        ("prior_variance", 0.0), ("prior_variance", float("nan")), ("members", 0), ("epochs", 0), ("batch", 0),
        ("learning_rate", -1.0), ("learning_rate", float("inf")), ("momentum", 1.0), ("clip", -1.0), ("warmup", -1),
        ("optimiser", "adamw"), ("schedule", "linear"), ("temperature", -0.1), ("initial_std", 0.0),
        ("train_samples", 0), ("gains", "x"), ("temperature_meaning", "x"), ("compute", "float16"), ("noise", 0.0),
    ],
)  # fmt: skip
def test_settings_without_meaning_are_refused(field, value):
    with pytest.raises(ConfigError, match=field):
        VI(**{field: value})


def test_data_that_do_not_fit_are_refused():
    model, (x, y) = toys.mlp(), toys.blobs()
    for data, error, message in [
        ((x, y[:-1]), DataError, "one target for each input"),
        ((x[:0], y[:0]), DataError, "one target for each input"),
        ((x, y.astype(np.float32)), DataError, "whole numbers"),
        ((x, y + 1), DataError, "3 outputs"),
        ((x, y - 1), DataError, "3 outputs"),
        ((np.where(np.arange(60)[:, None] == 5, np.nan, x), y), DataError, "input 5 holds NaN"),
        ((x[:, :3], y), ModelError, "cannot be applied"),
        ("mnist", DataError, "Dataset or a pair"),
    ]:
        with pytest.raises(error, match=message):
            fit_vi(KEY, model, data, QUICK)
    with pytest.raises(DataError, match="targets have shape"):
        fit_vi(KEY, model, (x, y.astype(np.float32)), dataclasses.replace(QUICK, likelihood="gaussian"))
    with pytest.raises(ConfigError, match=r"jax\.random\.key"):
        fit_vi(0, model, (x, y), QUICK)
    with pytest.raises(ConfigError, match="warmup"):
        fit_vi(KEY, model, (x, y), dataclasses.replace(QUICK, warmup=100))


def test_more_batch_than_data_is_full_batch():
    fit = fit_vi(KEY, toys.mlp(), toys.blobs(), dataclasses.replace(QUICK, batch=500))
    assert fit.trace["step"].tolist() == [1, 2, 3]


def test_weights_of_a_finished_module_are_no_gains_and_make_no_independent_members():
    params = {"w": jnp.array([[1.0, -2.0], [0.5, 3.0]]), "scale": jnp.ones(2)}
    model = Model(lambda key: params, lambda p, x: (x @ p["w"]) * p["scale"][None])
    x, y = np.eye(2, dtype=np.float32).repeat(4, 0), np.arange(2).repeat(4)
    fit = fit_vi(jax.random.key(0), model, (x, y), VI(epochs=1, batch=8, gains="points"))
    assert np.all(np.asarray(fit.posterior.std["scale"]) == 0)  # the gain is a point, as asked for
    assert np.all(np.asarray(fit.posterior.std["w"]) > 0)  # the weights are not
    with pytest.raises(ConfigError, match="constructor"):
        fit_vi(jax.random.key(0), model, (x, y), VI(epochs=1, batch=8, members=2))
