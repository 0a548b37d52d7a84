"""Streaming prediction against brute force over explicit draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp
from scipy.stats import norm

import networks
import training_toys as toys
from bayesin import Gaussian, Samples
from bayesin.errors import ConfigError, DataError, ModelError, PosteriorError
from bayesin.evaluation import Normal, Plan, estimate_seconds, evaluate, predict
from bayesin.evaluation.chunks import activation_bytes, plan
from bayesin.evaluation.stream import draw
from bayesin.paths import Mixture

KEY = jax.random.key(3)


def _members(q: Gaussian, count: int) -> list:
    """Draws written out: one at a time, from the key and the number of the draw alone."""
    leaves, structure = jax.tree.flatten(q.mean)
    cuts = np.cumsum([leaf.size for leaf in leaves])
    members = []
    for s in range(count):
        noise = np.asarray(jax.random.normal(jax.random.fold_in(KEY, s), (cuts[-1],)))
        parts = np.split(noise, cuts[:-1])
        drawn = [m + d * e.reshape(m.shape) for m, d, e in zip(leaves, jax.tree.leaves(q.std), parts, strict=True)]
        members.append(jax.tree.unflatten(structure, drawn))
    return members


def _log_probs(members, x) -> np.ndarray:
    return np.stack([log_softmax(np.asarray(networks.apply(m, x), np.float64), 1) for m in members])


def test_draws_have_the_mean_and_the_std_of_the_posterior():
    q = Gaussian({"a": jnp.full(1, 3.0), "b": jnp.zeros((2, 2))}, {"a": jnp.full(1, 2.0), "b": jnp.ones((2, 2))})
    drawn = jax.vmap(lambda s: draw(q, KEY, s))(jnp.arange(4000))
    flat = np.concatenate([drawn["a"], drawn["b"].reshape(-1, 4)], axis=1)
    covariance = np.diag([4.0, 1, 1, 1, 1])
    np.testing.assert_allclose(flat.mean(0), [3, 0, 0, 0, 0], atol=4 * 2 / np.sqrt(4000))
    np.testing.assert_allclose(np.cov(flat.T), covariance, atol=4 * 4 * np.sqrt(2 / 4000))


def test_marginal_likelihood_equals_brute_force():
    q, (x, y) = networks.gaussian(0), networks.data()
    found = evaluate(q, networks.apply, (x, y), key=KEY, samples=13)
    every = _log_probs(_members(q, 13), x)
    marginal = logsumexp(every, axis=0) - np.log(13)
    np.testing.assert_allclose(found.log_probs, marginal, atol=2e-5)
    np.testing.assert_allclose(found.log_likelihood, marginal[np.arange(len(y)), y], atol=2e-5)
    assert found.nll == pytest.approx(-marginal[np.arange(len(y)), y].mean(), abs=1e-5)
    np.testing.assert_allclose(np.exp(found.log_probs).sum(1), 1, atol=1e-5)


def test_delta_method_terms_equal_their_definition():
    q, (x, y) = networks.gaussian(0), networks.data()
    found = evaluate(q, networks.apply, (x, y), key=KEY, samples=13)
    likelihood = np.exp(_log_probs(_members(q, 13), x)[:, np.arange(len(y)), y])
    ratios = likelihood / likelihood.mean(0)
    np.testing.assert_allclose(found.ratios, ratios.mean(1), atol=1e-4)
    assert found.ratios.mean() == pytest.approx(1, abs=1e-5)
    assert found.bias == pytest.approx(0.5 / 13 * ratios.var(0).mean(), rel=1e-3)
    assert found.standard_error == pytest.approx(ratios.mean(1).std(ddof=1) / np.sqrt(13), rel=1e-3)


def test_marginal_loss_is_below_the_average_loss_of_its_draws():
    q, (x, y) = networks.gaussian(1, spread=0.5), networks.data()
    average = -_log_probs(_members(q, 16), x)[:, np.arange(len(y)), y].mean()
    assert evaluate(q, networks.apply, (x, y), key=KEY, samples=16).nll < average


@pytest.mark.parametrize("chunks", [Plan(1, 1), Plan(7, 3), Plan(100, 50)])
def test_results_do_not_depend_on_the_chunks(chunks):
    q, (x, y) = networks.gaussian(2), networks.data()
    whole = evaluate(q, networks.apply, (x, y), key=KEY, samples=13, chunks=Plan(40, 1))
    found = evaluate(q, networks.apply, (x, y), key=KEY, samples=13, chunks=chunks)
    np.testing.assert_allclose(found.log_probs, whole.log_probs, atol=2e-5)
    np.testing.assert_allclose(found.log_likelihood, whole.log_likelihood, atol=2e-5)
    np.testing.assert_allclose(found.ratios, whole.ratios, atol=1e-4)
    assert found.bias == pytest.approx(whole.bias, rel=1e-3)


def test_more_samples_begin_with_the_same_draws():
    q, (x, y) = networks.gaussian(2), networks.data()
    few = evaluate(q, networks.apply, (x, y), key=KEY, samples=1)
    np.testing.assert_allclose(few.log_probs, _log_probs(_members(q, 1), x)[0], atol=2e-5)


def test_a_point_is_the_network_itself_and_needs_no_key():
    point, (x, y) = networks.params(0), networks.data()
    for posterior in (point, Gaussian.point(point), Samples.stack([point])):
        found = evaluate(posterior, networks.apply, (x, y), key=None)
        np.testing.assert_allclose(found.log_probs, _log_probs([point], x)[0], atol=1e-5)
        assert found.ratios.tolist() == [1.0]
        assert found.standard_error == found.bias == 0


def test_sample_sets_are_averaged_over_their_members():
    members, (x, _) = [networks.params(seed) for seed in range(5)], networks.data()
    expected = logsumexp(_log_probs(members, x), axis=0) - np.log(5)
    for chunks in (None, Plan(11, 2)):
        found = predict(Samples.stack(members), networks.apply, x, key=None, chunks=chunks)
        np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_mixtures_average_the_likelihoods_of_their_parts(weight):
    p, q, (x, y) = networks.gaussian(0), networks.gaussian(1), networks.data()
    parts = [evaluate(one, networks.apply, (x, y), key=KEY, samples=9).log_probs for one in (p, q)]
    found = evaluate(Mixture(p, q, jnp.float32(weight)), networks.apply, (x, y), key=KEY, samples=9)
    np.testing.assert_allclose(
        np.exp(found.log_probs), (1 - weight) * np.exp(parts[0]) + weight * np.exp(parts[1]), atol=1e-5
    )


def test_regression_against_a_closed_form():
    # y = w x with w ~ N(1, 0.5²) and noise 0.3: the marginal is N(x, 0.25 x² + 0.09).
    q = Gaussian({"w": jnp.array([1.0])}, {"w": jnp.array([0.5])})
    x, y = np.array([[0.5], [-1.0], [2.0]], np.float32), np.array([0.4, -1.5, 1.0], np.float32)
    found = evaluate(
        q,
        lambda p, x: x @ p["w"][:, None],
        (x, y),
        key=KEY,
        samples=20_000,
        log_likelihood=Normal(0.3),
        chunks=Plan(3, 1000),
    )
    exact = norm.logpdf(y, x[:, 0], np.sqrt(0.25 * x[:, 0] ** 2 + 0.09))
    assert found.log_probs is None
    np.testing.assert_allclose(found.log_likelihood, exact, atol=0.05)
    assert abs(found.nll + exact.mean()) < 4 * found.standard_error + found.bias


def test_standard_error_is_the_spread_over_keys():
    q, (x, y) = networks.gaussian(3, spread=0.4), networks.data()
    runs = [evaluate(q, networks.apply, (x, y), key=jax.random.key(k), samples=64) for k in range(60)]
    spread = np.std([run.nll for run in runs], ddof=1)
    claimed = np.sqrt(np.mean([run.standard_error**2 for run in runs]))
    # The spread of 60 runs is known to 1/sqrt(2·59) = 9 %; the delta method leaves out terms of order 1/S.
    assert claimed == pytest.approx(spread, rel=0.35)


def test_bias_is_the_mean_error_over_keys():
    q, (x, y) = networks.gaussian(3, spread=0.4), networks.data()
    exact = evaluate(q, networks.apply, (x, y), key=jax.random.key(99), samples=20_000, chunks=Plan(40, 500))
    runs = [evaluate(q, networks.apply, (x, y), key=jax.random.key(k), samples=16) for k in range(200)]
    error = np.mean([run.nll for run in runs]) - exact.nll
    noise = np.std([run.nll for run in runs]) / np.sqrt(200) + exact.standard_error
    assert error > 3 * noise  # it leans upwards
    assert np.mean([run.bias for run in runs]) == pytest.approx(error, abs=3 * noise, rel=0.25)


def test_the_same_key_gives_the_same_bits():
    q, data = networks.gaussian(0), networks.data()
    one, other = (evaluate(q, networks.apply, data, key=KEY, samples=8) for _ in range(2))
    assert one.log_probs.tobytes() == other.log_probs.tobytes()


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_half_precision_leaves_are_drawn_with_full_noise(dtype):
    q = Gaussian({"w": jnp.zeros(20_000, dtype)}, {"w": jnp.ones(20_000, dtype)})
    drawn = np.asarray(draw(q, KEY, 0)["w"], np.float64)
    assert draw(q, KEY, 0)["w"].dtype == dtype
    assert drawn.std() == pytest.approx(1, abs=0.02)  # four standard errors, 1/sqrt(2 n) each
    assert abs(drawn).max() > 3.3


def test_integer_leaves_are_not_drawn():
    q = Gaussian({"n": jnp.array(7), "w": jnp.zeros(3)}, {"n": jnp.array(0), "w": jnp.ones(3)})
    assert int(draw(q, KEY, 0)["n"]) == 7


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e3])
def test_extreme_logits_stay_finite(scale):
    q, data = networks.gaussian(0), networks.data()
    q = Gaussian(q.mean | {"l2": jax.tree.map(lambda m: m * scale * 10, q.mean["l2"])}, q.std)
    assert np.isfinite(evaluate(q, networks.apply, data, key=KEY, samples=4).nll)


def test_edges_one_class_one_example_many_classes():
    one = networks.gaussian(0, (6, 8, 1))
    assert evaluate(one, networks.apply, networks.data(1, sizes=(6, 1)), key=KEY, samples=2).nll == 0
    wide = networks.gaussian(0, (6, 3, 10_000))
    assert np.isfinite(evaluate(wide, networks.apply, networks.data(5, sizes=(6, 10_000)), key=KEY, samples=2).nll)


def test_a_loss_that_is_no_number_is_refused_with_the_reason():
    q, data = networks.gaussian(0), networks.data()
    huge = Gaussian(q.mean, jax.tree.map(lambda s: s * 0 + 1e20, q.std))
    with pytest.raises(PosteriorError, match="marginal loss is nan"):
        evaluate(huge, networks.apply, data, key=KEY, samples=4)


def test_misuse_is_named():
    q, (x, y) = networks.gaussian(0), networks.data()
    with pytest.raises(DataError, match="4 classes"):
        evaluate(q, networks.apply, (x, y + 1), key=KEY)
    with pytest.raises(DataError, match="as many inputs as targets"):
        evaluate(q, networks.apply, (x, y[:-1]), key=KEY)
    with pytest.raises(DataError, match="whole numbers"):
        evaluate(q, networks.apply, (x, y.astype(np.float32)), key=KEY)
    with pytest.raises(ModelError, match="cannot be applied"):
        evaluate(q, networks.apply, (x[:, :3], y), key=KEY)
    with pytest.raises(ConfigError, match="key="):
        evaluate(q, networks.apply, (x, y), key=None)
    with pytest.raises(ConfigError, match="samples=0"):
        evaluate(q, networks.apply, (x, y), key=KEY, samples=0)


def test_callables_that_cannot_be_hashed_work():
    class Network:
        __hash__ = None

        def __call__(self, params, x):
            return networks.apply(params, x)

    assert np.isfinite(evaluate(networks.gaussian(0), Network(), networks.data(), key=KEY, samples=2).nll)


def test_activations_are_measured_per_example():
    wide = networks.params(0, (6, 500, 4))
    x, _ = networks.data()
    assert activation_bytes(networks.apply, wide, x) == 500 * 4
    assert plan(networks.apply, wide, x, 128).examples == 40
    huge = np.broadcast_to(np.float32(0), (10**6, 6))
    assert plan(networks.apply, wide, huge, 128).examples < 10**6


def test_an_accelerator_draws_side_by_side_unless_the_network_convolves(monkeypatch):
    monkeypatch.setattr("bayesin.evaluation.chunks._kind", lambda: "other")
    x, _ = networks.data()
    assert plan(networks.apply, networks.params(0, (6, 500, 4)), x, 128).draws > 1
    model, (images, _) = toys.convolution(), toys.images()
    assert plan(model.apply, model.init(KEY), images, 128).draws == 1


def test_a_cost_estimate_is_of_the_right_order():
    params, (x, _) = networks.params(0, (784, 256, 256, 10)), networks.data(500, sizes=(784, 10))
    rough = estimate_seconds(networks.apply, params, x, samples=16, taus=5)
    exact = estimate_seconds(networks.apply, params, x, samples=16, taus=5, exact=True)
    flops = 2 * (784 * 256 + 256 * 256 + 2560) * 500 * 16 * 5
    assert rough == pytest.approx(flops / 50e9, rel=0.1)
    assert 0.02 * rough < exact < 50 * rough
