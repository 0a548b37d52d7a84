"""The plane through three posteriors: coordinates, corners and values against direct computation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import networks
from bayesin import Gaussian, plane
from bayesin.errors import ConfigError, PosteriorError
from bayesin.evaluation import evaluate
from bayesin.evaluation.plane import _barycentric, _combine, _corners

KEY = jax.random.key(2)


def _flat(tree) -> np.ndarray:
    return np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(tree)])


def test_coordinates_are_distances_in_weight_space():
    means = [networks.params(seed) for seed in range(3)]
    corners = _corners(means)
    for i in range(3):
        for j in range(3):
            direct = np.linalg.norm(_flat(means[i]) - _flat(means[j]))
            assert np.linalg.norm(corners[i] - corners[j]) == pytest.approx(direct, rel=1e-5)
    for number, corner in enumerate(corners):
        np.testing.assert_allclose(_barycentric(corners, *corner), np.eye(3)[number], atol=1e-6)


def test_stds_are_affine_inside_and_clipped_outside():
    ends = [networks.gaussian(seed) for seed in range(3)]
    inside = _combine(ends, jnp.array([0.2, 0.3, 0.5]))
    exact = 0.2 * _flat(ends[0].std) + 0.3 * _flat(ends[1].std) + 0.5 * _flat(ends[2].std)
    np.testing.assert_allclose(_flat(inside.std), exact, rtol=1e-5, atol=1e-7)
    outside = _flat(_combine(ends, jnp.array([2.0, -0.5, -0.5])).std)
    assert outside.min() == 0
    assert (outside > 0).any()


def test_values_equal_direct_evaluation():
    ends, data = [networks.gaussian(seed) for seed in range(3)], networks.data()
    done = []
    found = plane(
        ends, networks.apply, data, key=KEY, prior_variance=0.5, resolution=4, samples=3,
        on_point=lambda *a: done.append(a),
    )  # fmt: skip
    assert done[-1] == (16, 16)
    i, j = 1, 2
    there = _combine(ends, jnp.asarray(_barycentric(found.corners, found.u[j], found.v[i]), jnp.float32))
    direct = evaluate(there, networks.apply, data, key=KEY, samples=3)
    assert found.log_likelihood[i, j] == pytest.approx(direct.log_likelihood.sum(), rel=1e-5)
    mean, std = _flat(there.mean), _flat(there.std)
    # E log N(θ; 0, v) over N(m, s²) is the log-density at m, less s²/2v.
    prior = norm.logpdf(mean, 0, np.sqrt(0.5)).sum() - (std**2).sum() / (2 * 0.5)
    assert found.log_prior[i, j] == pytest.approx(prior, rel=1e-5)
    np.testing.assert_allclose(found.log_posterior, found.log_likelihood + found.log_prior)
    assert set(found.to_json()) >= {"u", "v", "log_posterior", "corners"}


def test_points_give_the_ordinary_posterior_and_statistics_have_no_prior():
    ends = [{**networks.params(seed), "count": jnp.array(3)} for seed in range(3)]

    def apply(params, x):
        return networks.apply({name: value for name, value in params.items() if name != "count"}, x)

    found = plane(ends, apply, networks.data(), key=KEY, prior_variance=1.0, resolution=2, exclude={"l0/bias"})
    there = _combine(
        [Gaussian.point(end) for end in ends],
        jnp.asarray(_barycentric(found.corners, found.u[0], found.v[0]), jnp.float32),
    )
    kept = [leaf for path, leaf in _paths(there.mean) if path not in {"l0/bias", "count"}]
    assert found.log_prior[0, 0] == pytest.approx(sum(norm.logpdf(np.asarray(leaf)).sum() for leaf in kept), rel=1e-5)


def _paths(tree):
    from bayesin.trees import flatten

    return flatten(tree).items()


def test_misuse_is_named():
    a, b, data = networks.params(0), networks.params(1), networks.data()
    middle = jax.tree.map(lambda p, q: 0.5 * (p + q), a, b)
    options = {"key": KEY, "prior_variance": 1.0, "resolution": 2}
    with pytest.raises(PosteriorError, match="one line"):
        plane([a, b, middle], networks.apply, data, **options)
    with pytest.raises(PosteriorError, match="one line"):
        plane([a, a, b], networks.apply, data, **options)
    with pytest.raises(PosteriorError, match="not 2"):
        plane([a, b], networks.apply, data, **options)
    with pytest.raises(PosteriorError, match="shape"):
        plane([a, b, networks.params(0, (6, 9, 8, 4))], networks.apply, data, **options)
    with pytest.raises(ConfigError, match="prior_variance"):
        plane([a, b, networks.params(2)], networks.apply, data, key=KEY, prior_variance=0.0)
