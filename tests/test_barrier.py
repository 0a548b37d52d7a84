"""Laws of the barrier, and an independent slow version."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax

import networks
from bayesin import Gaussian, Samples, align, barrier, geodesic, mixture
from bayesin.errors import ConfigError, PosteriorError
from bayesin.evaluation import ChunkSizes, evaluate
from bayesin.evaluation.marginal import MOST_NOISE, KeptNoise, average_over_draws
from bayesin.evaluation.metrics import COLDEST, HOTTEST
from bayesin.likelihoods import Normal
from bayesin.paths import _between
from bayesin.randomness import normal_tree
from posterior_table import SPEC

KEY = jax.random.key(5)


def _slow_deterministic(p, q, x, y, taus):
    """Points only: float64 loops over τ, layers written out, one chord and one maximum."""
    losses = []
    for tau in taus:
        h = np.asarray(x, np.float64)
        for i, layer in enumerate(sorted(p)):
            kernel, bias = (
                (1 - tau) * np.asarray(p[layer][n], np.float64) + tau * np.asarray(q[layer][n], np.float64)
                for n in ("kernel", "bias")
            )
            h = np.maximum(h, 0) if i else h
            h = h @ kernel + bias
        losses.append(-np.mean([log_softmax(row)[label] for row, label in zip(h, y, strict=True)]))
    return np.array(losses), max(
        loss - ((1 - t) * losses[0] + t * losses[-1]) for loss, t in zip(losses, taus, strict=True)
    )


def test_deterministic_barrier_equals_the_slow_version():
    p, q, (x, y) = networks.params(0), networks.params(1), networks.data()
    found = barrier(geodesic(p, q), networks.apply, (x, y), key=KEY, taus=25)
    losses, value = _slow_deterministic(p, q, x, y, np.linspace(0, 1, 25))
    np.testing.assert_allclose(found.nll, losses, atol=1e-5)
    assert found.value == pytest.approx(value, abs=1e-5)
    assert found.value_over_mean == pytest.approx(losses.max() - 0.5 * (losses[0] + losses[-1]), abs=1e-5)
    assert found.samples == 1
    assert found.standard_error == 0


def test_barrier_from_p_to_p_is_zero():
    p, data = networks.gaussian(0), networks.data()
    found = barrier(geodesic(p, p), networks.apply, data, key=KEY, samples=8, taus=5)
    assert found.value == 0
    assert found.value_over_mean == 0
    assert np.ptp(found.nll) == 0  # to the bit: the same noise, the same weights
    assert found.standard_error == 0


def test_barrier_does_not_depend_on_the_direction():
    p, q, data = networks.gaussian(0), networks.gaussian(1), networks.data()
    there = barrier(geodesic(p, q), networks.apply, data, key=KEY, samples=8, taus=5)
    back = barrier(geodesic(q, p), networks.apply, data, key=KEY, samples=8, taus=5)
    np.testing.assert_allclose(there.nll, back.nll[::-1], atol=2e-6)
    assert there.value == pytest.approx(back.value, abs=5e-6)


def test_mixture_is_convex_and_has_no_barrier():
    p = networks.gaussian(0)
    q, data = networks.shuffled(p), networks.learnt(p)
    control = barrier(mixture(p, q), networks.apply, data, key=KEY, samples=8, taus=9)
    assert barrier(geodesic(p, q), networks.apply, data, key=KEY, samples=8, taus=9).value > 0.1
    assert control.value <= 1e-6
    assert np.all(np.diff(control.nll, 2) > -1e-5)
    np.testing.assert_allclose(
        control.nll[[0, -1]],
        barrier(geodesic(p, q), networks.apply, data, key=KEY, samples=8, taus=3).nll[[0, -1]],
        atol=1e-6,
    )


def test_both_definitions_differ_on_a_straight_line():
    # Output −|w| x² with likelihood = output: the loss is linear in w, from 0 to 1.
    path = geodesic({"w": jnp.zeros(1)}, {"w": jnp.ones(1)})
    found = barrier(
        path,
        lambda p, x: x * p["w"][None],
        (np.ones((4, 1), np.float32), np.zeros(4, np.float32)),
        key=KEY,
        taus=5,
        likelihood=lambda outputs, y: -outputs[:, 0],
    )
    np.testing.assert_allclose(found.nll, [0, 0.25, 0.5, 0.75, 1], atol=1e-6)
    assert found.value == pytest.approx(0, abs=1e-6)
    assert found.value_over_mean == pytest.approx(0.5, abs=1e-6)
    assert found.accuracy is found.ece is found.brier is found.accuracy_drop is None


def test_a_dip_is_not_clipped_and_the_ends_bound_it_from_below():
    path = geodesic({"w": jnp.array([-1.0])}, {"w": jnp.array([1.0])})
    found = barrier(
        path,
        lambda p, x: x * p["w"][None],
        (np.ones((4, 1), np.float32), np.zeros(4, np.float32)),
        key=KEY,
        taus=5,
        likelihood=Normal(1.0),
    )
    assert found.excess.min() < -0.4
    assert found.value == 0
    assert found.value_over_mean == 0


def test_common_noise_makes_the_height_surer_than_the_losses():
    p = networks.gaussian(0, spread=0.4)
    q = Gaussian(jax.tree.map(lambda m: m + 0.02, p.mean), p.std)
    found = barrier(geodesic(p, q), networks.apply, networks.data(), key=KEY, samples=64, taus=3)
    alone = evaluate(p, networks.apply, networks.data(), key=KEY, samples=64).standard_error
    assert found.standard_errors[1] < 0.05 * alone


def test_a_point_at_one_end_only():
    p, q = networks.params(0), networks.gaussian(1)
    found = barrier(geodesic(p, q), networks.apply, networks.data(), key=KEY, samples=8, taus=3)
    assert found.samples == 8
    assert found.standard_errors.shape == (3,)
    assert found.standard_errors[0] == 0


def test_results_do_not_depend_on_the_chunks():
    p, q, data = networks.gaussian(0), networks.gaussian(1), networks.data()
    one, other = (
        barrier(geodesic(p, q), networks.apply, data, key=KEY, samples=7, taus=3, chunks=chunks)
        for chunks in (ChunkSizes(40, 1), ChunkSizes(9, 3))
    )
    np.testing.assert_allclose(one.nll, other.nll, atol=1e-5)
    np.testing.assert_allclose(one.standard_errors, other.standard_errors, rtol=1e-3, atol=1e-6)
    np.testing.assert_array_equal(one.accuracy, other.accuracy)


@pytest.mark.parametrize("path", [geodesic, mixture])
def test_nothing_is_compiled_again_along_the_path(path):
    traced = []

    def counted(params, x):
        traced.append(x.shape)
        return networks.apply(params, x)

    p, q, data = networks.gaussian(0), networks.gaussian(1), networks.data()
    barrier(path(p, q), counted, data, key=KEY, samples=4, taus=3)
    first = len(traced)
    before = average_over_draws._cache_size()
    barrier(path(q, p), counted, data, key=jax.random.key(1), samples=4, taus=9)
    assert average_over_draws._cache_size() == before
    assert len(traced) - first <= 3  # shapes are looked up; no program is traced


def test_the_aligned_path_compiles_nothing_that_the_naive_one_has_not():
    """Moved arrays are like those that were given, or every program of the barrier would be compiled twice."""
    p, q, data = networks.gaussian(0), networks.gaussian(1), networks.data()
    barrier(geodesic(p, q), networks.apply, data, key=KEY, samples=4, taus=3)
    programs = (average_over_draws, _between)
    before = [program._cache_size() for program in programs]
    moved = align(p, q, SPEC, key=KEY).posterior
    barrier(geodesic(p, moved), networks.apply, data, key=KEY, samples=4, taus=[0.0, 0.25, 0.5, 1.0])
    geodesic(p, moved)(np.float32(0.5)), geodesic(p, moved)(1)
    assert [program._cache_size() for program in programs] == before


@pytest.mark.parametrize("most", [MOST_NOISE, 0])  # kept for the whole path, or made at every point
def test_every_point_has_the_loss_that_it_has_alone(monkeypatch, most):
    monkeypatch.setattr("bayesin.evaluation.marginal.MOST_NOISE", most)
    path, data = geodesic(networks.gaussian(0), networks.gaussian(1)), networks.data()
    found = barrier(path, networks.apply, data, key=KEY, samples=6, taus=5)
    alone = [evaluate(path(tau), networks.apply, data, key=KEY, samples=6).nll for tau in found.taus]
    np.testing.assert_allclose(found.nll, alone, rtol=1e-6)
    assert (KeptNoise(KEY, 6).of(path(0.0)) is None) == (most == 0)


def test_kept_noise_is_that_of_every_draw():
    posterior = networks.gaussian(0)
    noise = KeptNoise(KEY, 3).of(posterior)
    for number in range(3):
        expected = normal_tree(jax.random.fold_in(KEY, number), posterior.mean)
        jax.tree.map(np.testing.assert_array_equal, jax.tree.map(lambda leaf, at=number: leaf[at], noise), expected)


def test_scores_and_kept_predictions():
    p, q, (x, y) = networks.gaussian(0), networks.gaussian(1), networks.data()
    done = []
    found = barrier(
        geodesic(p, q),
        networks.apply,
        (x, y),
        key=KEY,
        samples=4,
        taus=5,
        keep=[3, 17],
        on_tau=lambda *a: done.append(a),
    )
    assert found.probabilities.shape == (5, 2, 4)
    np.testing.assert_allclose(found.probabilities.sum(-1), 1, atol=1e-5)
    assert found.kept.tolist() == [3, 17]
    assert found.calibration.shape == (5, 3, 15)
    assert (found.confusion.sum((1, 2)) == 40).all()
    np.testing.assert_allclose(np.trace(found.confusion, axis1=1, axis2=2) / 40, found.accuracy)
    assert [number for number, _, _ in done] == [1, 2, 3, 4, 5]
    assert done[2][1:] == (0.5, found.nll[2])
    short, long = found.to_json(), found.to_json(detail=True)
    assert short["value"] == found.value
    assert "probabilities" not in short
    assert len(long["probabilities"]) == 5


def test_the_grid_holds_its_ends_and_its_middle():
    p, q, data = networks.params(0), networks.params(1), networks.data()
    for taus in (4, 24, 1, 0, [0, 1], [0.0, 0.5, 0.4, 1.0], [0.1, 0.5, 1.0], [-0.1, 0, 0.5, 1]):
        with pytest.raises(ConfigError):
            barrier(geodesic(p, q), networks.apply, data, key=KEY, taus=taus)
    found = barrier(geodesic(p, q), networks.apply, data, key=KEY, taus=[0, 0.1, 0.5, 1])
    assert found.taus.tolist() == [0, 0.1, 0.5, 1]
    for count in (3, 25, 51):
        assert {0.0, 0.5, 1.0} <= set((np.arange(count) / (count - 1)).tolist())


def test_misuse_is_named():
    p, q, data = networks.params(0), networks.params(1), networks.data()
    with pytest.raises(ConfigError, match="keep="):
        barrier(geodesic(p, q), networks.apply, data, key=KEY, keep=[40])
    bad = jax.tree.map(lambda leaf: leaf * jnp.nan, q)
    with pytest.raises(PosteriorError, match=r"at τ = 0\.5"):
        barrier(geodesic(p, bad), networks.apply, data, key=KEY, taus=3)
    with pytest.raises(PosteriorError, match="compact"):
        geodesic(Samples.stack([p, q]), q)


def test_a_path_may_be_any_function_of_tau():
    p, q, data = networks.gaussian(0), networks.gaussian(1), networks.data()
    line = geodesic(p, q)
    own = barrier(lambda tau: line(tau), networks.apply, data, key=KEY, samples=4, taus=3)
    np.testing.assert_array_equal(own.nll, barrier(line, networks.apply, data, key=KEY, samples=4, taus=3).nll)


@pytest.mark.promotes
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_half_precision_weights_cost_their_rounding_and_no_more(dtype):
    wide = [networks.gaussian(seed) for seed in (0, 1)]
    half = [jax.tree.map(lambda leaf: leaf.astype(dtype), q) for q in wide]
    exact, rounded = (
        barrier(geodesic(*ends), networks.apply, networks.data(), key=KEY, samples=4, taus=3) for ends in (wide, half)
    )
    np.testing.assert_allclose(rounded.nll, exact.nll, rtol=10 * float(jnp.finfo(dtype).eps))
    assert np.abs(rounded.nll - exact.nll).max() > 0


def test_temperatures_are_fitted_beside_the_test_set_at_every_tau():
    """Against a fine grid of temperatures; the ends are calibrated as all others are."""
    p, q, (x, y), (others, labels) = networks.params(0), networks.params(1), networks.data(60), networks.data(80, 1)
    found = barrier(geodesic(p, q), networks.apply, (x, y), key=KEY, taus=3, calibrate=(others, labels))
    grid, losses = np.exp(np.linspace(np.log(COLDEST), np.log(HOTTEST), 1_401)), []
    for index, tau in enumerate(found.taus):
        point = geodesic(p, q)(tau).mean
        here, beside = (np.asarray(networks.apply(point, inputs), np.float64) for inputs in (x, others))
        nll = lambda outputs, y, t: -log_softmax(outputs / t, 1)[np.arange(len(y)), y].mean()  # noqa: E731
        best = grid[np.argmin([nll(beside, labels, t) for t in grid])]
        np.testing.assert_allclose(found.temperatures[index], best, rtol=0.011)  # a step of the grid
        losses.append(nll(here, y, found.temperatures[index]))
        np.testing.assert_allclose(found.held_out_nll[index], nll(beside, labels, 1.0), rtol=1e-5)
    np.testing.assert_allclose(found.calibrated_nll, losses, rtol=1e-5)
    heights = [line[1] - (line[0] + line[2]) / 2 for line in (losses, found.held_out_nll)]
    np.testing.assert_allclose([found.calibrated_value, found.held_out_value], np.maximum(heights, 0), atol=1e-6)
    with pytest.raises(ConfigError, match="class probabilities"):
        barrier(
            geodesic(p, q), networks.apply, (x, here), key=KEY, taus=3, likelihood=Normal(1.0), calibrate=(x, here)
        )


def test_each_half_of_the_data_is_calibrated_by_the_other():
    """The same as two calls that each calibrate one half on the other; nothing is held out beside it."""
    p, q, (x, y) = networks.params(0), networks.params(1), networks.data(61)
    options = {"key": KEY, "taus": 3}
    found = barrier(geodesic(p, q), networks.apply, (x, y), calibrate="halves", **options)
    parts = [(x[start::2], y[start::2]) for start in (0, 1)]
    ones = [
        barrier(geodesic(p, q), networks.apply, here, calibrate=other, **options)
        for here, other in zip(parts, parts[::-1], strict=True)
    ]
    losses = np.average([one.calibrated_nll for one in ones], axis=0, weights=[31, 30])
    np.testing.assert_allclose(found.calibrated_nll, losses, rtol=1e-5)
    np.testing.assert_allclose(found.temperatures, np.mean([one.temperatures for one in ones], axis=0), rtol=1e-4)
    assert found.held_out_value is None and "held_out_value" not in found.to_json()
    assert found.to_json()["calibrated_value"] == found.calibrated_value > 0
    with pytest.raises(ConfigError, match="two examples"):
        barrier(geodesic(p, q), networks.apply, (x[:1], y[:1]), calibrate="halves", **options)
