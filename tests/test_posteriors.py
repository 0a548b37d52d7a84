"""Laws of every posterior, a class of a user's own included, under every verb."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import networks
from bayesin import (
    Gaussian,
    LowRankGaussian,
    Posterior,
    Samples,
    align,
    barrier,
    evaluate,
    geodesic,
    load_posterior,
    marginal_loss,
    mixture,
    predict,
    save_posterior,
    wasserstein,
)
from bayesin.errors import ConfigError, PosteriorError
from bayesin.randomness import normal_tree
from posterior_table import SPEC, Uniform, flat, posteriors, rows

KEY = jax.random.key(7)
TABLE = posteriors()
DATA = networks.learnt(TABLE["gaussian"])
DRAWN = ("gaussian", "lowrank", "own")
FAMILIES = (*DRAWN, "samples")


@pytest.mark.parametrize("name", FAMILIES)
def test_all_have_the_four_members(name):
    assert isinstance(TABLE[name], Posterior)
    assert not isinstance(TABLE["point"], Posterior)
    assert len(repr(TABLE[name])) < 200 or name == "own"


@pytest.mark.parametrize("name", FAMILIES)
def test_draws_have_the_mean_and_the_marginal_std(name):
    q, count = TABLE[name], 4000
    draws, mean, std = rows(q.sample(KEY, count)), flat(q.mean), flat(q.std)
    if name == "samples":  # drawn with replacement: the spread of the members themselves has divisor n
        std = std * np.sqrt(1 - 1 / len(q))
    assert np.abs((draws.mean(0) - mean) / std).max() < 5 / np.sqrt(count)
    # The variance of a sample variance is at most (kurtosis − 1)/n σ⁴; the kurtosis of all four is at most 3.25.
    assert np.abs(draws.var(0) / std**2 - 1).max() < 5 * np.sqrt(2.25 / count)


@pytest.mark.as_shipped
@pytest.mark.parametrize("name", DRAWN)
def test_evaluation_sees_the_draws_of_sample_to_the_bit(name):
    q = TABLE[name]
    of_posterior = evaluate(q, networks.apply, DATA, key=KEY, samples=9)
    of_draws = evaluate(Samples(q.sample(KEY, 9)), networks.apply, DATA, key=None)
    np.testing.assert_array_equal(of_posterior.log_likelihood, of_draws.log_likelihood)
    np.testing.assert_array_equal(of_posterior.influence, of_draws.influence)


@pytest.mark.parametrize("name", ["gaussian", "lowrank"])
def test_a_draw_is_a_function_of_the_key_and_its_number(name):
    few, many = rows(TABLE[name].sample(KEY, 3)), rows(TABLE[name].sample(KEY, 8))
    np.testing.assert_array_equal(few, many[:3])
    third = TABLE[name].draw(jax.random.fold_in(KEY, 2))
    np.testing.assert_allclose(flat(third), few[2], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", TABLE)
def test_predictions_are_averages_over_the_draws(name):
    q = TABLE[name]
    members = {"point": [q], "samples": q}.get(name) or Samples(q.sample(KEY, 6))
    probs = np.mean([jax.nn.softmax(networks.apply(member, DATA[0])) for member in members], 0)
    log_probs = predict(q, networks.apply, DATA[0], key=KEY, samples=6).log_probs
    np.testing.assert_allclose(np.exp(log_probs), probs, atol=1e-5)
    found = evaluate(q, networks.apply, DATA, key=KEY, samples=6)
    np.testing.assert_allclose(found.log_probs, log_probs, atol=1e-5)
    np.testing.assert_allclose(found.log_likelihood, log_probs[np.arange(40), DATA[1]], atol=1e-5)
    loss = marginal_loss(q, networks.apply, DATA, key=KEY, samples=6)
    assert float(loss) == pytest.approx(found.nll, rel=1e-5)


@pytest.mark.parametrize("name", TABLE)
def test_a_permuted_posterior_computes_the_same(name):
    q, perms = TABLE[name], SPEC.random(jax.random.key(1))
    moved = Gaussian.point(q).permute(SPEC, perms).mean if name == "point" else q.permute(SPEC, perms)
    members = [(q, moved) if name == "point" else (q.mean, moved.mean)]
    if name == "samples":
        members += zip(q, moved, strict=True)
    if name == "lowrank":
        members += zip(Samples(q.factors), Samples(moved.factors), strict=True)
    for before, after in members:
        np.testing.assert_allclose(networks.apply(before, DATA[0]), networks.apply(after, DATA[0]), atol=1e-5)
    if name != "point":
        order = np.asarray(perms["g0"])
        np.testing.assert_allclose(moved.std["l0"]["bias"], np.asarray(q.std["l0"]["bias"])[order], rtol=1e-6)


@pytest.mark.parametrize("name", TABLE)
def test_alignment_undoes_a_permutation_and_geodesic_stays(name):
    q, perms = TABLE[name], SPEC.random(jax.random.key(2))
    moved = Gaussian.point(q).permute(SPEC, perms).mean if name == "point" else q.permute(SPEC, perms)
    back = align(q, moved, SPEC, key=KEY)
    assert type(back.posterior) is type(q)
    first, second, third = (
        Gaussian(posterior.mean, posterior.std) if name == "samples" else posterior
        for posterior in (q, back.posterior, moved)
    )
    assert float(wasserstein(first, second)) == pytest.approx(0, abs=1e-4) and float(wasserstein(first, third)) > 1
    found = barrier(geodesic(q, back.posterior), networks.apply, DATA, key=KEY, samples=4, taus=3)
    assert abs(found.excess[1]) < 1e-4


def test_a_path_of_ones_own_goes_through_a_family_of_ones_own():
    q = TABLE["own"]
    path = lambda tau: Uniform(q.low, jax.tree.map(lambda high: high + tau, q.high))  # noqa: E731
    found = barrier(path, networks.apply, DATA, key=KEY, samples=5, taus=3)
    alone = evaluate(path(0.5), networks.apply, DATA, key=KEY, samples=5)
    assert found.nll[1] == alone.nll and found.samples == 5


@pytest.mark.parametrize("name", TABLE)
def test_files_keep_what_they_say(name, tmp_path):
    q, kind = TABLE[name], {"kind": "gaussian"} if name == "own" else {}
    if name == "own":
        with pytest.raises(PosteriorError):
            save_posterior(tmp_path / "q.safetensors", q)
    back = load_posterior(save_posterior(tmp_path / "q.safetensors", q, **kind))
    expected = Gaussian(q.mean, q.std) if name == "own" else q
    np.testing.assert_array_equal(flat(back), flat(expected))


def test_samples_are_cut_into_samples():
    q = TABLE["samples"]
    for index, members in ((slice(2), [0, 1]), ([0, 2], [0, 2]), (np.arange(5) == 3, [3]), (np.array([-1]), [4])):
        assert isinstance(q[index], Samples) and len(q[index]) == len(members)
        np.testing.assert_array_equal(rows(q[index].params), rows(q.params)[members])
    np.testing.assert_array_equal(flat(q[-2]), rows(q.params)[3])
    assert len(list(q)) == 5
    for outside in (7, -6, [0, 5]):
        with pytest.raises(IndexError, match="there are 5 samples"):
            q[outside]
    np.testing.assert_allclose(flat(q.std), rows(q.params).std(0, ddof=1), rtol=1e-4)
    assert not flat(q[:1].std).any()


def test_integers_stay_in_every_family():
    mean = {"steps": jnp.array([3, 4]), "flag": jnp.array(True), "w": jnp.zeros(2)}
    members = Samples.stack([mean, {**mean, "w": jnp.ones(2)}])
    families = [Gaussian(mean, {"steps": jnp.array([0, 0]), "flag": jnp.array(False), "w": jnp.ones(2)}), members]
    for q in (*families, LowRankGaussian.from_samples(members)):
        draws = q.sample(KEY, 4)
        assert draws["steps"].tolist() == [[3, 4]] * 4 and draws["steps"].dtype == mean["steps"].dtype
        assert draws["flag"].all() and q.mean["steps"].tolist() == [3, 4] and not np.asarray(q.std["steps"]).any()
        assert np.ptp(draws["w"]) > 0


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_half_precision_is_drawn_with_full_noise_and_rounded_once(dtype):
    mean, std = {"w": jnp.linspace(-1, 1, 2000).astype(dtype)}, {"w": jnp.full(2000, 0.5, dtype)}
    noise = np.asarray(normal_tree(KEY, mean)["w"])
    assert noise.dtype == np.float32 and len(np.unique(noise)) > 1990
    exact = np.asarray(mean["w"], np.float32) + np.float32(0.5) * noise
    np.testing.assert_array_equal(Gaussian(mean, std).draw(KEY)["w"], exact.astype(dtype))


def test_double_precision_is_double_throughout():
    with jax.enable_x64(True):
        q = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), TABLE["gaussian"])
        draws = q.sample(KEY, 2)
        assert {leaf.dtype for leaf in jax.tree.leaves(draws)} == {jnp.dtype("float64")}
        noise = jax.random.normal(jax.random.fold_in(KEY, 0), (q.size,), jnp.float64)
        np.testing.assert_allclose(rows(draws)[0], flat(q.mean) + flat(q.std) * np.asarray(noise), rtol=1e-14)
        found = evaluate(q, networks.apply, (DATA[0].astype(np.float64), DATA[1]), key=KEY, samples=4)
        assert found.log_likelihood.dtype == np.float64


def test_what_is_no_posterior_is_named():
    class Half:
        mean = std = None

    for verb in (lambda q: geodesic(q, q), lambda q: evaluate(q, networks.apply, DATA, key=KEY)):
        with pytest.raises(PosteriorError, match=r"Half.*mean, std, sample\(key, count\) and permute"):
            verb(Half())
    with pytest.raises(ConfigError, match="key="):
        evaluate(TABLE["own"], networks.apply, DATA, key=None)
    with pytest.raises(ConfigError, match=r"jax\.random\.key\(0\)"):
        TABLE["gaussian"].sample(0, 2)
    for path in (geodesic, mixture):
        with pytest.raises(PosteriorError, match="compact"):
            path(TABLE["samples"], TABLE["gaussian"])
        with pytest.raises(PosteriorError, match=r"q\.marginal"):
            path(TABLE["lowrank"], TABLE["gaussian"])
