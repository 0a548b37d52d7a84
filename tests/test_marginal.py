"""The marginal loss as a pure function, and the Monte-Carlo claims of evaluation against exact integrals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

import networks
from bayesin import Gaussian, Normal, barrier, evaluate, geodesic, marginal_loss

KEY = jax.random.key(11)
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(80)

# One weight and two classes, so that the average over the posterior is an integral in one dimension.
X = np.array([0.3, 1.0, -0.7, 2.0, -1.5], np.float32)
Y = np.array([0, 1, 0, 0, 1], np.int32)
P = Gaussian({"w": jnp.array(1.5)}, {"w": jnp.array(1.0)})
Q = Gaussian({"w": jnp.array(-0.5)}, {"w": jnp.array(0.4)})


def _logits(params, x):
    return jnp.stack([params["w"] * x, jnp.zeros_like(x)], -1)


def _exact(mean: float, std: float) -> float:
    """The marginal loss by Gauss–Hermite quadrature."""
    weights = mean + std * NODES
    likelihood = expit(np.where(Y == 0, 1, -1)[:, None] * weights * X[:, None].astype(np.float64))
    return -np.mean(np.log(likelihood @ WEIGHTS / WEIGHTS.sum()))


@pytest.fixture(scope="module")
def runs():
    """The same barrier under 300 keys."""
    path = geodesic(P, Q)
    return [barrier(path, _logits, (X, Y), key=jax.random.key(k), samples=64, taus=3) for k in range(300)]


def test_losses_along_a_path_are_those_of_quadrature(runs):
    exact = np.array([_exact(1.5, 1.0), _exact(0.5, 0.7), _exact(-0.5, 0.4)])
    errors = np.array([run.nll for run in runs]) - exact[None]
    noise = errors.std(0, ddof=1) / np.sqrt(len(runs))
    bias = np.mean([run.bias for run in runs], 0)
    # The claimed bias is the mean error, to its standard error and the terms of order 1/S² that it leaves out.
    assert np.all(errors.mean(0)[:2] > 0)  # it leans upwards where the posterior is wide
    np.testing.assert_allclose(bias, errors.mean(0), atol=4 * noise.max() + 0.2 * bias.max())


@pytest.mark.parametrize("over_mean", [False, True])
def test_standard_errors_are_the_distance_from_the_truth(runs, over_mean):
    exact = np.array([_exact(1.5, 1.0), _exact(0.5, 0.7), _exact(-0.5, 0.4)])
    if over_mean:
        highest = {int(run.nll.argmax()) for run in runs}
        assert len(highest) == 1
        truth = exact[highest.pop()] - (exact[0] + exact[-1]) / 2
        scores = [(run.value_over_mean - truth) / run.standard_error_over_mean for run in runs]
    else:
        truth = exact[1] - (exact[0] + exact[-1]) / 2
        scores = [(run.excess[1] - truth) / run.standard_errors[1] for run in runs]
    # The mean of 300 squares of standard normals is 1 ± √(2/300) = 8 %; four of these, and 1/S for what is left out.
    assert np.mean(np.square(scores)) == pytest.approx(1, abs=4 * np.sqrt(2 / 300) + 1 / 64)


def test_regression_has_its_closed_form():
    """y = w x + noise with w ~ N(m, s²): the marginal of y is normal, with variance s² x² + σ²."""
    x, y = np.array([0.5, -1.0, 2.0], np.float32), np.array([1.0, 0.2, -0.3], np.float32)
    line = lambda params, x: (params["w"] * x)[:, None]  # noqa: E731
    found = evaluate(P, line, (x, y), key=KEY, samples=20_000, likelihood=Normal(0.8))
    variance = x.astype(float) ** 2 + 0.8**2
    exact = 0.5 * np.mean(np.log(2 * np.pi * variance) + (y - 1.5 * x) ** 2 / variance)
    assert found.nll == pytest.approx(exact, abs=4 * found.standard_error)
    assert found.log_probs is None and found.standard_error < 0.02


def test_the_loss_has_the_gradient_of_its_differences():
    with jax.enable_x64(True):
        q = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), P)
        data = (X.astype(np.float64), Y)
        loss = jax.jit(lambda q: marginal_loss(q, _logits, data, key=KEY, samples=7))
        gradient = jax.grad(loss)(q)
        for part in ("mean", "std"):
            ends = [
                loss(Gaussian(**{"mean": q.mean, "std": q.std, part: {"w": getattr(q, part)["w"] + by}}))
                for by in (1e-6, -1e-6)
            ]
            slope = float(ends[0] - ends[1]) / 2e-6
            assert float(getattr(gradient, part)["w"]) == pytest.approx(slope, abs=1e-8)
        both = jax.tree.map(lambda a, b: jnp.stack([a, b.astype(jnp.float64)]), q, Q)
        alone = [loss(jax.tree.map(lambda leaf, k=k: leaf[k], both)) for k in range(2)]
        np.testing.assert_allclose(jax.vmap(loss)(both), alone, rtol=1e-12)


def test_the_loss_is_that_of_evaluate_and_of_a_function():
    q, data = networks.gaussian(0), networks.data()
    own = lambda outputs, y: -jnp.sum(jnp.square(outputs), -1)  # noqa: E731
    for likelihood in ("categorical", own):
        found = evaluate(q, networks.apply, data, key=KEY, samples=6, likelihood=likelihood)
        loss = marginal_loss(q, networks.apply, data, key=KEY, samples=6, likelihood=likelihood)
        assert float(loss) == pytest.approx(found.nll, rel=1e-5)
