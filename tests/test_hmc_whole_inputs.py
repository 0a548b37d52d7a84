"""Gradients from inputs that are whole numbers: the numbers, the network's own derivative, and the same target."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesin.inference import HMC, fit_hmc
from bayesin.inference.hmc import whole_inputs
from bayesin.inference.hmc.kernel import begin
from bayesin.inference.hmc.sampling import chain_plan
from bayesin.inference.hmc.whole_inputs import WholeInputs, apply_to_whole, find_whole, whole_chunks
from bayesin.inputs import cut
from bayesin.models import Model

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (40, 6, 6, 1)).astype(np.float32)
LABELS = RNG.integers(0, 3, 40)


def net(params, x):
    return jax.nn.relu(x.reshape(len(x), -1) @ params["in"] + params["bias"][None]) @ params["out"]


def start(key):
    first, second = jax.random.split(key)
    return {
        "in": jax.random.normal(first, (36, 50)) / 6,
        "bias": jnp.full(50, 0.1),
        "out": jax.random.normal(second, (50, 3)),
    }


MODEL, PARAMS = Model(start, net), start(jax.random.key(1))


@pytest.mark.parametrize("scale, shift", [(1.0, 0.0), (255.0, 0.0), (255 * 0.3, 0.42), (3.0, -200.0)])
def test_whole_numbers_are_found_whatever_their_scale_and_offset(scale, shift):
    x = (PIXELS / np.float32(scale) - np.float32(shift)).astype(np.float32)
    found = find_whole(x[None])
    assert found is not None and found.counts.dtype == jnp.bfloat16
    np.testing.assert_array_equal(np.asarray(found.counts[0], np.float32), PIXELS - PIXELS.min())
    one = jax.tree.map(lambda leaf: leaf[0], found)
    np.testing.assert_allclose(one.floats(), x, rtol=0, atol=1e-6 * np.abs(x).max())


def test_other_numbers_are_not_taken_for_whole_ones():
    assert find_whole(np.sqrt(PIXELS)[None]) is None
    assert find_whole(np.float32(RNG.normal(size=(1, 40, 5)))) is None
    assert find_whole(np.arange(300, dtype=np.float32).reshape(1, 50, 6)) is None  # 257 and more
    assert find_whole(np.ones((1, 4, 4), np.float32)) is None
    late = np.tile(PIXELS, (30, 1, 1, 1))
    late[-1, 0, 0, 0] += 0.01  # in an example where the spacing is not looked for
    assert find_whole(late[None]) is None


def test_the_gradient_has_the_bits_of_its_parts():
    x, one_hot = PIXELS.reshape(40, 36).astype(np.float64) / 255, np.eye(3)[LABELS]
    w = {name: np.asarray(leaf, np.float64) for name, leaf in PARAMS.items()}
    hidden = np.maximum(x @ w["in"] + w["bias"], 0)
    logits = hidden @ w["out"]
    slope = one_hot - np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    back = slope @ w["out"].T * (hidden > 0)
    exact = {"in": x.T @ back, "bias": back.sum(0), "out": hidden.T @ slope}

    chunks = cut(PIXELS / np.float32(255), LABELS, 40)
    found = find_whole(chunks.x)
    errors = {}
    for precision in ("bf16x3", "bf16x6"):

        def total(params, precision=precision):
            outputs = apply_to_whole(net, params, jax.tree.map(lambda leaf: leaf[0], found), precision)
            return jnp.sum(jax.nn.log_softmax(outputs)[jnp.arange(40), LABELS])

        gradient = jax.jit(jax.grad(total))(PARAMS)
        errors[precision] = {
            name: np.linalg.norm(gradient[name] - exact[name]) / np.linalg.norm(exact[name]) for name in exact
        }
    # A rounding to bfloat16 changes a slope by 2⁻⁹ of it at most, a sum of them by as much of the sum of their sizes.
    rounded_once = 2**-9 * np.linalg.norm(np.abs(x).T @ np.abs(back)) / np.linalg.norm(exact["in"])
    assert max(errors["bf16x6"].values()) < 2**-17
    assert 2**-17 < errors["bf16x3"]["in"] < rounded_once
    assert max(errors["bf16x3"]["bias"], errors["bf16x3"]["out"]) < 2**-15  # the way forth has the bits of two parts


def einsum_net(params, x):
    return jnp.einsum("nhwc,hwcd->nd", x, params["a"]) + jnp.einsum("dcwh,nhwc->nd", params["b"], x)


def mixed_net(params, x):
    flat = x.reshape(len(x), -1)
    return jnp.tanh(flat @ params["a"]) * flat[:, :4] + jnp.einsum("dk,nk->nd", params["b"], flat)


@pytest.mark.parametrize(
    "apply, shapes", [(einsum_net, ((6, 6, 1, 4), (4, 1, 6, 6))), (mixed_net, ((36, 4), (4, 36)))]
)
def test_products_on_either_side_and_other_uses_give_what_the_network_gives(apply, shapes):
    params = {
        name: jnp.asarray(RNG.normal(size=shape), jnp.float32) for name, shape in zip("ab", shapes, strict=True)
    }
    x = PIXELS / np.float32(255)
    found, met = jax.tree.map(lambda leaf: leaf[0], find_whole(x[None])), []
    weights = RNG.normal(size=(40, 4))

    def total(params, function):
        return jnp.sum(function(params) * weights)

    ours = lambda params: apply_to_whole(apply, params, found, "bf16x6", met)  # noqa: E731
    theirs = lambda params: apply(params, x)  # noqa: E731
    np.testing.assert_allclose(ours(params), theirs(params), rtol=1e-4, atol=1e-5)
    assert len(met) == 2
    for gradient, wanted in zip(*(jax.grad(total)(params, f).values() for f in (ours, theirs)), strict=True):
        np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=1e-4)


def test_derivatives_that_a_network_defines_for_itself_are_kept():
    dead = PARAMS | {"in": jnp.zeros((36, 50)), "bias": jnp.zeros(50)}  # relu has slope 0 there, a plain maximum ½
    found = jax.tree.map(lambda leaf: leaf[0], find_whole(PIXELS[None]))
    gradient = jax.grad(lambda params: jnp.sum(apply_to_whole(net, params, found, "bf16x3")))(dead)
    assert not np.any(gradient["in"]) and not np.any(gradient["bias"])


def test_only_gradients_know_of_it(monkeypatch):
    chunks = cut(PIXELS / np.float32(255), LABELS, 17)
    single = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), PARAMS)
    assert whole_chunks(chunks, net, single, "bf16x3") is None  # on a CPU
    monkeypatch.setattr(whole_inputs, "has_passes", lambda: True)
    assert whole_chunks(chunks, net, single, "highest") is None
    assert (
        whole_chunks(chunks, lambda params, x: jnp.tanh(x).reshape(len(x), -1) @ params["in"], single, "bf16x3")
        is None
    )
    assert whole_chunks(chunks._replace(x=jnp.sqrt(chunks.x)), net, single, "bf16x3") is None
    whole = whole_chunks(chunks, net, single, "bf16x3")
    assert whole is not None and isinstance(whole.x, WholeInputs)

    positions = jax.tree.map(lambda leaf: jnp.stack([leaf, 0.5 * leaf]), PARAMS)
    whole = whole_chunks(chunks, net, single, "bf16x6")
    plan = chain_plan(HMC(chains=2, chunk=17, precision="bf16x6"), MODEL)
    plain, ours = (begin(plan, positions, chunks, None, one).chains for one in (None, whole))
    np.testing.assert_array_equal(ours.terms, plain.terms)
    for gradient, wanted in zip(jax.tree.leaves(ours.gradient), jax.tree.leaves(plain.gradient), strict=True):
        np.testing.assert_allclose(gradient, wanted, rtol=0, atol=2e-4 * np.abs(wanted).max())


@pytest.mark.slow
def test_a_chain_on_whole_inputs_goes_the_same_way(monkeypatch):
    config = HMC(samples=3, chains=2, burn_in=0, steps=10, step_size=0.01, precision="bf16x3", probe=4)
    runs = []
    for passes in (False, True):
        monkeypatch.setattr(whole_inputs, "has_passes", lambda passes=passes: passes)
        runs.append(fit_hmc(jax.random.key(0), MODEL, (PIXELS / np.float32(255), LABELS), config))
    plain, ours = (np.asarray(run.trace["log_posterior"]) for run in runs)
    assert not np.array_equal(*(run.posterior.params["in"] for run in runs))  # gradients did come from whole inputs
    np.testing.assert_allclose(ours, plain, rtol=1e-4)
