"""Methods made of the iterates of gradient descent: moments written out, cycles, last layers, resuming to the bit."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import training_toys as toys
from bayesin import SGMCMC, SWAG, Laplace, fit_laplace, fit_sgmcmc, fit_swag
from bayesin.errors import ConfigError, ModelError
from bayesin.inference.iterates import keep_iterates
from bayesin.likelihoods import Categorical
from bayesin.models import Model
from posterior_table import rows

KEY = jax.random.key(2)
QUICK = {"epochs": 10, "batch": 20, "log_every": 6, "checkpoint_epochs": 2}
METHODS = {
    "swag": (fit_swag, SWAG(**QUICK, members=2, rank=4, collect_every=2)),
    "sgmcmc": (fit_sgmcmc, SGMCMC(**QUICK, samples=4, step_size=1e-5)),
}


def test_moments_and_deviations_are_those_of_the_iterates():
    rng = np.random.default_rng(0)
    moves = rng.normal(size=(30, 7)).astype(np.float32)
    optimiser = keep_iterates(
        optax.identity(), size=4, due=lambda step: (step >= 5) & (step % 3 == 2), entry=lambda w, mean: w - mean
    )
    variables = {"mean": jnp.full(7, 100.0)}
    state, kept, deviations = optimiser.init(variables), [], []
    for number, move in enumerate(moves):
        updates, state = optimiser.update({"mean": jnp.asarray(move)}, state, variables)
        variables = optax.apply_updates(variables, updates)
        if number >= 5 and number % 3 == 2:
            kept.append(np.asarray(variables["mean"], np.float64))
            deviations.append(kept[-1] - np.mean(kept, 0))
    assert int(state.kept) == len(kept) == 9
    np.testing.assert_allclose(state.mean, np.mean(kept, 0), rtol=1e-6)
    np.testing.assert_allclose(state.square - (state.mean - state.first) ** 2, np.var(kept, 0), rtol=1e-3)
    order = [8, 5, 6, 7]  # entry 9 went where entry 5 had been
    np.testing.assert_allclose(state.buffer, np.stack(deviations)[order], atol=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_a_stopped_fit_goes_on_to_the_same_bits(method, tmp_path):
    fit, config = METHODS[method]
    model, data = toys.mlp(), toys.blobs()

    def stop(progress):
        if progress.step >= progress.steps // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(KEY, model, data, config, checkpoint=tmp_path, on_progress=stop)
    seen = []
    again = fit(KEY, model, data, config, checkpoint=tmp_path, on_progress=seen.append)
    assert seen[0].resumed and toys.same_bits(again.posteriors, fit(KEY, model, data, config).posteriors)


def test_a_cycle_explores_without_noise_and_draws_at_its_end():
    """With a temperature near zero all is gradient descent; each cycle gives as many draws as the others."""
    model, data = toys.mlp(), toys.blobs()
    config = SGMCMC(**QUICK, samples=6, cycles=3, step_size=1e-5, kernel="sgld", temperature=1e-30)
    cold = rows(fit_sgmcmc(KEY, model, data, config).posterior.params)
    warm = rows(fit_sgmcmc(KEY, model, data, replace(config, temperature=1.0)).posterior.params)
    assert cold.shape == warm.shape == (6, 4 * 8 + 8 + 8 * 3 + 3) and (np.abs(warm - cold).max(1) > 0).all()
    with pytest.raises(ConfigError, match="do not fit"):
        fit_sgmcmc(KEY, model, data, replace(config, samples=7))
    with pytest.raises(ConfigError, match="fewer than rank"):
        fit_swag(KEY, model, data, SWAG(epochs=2, batch=20))


@pytest.mark.parametrize("curvature", ["ggn", "empirical"])
def test_the_curvature_equals_the_jacobians_written_out(curvature):
    model, (x, y) = toys.mlp(), [part[:12] for part in toys.blobs()]
    fit = fit_laplace(KEY, model, (x, y), Laplace(epochs=3, curvature=curvature, prior_variance=0.5))
    params, expected = fit.posterior.mean, 0.0
    each = jax.jit(jax.jacobian(lambda p, e: model.apply(p, e[None])[0]))
    for example, label in zip(x, y, strict=True):
        jacobian = rows(each(params, example))  # (classes, weights)
        logits = model.apply(params, example[None])[0].astype(jnp.float32)
        p = np.asarray(jax.nn.softmax(logits), np.float64)
        if curvature == "ggn":
            expected = expected + np.einsum("cw,cd,dw->w", jacobian, np.diag(p) - np.outer(p, p), jacobian)
        else:
            expected = expected + ((p - np.eye(3)[label]) @ jacobian) ** 2
    std = rows(jax.tree.map(lambda leaf: leaf[None], fit.posterior.std))[0]
    np.testing.assert_allclose(std, 1 / np.sqrt(expected + 2.0), rtol=1e-4)
    assert fit.likelihood == Categorical()
    last = fit_laplace(KEY, model, (x, y), Laplace(epochs=3, curvature=curvature, prior_variance=0.5, layers="last"))
    assert not last.posterior.std["layer0"]["w"].any() and (last.posterior.std["layer1"]["b"] > 0).all()
    np.testing.assert_array_equal(last.posterior.std["layer1"]["w"], fit.posterior.std["layer1"]["w"])


def test_a_network_without_a_last_layer_says_so():
    bent = toys.mlp((4, 3))
    model = Model(bent.init, lambda params, x: jnp.tanh(bent.apply(params, x)))
    with pytest.raises(ModelError, match="last layer"):
        fit_laplace(KEY, model, toys.blobs(), Laplace(epochs=1, layers="last"))
    with pytest.raises(ConfigError, match="layers='last'"):
        Laplace(covariance="full")


def test_the_whole_covariance_of_a_last_layer_is_that_of_a_linear_model_of_its_features():
    """Given the features, the last layer of a regression is conjugate: (ΦᵀΦ/σ² + I/v)⁻¹, and zero elsewhere."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(20, 3)).astype(np.float32)
    model = Model(
        lambda key: {"a": jax.random.normal(key, (3, 4)), "w": jnp.zeros((4, 1))},
        lambda params, x: jnp.tanh(x @ params["a"]) @ params["w"],
    )
    config = Laplace(
        epochs=3, batch=20, layers="last", covariance="full", prior_variance=0.5, likelihood="gaussian", noise=0.7
    )
    found = fit_laplace(KEY, model, (x, x.sum(1)), config).posterior
    features = np.tanh(x @ np.asarray(found.mean["a"]))
    exact = np.linalg.inv(features.T @ features / 0.7**2 + np.eye(4) / 0.5)
    factors = np.asarray(found.factors["w"])[..., 0]
    np.testing.assert_allclose(factors.T @ factors, exact, rtol=1e-4, atol=1e-6)
    assert found.rank == 4 and not found.std["a"].any() and np.abs(exact - np.diag(np.diag(exact))).max() > 0.01
