"""Predictions and their scores: closed forms, quadrature, and brute force over draws and pairs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import log_softmax, logsumexp, softmax
from scipy.stats import norm

import networks
import training_toys as toys
from bayesin import Gaussian, Samples, barrier, evaluate, fit_temperature, fit_vi, geodesic, predict
from bayesin.errors import ConfigError, DataError, ModelError, PosteriorError
from bayesin.evaluation import ChunkSizes, ClassPredictive, RealPredictive, metrics, normal_mixtures, pooled
from bayesin.inference import VI, Fit
from bayesin.likelihoods import Normal
from bayesin.models import Model, from_functions
from bayesin.paths import Mixture
from posterior_table import LaplaceErrors

KEY = jax.random.key(5)
X, Y = networks.data(30)
RNG = np.random.default_rng(4)


def line(params, x):
    return x @ params["w"]


LINE = Gaussian({"w": jnp.array([[1.0], [2.0]])}, {"w": jnp.array([[0.5], [0.1]])})
POINTS = RNG.normal(size=(7, 2)).astype(np.float32)


def test_entropies_are_those_of_the_draws_written_out():
    q = networks.gaussian(0, spread=0.6)
    for chunks in (None, ChunkSizes(7, 2)):
        found = predict(q, networks.apply, X, key=KEY, samples=9, chunks=chunks)
        probs = np.stack(
            [softmax(np.asarray(networks.apply(member, X), np.float64), 1) for member in Samples(q.sample(KEY, 9))]
        )
        entropy = lambda p: -(p * np.log(p)).sum(-1)  # noqa: E731
        np.testing.assert_allclose(found.probabilities, probs.mean(0), atol=2e-6)
        np.testing.assert_allclose(found.total_entropy, entropy(probs.mean(0)), atol=1e-5)
        np.testing.assert_allclose(found.aleatoric_entropy, entropy(probs).mean(0), atol=1e-5)
        divergence = (
            (probs * np.log(probs / probs.mean(0))).sum(-1).mean(0)
        )  # mean KL from the average: the same number
        np.testing.assert_allclose(found.epistemic_entropy, divergence, atol=2e-5)
    assert found.metrics(Y)["nll"] == pytest.approx(
        evaluate(q, networks.apply, (X, Y), key=KEY, samples=9).nll, abs=1e-5
    )


def test_a_point_knows_no_epistemic_uncertainty_and_batches_of_draws_can_be_pooled():
    assert predict(networks.params(0), networks.apply, X, key=None).epistemic_entropy.max() < 1e-5
    members = Samples.stack([networks.params(seed) for seed in range(5)])
    whole = predict(members, networks.apply, X, key=None)
    parts = [predict(members[s], networks.apply, X, key=None) for s in (slice(0, 2), slice(2, 5))]
    joined = pooled(parts, [2, 3])
    np.testing.assert_allclose(joined.probabilities, whole.probabilities, atol=1e-6)
    np.testing.assert_allclose(joined.epistemic_entropy, whole.epistemic_entropy, atol=1e-5)


def test_a_regression_has_the_moments_of_its_conjugate_predictive():
    """y = x·w + noise with w normal is normal: mean x·m, variance Σ x²s² + σ²."""
    found = predict(LINE, line, POINTS, key=KEY, samples=20_000, likelihood=Normal(0.3))
    mean, spread = POINTS @ [1.0, 2.0], np.sqrt(POINTS**2 @ np.array([0.5, 0.1]) ** 2)
    std = np.sqrt(spread**2 + 0.3**2)
    np.testing.assert_allclose(found.mean[:, 0], mean, atol=4 * spread.max() / np.sqrt(20_000))
    np.testing.assert_allclose(found.std[:, 0], std, rtol=4 / np.sqrt(2 * 20_000))
    np.testing.assert_allclose(found.aleatoric_variance, 0.09, rtol=1e-6)
    density = lambda level: norm.pdf(norm.ppf(level)) / std  # noqa: E731
    for level in (0.05, 0.5, 0.9):  # the standard error of a quantile
        error = 4 * np.sqrt(level * (1 - level) / 20_000) / density(level)
        assert (np.abs(found.quantile(level)[:, 0] - norm.ppf(level, mean, std)) < error).all()
    y = mean + std * norm.ppf((np.arange(7) + 0.5) / 7)
    few = predict(LINE, line, POINTS, key=KEY, samples=64, likelihood=Normal(0.3))
    assert few.metrics(y)["nll"] == pytest.approx(
        evaluate(LINE, line, (POINTS, y), key=KEY, samples=64, likelihood=Normal(0.3)).nll, abs=1e-5
    )
    low, high = few.interval(0.8)
    inside = ((y[:, None] >= low) & (y[:, None] <= high)).mean()
    assert few.coverage(y, 0.8) == pytest.approx(inside)


def test_scores_of_normal_mixtures_equal_quadrature():
    means, stds, weights = RNG.normal(size=(5, 3)), RNG.uniform(0.2, 1.5, size=(5, 3)), RNG.dirichlet(np.ones(5))
    y = RNG.normal(size=3)
    found = normal_mixtures.crps(y, means, stds, weights)

    def mixture(t, i):
        return float(weights @ norm.cdf(t, means[:, i], stds[:, i]))

    for i in range(3):
        below = quad(lambda t, i=i: mixture(t, i) ** 2, -15, y[i], limit=200)[0]
        above = quad(lambda t, i=i: (1 - mixture(t, i)) ** 2, y[i], 15, limit=200)[0]
        assert found[i] == pytest.approx(below + above, abs=1e-6)
    q = normal_mixtures.quantile(0.3, means, stds, weights)
    np.testing.assert_allclose(normal_mixtures.cdf(q, means, stds, weights), 0.3, atol=1e-12)
    one = RealPredictive(means[:, :, None], stds[:, :, None], weights)
    density = [np.log(weights @ norm.pdf(y[i], means[:, i], stds[:, i])) for i in range(3)]
    np.testing.assert_allclose(one.log_likelihood(y), density, rtol=1e-12)
    assert one.metrics(y)["rmse"] == pytest.approx(np.sqrt(np.mean((weights @ means - y) ** 2)))


def test_mixtures_of_two_posteriors_weigh_their_components():
    other = Gaussian.point({"w": jnp.array([[5.0], [5.0]])})
    found = predict(Mixture(LINE, other, jnp.float32(0.25)), line, POINTS, key=KEY, samples=8, likelihood=Normal(0.5))
    parts = [predict(q, line, POINTS, key=KEY, samples=8, likelihood=Normal(0.5)).mean for q in (LINE, other)]
    np.testing.assert_allclose(found.mean, 0.75 * parts[0] + 0.25 * parts[1], rtol=1e-5, atol=1e-5)
    assert found.weights.sum() == pytest.approx(1)


def test_a_fit_brings_its_likelihood_and_a_model_its_apply():
    x, _ = toys.blobs()
    model = Model(lambda key: {"w": 0.1 * jax.random.normal(key, (x.shape[1], 1))}, line)
    fit = fit_vi(KEY, model, (x, x[:, 0]), VI(epochs=2, likelihood=Normal(0.4, learned=True), members=1))
    found = predict(fit, model, x, key=KEY, samples=4)
    assert isinstance(found, RealPredictive) and found.stds[0, 0, 0] == pytest.approx(fit.likelihood.std)
    assert evaluate(fit, model, (x, x[:, 0]), key=KEY, samples=4).nll == pytest.approx(
        found.metrics(x[:, 0])["nll"], abs=1e-4
    )


def test_several_posteriors_predict_with_equal_shares_and_each_with_its_own_noise():
    x, _ = toys.blobs()
    lines = [Gaussian({"w": np.full((4, 1), m, np.float32)}, {"w": np.ones((4, 1), np.float32)}) for m in (0.0, 3.0)]
    fit = Fit(tuple(lines), {}, VI(), (Normal(0.3), Normal(0.7)))
    both = predict(fit, line, x, key=KEY, samples=8)
    keys = zip(lines, fit.likelihoods, jax.random.split(KEY, 2), strict=True)
    parts = [predict(q, line, x, key=key, samples=4, likelihood=likelihood) for q, likelihood, key in keys]
    np.testing.assert_allclose(both.mean, np.mean([part.mean for part in parts], 0), rtol=1e-6)
    np.testing.assert_array_equal(both.stds, np.concatenate([part.stds for part in parts]))
    same = predict(lines, line, x, key=KEY, samples=8, likelihood=Normal(0.3))
    np.testing.assert_array_equal(same.means, both.means)
    with pytest.raises(PosteriorError, match="2 posteriors"):
        evaluate(fit, line, (x, x[:, 0]), key=KEY)


@pytest.mark.parametrize("shape", [(), (1,), (2, 2)])
def test_what_cannot_be_known_is_refused(shape):
    def apply(params, x):
        return jnp.zeros((len(x), *shape)) + params["w"]

    with pytest.raises(ConfigError, match="give likelihood="):
        predict({"w": jnp.zeros(())}, apply, POINTS, key=None)
    found = predict({"w": jnp.ones(())}, apply, POINTS, key=None, likelihood="gaussian")
    assert found.mean.shape == (7, int(np.prod(shape))) and (found.mean == 1).all()


def test_misuse_is_named():
    classes, reals = (
        predict(networks.params(0), networks.apply, X, key=None),
        predict(LINE, line, POINTS, key=KEY, samples=3, likelihood="gaussian"),
    )
    nan = {"w": jnp.full((2, 1), jnp.nan)}
    for mistake, kind, message in [
        (lambda: predict(LINE, line, POINTS, key=KEY, likelihood=lambda f, y: f[:, 0]), ConfigError, "neither log_"),
        (lambda: predict(networks.gaussian(0), networks.apply, X, key=None), ConfigError, "key="),
        (lambda: predict(networks.gaussian(0), 3, X, key=KEY), ModelError, "a Model or a function"),
        (lambda: predict(nan, line, POINTS, key=None, likelihood="gaussian"), PosteriorError, "finite"),
        (lambda: classes.metrics(np.zeros(30)), DataError, "real targets need"),
        (lambda: classes.metrics(Y, outside=reals), ConfigError, "one kind"),
        (lambda: reals.metrics(np.zeros(3)), DataError, "targets have shape"),
        (lambda: reals.quantile(1.0), ConfigError, "between 0 and 1"),
        (lambda: fit_temperature(reals, np.zeros(7)), ConfigError, "class probabilities"),
        (lambda: fit_temperature(classes, classes.label), DataError, "no temperature is best"),
        (lambda: classes.at_temperature(2.0).epistemic_entropy, ConfigError, "before temperature"),
    ]:  # fmt: skip
        with pytest.raises(kind, match=message):
            mistake()


def test_auroc_and_selective_accuracy_equal_brute_force():
    inside, outside = RNG.integers(0, 6, 40) / 5, RNG.integers(2, 9, 30) / 5  # with ties
    pairs = (outside[:, None] > inside[None]) + 0.5 * (outside[:, None] == inside[None])
    assert metrics.auroc(inside, outside) == pytest.approx(pairs.mean())
    probs = softmax(RNG.normal(size=(50, 3)), 1)
    probs[10:20] = probs[10]  # equal confidence
    y = RNG.integers(0, 3, 50)
    kept = metrics.selective_accuracy(probs, y)
    shuffled = []
    for _ in range(4000):  # ties broken by chance
        order = RNG.permutation(50)
        order = order[np.argsort(-probs[order].max(1), kind="stable")]
        shuffled.append(np.cumsum(probs[order].argmax(1) == y[order]) / np.arange(1, 51))
    error = np.std(shuffled, 0) / np.sqrt(4000)
    assert (np.abs(kept.accuracy - np.mean(shuffled, 0)) <= 4.5 * error + 1e-12).all()
    found = ClassPredictive(np.log(probs), None).metrics(y, outside=ClassPredictive(np.log(probs[:5]), None))
    assert found["selective_accuracy"] == pytest.approx(kept.accuracy.mean()) and 0 <= found["ood_auroc"] <= 1


def test_temperature_is_the_minimum_of_the_loss():
    logits = 3 * RNG.normal(size=(200, 4))
    y = np.array([RNG.choice(4, p=p) for p in softmax(logits / 2, 1)])  # truth at T = 2
    predictive = ClassPredictive(log_softmax(logits, 1), None)
    best = fit_temperature(predictive, y)
    at = lambda t: predictive.at_temperature(t).metrics(y)["nll"]  # noqa: E731
    assert at(best) < min(at(best * 1.01), at(best / 1.01))
    assert best == pytest.approx(2, rel=0.35)


def test_the_likelihood_of_the_guide_serves_fit_evaluation_prediction_and_barrier():
    """Ten lines of a user's own; `barrier` and `predict` are held against sums over the draws."""
    x = RNG.normal(size=(40, 2)).astype(np.float32)
    y = (x @ np.array([1.0, -2.0]) + 0.1 * RNG.laplace(size=40)).astype(np.float32)
    model = from_functions(lambda key: {"w": 0.1 * jax.random.normal(key, (2, 1))}, lambda p, x: x @ p["w"])
    key, likelihood = jax.random.key(0), LaplaceErrors(0.1)
    fit = fit_vi(key, model, (x, y), VI(likelihood=likelihood, epochs=30, batch=20))
    draws = np.asarray(fit.posterior.sample(key, 8)["w"], np.float64)[:, :, 0]
    outputs = draws @ x.T.astype(np.float64)
    found = predict(fit, model, x, key=key, samples=8)
    assert isinstance(found, RealPredictive)
    np.testing.assert_allclose(found.means[:, :, 0], outputs, atol=1e-5)
    np.testing.assert_allclose(found.stds, 2**0.5 * 0.1)
    log_likelihood = -np.abs(y - outputs) / 0.1 - np.log(0.2)
    loss = -(logsumexp(log_likelihood, axis=0) - np.log(8)).mean()
    assert evaluate(fit, model, (x, y), key=key, samples=8).nll == pytest.approx(loss, abs=1e-3)
    path = geodesic(fit.posterior, fit.posterior)
    found = barrier(path, model, (x, y), key=key, samples=8, taus=3, likelihood=likelihood)
    np.testing.assert_allclose(found.nll, loss, atol=1e-3)


def test_moments_that_are_not_one_for_each_example_are_refused():
    class Short:
        def log_likelihood(self, outputs, targets):
            return -((outputs[:, 0] - targets) ** 2)

        def moments(self, outputs):
            return outputs[0], 1.0

    with pytest.raises(DataError, match="batch first"):
        predict({"w": jnp.ones((2, 1))}, lambda p, x: x @ p["w"], np.ones((3, 2)), key=None, likelihood=Short())
