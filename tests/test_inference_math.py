"""KL, likelihoods, softplus, layout, schedule: closed forms against integration and autodiff."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from bayesin import Gaussian
from bayesin.errors import DataError, ModelError
from bayesin.inference import Isotropic, elbo_loss
from bayesin.inference.elbo import (
    cross_entropy,
    divergence_from_prior,
    elbo_of_draws,
    entropy,
    inverse_softplus,
    kl_divergence,
    softplus_and_slope,
)
from bayesin.inference.flat_parameters import make_layout
from bayesin.inference.training_step import direction, rate_shape
from bayesin.likelihoods import Categorical, Normal, NormalHead, negative_log_likelihood, score


@pytest.mark.parametrize(
    "mean, std, centre, variance", [(0.3, 0.2, 0.0, 1.0), (1.1, 0.05, 1.0, 0.01), (-2.0, 3.0, 0.5, 0.25)]
)
def test_kl_is_the_integral(mean, std, centre, variance):
    q, p = scipy.stats.norm(mean, std), scipy.stats.norm(centre, np.sqrt(variance))
    points = (mean - 12 * std, mean + 12 * std)
    kl = scipy.integrate.quad(lambda w: q.pdf(w) * (q.logpdf(w) - p.logpdf(w)), *points, epsabs=1e-12)[0]
    crossed = scipy.integrate.quad(lambda w: -q.pdf(w) * p.logpdf(w), *points, epsabs=1e-12)[0]
    arguments = jnp.array([mean]), jnp.array([std]), centre, variance
    assert float(kl_divergence(*arguments)) == pytest.approx(kl, rel=2e-6, abs=1e-6)
    assert float(cross_entropy(*arguments)) == pytest.approx(crossed, rel=2e-6)
    assert float(entropy(jnp.array([std]))) == pytest.approx(float(q.entropy()), rel=2e-6)
    both = cross_entropy(*arguments) - entropy(jnp.array([std]))
    assert float(both) == pytest.approx(kl, rel=1e-5, abs=1e-5)


def test_kl_sums_over_weights_and_tensors():
    """A mean over tensors would be no ELBO."""
    generator = np.random.default_rng(0)
    mean, std = generator.normal(size=50), generator.uniform(0.1, 2, 50)
    one_by_one = sum(
        float(kl_divergence(jnp.array([m]), jnp.array([s]), 0.0, 0.3)) for m, s in zip(mean, std, strict=True)
    )
    assert float(kl_divergence(jnp.array(mean), jnp.array(std), 0.0, 0.3)) == pytest.approx(one_by_one, rel=1e-5)


def test_kl_uses_a_variance_not_a_deviation():
    std = jnp.full(7, 0.1)
    assert float(kl_divergence(jnp.zeros(7), std, 0.0, 0.01)) == pytest.approx(0, abs=1e-5)


def conjugate(count=7):
    """One weight: targets, exact posterior, and the log-evidence of normal noise 0.5 under the prior N(0, 0.8)."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, 1))
    y = 0.7 * x[:, 0] + 0.5 * rng.normal(size=count)
    precision = (x**2).sum() / 0.25 + 1 / 0.8
    posterior = Gaussian({"w": jnp.array([(x[:, 0] @ y) / 0.25 / precision])}, {"w": jnp.array([precision**-0.5])})
    evidence = scipy.stats.multivariate_normal(np.zeros(count), 0.25 * np.eye(count) + 0.8 * x @ x.T).logpdf(y)
    as_float32 = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), (jnp.asarray(x), jnp.asarray(y), posterior))
    return *as_float32, evidence


def linear(params, x):
    return x @ params["w"]


def test_the_bound_is_the_evidence_at_the_exact_posterior():
    x, y, posterior, evidence = conjugate()
    # the loss is a square in the weight: two draws, one std to either side, average to its expectation exactly
    draws = {"w": posterior.mean["w"][None] + posterior.std["w"][None] * jnp.array([[-1.0], [1.0]])}
    options = {"likelihood": Normal(0.5), "prior": Isotropic(0.8), "examples": len(x)}
    loss = elbo_of_draws(posterior, draws, linear, (x, y), **options)
    assert float(len(x) * loss) == pytest.approx(-evidence, rel=1e-5)
    wider = Gaussian(posterior.mean, {"w": 1.3 * posterior.std["w"]})
    draws = {"w": wider.mean["w"][None] + wider.std["w"][None] * jnp.array([[-1.0], [1.0]])}
    gap = len(x) * elbo_of_draws(wider, draws, linear, (x, y), **options) + evidence
    assert float(gap) == pytest.approx(0.5 * (1.69 - 1 - np.log(1.69)), rel=1e-3)  # KL of the wider to the posterior


def test_the_bound_is_a_pure_function():
    x, y, posterior, evidence = conjugate()

    def loss(posterior, key, temperature):
        data = (x, y)
        return elbo_loss(
            posterior, linear, data, key=key, likelihood=Normal(0.5), prior=Isotropic(0.8), examples=7,
            temperature=temperature, samples=3,
        )  # fmt: skip

    keys = jax.random.split(jax.random.key(0), 500)
    losses = jax.jit(jax.vmap(loss, (None, 0, None)))(posterior, keys, 1.0)
    error = float(losses.std()) / np.sqrt(len(keys))
    assert abs(float(losses.mean()) + evidence / 7) < 4 * error
    gradients = jax.vmap(jax.grad(loss), (None, 0, None))(posterior, keys, 1.0)  # zero at the optimum, in expectation
    for leaf in jax.tree.leaves(gradients):
        assert abs(float(leaf.mean())) < 4 * float(leaf.std()) / np.sqrt(len(keys))
    direct = loss(posterior, keys[0], 1.0)
    np.testing.assert_allclose(direct, losses[0], rtol=1e-6)
    hot = loss(posterior, keys[0], 3.0)
    kl = kl_divergence(posterior.mean["w"], posterior.std["w"], 0.0, 0.8)
    assert float(hot - direct) == pytest.approx(2 * float(kl) / 7, rel=1e-4)


def test_points_and_integers_have_no_entropy_in_the_bound():
    q = Gaussian({"n": jnp.arange(3), "w": jnp.full(2, 0.5)}, {"n": jnp.zeros(3, int), "w": jnp.zeros(2)})
    assert float(divergence_from_prior(q, Isotropic(0.1))) == pytest.approx(2 * 0.25 / 0.2)
    slope = jax.grad(lambda mean: divergence_from_prior(Gaussian(q.mean | {"w": mean}, q.std), Isotropic(0.1)))
    np.testing.assert_allclose(slope(q.mean["w"]), 5.0)


@pytest.mark.parametrize("std", [1e-30, 1e-8, 1e-4, 0.01, 1.0, 30.0, 1e4])
def test_softplus_comes_back(std):
    value, _ = softplus_and_slope(jnp.float32(inverse_softplus(std)))
    # rho is stored in float32: of a std below 1 it is log(std), so half an ulp of rho is that share of std
    assert float(value) == pytest.approx(std, rel=max(1e-6, abs(np.log(std)) * 2**-23))


def test_softplus_does_not_overflow_and_has_the_right_slope():
    rho = jnp.array([-1e4, -90.0, -3.0, 0.0, 2.0, 90.0, 1e4, 3e38], jnp.float32)
    value, slope = softplus_and_slope(rho)
    assert np.isfinite(value).all() and np.isfinite(slope).all()
    np.testing.assert_allclose(slope, jax.nn.sigmoid(rho), rtol=1e-6)
    np.testing.assert_allclose(value, jax.nn.softplus(rho), rtol=1e-6)


def test_categorical_is_the_log_softmax():
    logits = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32) * 50
    labels = np.array([0, 1, 2, 3, 0, 1])
    expected = -np.log(np.exp(logits.astype(np.float64)) / np.exp(logits.astype(np.float64)).sum(1, keepdims=True))
    found = negative_log_likelihood(Categorical(), jnp.asarray(logits), jnp.asarray(labels))
    np.testing.assert_allclose(found, expected[np.arange(6), labels], rtol=1e-5, atol=1e-5)
    assert float(score(Categorical(), jnp.asarray(logits), logits.argmax(-1))["accuracy"]) == 1


def test_gaussian_is_scipy_and_sums_over_outputs():
    generator = np.random.default_rng(0)
    outputs, targets = (
        generator.normal(size=(5, 3)).astype(np.float32),
        generator.normal(size=(5, 3)).astype(np.float32),
    )
    expected = -scipy.stats.norm(outputs, 0.3).logpdf(targets).sum(1)
    found = negative_log_likelihood(Normal(0.3), jnp.asarray(outputs), jnp.asarray(targets))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    flat = negative_log_likelihood(Normal(), jnp.asarray(outputs[:, :1]), jnp.asarray(targets[:, 0]))
    np.testing.assert_allclose(flat, -scipy.stats.norm(outputs[:, 0]).logpdf(targets[:, 0]), rtol=1e-5)
    head = np.concatenate([outputs, np.log(0.1 + np.abs(targets))], 1)
    known = scipy.stats.norm(outputs, 0.1 + np.abs(targets) + 1e-3).logpdf(targets).sum(1)
    np.testing.assert_allclose(negative_log_likelihood(NormalHead(), head, jnp.asarray(targets)), -known, rtol=1e-4)
    with pytest.raises(DataError, match="are 6 outputs, means first; the network has"):
        NormalHead().check((3,), targets)


def test_layout_returns_the_tree():
    tree = {
        "b": jnp.arange(3.0),
        "a": {"n": jnp.arange(2), "w": jnp.ones((2, 2), jnp.bfloat16)},
        "c": jnp.full(2, 7.0),
    }
    roles = {"b": "point", "a/w": "gaussian", "c": "fixed"}
    layout = make_layout(tree, lambda path, leaf: roles[path])
    vector, fixed = layout.split(tree)
    assert (layout.size, layout.gaussian_size, len(fixed)) == (7, 4, 2)
    np.testing.assert_array_equal(vector, [1, 1, 1, 1, 0, 1, 2])
    back = layout.tree_of(vector, fixed)
    assert jax.tree.all(jax.tree.map(lambda x, y: x.dtype == y.dtype and bool((x == y).all()), tree, back))
    with pytest.raises(ModelError, match="nothing to train"):
        make_layout({"n": jnp.arange(3)}, lambda path, leaf: "point")


def test_rate_rises_and_falls():
    shape = rate_shape("cosine", 10, 110)
    rates = np.array([float(shape(step)) for step in range(110)])
    assert rates[:11] == pytest.approx(np.arange(1, 12) / 11)
    assert rates[60] == pytest.approx(0.5) and rates[-1] < 1e-3 and (np.diff(rates[10:]) < 0).all()


def test_direction_clips_by_the_global_norm():
    update = direction("sgd", 0.0, 1.0)
    gradients = {"a": jnp.array([3.0]), "b": jnp.array([4.0])}
    found, _ = update.update(gradients, update.init(gradients))
    assert float(found["a"][0]) == pytest.approx(0.6) and float(found["b"][0]) == pytest.approx(0.8)
