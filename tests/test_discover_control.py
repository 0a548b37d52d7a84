"""Recurrent cells, and layers inside of scan, while, cond, vmap, remat and jit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import bayesin
from symmetry_checks import check_model, normal, reasons, weights

T, D, N = 4, 3, 6  # steps, features, units
X = normal(1, 2, T, D, scale=1.0)
FLAT = X[:, 0]


def over_time(step):
    """Runs a cell over the tokens, batched by vmap, from a carry of zeros."""

    def apply(p, x):
        def one(sequence):
            _, outputs = lax.scan(lambda carry, token: step(p, carry, token), _zeros(step), sequence)
            return outputs @ p["head"]

        return jax.vmap(one)(x)

    return apply


def _zeros(step):
    return (jnp.zeros(N), jnp.zeros(N)) if step is lstm else jnp.zeros(N)


def rnn(p, h, x):
    h = jnp.tanh(x @ p["i"] + h @ p["h"] + p["b"])
    return h, h


def lstm(p, carry, x):
    h, c = carry
    i, f, g, o = jnp.split(x @ p["i"] + h @ p["h"] + p["b"], 4)
    c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return (h, c), h


def gru(p, h, x):
    z, r, n = jnp.split(x @ p["i"], 3)
    hz, hr, hn = jnp.split(h @ p["h"] + p["b"], 3)
    z, r = jax.nn.sigmoid(z + hz), jax.nn.sigmoid(r + hr)
    h = (1 - z) * jnp.tanh(n + r * hn) + z * h
    return h, h


def learned_start(p, x):
    """The first state is a parameter, and so is a second one that the loop only reads."""
    h, _ = lax.scan(lambda h, t: (jnp.tanh(t @ p["i"] + h @ p["h"] + p["c"]), None), p["h0"], X[0])
    return x[:, 0] @ p["i"] @ h[:, None] + h @ p["head"]


def unrolled(p, x):
    h = jnp.zeros((2, N))
    for t in range(T):
        h = jnp.tanh(x[:, t] @ p["i"] + h @ p["h"] + p["b"])
    return h @ p["head"]


def scanned_layers(p, x):
    """One stack of kernels for all layers: one permutation serves all of them."""
    h, _ = lax.scan(lambda h, w: (h + jnp.tanh(h @ w["up"]) @ w["down"], None), x @ p["embed"], p["layers"])
    return h @ p["head"]


def looped(p, x):
    def body(carry):
        step, h = carry
        return step + 1, jnp.tanh(h @ p["w"] + p["b"])

    return lax.while_loop(lambda carry: carry[0] < 3, body, (0, x @ p["embed"]))[1] @ p["head"]


def looped_until_small(p, x):
    """The condition looks at the units, all of them alike."""

    def body(h):
        return 0.5 * jnp.tanh(h @ p["w"])

    return lax.while_loop(lambda h: jnp.abs(h).max() > 1e-2, body, x @ p["embed"]) @ p["head"]


def fori(p, x):
    def body(i, h):
        return jnp.tanh(h @ p["layers"][i])

    return lax.fori_loop(0, 3, body, x @ p["embed"]) @ p["head"]


def branches(p, x):
    h = x @ p["embed"]
    h = lax.cond(x.sum() > 0, lambda h: jnp.tanh(h @ p["a"]), lambda h: jnp.zeros_like(h @ p["a"]), h)
    h = lax.switch(1, [lambda h: h, lambda h: h * p["gain"], jnp.sin], h)
    return h @ p["head"]


def wrapped(p, x):
    layer = jax.checkpoint(jax.jit(lambda w, h: jax.nn.relu(h @ w["w"] + w["b"])))
    return jax.vmap(lambda x: layer(p["l1"], layer(p["l0"], x)) @ p["head"])(x)


def ensemble(p, x):
    """Members side by side: they may change places, and each has the same hidden units."""
    return jax.vmap(lambda w0, w1: jax.nn.relu(x @ w0) @ w1)(p["w0"], p["w1"]).mean(0)


def mapped(p, x):
    """A scan without a carry is a map: its steps do not follow one another."""
    return lax.map(lambda w: jax.nn.relu(x @ w[0]) @ w[1], (p["w0"], p["w1"])).sum(0)


@jax.custom_vjp
def clipped(x):
    return jnp.clip(x, -1, 1)


clipped.defvjp(lambda x: (clipped(x), None), lambda _, g: (g,))


@jax.custom_jvp
def swish(x):
    return x * jax.nn.sigmoid(x)


swish.defjvp(lambda x, t: (swish(x[0]), t[0]))


def custom_derivatives(p, x):
    return clipped(swish(x @ p["w0"]) @ p["w1"]) @ p["head"]


CELL = {"head": (N, 2), "b": (N,), "i": (D, N), "h": (N, N)}
CASES = {
    "rnn": (over_time(rnn), X, weights(**CELL), {"i": "3 a", "h": "a a", "b": "a", "head": "a 2"}, {"a": N}),
    "lstm": (
        over_time(lstm),
        X,
        weights(i=(D, 4 * N), h=(N, 4 * N), b=(4 * N,), head=(N, 2)),
        {"i": "3 4*a", "h": "a 4*a", "b": "4*a", "head": "a 2"},
        {"a": N},
    ),
    "gru": (
        over_time(gru),
        X,
        weights(i=(D, 3 * N), h=(N, 3 * N), b=(3 * N,), head=(N, 2)),
        {"i": "3 3*a", "h": "a 3*a", "b": "3*a", "head": "a 2"},
        {"a": N},
    ),
    "learned first state": (
        learned_start,
        X,
        weights(i=(D, N), h=(N, N), c=(N,), h0=(N,), head=(N, 1)),
        {"i": "3 a", "h": "a a", "c": "a", "h0": "a", "head": "a 1"},
        {"a": N},
    ),
    "rnn, unrolled": (unrolled, X, weights(**CELL), {"i": "3 a", "h": "a a", "b": "a", "head": "a 2"}, {"a": N}),
    "layers under scan": (
        scanned_layers,
        FLAT,
        weights(embed=(D, N), head=(N, 2)) | {"layers": weights(up=(3, N, 5), down=(3, 5, N))},
        {"embed": "3 s", "layers/up": "3 s h", "layers/down": "3 h s", "head": "s 2"},
        {"s": N, "h": 5},
    ),
    "while": (
        looped,
        FLAT,
        weights(embed=(D, N), w=(N, N), b=(N,), head=(N, 2)),
        {"embed": "3 a", "w": "a a", "b": "a", "head": "a 2"},
        {"a": N},
    ),
    "while the units are large": (
        looped_until_small,
        FLAT,
        weights(embed=(D, N), w=(N, N), head=(N, 2)),
        {"embed": "3 a", "w": "a a", "head": "a 2"},
        {"a": N},
    ),
    "for loop over stacked layers": (
        fori,
        FLAT,
        weights(embed=(D, N), layers=(3, N, N), head=(N, 2)),
        {"embed": "3 a", "layers": "3 a a", "head": "a 2"},
        {"a": N},
    ),
    "cond and switch": (
        branches,
        FLAT,
        weights(embed=(D, N), a=(N, 5), gain=(5,), head=(5, 2)),
        {"embed": "3 a", "a": "a b", "gain": "b", "head": "b 2"},
        {"a": N, "b": 5},
    ),
    "jit, remat and vmap": (
        wrapped,
        FLAT,
        {"l0": weights(w=(D, N), b=(N,)), "l1": weights(w=(N, 5), b=(5,)), **weights(head=(5, 2))},
        {"l0/w": "3 a", "l0/b": "a", "l1/w": "a b", "l1/b": "b", "head": "b 2"},
        {"a": N, "b": 5},
    ),
    "ensemble under vmap": (
        ensemble,
        FLAT,
        weights(w0=(4, D, N), w1=(4, N, 2)),
        {"w0": "e 3 a", "w1": "e a 2"},
        {"e": 4, "a": N},
    ),
    "map": (mapped, FLAT, weights(w0=(4, D, N), w1=(4, N, 2)), {"w0": "e 3 a", "w1": "e a 2"}, {"e": 4, "a": N}),
    "custom derivatives": (
        custom_derivatives,
        FLAT,
        weights(w0=(D, N), w1=(N, 5), head=(5, 2)),
        {"w0": "3 a", "w1": "a b", "head": "b 2"},
        {"a": N, "b": 5},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_groups_are_those_of_theory(name):
    apply, x, params, expected, sizes = CASES[name]
    check_model(apply, params, x, expected, sizes)


def test_steps_of_a_scan_say_why_they_are_fixed():
    params = weights(embed=(D, N), head=(N, 2)) | {"layers": weights(up=(3, N, 5), down=(3, 5, N))}
    spec = bayesin.discover(scanned_layers, params, FLAT)
    assert reasons(spec, "layers/up") == ["steps of a scan", "", ""]


def test_a_carry_that_shifts_is_fixed():
    """What a loop hands to its next step in another place cannot move: the carry meets itself, shifted."""

    def apply(p, x):
        h, _ = lax.scan(lambda h, _: (jnp.roll(h, 1, axis=-1) + 1, None), x @ p["w"], None, length=3)
        return h @ p["head"]

    spec = check_model(apply, weights(w=(D, N), head=(N, 2)), FLAT, {"w": "3 6", "head": "6 2"}, {})
    assert reasons(spec, "w")[1] == "position of a slice"


def test_a_carry_that_changes_hands():
    """Two carries that swap at every step are one group."""

    def apply(p, x):
        def body(carry, _):
            a, b = carry
            return (b, jnp.tanh(a * p["c"])), None

        (a, b), _ = lax.scan(body, (x @ p["a"], x @ p["b"]), None, length=3)
        return a @ p["head"] + b.sum(-1, keepdims=True)

    params = weights(a=(D, N), b=(D, N), c=(N,), head=(N, 2))
    check_model(apply, params, FLAT, {"a": "3 g", "b": "3 g", "c": "g", "head": "g 2"}, {"g": N})


def test_branches_must_agree():
    """One branch keeps the units, the other counts them."""

    def apply(p, x):
        h = x @ p["w"]
        return lax.cond(x.sum() > 0, lambda h: h, lambda h: h * jnp.arange(N), h) @ p["head"]

    spec = bayesin.discover(apply, weights(w=(D, N), head=(N, 2)), FLAT)
    assert spec.sizes == {}
    assert reasons(spec, "head")[0] == "joined to a counter"


def test_dropout_with_a_fixed_key_is_fixed():
    def apply(p, x):
        kept = jax.random.bernoulli(jax.random.key(0), 0.5, (N,))
        return jnp.where(kept, x @ p["w"], 0.0) @ p["head"]

    spec = bayesin.discover(apply, weights(w=(D, N), head=(N, 2)), FLAT)
    assert spec.sizes == {}
    assert "random_bits" in reasons(spec, "w")[1]
    bayesin.verify(apply, weights(w=(D, N), head=(N, 2)), np.float32(FLAT), spec, key=jax.random.key(0))
