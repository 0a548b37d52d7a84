"""Transformers: heads as factors, fused and grouped projections, embeddings that play two roles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayesin
from symmetry_checks import check_model, normal, reasons, weights

D, H, K, T = 6, 2, 4, 3  # features, heads, features of a head, tokens
TOKENS = np.array([[0, 2, 1], [4, 3, 3]], np.int32)
X = normal(1, 2, T, D, scale=1.0)


def attend(q, k, v, causal=False):
    """(batch, tokens, heads, features of a head) each."""
    scores = jnp.einsum("bthk,bshk->bhts", q, k) / q.shape[-1] ** 0.5
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e9)
    return jnp.einsum("bhts,bshk->bthk", jax.nn.softmax(scores), v)


def heads(x, count):
    return x.reshape(*x.shape[:-1], count, -1)


def separate(p, x):
    q, k, v = (heads(x @ p[name], H) for name in ("q", "k", "v"))
    return attend(q, k, v, causal=True).reshape(2, T, H * K) @ p["o"]


def three_axes(p, x):
    """Kernels of shape (features, heads, features of a head), as in Flax."""
    q, k, v = (jnp.einsum("btd,dhk->bthk", x, p[name]) for name in ("q", "k", "v"))
    return jnp.einsum("bthk,hkd->btd", attend(q, k, v), p["o"])


def fused(p, x):
    q, k, v = (heads(y, H) for y in jnp.split(x @ p["qkv"] + p["b"], 3, axis=-1))
    return attend(q, k, v).reshape(2, T, H * K) @ p["o"]


def fused_and_reshaped(p, x):
    """Fused the other way: heads outside, query, key and value inside."""
    q, k, v = jnp.moveaxis((x @ p["qkv"]).reshape(2, T, H, 3, K), -2, 0)
    return attend(q, k, v).reshape(2, T, H * K) @ p["o"]


def grouped_query(p, x):
    """Four query heads, two key and value heads: each of those serves two queries."""
    q, k, v = heads(x @ p["q"], 4), heads(x @ p["k"], 2), heads(x @ p["v"], 2)
    q = q.reshape(2, T, 2, 2, K)
    scores = jax.nn.softmax(jnp.einsum("btgqk,bsgk->bgqts", q, k))
    return jnp.einsum("bgqts,bsgk->btgqk", scores, v).reshape(2, T, 4 * K) @ p["o"]


def grouped_query_repeated(p, x):
    """The same, with keys and values repeated to the number of queries."""
    q, k, v = heads(x @ p["q"], 4), heads(x @ p["k"], 2), heads(x @ p["v"], 2)
    return attend(q, jnp.repeat(k, 2, axis=2), jnp.repeat(v, 2, axis=2)).reshape(2, T, 4 * K) @ p["o"]


def multi_query(p, x):
    q = heads(x @ p["q"], 4)
    scores = jax.nn.softmax(jnp.einsum("bthk,bsk->bhts", q, x @ p["k"]))
    return jnp.einsum("bhts,bsk->bthk", scores, x @ p["v"]).reshape(2, T, 4 * K) @ p["o"]


def rotate_halves(x):
    angle = jnp.arange(T)[:, None] / 10 ** jnp.arange(K // 2)
    cos, sin = (jnp.concatenate([f(angle)] * 2, -1)[:, None, :] for f in (jnp.cos, jnp.sin))
    first, second = jnp.split(x, 2, axis=-1)
    return x * cos + jnp.concatenate([-second, first], -1) * sin


def rotate_interleaved(x):
    angle = jnp.arange(T)[:, None, None] / 10 ** jnp.arange(K // 2)
    even, odd = x[..., ::2], x[..., 1::2]
    parts = even * jnp.cos(angle) - odd * jnp.sin(angle), even * jnp.sin(angle) + odd * jnp.cos(angle)
    return jnp.stack(parts, -1).reshape(x.shape)


def rotary(rotate):
    def apply(p, x):
        q, k, v = (heads(x @ p[name], H) for name in ("q", "k", "v"))
        return attend(rotate(q), rotate(k), v).reshape(2, T, H * K) @ p["o"]

    return apply


def language_model(p, tokens):
    """Embeddings, learned positions, one block, and a head of its own."""
    x = p["table"][tokens] + p["position"]
    x = x + jnp.einsum("bthk,hkd->btd", attend(*(jnp.einsum("btd,dhk->bthk", x, p[n]) for n in "qkv")), p["o"])
    x = x + jax.nn.gelu(x @ p["up"]) @ p["down"]
    return x @ p["head"]


def tied(p, tokens):
    x = p["table"][tokens]
    x = x + jnp.tanh(x @ p["up"]) @ p["down"]
    return x @ p["table"].T


def one_hot(p, tokens):
    return jnp.tanh(jax.nn.one_hot(tokens, 5) @ p["table"]) @ p["head"]


def class_token(p, x):
    """A vision transformer's first token, prepended and read off."""
    x = jnp.concatenate([jnp.broadcast_to(p["token"], (2, 1, D)), x @ p["embed"]], axis=1)
    x = x + jax.nn.softmax(x @ p["a"] @ x.swapaxes(1, 2)) @ x
    return x[:, 0] @ p["head"]


def mixer(p, x):
    """MLP-Mixer: tokens are mixed by dense layers of their own."""
    x = x @ p["embed"]
    x = x + jnp.einsum("btd,ts,su->bud", x, p["t0"], p["t1"])
    return (x + jax.nn.relu(x @ p["c0"]) @ p["c1"]).mean(1) @ p["head"]


QKVO = {"q": (D, H * K), "k": (D, H * K), "v": (D, H * K), "o": (H * K, D)}
GQA = {"q": (D, 4 * K), "k": (D, 2 * K), "v": (D, 2 * K), "o": (4 * K, D)}
CASES = {
    "separate projections": (
        separate,
        weights(**QKVO),
        {"q": "6 h*a", "k": "6 h*a", "v": "6 h*b", "o": "h*b 6"},
        {"h": H, "a": K, "b": K},
    ),
    "kernels of three axes": (
        three_axes,
        weights(q=(D, H, K), k=(D, H, K), v=(D, H, 5), o=(H, 5, D)),
        {"q": "6 h a", "k": "6 h a", "v": "6 h b", "o": "h b 6"},
        {"h": H, "a": K, "b": 5},
    ),
    # One axis holds query, key and value: one permutation of a head's features serves all three.
    "fused projection": (
        fused,
        weights(qkv=(D, 3 * H * K), b=(3 * H * K,), o=(H * K, D)),
        {"qkv": "6 3*h*a", "b": "3*h*a", "o": "h*a 6"},
        {"h": H, "a": K},
    ),
    "fused projection, heads outside": (
        fused_and_reshaped,
        weights(qkv=(D, 3 * H * K), o=(H * K, D)),
        {"qkv": "6 h*3*a", "o": "h*a 6"},
        {"h": H, "a": K},
    ),
    "grouped queries": (
        grouped_query,
        weights(**GQA),
        {"q": "6 g*r*a", "k": "6 g*a", "v": "6 g*b", "o": "g*r*b 6"},
        {"g": 2, "r": 2, "a": K, "b": K},
    ),
    "grouped queries, keys repeated": (
        grouped_query_repeated,
        weights(**GQA),
        {"q": "6 g*r*a", "k": "6 g*a", "v": "6 g*b", "o": "g*r*b 6"},
        {"g": 2, "r": 2, "a": K, "b": K},
    ),
    "one key for all queries": (
        multi_query,
        weights(q=(D, 4 * K), k=(D, K), v=(D, K), o=(4 * K, D)),
        {"q": "6 h*a", "k": "6 a", "v": "6 b", "o": "h*b 6"},
        {"h": 4, "a": K, "b": K},
    ),
    # Every pair of features turns at a speed of its own, so that queries and keys cannot move at all.
    "rotary, halves": (
        rotary(rotate_halves),
        weights(**QKVO),
        {"q": "6 h*4", "k": "6 h*4", "v": "6 h*b", "o": "h*b 6"},
        {"h": H, "b": K},
    ),
    "rotary, interleaved": (
        rotary(rotate_interleaved),
        weights(**QKVO),
        {"q": "6 h*4", "k": "6 h*4", "v": "6 h*b", "o": "h*b 6"},
        {"h": H, "b": K},
    ),
    "mixer": (
        mixer,
        weights(embed=(D, 5), t0=(T, 4), t1=(4, T), c0=(5, 7), c1=(7, 5), head=(5, 2)),
        {"embed": "6 s", "t0": "3 t", "t1": "t 3", "c0": "s c", "c1": "c s", "head": "s 2"},
        {"s": 5, "t": 4, "c": 7},
    ),
    "class token": (
        class_token,
        weights(token=(1, 1, D), embed=(D, D), a=(D, D), head=(D, 4)),
        {"token": "1 1 s", "embed": "6 s", "a": "s s", "head": "s 4"},
        {"s": D},
    ),
}
TOKEN_CASES = {
    "language model": (
        language_model,
        weights(
            table=(5, D), position=(T, D), q=(D, H, K), k=(D, H, K), v=(D, H, K), o=(H, K, D),
            up=(D, 7), down=(7, D), head=(D, 5),
        ),
        {
            "table": "5 s", "position": "3 s", "q": "s h a", "k": "s h a", "v": "s h b", "o": "h b s",
            "up": "s m", "down": "m s", "head": "s 5",
        },
        {"s": D, "h": H, "a": K, "b": K, "m": 7},
    ),
    "tied embeddings": (
        tied,
        weights(table=(5, D), up=(D, 7), down=(7, D)),
        {"table": "5 s", "up": "s m", "down": "m s"},
        {"s": D, "m": 7},
    ),
    "one-hot embeddings": (one_hot, weights(table=(5, D), head=(D, 4)), {"table": "5 a", "head": "a 4"}, {"a": D}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_groups_are_those_of_theory(name):
    apply, params, expected, sizes = CASES[name]
    check_model(apply, params, X, expected, sizes)


@pytest.mark.parametrize("name", TOKEN_CASES)
def test_groups_of_models_of_tokens(name):
    apply, params, expected, sizes = TOKEN_CASES[name]
    check_model(apply, params, TOKENS, expected, sizes)


def test_rows_of_an_embedding_say_why_they_are_fixed():
    spec = bayesin.discover(tied, weights(table=(5, D), up=(D, 7), down=(7, D)), TOKENS)
    assert reasons(spec, "table") == ["rows are picked by index", ""]


def test_positions_that_are_counted_are_fixed():
    """Sinusoidal positions, computed or closed over, tie the stream to an order of its features."""
    table = np.sin(np.arange(T)[:, None] * np.arange(D)).astype(np.float32)
    params = weights(embed=(D, D), head=(D, 4))

    def computed(p, x):
        return (x @ p["embed"] + jnp.sin(jnp.arange(T)[:, None] * jnp.arange(D))) @ p["head"]

    def closed_over(p, x):
        return (x @ p["embed"] + table) @ p["head"]

    for apply, why in ((computed, "joined to a counter"), (closed_over, "joined to a constant that varies")):
        spec = bayesin.discover(apply, params, X)
        assert spec.sizes == {}
        assert reasons(spec, "head")[0] == why
