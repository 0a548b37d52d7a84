"""Networks off the beaten track: nobody wrote a rule for them, and their symmetry is found all the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental.ode import odeint

from symmetry_checks import check_model, normal, weights

X = normal(0, 2, 8, 3, scale=1.0)  # (batch, tokens, features)


def state_space(p, x):
    """A linear recurrence, run as a parallel scan."""
    u = x @ p["in"]
    decay, drive = jax.nn.sigmoid(u @ p["a"]), u * p["b"]
    _, h = lax.associative_scan(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (decay, drive), axis=1)
    return h @ p["out"]


def latents(p, x):
    """Learned queries: the latents may change places, since their outputs are averaged."""
    scores = jax.nn.softmax(jnp.einsum("ld,btd->blt", p["latents"] @ p["q"], x @ p["k"]))
    z = scores @ (x @ p["v"]) + p["latents"]
    return jax.nn.relu(z @ p["w"]).mean(1) @ p["head"]


def graph(p, x):
    """Messages along the edges of a ring."""
    h = x[0] @ p["embed"]
    messages = jax.nn.relu(h[jnp.arange(8)] @ p["message"])
    h = h + jax.ops.segment_sum(messages, jnp.arange(1, 9) % 8, num_segments=8)
    return h.sum(0) @ p["head"]


def conditioned(p, x):
    """Gains and offsets of one layer come from another, fused in one kernel."""
    gain, offset = jnp.split(x.mean(1) @ p["film"], 2, axis=-1)
    return jnp.tanh((x @ p["w"]) * gain[:, None] + offset[:, None]) @ p["head"]


def hypernetwork(p, x):
    return jnp.tanh(x @ (p["code"] @ p["hyper"]).reshape(3, 6)) @ p["head"]


def maxout(p, x):
    return (x @ p["w"]).reshape(2, 8, 5, 3).max(-1) @ p["head"]


def spectral_norm(p, x):
    u = p["u"]
    for _ in range(2):
        v = p["w"].T @ u
        v = v / jnp.linalg.norm(v)
        u = p["w"] @ v
        u = u / jnp.linalg.norm(u)
    return jnp.tanh(x @ (p["w"] / (u @ p["w"] @ v))) @ p["head"]


def neural_ode(p, x):
    h = odeint(lambda h, t: jnp.tanh(h @ p["w"]), x[:, 0] @ p["embed"], jnp.array([0.0, 1.0]))
    return h[-1] @ p["head"]


def energy(p, x):
    """The output is the gradient of a network."""
    return jax.grad(lambda x: jnp.tanh(jnp.tanh(x @ p["w0"]) @ p["w1"]).sum())(x)


def capsules(p, x):
    votes = jnp.einsum("btd,cdk->btck", x, p["w"])
    logits = jnp.zeros(votes.shape[:3])
    for _ in range(2):
        pose = (jax.nn.softmax(logits, 2)[..., None] * votes).sum(1)
        pose = pose / (1 + jnp.linalg.norm(pose, axis=-1, keepdims=True))
        logits = logits + jnp.einsum("btck,bck->btc", votes, pose)
    return pose.reshape(2, -1) @ p["head"]


def quantised(p, x):
    """Each hidden vector is replaced by the nearest of a codebook, whose order counts."""
    h = x @ p["embed"]
    nearest = jnp.argmin(((h[:, :, None] - p["codes"]) ** 2).sum(-1), -1)
    return p["codes"][nearest] @ p["head"]


def two_experts_a_token(p, x):
    """Routing by rank: experts are told apart by their number, their hidden units are free."""
    best, which = lax.top_k(x @ p["router"], 2)
    gates = jnp.einsum("btk,btke->bte", jax.nn.softmax(best), jax.nn.one_hot(which, 4))
    hidden = jax.nn.relu(jnp.einsum("btd,edh->bteh", x, p["up"]))
    return jnp.einsum("bte,bteh,eho->bto", gates, hidden, p["down"])


def slopes(p, x):
    """Every head forgets at a speed of its own, so that heads are fixed and their features are not."""
    q, k, v = (jnp.einsum("btd,dhk->bthk", x, p[name]) for name in "qkv")
    distance = jnp.abs(jnp.arange(8)[:, None] - jnp.arange(8))
    scores = jnp.einsum("bthk,bshk->bhts", q, k) - distance * np.array([0.5, 0.25], np.float32)[:, None, None]
    return jnp.einsum("bhts,bshk,hko->bto", jax.nn.softmax(scores), v, p["o"])


def library_attention(p, x):
    q, k, v = (jnp.einsum("btd,dhk->bthk", x, p[name]) for name in "qkv")
    return jnp.einsum("bthk,hko->bto", jax.nn.dot_product_attention(q, k, v, is_causal=True), p["o"])


def resized(p, x):
    h = lax.conv_general_dilated(x, p["k"], (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"))
    return jax.image.resize(h, (2, 16, 6), "bilinear") @ p["head"]


def weight_standardised(p, x):
    k = (p["k"] - p["k"].mean((0, 1))) / p["k"].std((0, 1))
    return lax.conv_general_dilated(x, k, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")) @ p["head"]


CASES = {
    state_space: (
        {"in": (3, 6), "a": (6, 6), "b": (6,), "out": (6, 2)},
        {"in": "3 a", "a": "a a", "b": "a", "out": "a 2"},
        {"a": 6},
    ),
    latents: (
        {"latents": (7, 5), "q": (5, 4), "k": (3, 4), "v": (3, 5), "w": (5, 6), "head": (6, 2)},
        {"latents": "l s", "q": "s a", "k": "3 a", "v": "3 s", "w": "s h", "head": "h 2"},
        {"l": 7, "s": 5, "a": 4, "h": 6},
    ),
    graph: (
        {"embed": (3, 6), "message": (6, 6), "head": (6, 2)},
        {"embed": "3 a", "message": "a a", "head": "a 2"},
        {"a": 6},
    ),
    conditioned: (
        {"w": (3, 6), "film": (3, 12), "head": (6, 2)},
        {"w": "3 a", "film": "3 2*a", "head": "a 2"},
        {"a": 6},
    ),
    hypernetwork: (
        {"code": (4,), "hyper": (4, 18), "head": (6, 2)},
        {"code": "c", "hyper": "c 3*a", "head": "a 2"},
        {"c": 4, "a": 6},
    ),
    maxout: ({"w": (3, 15), "head": (5, 2)}, {"w": "3 a*p", "head": "a 2"}, {"a": 5, "p": 3}),
    spectral_norm: ({"w": (3, 6), "u": (3,), "head": (6, 2)}, {"w": "3 a", "u": "3", "head": "a 2"}, {"a": 6}),
    neural_ode: (
        {"embed": (3, 4), "w": (4, 4), "head": (4, 2)},
        {"embed": "3 a", "w": "a a", "head": "a 2"},
        {"a": 4},
    ),
    energy: ({"w0": (3, 6), "w1": (6, 5)}, {"w0": "3 a", "w1": "a b"}, {"a": 6, "b": 5}),
    capsules: ({"w": (4, 3, 5), "head": (20, 2)}, {"w": "c 3 k", "head": "c*k 2"}, {"c": 4, "k": 5}),
    quantised: (
        {"embed": (3, 4), "codes": (5, 4), "head": (4, 2)},
        {"embed": "3 a", "codes": "5 a", "head": "a 2"},
        {"a": 4},
    ),
    two_experts_a_token: (
        {"router": (3, 4), "up": (4, 3, 5), "down": (4, 5, 2)},
        {"router": "3 4", "up": "4 3 h", "down": "4 h 2"},
        {"h": 5},
    ),
    slopes: (
        {"q": (3, 2, 4), "k": (3, 2, 4), "v": (3, 2, 4), "o": (2, 4, 3)},
        {"q": "3 2 a", "k": "3 2 a", "v": "3 2 b", "o": "2 b 3"},
        {"a": 4, "b": 4},
    ),
    library_attention: (
        {"q": (3, 4, 4), "k": (3, 2, 4), "v": (3, 2, 4), "o": (4, 4, 3)},
        {"q": "3 g*r a", "k": "3 g a", "v": "3 g b", "o": "g*r b 3"},
        {"g": 2, "r": 2, "a": 4, "b": 4},
    ),
    resized: ({"k": (3, 3, 6), "head": (6, 2)}, {"k": "3 3 a", "head": "a 2"}, {"a": 6}),
    weight_standardised: ({"k": (3, 3, 6), "head": (6, 2)}, {"k": "3 3 a", "head": "a 2"}, {"a": 6}),
}


@pytest.mark.parametrize("apply", CASES, ids=lambda apply: apply.__name__)
def test_groups_are_those_of_theory(apply):
    shapes, expected, sizes = CASES[apply]
    check_model(apply, weights(**shapes), X, expected, sizes)
