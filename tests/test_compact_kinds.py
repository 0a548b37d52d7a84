"""What `compact` folds besides samples, and how wide and how many its Gaussians are: moments, choices written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesin import (
    VI,
    Gaussian,
    Normal,
    Samples,
    compact,
    costs,
    discover,
    evaluate,
    fit_scale,
    fit_vi,
    load_posterior,
    permute,
    predict,
    save_posterior,
    scaled,
)
from bayesin.compact import SCALES, rebase, scores
from bayesin.errors import ConfigError
from bayesin.inference import Draws
from bayesin.inference.hmc.draws import write_draws
from bayesin.posteriors import FactorGaussian, GaussianMixture
from posterior_table import flat, rows
from test_compact import INPUTS, KEY, ONE, apply_one, planted
from training_toys import blobs, mlp

SAMPLES, SHUFFLES = planted(ONE, count=6, noise=0.15)
LABELS = np.asarray(apply_one(SAMPLES[0], INPUTS)).argmax(1)


def gaussians(seed=0):
    rng = np.random.default_rng(seed)
    widths = [
        jax.tree.map(lambda leaf: 0.05 + 0.1 * rng.random(leaf.shape).astype(np.float32), net) for net in SAMPLES
    ]
    return [Gaussian(net, permute(std, ONE, p)) for net, std, p in zip(SAMPLES, widths, SHUFFLES, strict=True)]


def test_a_list_of_networks_is_a_set_of_samples():
    one, other = compact(list(SAMPLES), ONE, key=KEY), compact(SAMPLES, ONE, key=KEY)
    np.testing.assert_array_equal(one.perms["g0"], other.perms["g0"])
    np.testing.assert_array_equal(flat(one.posterior.std), flat(other.posterior.std))


@pytest.mark.parametrize("reference", ["mean", "first"])
def test_gaussians_are_folded_with_the_moments_of_their_mixture(reference):
    given = gaussians()
    found = compact(given, ONE, key=KEY, reference=reference)
    moved = [q.permute(ONE, {"g0": found.perms["g0"][k]}) for k, q in enumerate(given)]
    mixture = GaussianMixture.of(moved, [1 / 6] * 6)
    np.testing.assert_allclose(flat(found.posterior.mean), flat(mixture.mean), atol=1e-5)
    np.testing.assert_allclose(flat(found.posterior.std), flat(mixture.std), rtol=1e-4)
    frames = [s["g0"][p] for s, p in zip(SHUFFLES, found.perms["g0"], strict=True)]
    assert all((frame == frames[0]).all() for frame in frames)  # the planted shuffle is undone
    wide = compact(given, ONE, key=KEY, reference=reference, family="lowrank").posterior
    assert isinstance(wide, FactorGaussian)
    draws, means = rows(wide.sample(KEY, 20_000)), rows(rebase(SAMPLES, ONE, found.perms).params)
    exact = np.cov(means.T, bias=True) + np.diag(np.mean(np.stack([flat(q.std) for q in moved]) ** 2, 0))
    error = np.sqrt(np.outer(np.diag(exact), np.diag(exact)) / 20_000)
    assert (np.abs(np.cov(draws.T) - exact) < 6 * error).all()


OF_UNITS = costs.Activations(apply_one, INPUTS)


@pytest.mark.parametrize("reference", ["mean", "first"])
@pytest.mark.parametrize("cost", ["means", "kl", OF_UNITS, costs.Blend("wasserstein", OF_UNITS)], ids=costs.name_of)
def test_every_cost_undoes_planted_shuffles(cost, reference):
    given = gaussians() if cost == "kl" else SAMPLES
    found = compact(given, ONE, key=KEY, cost=cost, reference=reference)
    frames = [s["g0"][p] for s, p in zip(SHUFFLES, found.perms["g0"], strict=True)]
    assert all((frame == frames[0]).all() for frame in frames)


def test_one_thing_is_compared():
    with pytest.raises(ConfigError, match="give one of them"):
        compact(SAMPLES, ONE, key=KEY, cost="means", match="weights")


def test_members_of_a_fit_go_in_as_they_are():
    x, y = blobs()
    model = mlp()
    fit = fit_vi(KEY, model, (x, y), VI(members=3, epochs=2))
    spec = discover(model.apply, fit.posteriors[0].mean, x[:2])
    found, same = compact(fit, spec, key=KEY), compact(list(fit.posteriors), spec, key=KEY)
    assert found.samples == 3 and (flat(found.posterior.std) == flat(same.posterior.std)).all()
    table = scores(fit, found, model, (x, y), key=KEY, draws=30)
    pooled = np.mean(
        [
            predict(q, model, x, key=k, samples=10).probabilities
            for q, k in zip(fit.posteriors, jax.random.split(KEY, 3), strict=True)
        ],
        0,
    )
    assert table["samples"].nll == pytest.approx(-np.log(pooled[np.arange(len(y)), y]).mean(), rel=1e-4)


def test_chains_are_matched_by_what_units_do_where_data_are_given(tmp_path):
    write_draws(
        tmp_path, 0, [jax.tree.map(lambda leaf, k=k: np.asarray(leaf)[k : k + 1], SAMPLES.params) for k in range(6)]
    )
    options = {"key": KEY, "apply": apply_one, "x": INPUTS}
    chain = compact(Draws(tmp_path), ONE, **options)
    plain = compact(SAMPLES, ONE, match="activations", reference="first", **options)
    np.testing.assert_array_equal(flat(chain.posterior.std), flat(plain.posterior.std))
    weights = compact(SAMPLES, ONE, **options)  # samples that are not known to be a chain
    assert (weights.posterior.std["w0"] == compact(SAMPLES, ONE, key=KEY).posterior.std["w0"]).all()


@pytest.mark.parametrize("family", ["diagonal", "lowrank"])
def test_the_scale_is_the_one_that_held_out_labels_ask_for(family):
    options = {"key": KEY, "apply": apply_one, "held_out": (INPUTS, LABELS), "family": family}
    plain = compact(SAMPLES, ONE, key=KEY, family=family)
    found = compact(SAMPLES, ONE, scale="held-out", **options)
    losses = [
        evaluate(scaled(plain.posterior, s), apply_one, (INPUTS, LABELS), key=KEY, samples=50).nll for s in SCALES
    ]
    assert found.scale == SCALES[int(np.argmin(losses))] and list(found.held_out_nll.values()) == pytest.approx(
        losses
    )
    np.testing.assert_allclose(flat(found.posterior.std), found.scale * flat(plain.posterior.std), rtol=1e-5)
    assert f"scale {found.scale:g}" in repr(found)


def test_a_fitted_scale_is_that_of_the_closed_form():
    """y = w x with a posterior N(m, s²) that is too wide: predicted are N(m x, noise² + scale² s² x²)."""
    rng, spread, noise = np.random.default_rng(0), 3.0, 0.5
    x = rng.normal(size=(400, 1)).astype(np.float32)
    y = (x[:, 0] * (1 + 0.6 * rng.normal(size=400)) + noise * rng.normal(size=400)).astype(np.float32)
    wide = Gaussian({"w": np.ones((1, 1), np.float32)}, {"w": np.full((1, 1), spread, np.float32)})
    variances = [noise**2 + (scale * spread * x[:, 0]) ** 2 for scale in SCALES]
    exact = [np.mean(0.5 * np.log(v) + 0.5 * (y - x[:, 0]) ** 2 / v) for v in variances]
    best = SCALES[int(np.argmin(exact))]
    found = fit_scale(wide, lambda p, x: x @ p["w"], (x, y), key=KEY, samples=2000, likelihood=Normal(noise))
    assert found == best == 0.2 and float(scaled(wide, found).std["w"][0, 0]) == pytest.approx(0.6)
    with pytest.raises(ConfigError, match="scales= is empty"):
        fit_scale(wide, lambda p, x: x @ p["w"], (x, y), key=KEY, scales=())


def test_a_mixture_stands_for_two_groups_of_networks(tmp_path):
    """Two functions that no permutation makes one: a single Gaussian is too wide, two components are not."""
    other, _ = planted(ONE, count=6, noise=0.15, seed=5)
    both = Samples(jax.tree.map(lambda *leaves: jnp.concatenate(leaves), SAMPLES.params, other.params))
    held_out = INPUTS, np.asarray(predict(both, apply_one, INPUTS, key=None).label)
    found = compact(both, ONE, key=KEY, components=(1, 2), apply=apply_one, held_out=held_out)
    assert isinstance(found.posterior, GaussianMixture) and found.posterior.weights.tolist() == [0.5, 0.5]
    moved = rebase(both, ONE, found.perms)
    for half in (slice(0, 6), slice(6, 12)):
        mean = flat(moved[half].mean)
        assert min(np.abs(flat(part.mean) - mean).max() for part in found.posterior.components) < 1e-5
    within = [np.var(rows(moved[half].params), 0, ddof=1) for half in (slice(0, 6), slice(6, 12))]
    np.testing.assert_allclose(flat(found.posterior.components[0].std), np.sqrt(np.mean(within, 0)), rtol=1e-4)
    place = save_posterior(tmp_path / "two.safetensors", found.posterior)
    again = load_posterior(place)
    assert isinstance(again, GaussianMixture) and (again.means["w0"] == np.asarray(found.posterior.means["w0"])).all()
