"""The low-rank Gaussian: covariance across tensors against the formula and against draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesin.errors import PosteriorError
from bayesin.evaluation import evaluate, predict
from bayesin.posteriors import LowRankGaussian, Samples
from bayesin.symmetry import PermutationSpec

SPEC = PermutationSpec.parse({"a": ["2", "g0"], "b/c": ["g0"]}, {"g0": 3})


def samples(count=6):
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(9, 9))
    flat = (rng.normal(size=(count, 9)) @ mixing).astype(np.float32)
    return Samples({"a": jnp.asarray(flat[:, :6].reshape(count, 2, 3)), "b": {"c": jnp.asarray(flat[:, 6:])}})


def flat(tree):
    return np.concatenate([np.asarray(tree["a"]).reshape(-1, 6), np.asarray(tree["b"]["c"]).reshape(-1, 3)], 1)


def test_covariance_is_that_of_the_samples_across_tensors():
    given = samples()
    q = LowRankGaussian.from_samples(given)
    factors = flat(q.factors).astype(np.float64)
    exact = np.cov(flat(given.params).astype(np.float64).T)  # divisor K − 1
    np.testing.assert_allclose(factors.T @ factors, exact, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(flat(q.std)[0] ** 2, np.diag(exact), rtol=1e-5)
    np.testing.assert_allclose(flat(q.mean)[0], flat(given.params).mean(0), rtol=1e-5, atol=1e-6)
    draws = flat(q.sample(jax.random.key(0), 40_000)).astype(np.float64)
    scale = np.sqrt(np.outer(np.diag(exact), np.diag(exact)))
    assert np.abs((np.cov(draws.T) - exact) / scale).max() < 5 * np.sqrt(2 / 40_000)
    assert np.abs(exact[:6, 6:] / scale[:6, 6:]).max() > 0.3  # else the test could not see block-diagonality


def test_leading_directions_are_those_of_the_singular_values():
    given = samples()
    centred = flat(given.params).astype(np.float64) - flat(given.params).mean(0)
    _, values, vectors = np.linalg.svd(centred / np.sqrt(5), full_matrices=False)
    q = LowRankGaussian.from_samples(given, rank=2)
    assert q.rank == 2 and q.size == 9
    factors = flat(q.factors).astype(np.float64)
    np.testing.assert_allclose(factors.T @ factors, (vectors[:2].T * values[:2] ** 2) @ vectors[:2], atol=1e-4)
    assert LowRankGaussian.from_samples(given, rank=100).rank == 6


def test_misuse_is_refused():
    with pytest.raises(PosteriorError, match="at least two samples"):
        LowRankGaussian.from_samples(samples(1))
    with pytest.raises(PosteriorError, match="ranks start at 1"):
        LowRankGaussian.from_samples(samples(), rank=0)
    with pytest.raises(PosteriorError, match="stack of trees like the mean"):
        LowRankGaussian({"a": jnp.ones(3)}, {"a": jnp.ones((2, 4))})
    with pytest.raises(PosteriorError, match="same leading axis"):
        LowRankGaussian({"a": jnp.ones(3), "b": jnp.ones(1)}, {"a": jnp.ones((2, 3)), "b": jnp.ones((3, 1))})


def test_prediction_averages_over_correlated_draws():
    """Weights that cancel in every draw leave the prediction certain, which their marginals do not."""
    params = {"a": jnp.array([[1.0], [3.0]]), "b": jnp.array([[-1.0], [-3.0]])}
    q = LowRankGaussian.from_samples(Samples(params))

    def apply(p, x):
        return jnp.stack([x * (p["a"] + p["b"]), jnp.zeros_like(x)], -1)

    x, key = np.ones(2, np.float32), jax.random.key(0)
    np.testing.assert_allclose(predict(q, apply, x, key=key, samples=16).probabilities, 0.5, atol=1e-5)
    found = evaluate(q.marginal, apply, (x, np.zeros(2, np.int32)), key=key, samples=16)
    assert found.influence.std() > 0.1
