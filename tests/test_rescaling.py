"""Rescaled paths: closed forms, the laws at the ends, and the parameters that a unit's map is folded into."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import networks
from architectures import ARCHITECTURES
from bayesin import (
    Gaussian,
    PermutationSpec,
    Samples,
    align,
    barrier,
    costs,
    discover,
    geodesic,
    load_posterior,
    merge,
    permute,
    rescale,
    save_posterior,
    verify,
)
from bayesin.errors import ConfigError, DataError, ModelError, PosteriorError
from bayesin.rescaling import units
from bayesin.rescaling.one_pass import Pass
from bayesin.symmetry import apply_unit_maps, find_sites, find_unit_maps
from symmetry_checks import Architecture, normal

pytestmark = pytest.mark.promotes  # the networks of the table do
KEY = jax.random.key(0)
X, Y = networks.data(50)
P, Q = networks.gaussian(0), networks.gaussian(1)
SPEC = discover(networks.apply, P.mean, X[:2])


def bits(tree):
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


def linear(p, x):
    return (x @ p["w0"] + p["b0"]) @ p["w1"] + p["b1"]


def linear_net(seed):
    rng = np.random.default_rng(seed)
    shapes = {"b0": (5,), "b1": (3,), "w0": (4, 5), "w1": (5, 3)}
    return {name: jnp.asarray(rng.normal(size=shape), jnp.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize("tau", [0.25, 0.5])
def test_a_linear_net_of_two_layers_in_closed_form(tau):
    """With C the covariance of x, unit u has the spread (w_uᵀ C w_u)^½, an output (vᵀ Wᵀ C W v)^½."""
    spec = PermutationSpec.parse({"b0": ["g0"], "b1": ["3"], "w0": ["4", "g0"], "w1": ["g0", "3"]}, {"g0": 5})
    x = 1.0 + np.random.default_rng(2).normal(size=(80, 4)).astype(np.float32)
    covariance, mean = np.cov(x.T, ddof=0), x.mean(0)
    p, q = linear_net(0), linear_net(1)
    ends = [Gaussian(net, jax.tree.map(lambda leaf: 0.1 + leaf**2, net)) for net in (p, q)]
    path = geodesic(*ends)
    found, plain = rescale(path, linear, x, key=KEY, samples=0, spec=spec)(tau), path(tau)
    spreads = [np.sqrt(np.diag(net["w0"].T @ covariance @ net["w0"])) for net in (p, q, plain.mean)]
    a = ((1 - tau) * spreads[0] + tau * spreads[1]) / spreads[2]
    b = (1 - a) * (mean @ plain.mean["w0"] + plain.mean["b0"])
    w0, b0 = a * plain.mean["w0"], a * plain.mean["b0"] + b

    def outputs(w0, b0, w1, b1):
        return linear({"w0": w0, "b0": b0, "w1": w1, "b1": b1}, mean), np.sqrt(
            np.diag((w0 @ w1).T @ covariance @ w0 @ w1)
        )

    first, last = outputs(**p), outputs(**q)
    means, spreads = outputs(w0, b0, plain.mean["w1"], plain.mean["b1"])
    c = ((1 - tau) * first[1] + tau * last[1]) / spreads
    d = (1 - tau) * first[0] + tau * last[0] - c * means
    wanted = {"w0": w0, "b0": b0, "w1": c * plain.mean["w1"], "b1": c * plain.mean["b1"] + d}
    stds = {name: (a if name in ("w0", "b0") else c) * plain.std[name] for name in wanted}
    for name in wanted:
        np.testing.assert_allclose(found.mean[name], wanted[name], rtol=5e-4, atol=5e-5)
        np.testing.assert_allclose(found.std[name], stds[name], rtol=2e-4)


def hidden_moments(q, samples):
    """Mean and spread of all hidden units before their rectifiers and of all outputs, over examples and draws."""
    draws = q.sample(jax.random.fold_in(KEY, 0), samples)
    x, found = np.broadcast_to(X, (samples, *X.shape)), []
    for layer in ("l0", "l1", "l2"):
        kernel, bias = (np.asarray(draws[layer][name], np.float64) for name in ("kernel", "bias"))
        value = np.einsum("sxi,sij->sxj", x, kernel) + bias[:, None]
        found.append((value.mean((0, 1)), value.std((0, 1))))
        x = np.maximum(value, 0)
    return np.concatenate(found, axis=1)


def test_units_have_the_moments_of_the_ends_interpolated_layer_after_layer():
    path = rescale(geodesic(P, Q), networks.apply, X, key=KEY, samples=3)
    ends = [hidden_moments(q, 3) for q in (P, Q)]
    for tau in (0.5, 0.75):
        np.testing.assert_allclose(
            hidden_moments(path(tau), 3), (1 - tau) * ends[0] + tau * ends[1], rtol=1e-4, atol=1e-4
        )


def test_ends_are_exact_to_the_bit_and_equal_ends_stay():
    path = rescale(geodesic(P, Q), networks.apply, X, key=KEY)
    for tau, end in ((0, P), (1.0, Q)):
        assert bits(path(tau)) == bits(end)
    still = rescale(geodesic(P, P), networks.apply, X, key=KEY)
    for found, wanted in zip(jax.tree.leaves(still(0.5)), jax.tree.leaves(P), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_labels_fit_the_maps_of_the_ends_as_well_and_nothing_else():
    x, y = networks.learnt(networks.gaussian(7), 50)
    plain = rescale(geodesic(P.mean, Q.mean), networks.apply, x, key=KEY, samples=0)
    fitted = rescale(geodesic(P.mean, Q.mean), networks.apply, x, key=KEY, samples=0, labels=y, steps=30)

    def loss(point):
        return -jax.nn.log_softmax(networks.apply(point.mean, x))[np.arange(len(y)), y].mean()

    for tau in (0.0, 0.5, 1.0):
        assert loss(fitted(tau)) < loss(plain(tau)) - 0.05
        ratios = fitted(tau).mean["l2"]["kernel"] / plain(tau).mean["l2"]["kernel"]  # one number for each output
        np.testing.assert_allclose(ratios, np.broadcast_to(ratios[:1], ratios.shape), rtol=1e-4)


def test_the_ends_teach_points_in_proportion_and_stay_to_the_bit():
    """On two inputs and two classes the maps can meet their teacher, (1 − τ) p₀ + τ p₁, exactly."""
    x = np.array([[0.0, 1.0], [1.0, 0.0]], np.float32)
    rng = np.random.default_rng(0)

    def apply(p, x):
        return jnp.tanh(x @ p["w0"] + p["b0"]) @ p["w1"] + p["b1"]

    shapes = {"b0": (3,), "b1": (2,), "w0": (2, 3), "w1": (3, 2)}
    nets = [{n: jnp.asarray(rng.normal(size=s), jnp.float32) for n, s in shapes.items()} for _ in range(2)]
    path = rescale(geodesic(*nets), apply, x, key=KEY, samples=0, labels="ends", steps=300)
    ends = [jax.nn.softmax(apply(net, x)) for net in nets]
    for tau in (0.25, 0.5):
        found, plain = (jax.nn.softmax(apply(point.mean, x)) for point in (path(tau), path.path(tau)))
        wanted = (1 - tau) * ends[0] + tau * ends[1]
        np.testing.assert_allclose(found, wanted, atol=0.01)
        assert np.abs(plain - wanted).max() > 0.05
    for tau, net in ((0.0, nets[0]), (1.0, nets[1])):
        assert bits(path(tau).mean) == bits(net)


def attention(p, x):
    """Two heads, each projection with a bias."""
    q, k, v = (jnp.einsum("btd,dhk->bthk", x, p[name]) + p[f"{name}_bias"] for name in "qkv")
    scores = jax.nn.softmax(jnp.einsum("bthk,bshk->bhts", q, k))
    return jnp.einsum("bhts,bshk,hkd->btd", scores, v, p["o"])


HEADS = "q k: 6 h a, v: 6 h b, q_bias k_bias: h a, v_bias: h b, o: h b 6"
TABLE = {name: ARCHITECTURES[name] for name in ("mlp", "layer norm", "filter response norm")}
TABLE["attention"] = Architecture(attention, normal(1, 2, 3, 6, scale=1.0), HEADS, {"h": 2, "a": 4, "b": 3})


@pytest.mark.parametrize("model", TABLE.values(), ids=TABLE)
def test_a_folded_map_is_the_map_of_the_units(model):
    spec = discover(model.apply, model.params, model.x)
    sites = find_sites(model.apply, model.params, model.x, spec).joined
    found = find_unit_maps(sites, model.params, model.x, spec)
    assert {group for unit_map in found for group in unit_map.groups} == set(spec.sizes)
    before = sites(model.params, model.x)
    rng = np.random.default_rng(0)
    for unit_map in found:
        units = before[unit_map.site].shape[-1]
        a, b = rng.uniform(0.5, 2.0, units).astype(np.float32), rng.normal(size=units).astype(np.float32)
        moved = apply_unit_maps(model.params, spec, [unit_map], [(a, b)], std=False)
        after = sites(moved, model.x)
        wanted = a * before[unit_map.site] + b
        np.testing.assert_allclose(after[unit_map.site], wanted, atol=1e-4 * np.abs(wanted).max())
        for earlier in range(unit_map.site):
            np.testing.assert_allclose(after[earlier], before[earlier], atol=1e-5)


@pytest.mark.parametrize("name", ["mlp", "layer norm", "filter response norm"])
def test_one_pass_is_what_a_pass_for_each_site_gives(name, monkeypatch):
    model = TABLE[name]
    rng = np.random.default_rng(0)
    other = jax.tree.map(lambda leaf: leaf + rng.normal(size=leaf.shape).astype(np.float32), model.params)
    narrow = jax.tree.map(lambda leaf: jnp.full_like(leaf, 0.05), model.params)
    path = geodesic(Gaussian(model.params, narrow), Gaussian(other, narrow))
    asked, maps = [], Pass.maps
    monkeypatch.setattr(Pass, "maps", lambda *given: asked.append(maps(*given)) or asked[-1])
    once = rescale(path, model.apply, model.x, key=KEY, samples=2)(0.5)
    monkeypatch.setitem(units.ONE_PASS_BYTES, "cpu", 0)
    each = rescale(path, model.apply, model.x, key=KEY, samples=2)(0.5)
    assert len(asked) == 1
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3), once, each)
    plain = path(0.5)
    assert max(np.abs(a - b).max() for a, b in zip(*map(jax.tree.leaves, (once, plain)), strict=True)) > 0.01


@pytest.mark.parametrize("cost", ["wasserstein", costs.Activations(networks.apply, X)], ids=["weights", "units"])
def test_merging_two_is_the_middle_of_the_rescaled_path(cost):
    merged = merge([P, Q], SPEC, key=KEY, cost=cost, apply=networks.apply, x=X, samples=2)
    path = geodesic(*merged.members)
    middle = rescale(path, networks.apply, X, key=jax.random.fold_in(KEY, 1), samples=2, spec=SPEC)(0.5)
    for found, wanted in ((merged.average, path(0.5)), (merged.posterior, middle)):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, wanted)
    for moved, q, perms in zip(merged.members, (P, Q), merged.perms, strict=True):
        assert bits(moved) == bits(q.permute(SPEC, perms))


def test_merging_points_gives_a_point_and_copies_their_original():
    copies = [permute(P.mean, SPEC, SPEC.random(jax.random.key(seed))) for seed in range(3)]
    merged = merge([P.mean, *copies], SPEC, key=KEY, apply=networks.apply, x=X)
    back = align(P.mean, merged.posterior, SPEC, key=KEY)
    assert back.objective < 1e-6 * back.history[0] or not sum(back.moved.values())
    np.testing.assert_allclose(networks.apply(merged.posterior, X), networks.apply(P.mean, X), rtol=1e-3, atol=1e-3)


def without_bias(p, x):
    return jax.nn.relu(x @ p["w0"]) @ p["w1"]


BARE = {"w0": np.ones((6, 5), np.float32), "w1": np.ones((5, 4), np.float32)}


def bare_net(seed, scale):
    rng = np.random.default_rng(seed)
    return {name: jnp.asarray(scale * rng.normal(size=leaf.shape), jnp.float32) for name, leaf in BARE.items()}


@pytest.mark.parametrize("tau", [0.25, 0.5])
def test_units_without_parameters_of_their_own_are_mapped_inside_the_network_in_closed_form(tau):
    """Of a layer without a bias: gain and bias stand behind it, and outputs, which have none either, stay."""
    p, q = bare_net(0, 1.0), bare_net(1, 2.0)
    plain = geodesic(p, q)
    path = rescale(plain, without_bias, X, key=KEY, samples=0)
    found, inner = path(tau), plain(tau).mean
    values = [np.asarray(X, np.float64) @ np.asarray(net["w0"], np.float64) for net in (p, q, inner)]
    (mean0, mean1, mean), (std0, std1, std) = (
        [f(v) for v in values] for f in (lambda v: v.mean(0), lambda v: v.std(0))
    )
    gain = ((1 - tau) * std0 + tau * std1) / std
    bias = (1 - tau) * mean0 + tau * mean1 - gain * mean
    np.testing.assert_allclose(found.mean["units"]["0"]["gain"], gain, rtol=1e-4)
    np.testing.assert_allclose(found.mean["units"]["0"]["bias"], bias, rtol=1e-3, atol=1e-4)
    outputs = np.maximum(gain * values[2] + bias, 0) @ np.asarray(inner["w1"])
    np.testing.assert_allclose(path.apply(found.mean, X), outputs, rtol=1e-3, atol=1e-3)
    for name, leaf in inner.items():
        np.testing.assert_array_equal(found.mean["network"][name], leaf)


def test_ends_of_a_path_that_is_corrected_inside_compute_what_they_did_and_points_are_posteriors(tmp_path):
    p, q = bare_net(0, 1.0), bare_net(1, 2.0)
    path = rescale(geodesic(p, q), without_bias, X, key=KEY, samples=0)
    for tau, end in ((0.0, p), (1.0, q)):
        np.testing.assert_array_equal(path.apply(path(tau).mean, X), without_bias(end, X))
    verify(path.apply, path(0.5).mean, X, path.spec, key=KEY)
    turned = path(0.5).permute(path.spec, path.spec.random(KEY))
    np.testing.assert_allclose(path.apply(turned.mean, X), path.apply(path(0.5).mean, X), rtol=1e-4, atol=1e-4)
    save_posterior(tmp_path / "middle.safetensors", path(0.5))
    again = load_posterior(tmp_path / "middle.safetensors")
    np.testing.assert_array_equal(again.mean["units"]["0"]["gain"], path(0.5).mean["units"]["0"]["gain"])
    assert barrier(path, path.apply, (X, Y), key=KEY, taus=3).value >= 0
    learnt = rescale(geodesic(p, q), without_bias, X, key=KEY, samples=0, labels=Y, steps=2)
    assert float(jnp.abs(learnt(0.0).mean["units"]["0"]["gain"] - 1).max()) > 1e-3


LINE = geodesic(P, Q)


@pytest.mark.parametrize(
    "make, error, message",
    [
        (
            lambda: merge([BARE, BARE], discover(without_bias, BARE, X[:2]), key=KEY, apply=without_bias, x=X),
            ModelError,
            "give each layer a bias",
        ),
        (lambda: rescale(LINE, networks.apply, X[:1], key=KEY), DataError, "batch first"),
        (lambda: rescale(LINE, networks.apply, X, key=KEY, samples=-1), ConfigError, "samples starts at 0"),
        (
            lambda: rescale(LINE, networks.apply, X, key=KEY, labels=Y, steps=0),
            ConfigError,
            "steps and batch start at 1",
        ),
        (lambda: rescale(LINE, networks.apply, X, key=KEY, labels=Y[:-1]), DataError, "as many labels as inputs"),
        (lambda: rescale(LINE, networks.apply, X, key=KEY, labels="end"), ConfigError, "an array, or 'ends'"),
        (
            lambda: rescale(LINE, networks.apply, X, key=KEY, labels="ends", likelihood="gaussian"),
            ConfigError,
            "probabilities of classes",
        ),
        (
            lambda: rescale(LINE, lambda p, x: networks.apply(p, x)[..., None], X, key=KEY, labels="ends"),
            ModelError,
            "a classifier returns",
        ),
        (lambda: merge([P], SPEC, key=KEY), PosteriorError, "at least two"),
        (lambda: merge(Samples.stack([P.mean, Q.mean]), SPEC, key=KEY), PosteriorError, "list of at least two"),
        (lambda: merge([P, Q], SPEC, key=KEY, x=X), ConfigError, "needs apply="),
        (
            lambda: rescale(lambda tau: Samples.stack([P.mean, Q.mean]), networks.apply, X, key=KEY),
            PosteriorError,
            "samples",
        ),
    ],
)
def test_what_cannot_be_rescaled_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()
