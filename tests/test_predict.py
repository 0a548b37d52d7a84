"""Streaming prediction against brute force over explicit draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp

import networks
import training_toys as toys
from bayesin import Gaussian, Samples
from bayesin.errors import ConfigError, DataError, ModelError, PosteriorError
from bayesin.evaluation import ChunkSizes, choose_sizes, estimate_seconds, evaluate, linearised, predict
from bayesin.evaluation.marginal import average_over_draws
from bayesin.inputs import cut
from bayesin.jaxprs import activation_bytes
from bayesin.likelihoods import as_likelihood
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


def test_marginal_likelihood_equals_brute_force():
    q, (x, y) = networks.gaussian(0), networks.data()
    found = evaluate(q, networks.apply, (x, y), key=KEY, samples=13)
    every = _log_probs(_members(q, 13), x)
    marginal = logsumexp(every, axis=0) - np.log(13)
    np.testing.assert_allclose(found.log_probs, marginal, atol=2e-5)
    np.testing.assert_allclose(found.log_likelihood, marginal[np.arange(len(y)), y], atol=2e-5)
    assert found.nll == pytest.approx(-marginal[np.arange(len(y)), y].mean(), abs=1e-5)
    np.testing.assert_allclose(np.exp(found.log_probs).sum(1), 1, atol=1e-5)


def test_error_and_bias_are_those_of_a_jackknife_written_out():
    q, (x, y) = networks.gaussian(0), networks.data()
    for samples in (2, 13):
        found = evaluate(q, networks.apply, (x, y), key=KEY, samples=samples)
        likelihood = np.exp(_log_probs(_members(q, samples), x)[:, np.arange(len(y)), y])
        loss = -np.log(likelihood.mean(0)).mean()
        without = np.array([-np.log(np.delete(likelihood, s, 0).mean(0)).mean() for s in range(samples)])
        np.testing.assert_allclose(found.influence, 1 + (samples - 1) * (without - loss), rtol=1e-3, atol=1e-4)
        assert found.bias == pytest.approx((samples - 1) * (without.mean() - loss), rel=2e-3, abs=1e-5)
        error = np.sqrt((samples - 1) / samples * np.sum((without - without.mean()) ** 2))
        assert found.standard_error == pytest.approx(error, rel=2e-3)


@pytest.mark.parametrize("draws", [8, 32])
def test_error_and_bias_at_few_draws_are_near_the_truth(draws):
    """Log-normal likelihoods of mean one, so that the loss is zero, and the tails heavy."""
    spread, examples, repeats = 1.5, 50, 1000
    logs = spread * np.random.default_rng(0).normal(size=(repeats, draws, examples)) - spread**2 / 2
    number = np.arange(examples)

    @jax.jit
    @jax.vmap
    def average(table):
        return average_over_draws(
            Samples({"l": table}), KEY, cut(number, number, examples), apply=lambda p, x: p["l"][x],
            likelihood=as_likelihood(lambda f, y: f), samples=draws, draws=8, count=examples,
        )  # fmt: skip

    found = average(jnp.asarray(logs, jnp.float32))
    losses = -np.asarray(found.log_likelihood, np.float64).mean(1)
    bias, error = losses.mean(), losses.std(ddof=1)
    ratios = np.exp(logs) / np.exp(logs).mean(1, keepdims=True)
    delta_bias = 0.5 / draws * np.mean((ratios - 1) ** 2)
    delta_error = np.sqrt(np.mean(ratios.mean(2).var(1, ddof=1)) / draws)
    influence = np.asarray(found.influence, np.float64)
    said_bias, said_error = float(np.mean(found.bias)), np.sqrt(np.mean(influence.var(1, ddof=1)) / draws)
    assert 0.65 < said_bias / bias < 1.5 and 0.9 < said_error / error < 1.5
    worst = {8: (0.6, 0.8), 32: (0.7, 0.9)}[draws]  # of what the delta method would say, better with more draws
    assert delta_bias / bias < worst[0] and delta_error / error < worst[1]


def test_marginal_loss_is_below_the_average_loss_of_its_draws():
    q, (x, y) = networks.gaussian(1, spread=0.5), networks.data()
    average = -_log_probs(_members(q, 16), x)[:, np.arange(len(y)), y].mean()
    assert evaluate(q, networks.apply, (x, y), key=KEY, samples=16).nll < average


@pytest.mark.parametrize("chunks", [ChunkSizes(1, 1), ChunkSizes(7, 3), ChunkSizes(100, 50)])
def test_results_do_not_depend_on_the_chunks(chunks):
    q, (x, y) = networks.gaussian(2), networks.data()
    whole = evaluate(q, networks.apply, (x, y), key=KEY, samples=13, chunks=ChunkSizes(40, 1))
    found = evaluate(q, networks.apply, (x, y), key=KEY, samples=13, chunks=chunks)
    np.testing.assert_allclose(found.log_probs, whole.log_probs, atol=2e-5)
    np.testing.assert_allclose(found.log_likelihood, whole.log_likelihood, atol=2e-5)
    np.testing.assert_allclose(found.influence, whole.influence, atol=1e-4)
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
        assert found.influence.tolist() == [1.0]
        assert found.standard_error == found.bias == 0


def test_sample_sets_are_averaged_over_their_members():
    members, (x, _) = [networks.params(seed) for seed in range(5)], networks.data()
    expected = logsumexp(_log_probs(members, x), axis=0) - np.log(5)
    for chunks in (None, ChunkSizes(11, 2)):
        found = predict(Samples.stack(members), networks.apply, x, key=None, chunks=chunks)
        np.testing.assert_allclose(found.log_probs, expected, atol=2e-5)


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_mixtures_average_the_likelihoods_of_their_parts(weight):
    p, q, (x, y) = networks.gaussian(0), networks.gaussian(1), networks.data()
    parts = [evaluate(one, networks.apply, (x, y), key=KEY, samples=9).log_probs for one in (p, q)]
    found = evaluate(Mixture(p, q, jnp.float32(weight)), networks.apply, (x, y), key=KEY, samples=9)
    np.testing.assert_allclose(
        np.exp(found.log_probs), (1 - weight) * np.exp(parts[0]) + weight * np.exp(parts[1]), atol=1e-5
    )


def test_the_same_key_gives_the_same_bits():
    q, data = networks.gaussian(0), networks.data()
    one, other = (evaluate(q, networks.apply, data, key=KEY, samples=8) for _ in range(2))
    assert one.log_probs.tobytes() == other.log_probs.tobytes()


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
    with pytest.raises(DataError, match="4 outputs"):
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
    assert choose_sizes(networks.apply, wide, x, 128).examples == 40
    huge = np.broadcast_to(np.float32(0), (10**6, 6))
    assert choose_sizes(networks.apply, wide, huge, 128).examples < 10**6


def test_an_accelerator_draws_side_by_side_unless_the_network_convolves(monkeypatch):
    monkeypatch.setattr("bayesin.evaluation.sizes._kind", lambda: "other")
    x, _ = networks.data()
    assert choose_sizes(networks.apply, networks.params(0, (6, 500, 4)), x, 128).draws > 1
    model, (images, _) = toys.convolution(), toys.images()
    assert choose_sizes(model.apply, model.init(KEY), images, 128).draws == 1


def test_a_cost_estimate_is_of_the_right_order():
    params, (x, _) = networks.params(0, (784, 256, 256, 10)), networks.data(500, sizes=(784, 10))
    rough = estimate_seconds(networks.apply, params, x, samples=16, taus=5)
    exact = estimate_seconds(networks.apply, params, x, samples=16, taus=5, exact=True)
    flops = 2 * (784 * 256 + 256 * 256 + 2560) * 500 * 16 * 5
    assert rough == pytest.approx(flops / 50e9, rel=0.1)
    assert 0.02 * rough < exact < 50 * rough


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e3])
def test_extreme_logits_are_those_of_brute_force(scale):
    q, (x, y) = networks.gaussian(0), networks.data()
    q = Gaussian(q.mean | {"l2": jax.tree.map(lambda m: m * scale * 10, q.mean["l2"])}, q.std)
    found = evaluate(q, networks.apply, (x, y), key=KEY, samples=4)
    every = _log_probs(_members(q, 4), x)[:, np.arange(len(y)), y]
    np.testing.assert_allclose(found.log_likelihood, logsumexp(every, axis=0) - np.log(4), rtol=1e-5, atol=2e-5)


def test_a_linearised_network_has_the_moments_of_its_jacobian():
    """For a Gaussian N(m, Σ) they are known in closed form: mean f(m), covariance J Σ Jᵀ."""
    q, (x, _) = networks.gaussian(0), networks.data()
    x = jnp.asarray(x[:3])
    flat, draws = linearised(networks.apply, q), 4_000
    np.testing.assert_array_equal(flat(q.mean, x), networks.apply(q.mean, x))
    jacobian = jax.jacobian(lambda params: networks.apply(params, x).reshape(-1))(q.mean)
    rows = [np.asarray(leaf, np.float64).reshape(len(x) * 4, -1) for leaf in jax.tree.leaves(jacobian)]
    spread = np.concatenate([np.asarray(leaf).reshape(-1) for leaf in jax.tree.leaves(q.std)])
    covariance = np.einsum(
        "ap,p,bp->ab", np.concatenate(rows, 1), spread.astype(np.float64) ** 2, np.concatenate(rows, 1)
    )
    found = np.asarray(jax.vmap(lambda params: flat(params, x).reshape(-1))(q.sample(KEY, draws)), np.float64)
    error = np.sqrt(np.diag(covariance) / draws)
    assert (np.abs(found.mean(0) - np.asarray(networks.apply(q.mean, x)).reshape(-1)) < 5 * error).all()
    bound = 5 * np.sqrt((np.outer(np.diag(covariance), np.diag(covariance)) + covariance**2) / draws)
    assert (np.abs(np.cov(found.T) - covariance) < bound).all()
