"""HMC: known moments, acceptance as theory has it, the same bits after a resume, chains on their own."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.diagnostics import rhat

from bayesin.errors import ArtifactError, ConfigError, ModelError, TrainingError
from bayesin.inference import HMC, Draws, effective_sample_size, fit_hmc, mixing, split_rhat
from bayesin.inference.hmc.kernel import Chain, advance, iterate
from bayesin.inference.hmc.sampling import _positions as positions_of
from bayesin.inference.hmc.target import Target, TemperedPrior, make_target, usable_precision
from bayesin.inputs import cut
from bayesin.models import Model

KEY = jax.random.key(7)
LINEAR = Model(
    lambda key: {"w": 0.1 * jax.random.normal(key, (3, 1)), "b": jnp.zeros(1)},
    lambda params, x: x @ params["w"] + params["b"][None],
)


def regression(count=40):
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(count, 3)) @ np.array([[1, 0.8, 0], [0, 0.6, 0.3], [0, 0, 1]])).astype(np.float32)
    return x, (x @ np.array([1.0, -2.0, 0.5]) + 0.3 + 0.5 * rng.normal(size=count)).astype(np.float32)


def exact_posterior(x, y, noise, prior_variance, temperature=1.0):
    design = np.concatenate([x, np.ones((len(x), 1))], 1).astype(np.float64)
    covariance = np.linalg.inv(design.T @ design / noise**2 + np.eye(4) / prior_variance)
    return covariance @ design.T @ y / noise**2, covariance * temperature


def moments(samples):
    flat = np.concatenate([np.asarray(samples.params["w"])[..., 0], np.asarray(samples.params["b"])], 1)
    return flat.reshape(-1, 4)


@pytest.mark.parametrize(
    "integrator, step, steps", [("leapfrog", 0.06, 16), pytest.param("mclachlan", 0.04, 24, marks=pytest.mark.slow)]
)
def test_linear_regression_has_the_exact_posterior(integrator, step, steps):
    x, y = regression()
    config = HMC(
        samples=400, chains=4, burn_in=50, step_size=step, steps=steps, integrator=integrator, chunk=17,
        likelihood="gaussian", noise=0.5, prior_variance=2.0, temperature=0.7, probe=8, jitter=0.1,
    )  # fmt: skip
    fit = fit_hmc(KEY, LINEAR, (x, y), config)
    mean, covariance = exact_posterior(x, y, 0.5, 2.0, 0.7)
    draws = moments(fit.posterior)
    assert draws.shape == (1600, 4)
    effective = float(fit.trace["ess_min"][-1])
    assert effective > 400 and fit.trace["rhat_max"][-1] < 1.04
    std = np.sqrt(np.diag(covariance))
    assert np.all(np.abs(draws.mean(0) - mean) < 4 * std / np.sqrt(effective))
    # the standard error of a covariance of Gaussians is √(2/n) of its scale at most
    found = np.cov(draws.T) / np.outer(std, std)
    assert np.all(np.abs(found - covariance / np.outer(std, std)) < 5 * np.sqrt(2 / effective))


def gaussian_target(precision):
    def density(params):
        return -0.5 * params["w"] @ precision @ params["w"]

    # all energy in the terms, none in the prior: one term for each coordinate
    return Target(density, lambda params: -0.5 * params["w"] * (precision @ params["w"]), TemperedPrior(0.0))


def run_kernel(target, start, count, **options):
    def one(chain, key):
        chain, info = iterate(
            target, key, chain, options["step_size"], steps=options["steps"], integrator="velocity_verlet"
        )
        return chain, (chain.position["w"], info)

    value, gradient = jax.value_and_grad(target.log_density)({"w": start})
    begin = Chain({"w": start}, value, gradient, target.terms({"w": start}))
    return jax.jit(lambda: jax.lax.scan(one, begin, jax.random.split(KEY, count))[1])()


def test_kernel_samples_a_correlated_gaussian():
    covariance = np.array([[2.0, 1.2, 0.0], [1.2, 1.0, 0.1], [0.0, 0.1, 0.5]])
    precision = jnp.asarray(np.linalg.inv(covariance), jnp.float32)
    draws, _ = run_kernel(gaussian_target(precision), jnp.ones(3), 8000, step_size=0.2, steps=9)
    draws = np.asarray(draws)[100:].astype(np.float64)
    std = np.sqrt(np.diag(covariance))
    effective = min(effective_sample_size(draws[None]).min(), effective_sample_size(draws[None] ** 2).min())
    assert effective > 500
    assert np.all(np.abs(draws.mean(0)) < 4 * std / np.sqrt(effective))
    assert np.abs((np.cov(draws.T) - covariance) / np.outer(std, std)).max() < 4 * np.sqrt(2 / effective)


def test_a_coarse_force_costs_acceptance_and_not_the_target():
    covariance = np.array([[1.0, 0.6], [0.6, 0.8]])
    precision = jnp.asarray(np.linalg.inv(covariance), jnp.float32)
    exact = gaussian_target(precision)

    @jax.custom_vjp
    def rough(params):
        return exact.log_density(params)

    def bend(g, w):  # rounded to a grid and turned: the gradient of nothing, but a function of the position
        slope = -precision @ w
        return ({"w": g * (jnp.round(2 * slope) / 2 + 0.3 * slope[::-1] * jnp.array([1.0, -1.0]))},)

    rough.defvjp(lambda params: (rough(params), params["w"]), lambda w, g: bend(g, w))
    found = {}
    for name, target in (("exact", exact), ("rough", exact._replace(log_density=rough))):
        draws, info = run_kernel(target, jnp.ones(2), 20_000, step_size=0.25, steps=5)
        found[name] = float(np.asarray(info.acceptance).mean())
        draws = np.asarray(draws)[100:].astype(np.float64)
        effective = min(effective_sample_size(draws[None]).min(), effective_sample_size(draws[None] ** 2).min())
        std = np.sqrt(np.diag(covariance))
        assert effective > 1000
        assert np.all(np.abs(draws.mean(0)) < 4 * std / np.sqrt(effective))
        assert np.abs((np.cov(draws.T) - covariance) / np.outer(std, std)).max() < 4 * np.sqrt(2 / effective)
    assert found["rough"] < found["exact"] - 0.1


def test_precisions_have_our_names_and_fall_back_where_a_device_lacks_them():
    for name in ("float32", "bf16x3", "bf16x6", "tf32x3", "tf32", "highest", "BF16_BF16_F32_X3"):
        HMC(precision=name)
    assert usable_precision("bf16x3") == "bf16x3"
    if jax.default_backend() == "cpu":
        with pytest.warns(UserWarning, match="tf32 is not available on cpu"):
            assert usable_precision("tf32") == "highest"
    x, y = regression()
    plain = fit_hmc(KEY, LINEAR, (x, y), SMALL).trace["accepted"]
    split = fit_hmc(KEY, LINEAR, (x, y), replace(SMALL, precision="bf16x6")).trace["accepted"]
    np.testing.assert_array_equal(plain, split)


def test_acceptance_is_what_leapfrog_theory_predicts():
    size, step, steps = 400, 0.5, 5
    kick = np.array([[1, 0], [-step / 2, 1]])
    move = np.linalg.matrix_power(kick @ np.array([[1, step], [0, 1]]) @ kick, steps)
    expected = size * (np.trace(move.T @ move) - 2) / 2  # mean energy error of independent oscillators
    # energy errors are N(m, 2m) for many independent parts, so the acceptance is 2Φ(−√(m/2))
    acceptance = 2 * jax.scipy.stats.norm.cdf(-np.sqrt(expected / 2))
    start = jax.random.normal(jax.random.key(1), (size,))
    _, info = run_kernel(gaussian_target(jnp.eye(size)), start, 2000, step_size=step, steps=steps)
    rate = np.asarray(info.acceptance)
    assert 0.2 < acceptance < 0.8
    assert abs(rate.mean() - acceptance) < 0.03
    assert abs(np.asarray(info.accepted).mean() - rate.mean()) < 4 * 0.5 / np.sqrt(2000)
    assert abs(np.asarray(info.energy_error).mean() - expected) < 0.2 * expected


def test_gradient_over_chunks_is_the_gradient_of_the_log_posterior():
    x, y = regression(23)

    def log_likelihood(params, x, y):
        return -0.5 * jnp.square(LINEAR.apply(params, x)[:, 0] - y)

    prior = TemperedPrior(1 / (0.3 * 2.0))
    target = make_target(log_likelihood, cut(x, y, 10), prior, temperature=2.0, precision="highest")
    params = LINEAR.init(KEY)

    def direct(params):
        prior = sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(params)) / 0.3
        return (log_likelihood(params, x, y).sum() - 0.5 * prior) / 2.0

    value, gradient = jax.value_and_grad(target.log_density)(params)
    expected, slope = jax.value_and_grad(direct)(params)
    assert jnp.allclose(value, expected, rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), gradient, slope)
    assert target.terms(params).shape == (24,) and float(target.terms(params)[-1]) == 0.0
    assert jnp.allclose(target.terms(params).sum(), log_likelihood(params, x, y).sum() / 2, rtol=1e-5)


SMALL = HMC(
    samples=7, chains=2, burn_in=3, thin=2, step_size=0.05, steps=3, likelihood="gaussian", draws_per_file=2, probe=4
)


def same_bits(first, second):
    for name in first.trace.keys() - {"seconds"}:
        np.testing.assert_array_equal(first.trace[name], second.trace[name], err_msg=name)
    jax.tree.map(np.testing.assert_array_equal, first.posterior.params, second.posterior.params)


def test_a_killed_and_a_prolonged_run_have_the_bits_of_an_undisturbed_one(tmp_path):
    config, data = replace(SMALL, adapt=True), regression()
    whole = fit_hmc(KEY, LINEAR, data, config, checkpoint=tmp_path / "whole")
    same_bits(whole, fit_hmc(KEY, LINEAR, data, config))  # in memory

    class Killed(Exception):
        pass

    def kill(progress):
        if progress.step == kill.at and not progress.resumed:
            raise kill.by

    # in burn-in, between two checkpoints, right after one; and asked to stop, which saves first
    for kill.at, kill.by in ((2, Killed), (9, Killed), (13, Killed), (14, KeyboardInterrupt)):
        with pytest.raises(kill.by):
            fit_hmc(KEY, LINEAR, data, config, checkpoint=tmp_path / "killed", on_progress=kill)
    same_bits(whole, fit_hmc(KEY, LINEAR, data, config, checkpoint=tmp_path / "killed"))
    fit_hmc(KEY, LINEAR, data, replace(config, samples=3, draws_per_file=5), checkpoint=tmp_path / "short")
    same_bits(whole, fit_hmc(KEY, LINEAR, data, config, checkpoint=tmp_path / "short"))
    calls = []
    again = fit_hmc(KEY, LINEAR, data, config, checkpoint=tmp_path / "short", on_progress=calls.append)
    assert len(calls) == 1 and calls[0].resumed and len(calls[0].rows) == config.iterations
    same_bits(whole, again)


def test_draws_are_read_as_needed(tmp_path):
    fit = fit_hmc(KEY, LINEAR, regression(), SMALL, checkpoint=tmp_path)
    draws = Draws(tmp_path)
    assert isinstance(draws, Draws) and (len(draws), draws.chains, draws.per_chain) == (14, 2, 7)
    loaded = draws.load()
    for index in (0, 6, 7, 13, -1):
        np.testing.assert_array_equal(draws[index]["w"], loaded[index]["w"])
    np.testing.assert_array_equal(draws[5:10].params["b"], loaded[5:10].params["b"])
    jax.tree.map(np.testing.assert_array_equal, fit.posterior.params, loaded.params)
    np.testing.assert_allclose(draws.mean["w"], loaded.mean["w"], rtol=1e-5)
    assert len(draws.load(every=3)) == 5
    files = sorted(tmp_path.iterdir())
    mapped = draws.mapped()
    jax.tree.map(np.testing.assert_array_equal, mapped.params, loaded.params)
    assert isinstance(mapped.params["w"], np.memmap) and sorted(tmp_path.iterdir()) == files  # nothing is left
    with pytest.raises(IndexError):
        draws[14]
    (tmp_path / "draws-000002.safetensors").unlink()
    with pytest.raises(ArtifactError, match="does not follow"):
        Draws(tmp_path)


def test_a_folder_of_another_run_is_refused(tmp_path):
    data = regression()
    fit_hmc(KEY, LINEAR, data, SMALL, checkpoint=tmp_path)
    with pytest.raises(ConfigError, match=r"step_size was 0\.05 and is 0\.06"):
        fit_hmc(KEY, LINEAR, data, replace(SMALL, step_size=0.06), checkpoint=tmp_path)
    with pytest.raises(ConfigError, match="another run: data"):
        fit_hmc(KEY, LINEAR, regression(41), SMALL, checkpoint=tmp_path)
    with pytest.raises(ConfigError, match="another run"):
        fit_hmc(jax.random.key(8), LINEAR, data, SMALL, checkpoint=tmp_path)
    with pytest.raises(ConfigError, match="holds 7 draws"):
        fit_hmc(KEY, LINEAR, data, replace(SMALL, samples=5), checkpoint=tmp_path)


def test_chains_do_not_know_of_each_other():
    data = regression()
    both = fit_hmc(KEY, LINEAR, data, SMALL).posterior.params["w"].reshape(2, 7, 3)
    alone = fit_hmc(KEY, LINEAR, data, replace(SMALL, chains=1)).posterior.params["w"].reshape(7, 3)
    np.testing.assert_allclose(both[0], alone, atol=1e-5)
    assert np.abs(both[0] - both[1]).max() > 0.01


def test_start_is_where_chains_begin():
    start = {"w": jnp.full((3, 1), 0.2), "b": jnp.ones(1)}
    keys = jax.random.split(KEY, 2)
    same = positions_of(LINEAR, keys, start)
    assert same["w"].shape == (2, 3, 1) and np.all(np.asarray(same["w"]) == np.float32(0.2))
    stacked = {"w": jnp.stack([start["w"], 3 * start["w"]]), "b": jnp.ones((2, 1))}
    np.testing.assert_array_equal(positions_of(LINEAR, keys, stacked)["w"], stacked["w"])
    with pytest.raises(ModelError, match="start: 'b' has shape"):
        positions_of(LINEAR, keys, {"w": jnp.ones((3, 3, 1)), "b": jnp.ones((3, 1))})
    with pytest.raises(TrainingError, match="chain 1 cannot start"):
        fit_hmc(KEY, LINEAR, regression(), SMALL, start={"w": stacked["w"].at[1].set(jnp.nan), "b": stacked["b"]})


def test_adaptation_reaches_the_acceptance_it_aims_at():
    x, y = regression()
    config = HMC(
        samples=200, chains=2, burn_in=300, step_size=1e-3, steps=5, adapt=True, target_acceptance=0.7,
        likelihood="gaussian", noise=0.5,
    )  # fmt: skip
    trace = fit_hmc(KEY, LINEAR, (x, y), config).trace
    # the averaged step is a little smaller than the one that meets the target, and 200 draws say ± 0.03
    assert np.abs(trace["acceptance"][300:].mean(0) - 0.75).max() < 0.15
    assert trace["step_size"][300].min() > 20 * config.step_size
    assert np.ptp(trace["step_size"][300:], 0).max() == 0


def test_one_program_serves_all_iterations():
    model = Model(LINEAR.init, lambda params, x: LINEAR.apply(params, x))  # new to the cache
    for samples in (2, 9):
        before = advance._cache_size()
        fit_hmc(KEY, model, regression(), replace(SMALL, samples=samples))
        assert advance._cache_size() - before == (1 if samples == 2 else 0)


def test_bad_input_is_one_clear_line():
    for options, message in [
        ({"steps": 0}, "steps must be at least 1"),
        ({"step_size": -1.0}, "step_size must be positive"),
        ({"precision": "exact"}, "JAX knows no 'exact'"),
        ({"integrator": "euler"}, "integrator must be one of"),
        ({"adapt": True, "burn_in": 0}, "burn_in must be at least 1"),
        ({"samples": True}, "samples must be"),
        ({"target_acceptance": 1.0}, "target_acceptance"),
    ]:
        with pytest.raises(ConfigError, match=message):
            HMC(**options)
    running = Model(LINEAR.init, LINEAR.apply, frozenset({"b"}))
    with pytest.raises(ModelError, match="'b' is a running statistic"):
        fit_hmc(KEY, running, regression(), SMALL)


def test_rhat_sees_chains_that_differ_in_place_or_in_spread():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(4, 400, 3))
    values[0, :, 1] += 2
    values[0, :, 2] *= 4
    good, shifted, spread = split_rhat(values)
    assert good < 1.02 < 1.1 < min(shifted, spread)
    drift = rng.normal(size=(1, 400)) + np.linspace(0, 3, 400)
    assert split_rhat(drift) > 1.1  # one chain is compared with itself
    assert np.isnan(split_rhat(values[:, :3])).all() and np.isnan(split_rhat(np.ones((2, 10))))


def test_rhat_is_that_of_blackjax():
    """Of an odd number of draws, of ties and of chains that differ; it sees the same float32 numbers."""
    values = np.random.default_rng(1).normal(size=(3, 21, 4))
    values[..., 1] = np.round(values[..., 1])
    values[0, :, 2] *= 5
    values[0, :, 3] += 2
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        expected = mixing._of_each(lambda centred: rhat(jnp.asarray(centred)), values)
    np.testing.assert_allclose(split_rhat(values), expected, rtol=1e-5)
    assert split_rhat(values[:, :, 0]).shape == () and split_rhat(values[..., None]).shape == (4, 1)


def test_effective_sample_size_knows_no_scale():
    """Log-probabilities or probabilities of 1e-30: squares that float32 cannot hold."""
    walk = np.random.default_rng(5).normal(size=(4, 50, 3)).cumsum(1)
    np.testing.assert_allclose(effective_sample_size(1e-30 * walk), effective_sample_size(walk), rtol=1e-3)
    np.testing.assert_allclose(effective_sample_size(1e30 * walk), effective_sample_size(walk), rtol=1e-3)


def test_effective_sample_size_is_what_theory_has_for_a_chain_with_memory():
    """x_t = ρ x_{t-1} + noise has autocorrelations ρᵗ, so n draws are worth n (1 − ρ) / (1 + ρ)."""
    rng = np.random.default_rng(1)
    values = rng.normal(size=(4, 4000, 2))
    for rho, column in ((0.6, 0), (0.0, 1)):
        for t in range(1, 4000):
            values[:, t, column] = rho * values[:, t - 1, column] + np.sqrt(1 - rho**2) * values[:, t, column]
    found = effective_sample_size(values + 1e4)  # far from zero, where float32 has three digits after the point
    np.testing.assert_allclose(found, [16_000 * 0.4 / 1.6, 16_000], rtol=0.1)
    assert np.isnan(effective_sample_size(np.ones((2, 10)))) and np.isnan(effective_sample_size(values[:, :3])).all()
