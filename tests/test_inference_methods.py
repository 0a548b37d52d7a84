"""Every method on every problem: the answer is known by integration, and the promises are the same for all."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import training_toys as toys
from bayesin import (
    HMC,
    SGMCMC,
    SWAG,
    VI,
    Ensemble,
    FactorGaussian,
    Gaussian,
    Laplace,
    Samples,
    fit_ensemble,
    fit_hmc,
    fit_laplace,
    fit_sgmcmc,
    fit_swag,
    fit_vi,
    predict,
)
from bayesin.errors import ConfigError, DataError
from bayesin.inference import FanIn, Isotropic, effective_sample_size
from bayesin.likelihoods import Normal, NormalHead
from bayesin.models import Model

KEY = jax.random.key(7)
PROBLEMS = toys.one_weight_problems()
TRAINED = {"batch": 24, "epochs": 1000, "learning_rate": 0.03, "log_every": 1000}
METHODS = {
    "vi": (fit_vi, VI(**TRAINED, train_samples=8, initial_std=0.2)),
    "ensemble": (fit_ensemble, Ensemble(**TRAINED, members=2)),
    "hmc": (fit_hmc, HMC(samples=300, chains=4, burn_in=30, step_size=0.12, steps=6, jitter=0.2, probe=4)),
    "laplace": (fit_laplace, Laplace(**TRAINED)),
    "swag": (fit_swag, SWAG(**(TRAINED | {"optimiser": "adam", "collect_rate": 1e-4, "rank": 5}))),
    "sgmcmc": (
        fit_sgmcmc,
        SGMCMC(members=2, samples=500, batch=24, epochs=24_000, burn_in=0.1, step_size=2e-3, log_every=8000),
    ),
}
SHORT = {
    "laplace": {"epochs": 2, "log_every": 0},
    "swag": {"epochs": 40, "log_every": 0},
    "sgmcmc": {"members": 1, "epochs": 20, "samples": 5, "log_every": 0},
    "vi": {"epochs": 2, "log_every": 0},
    "ensemble": {"epochs": 2, "log_every": 0},
    "hmc": {"samples": 5, "burn_in": 2},
}
every_method = pytest.mark.parametrize("method", METHODS)
every_problem = pytest.mark.parametrize("name", PROBLEMS)


def fitted(method, problem, key=KEY, **changes):
    fit, settings = METHODS[method]
    changes = {"likelihood": problem.likelihood, "prior": Isotropic(problem.prior_variance, "zero")} | changes
    return fit(key, problem.model, problem.data, replace(settings, **changes))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:training accuracy is")  # one weight cannot tell these classes apart
@every_method
@every_problem
def test_the_answer_is_the_one_that_integration_gives(method, name):
    problem = PROBLEMS[name]
    found = fitted(method, problem)
    if method == "vi":
        mean, std = problem.best_gaussian
        # the noise of eight draws a step, the rate falling to zero
        assert float(found.posterior.mean["w"][0]) == pytest.approx(mean, abs=0.03 * std)
        assert float(found.posterior.std["w"][0]) == pytest.approx(std, rel=0.03)
    elif method == "ensemble":
        np.testing.assert_allclose(found.posterior.params["w"][:, 0], problem.maximum, atol=1e-3)
    elif method in ("laplace", "swag"):  # at the maximum; as wide as the curvature, as narrow as a converged descent
        assert float(found.posterior.mean["w"][0]) == pytest.approx(problem.maximum, abs=1e-3)
        w, h = problem.maximum, 1e-3
        second = sum(sign * problem.log_joint(w + step) for sign, step in ((1, h), (-2, 0), (1, -h))) / h**2
        width = 1 / np.sqrt(-second) if method == "laplace" else 0.0
        # beside the Hessian, the Gauss-Newton matrix leaves the curvature of the outputs out, if there is any
        assert float(found.posterior.std["w"][0]) == pytest.approx(width, rel=0.02, abs=2e-3)
    elif method == "sgmcmc":
        mean, std = problem.moments
        draws = np.asarray(found.posterior.params["w"])[:, 0].reshape(2, 500)
        effective = float(effective_sample_size(draws))
        assert effective > 300 and abs(draws.mean() - mean) < 4 * std / np.sqrt(effective)
        # the step's own bias is below 2 % here; the rest is Monte Carlo
        assert abs(draws.std() / std - 1) < 0.02 + 4 / np.sqrt(2 * effective)
    else:
        mean, std = problem.moments
        draws, effective = np.asarray(found.posterior.params["w"])[:, 0], float(found.trace["ess_min"][-1])
        assert effective > 300 and found.trace["rhat_max"][-1] < 1.03
        assert abs(draws.mean() - mean) < 4 * std / np.sqrt(effective)
        assert abs(draws.std() / std - 1) < 4 / np.sqrt(2 * effective)


@every_method
@every_problem
def test_promises_that_hold_for_all(method, name):
    problem, quick = PROBLEMS[name], SHORT[method]
    first = fitted(method, problem, **quick)
    assert toys.same_bits(first.posteriors, fitted(method, problem, **quick).posteriors)
    assert not toys.same_bits(first.posteriors, fitted(method, problem, jax.random.key(8), **quick).posteriors)
    families = {"vi": Gaussian, "laplace": Gaussian, "swag": FactorGaussian}
    assert isinstance(first.posterior, families.get(method, Samples))
    assert first.likelihood == problem.likelihood and first.config.likelihood in (
        "categorical",
        "gaussian",
        toys.Poisson(),
    )
    assert {"step", "seconds"} <= set(first.trace) and len(repr(first).splitlines()) == 5 + (method == "hmc")
    leaves = jax.tree.leaves(jax.tree.map(jnp.copy, first))  # a pytree like any other
    assert all(isinstance(leaf, np.ndarray | jax.Array) for leaf in leaves)
    x, y = problem.data
    with pytest.raises(DataError, match="input 3 holds NaN"):
        fitted(method, problem._replace(data=(np.where(np.arange(len(x))[:, None] == 3, np.nan, x), y)), **quick)
    with pytest.raises(DataError, match="one target for each input"):
        fitted(method, problem._replace(data=(x, y[:-1])), **quick)


@dataclass(frozen=True)
class Off:
    """A prior of a user's own: another centre and another variance for each weight."""

    def moments(self, start):
        return {"w": jnp.array([0.5, -0.5, 0.0])}, {"w": jnp.array([0.1, 1.0, 4.0])}


@every_method
@pytest.mark.parametrize("prior", [Off(), FanIn(0.6), Isotropic(0.3, "zero")], ids=lambda prior: type(prior).__name__)
def test_priors_enter_every_method(method, prior):
    """Conjugate: the posterior precision is XᵀX/σ² + V⁻¹, its mean solves Λ m = Xᵀy/σ² + V⁻¹ c."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(12, 3)).astype(np.float32)
    y = (x @ np.array([0.3, -0.2, 1.0]) + 0.7 * rng.normal(size=12)).astype(np.float32)
    shape = (3, 1) if isinstance(prior, FanIn) else (3,)
    model = Model(lambda key: {"w": 0.1 * jax.random.normal(key, shape)}, lambda p, x: x @ p["w"].reshape(3, 1))
    centre, variance = (np.broadcast_to(part["w"], shape).ravel() for part in prior.moments({"w": np.zeros(shape)}))
    assert not isinstance(prior, FanIn) or variance[0] == pytest.approx(0.2)
    precision = x.T @ x / 0.7**2 + np.diag(1 / variance)
    exact = np.linalg.solve(precision, x.T @ y / 0.7**2 + centre / variance)
    changes = {"batch": 12, "epochs": 600, "log_every": 300} if method != "hmc" else {"burn_in": 60, "samples": 200}
    changes |= {"members": 1, "epochs": 12_000, "samples": 300, "log_every": 6000} if method == "sgmcmc" else {}
    problem = toys.OneWeight(model, (x, y), Normal(0.7), lambda w: 0.0)
    posterior = fitted(method, problem, prior=prior, **changes).posterior
    std = np.sqrt(np.diag(np.linalg.inv(precision)))
    # 800 draws that are nearly independent; eight draws a step with a rate that falls to zero
    slack = {"vi": 0.1 * std, "hmc": 0.25 * std, "sgmcmc": 0.3 * std}.get(method, 5e-3)
    assert (np.abs(np.asarray(jax.tree.leaves(posterior.mean)[0]).ravel() - exact) < slack).all()
    if method in ("vi", "laplace"):
        slack = {"vi": 0.06, "laplace": 1e-5}[method]
        np.testing.assert_allclose(posterior.std["w"].ravel(), 1 / np.sqrt(np.diag(precision)), rtol=slack)
    if method == "laplace":  # all of a linear model is its last layer; then the answer is exact
        whole = fitted(method, problem, prior=prior, layers="last", covariance="full", **changes).posterior
        factors = np.asarray(whole.factors["w"]).reshape(3, 3)
        np.testing.assert_allclose(factors.T @ factors, np.linalg.inv(precision), rtol=1e-4)
    if method == "sgmcmc":
        np.testing.assert_allclose(posterior.std["w"].ravel(), std, rtol=0.25)


@pytest.mark.parametrize("method", ["vi", "ensemble"])
def test_an_optax_transformation_brings_its_own_rate(method):
    model, data = toys.mlp(), toys.blobs()
    fit, settings = METHODS[method][0], type(METHODS[method][1])(members=1, epochs=3, batch=20)
    named = fit(KEY, model, data, replace(settings, learning_rate=0.01, schedule="constant"))
    given = fit(KEY, model, data, replace(settings, optimiser=optax.adam(0.01)))
    for a, b in zip(jax.tree.leaves(named.posteriors), jax.tree.leaves(given.posteriors), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
    decayed = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(optax.cosine_decay_schedule(0.01, 9)))
    assert not toys.same_bits(
        fit(KEY, model, data, replace(settings, optimiser=decayed)).posteriors, given.posteriors
    )
    with pytest.raises(ConfigError, match=r"learning_rate must be left at 0\.001"):
        replace(settings, optimiser=optax.adam(0.01), learning_rate=0.1)
    with pytest.raises(ConfigError, match="optax"):
        replace(settings, optimiser="adamw")


@pytest.mark.parametrize("method", ["vi", "ensemble"])
def test_learned_noise_is_the_maximum_of_the_likelihood(method):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(400, 2)).astype(np.float32)
    y = x @ np.array([1.0, -1.0]) + 0.3 * rng.normal(size=400)
    model = Model(lambda key: {"w": 0.1 * jax.random.normal(key, (2,))}, lambda params, x: x @ params["w"])
    fit, settings = METHODS[method]
    config = replace(settings, likelihood=Normal(learned=True), prior_variance=1.0, batch=400, epochs=800)
    found = fit(KEY, model, (x, y), config)
    residual = np.std(y - x @ np.linalg.lstsq(x, y, rcond=None)[0])
    for member, likelihood in enumerate(found.likelihoods):
        assert likelihood.std == pytest.approx(residual, rel=0.03) and likelihood.learned
        assert found.trace["noise"][-1, member] == pytest.approx(likelihood.std, rel=1e-6)
    assert "mse" in found.trace and config.learn_noise


def test_a_head_of_mean_and_variance_finds_the_noise_of_each_example_and_goes_with_the_fit():
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, size=(600, 1)).astype(np.float32)
    y = 2 * x[:, 0] + np.exp(x[:, 0] - 1) * rng.normal(size=600)
    model = Model(
        lambda key: {"w": 0.1 * jax.random.normal(key, (1, 2)), "b": jnp.zeros(2)},
        lambda params, x: x @ params["w"] + params["b"][None],
    )
    slow = Ensemble(members=1, likelihood=NormalHead(), prior_variance=100.0, batch=600, epochs=400)
    fit = fit_ensemble(KEY, model, (x, y), replace(slow, learning_rate=0.03))
    assert fit.likelihood == NormalHead()
    weights, bias = np.asarray(fit.posterior.params["w"][0, 0]), np.asarray(fit.posterior.params["b"][0])
    error = float(4 / np.sqrt(2 * 600 * x.var()))  # of a slope of log-stds, from the Fisher information
    assert weights == pytest.approx([2, 1], abs=error) and bias == pytest.approx([0, -1], abs=0.14)
    found = predict(fit, model, x[:5], key=None)
    std = np.exp(x[:5, 0] * weights[1] + bias[1]) + 1e-3
    np.testing.assert_allclose(found.variance[:, 0], std**2, rtol=1e-3)


def test_a_fit_that_stays_poor_says_so_and_what_to_try():
    hostile = Ensemble(members=1, epochs=200, batch=20, prior_variance=1e-8)
    said = r"accuracy is \d+% after 600 steps.*prior_variance \(now 1e-08\) or prior=FanIn"
    with pytest.warns(UserWarning, match=said):
        fit_ensemble(KEY, toys.mlp(), toys.blobs(), hostile)


def test_objects_are_stored_by_their_names():
    """So that settings with objects have the hashes and checkpoints of those with names."""
    assert VI(likelihood=Normal(0.5, learned=True)) == VI(likelihood="gaussian", noise=0.5, learn_noise=True)
    assert VI(prior=Isotropic(0.1, "zero")) == VI(prior_variance=0.1, prior_centre="zero")
    assert HMC(likelihood=Normal(0.5), prior=Isotropic(2.0, "zero")) == HMC(
        likelihood="gaussian", noise=0.5, prior_variance=2.0
    )
    for mistake, message in [
        (lambda: VI(likelihood=Normal), r"write Normal\(\)"),
        (lambda: VI(likelihood="poisson"), "categorical or gaussian"),
        (lambda: VI(likelihood=3), "log_likelihood"),
        (lambda: VI(prior=0.1), "moments"),
        (lambda: HMC(likelihood=Normal(learned=True)), "does not learn"),
        (lambda: Normal(0.0), "positive"),
        (lambda: Isotropic(-1.0), "positive variance"),
        (lambda: HMC(sample=3), "did you mean 'samples'"),
    ]:
        with pytest.raises(ConfigError, match=message):
            mistake()


def test_a_likelihood_that_does_not_fit_is_named():
    model, (x, y) = toys.mlp(), toys.blobs()
    for likelihood, message in [
        (lambda f, y: f, r"returns shape \(2, 3\)"),
        (lambda f, y: f[:, 0] @ y, "cannot be computed|returns shape"),
    ]:
        with pytest.raises(DataError, match=message):
            fit_vi(KEY, model, (x, y), VI(epochs=1, likelihood=likelihood))
