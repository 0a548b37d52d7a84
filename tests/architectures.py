"""Networks of every kind, each with the symmetry that theory gives it: the table that discovery is tested on."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.ode import odeint

from symmetry_checks import Architecture, normal

ARCHITECTURES: dict[str, Architecture] = {}


def theory(x, axes: str, name: str = "", **sizes: int):
    """Enters a network in the table, with an input and its axes; a second one is the same network in another size."""

    def enter(apply):
        key = apply.__name__.replace("_", " ") + (f", {name}" if name else "")
        assert key not in ARCHITECTURES, key
        ARCHITECTURES[key] = Architecture(apply, x, axes, sizes)
        return apply

    return enter


# Dense networks

X = normal(1, 3, 5, scale=1.0)


@theory(X, "w0: 5 a, b0: a, w1: a b, b1: b, w2: b 4, b2: 4", a=8, b=7)
@theory(X, "w0: 5 a, b0: a, w1: a b, b1: b, w2: b 5, b2: 5", "all sizes equal", a=5, b=5)
def mlp(p, x):
    x = jax.nn.relu(x @ p["w0"] + p["b0"])
    x = jnp.tanh(x @ p["w1"] + p["b1"])
    return x @ p["w2"] + p["b2"]


@theory(X, "w0: 5 a, gain bias: a, w1: a 4", a=8)
def layer_norm(p, x):
    x = x @ p["w0"]
    x = (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-3)
    return jax.nn.gelu(x * p["gain"] + p["bias"]) @ p["w1"]


@theory(X, "w0: 5 a, gain: a, w1: a 4", a=8)
def rms_norm(p, x):
    x = x @ p["w0"]
    return (x * lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-3) * p["gain"]) @ p["w1"]


@theory(X, "embed: 5 s, up0: s a, down0: a s, up1: s b, down1: b s, head: s 4", s=6, a=9, b=9)
def residual_stream(p, x):
    x = x @ p["embed"]
    for i in range(2):
        x = x + jax.nn.relu(x @ p[f"up{i}"]) @ p[f"down{i}"]
    return x @ p["head"]


@theory(X, "w0: 5 a, w: a a, w1: a 4", a=6)
def x_plus_wx(p, x):
    x = x @ p["w0"]
    return (x + jax.nn.relu(x @ p["w"])) @ p["w1"]


@theory(X, "w0: 5 a, gate up: a b, down: b 4", a=6, b=8)
def gated(p, x):
    x = x @ p["w0"]
    return (jax.nn.silu(x @ p["gate"]) * (x @ p["up"])) @ p["down"]


@theory(X, "w0: 5 a, w: a a, b: a, w1: a 4", a=6)
def weights_of_two_layers_shared(p, x):
    x = jax.nn.relu(x @ p["w0"])
    for _ in range(2):
        x = jax.nn.relu(x @ p["w"] + p["b"])
    return x @ p["w1"]


@theory(X, "w: 5 a, b: a", a=6)
def autoencoder_with_tied_weights(p, x):
    return jax.nn.relu(x @ p["w"] + p["b"]) @ p["w"].T


@theory(X, "w0: 5 a, w1: a b", a=6, b=7)
def siamese(p, x):
    a, b = (jnp.tanh(jnp.tanh(z @ p["w0"]) @ p["w1"]) for z in (x, 2 * x))
    return (a * b).sum(-1)


@theory(X, "w0: 5 a, t: a a 4", a=6)
def bilinear(p, x):
    x = x @ p["w0"]
    return jnp.einsum("ni,ijk,nj->nk", x, p["t"], x)


@theory(X, "a: 5 a, b: 5 b, w: a*b 2", a=3, b=4)
def outer_product(p, x):
    return jnp.einsum("ni,nj->nij", x @ p["a"], x @ p["b"]).reshape(3, -1) @ p["w"]


@theory(X, "w: 5 a, b: a", a=6)
def units_compared_with_each_other(p, x):
    return x @ p["w"] @ jnp.where(p["b"][:, None] > p["b"][None, :], 1.0, 0.5).sum(1)


@theory(X, "alpha: 1, w0: 5 a, offset scale: 1 a, w1: a 4, beta: 1 4", a=6)
def scalars_and_unusual_shapes(p, x):
    """Layer scale, FixUp scalars and shapes such as (1, n): discovery never looks at names."""
    x = p["alpha"] * jnp.tanh(x @ p["w0"] + p["offset"]) * p["scale"]
    return x @ p["w1"] + p["beta"]


@theory(X, "router: 5 e, up: e 5 h[e], down: e h[e] 4", e=3, h=6)
def mixture_of_experts(p, x):
    gates = jax.nn.softmax(x @ p["router"])
    hidden = jax.nn.relu(jnp.einsum("ni,eih->neh", x, p["up"]))
    return jnp.einsum("ne,neh,eho->no", gates, hidden, p["down"])


# Convolutional networks: layouts, groups, norms, shortcuts, flattening

NHWC = ("NHWC", "HWIO", "NHWC")
NCHW = ("NCHW", "OIHW", "NCHW")
IMAGES = normal(1, 2, 4, 4, 3, scale=1.0)


def conv(x, kernel, layout=NHWC, stride=1, groups=1):
    return lax.conv_general_dilated(
        x, kernel, (stride, stride), "SAME", dimension_numbers=layout, feature_group_count=groups
    )


@theory(IMAGES, "k0: 3 3 3 a, b0: a, k1: 3 3 a b, b1: b, head: b 4", a=6, b=8)
@theory(IMAGES, "k0: 3 3 3 a, b0: a, k1: 3 3 a b, b1: b, head: b 3", "everything of size 3", a=3, b=3)
def convolutions_nhwc(p, x):
    x = jax.nn.relu(conv(x, p["k0"]) + p["b0"])
    x = jax.nn.relu(conv(x, p["k1"], stride=2) + p["b1"])
    return x.mean((1, 2)) @ p["head"]


@theory(IMAGES, "k0: a 3 3 3, b0: a, k1: b a 3 3, b1: b, head: b 4", a=6, b=8)
def convolutions_nchw(p, x):
    x = x.transpose(0, 3, 1, 2)
    x = jax.nn.relu(conv(x, p["k0"], NCHW) + p["b0"][:, None, None])
    x = jax.nn.relu(conv(x, p["k1"], NCHW, stride=2) + p["b1"][:, None, None])
    return x.mean((2, 3)) @ p["head"]


@theory(IMAGES, "k: 3 3 3 a, head: 4*a 4", a=6)
def flatten_hwc(p, x):
    x = jax.nn.relu(conv(x, p["k"], stride=2))  # 2 × 2 pixels are left
    return x.reshape(len(x), -1) @ p["head"]


@theory(IMAGES, "k: a 3 3 3, head: a*4 4", a=6)
def flatten_chw(p, x):
    x = jax.nn.relu(conv(x.transpose(0, 3, 1, 2), p["k"], NCHW, stride=2))
    return x.reshape(len(x), -1) @ p["head"]


@theory(IMAGES, "k0: 3 3 3 a, k1: 3 3 a b, head: b 4", a=6, b=5)
def pooling(p, x):
    x = conv(x, p["k0"])
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = lax.reduce_window(conv(x, p["k1"]), 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return x.reshape(len(x), -1) @ p["head"]


@theory(IMAGES, "k0: 3 3 3 g*a[g], k1: 3 3 a[g] g*b[g], b1: g*b[g], head: g*b[g] 4", g=3, a=2, b=4)
@theory(IMAGES, "k0: 3 3 3 g*a[g], k1: 3 3 a[g] g*b[g], b1: g*b[g], head: g*b[g] 4", "square", g=3, a=3, b=3)
def grouped_convolution(p, x):
    x = jax.nn.relu(conv(x, p["k0"]))
    x = jax.nn.relu(conv(x, p["k1"], groups=3) + p["b1"])
    return x.mean((1, 2)) @ p["head"]


@theory(IMAGES, "k0: 3 3 3 a, depth: 3 3 1 a, b: a, point: 1 1 a b, head: b 4", a=6, b=5)
@theory(
    IMAGES,
    "k0: 3 3 3 a, depth: 3 3 1 a*m[a], b: a*m[a], point: 1 1 a*m[a] b, head: b 4",
    "two outputs",
    a=6,
    m=2,
    b=5,
)
def depthwise(p, x):
    x = jax.nn.relu(conv(x, p["k0"]))
    x = jax.nn.relu(conv(x, p["depth"], groups=6) + p["b"])
    return conv(x, p["point"]).max((1, 2)) @ p["head"]


@theory(IMAGES, "down: 3 3 3 a, up: 3 3 a b, b: b, head: b 4", a=6, b=5)
@theory(IMAGES, "down: 3 3 3 a, up: 3 3 a b, b: b, head: b 4", "square", a=6, b=6)
def transposed_convolution(p, x):
    x = jax.nn.relu(conv(x, p["down"], stride=2))
    x = jax.nn.relu(lax.conv_transpose(x, p["up"], (2, 2), "SAME") + p["b"])
    return x.mean((1, 2)) @ p["head"]


@theory(IMAGES, "down: 3 3 3 a, up: 3 3 b a, b: b, head: b 4", a=6, b=6)
def transposed_kernel(p, x):
    """The gradient of a convolution: input and output axes of the kernel change places."""
    x = jax.nn.relu(conv(x, p["down"], stride=2))
    x = jax.nn.relu(lax.conv_transpose(x, p["up"], (2, 2), "SAME", transpose_kernel=True) + p["b"])
    return x.mean((1, 2)) @ p["head"]


def _group_norm(p, x, groups):
    x = conv(x, p["k"])
    y = x.reshape(*x.shape[:-1], groups, -1)
    mean, var = y.mean((1, 2, 4), keepdims=True), y.var((1, 2, 4), keepdims=True)
    y = ((y - mean) * lax.rsqrt(var + 1e-3)).reshape(x.shape) * p["gain"] + p["bias"]
    return jax.nn.relu(y).mean((1, 2)) @ p["head"]


@theory(IMAGES, "k: 3 3 3 a, gain bias: a, head: a 4", a=6)
def group_norm_of_one_group(p, x):
    return _group_norm(p, x, 1)


@theory(IMAGES, "k: 3 3 3 g*a[g], gain bias: g*a[g], head: g*a[g] 4", g=3, a=2)
def group_norm_of_three_groups(p, x):
    return _group_norm(p, x, 3)


@theory(IMAGES, "k: 3 3 3 a, gain bias: a, head: a 4", a=6)
def group_norm_of_one_channel_a_group(p, x):
    return _group_norm(p, x, 6)


@theory(IMAGES, "k: 3 3 3 a, mean var gain bias: a, head: a 4", a=6)
def batch_norm(p, x):
    x = conv(x, p["k"])
    x = (x - p["mean"]) * lax.rsqrt(jnp.abs(p["var"]) + 1e-3) * p["gain"] + p["bias"]
    return jax.nn.relu(x).mean((1, 2)) @ p["head"]


@theory(IMAGES, "k: 3 3 3 a, gain bias: a, head: a 4", a=6)
def batch_norm_in_training(p, x):
    x = conv(x, p["k"])
    x = (x - x.mean((0, 1, 2))) * lax.rsqrt(x.var((0, 1, 2)) + 1e-3) * p["gain"] + p["bias"]
    return jax.nn.relu(x).mean((1, 2)) @ p["head"]


@theory(IMAGES, "k: 3 3 3 a, gain bias tau: a, eps: 1, head: a 4", a=6)
def filter_response_norm(p, x):
    x = conv(x, p["k"])
    x = x * lax.rsqrt((x**2).mean((1, 2), keepdims=True) + jnp.abs(p["eps"])) * p["gain"] + p["bias"]
    return jnp.maximum(x, p["tau"]).mean((1, 2)) @ p["head"]


@theory(IMAGES, "k: a 3 3 3, gain bias tau: 1 a 1 1, head: a 4", a=6)
def filter_response_norm_nchw(p, x):
    x = conv(x.transpose(0, 3, 1, 2), p["k"], NCHW)
    x = x * lax.rsqrt((x**2).mean((2, 3), keepdims=True) + 1e-3) * p["gain"] + p["bias"]
    return jnp.maximum(x, p["tau"]).mean((2, 3)) @ p["head"]


@theory(IMAGES, "stem: 3 3 3 s, a: 3 3 s h, b: 3 3 h s, head: s 4", s=6, h=6)
def identity_shortcut(p, x):
    x = jax.nn.relu(conv(x, p["stem"]))
    x = jax.nn.relu(x + conv(jax.nn.relu(conv(x, p["a"])), p["b"]))
    return x.mean((1, 2)) @ p["head"]


@theory(IMAGES, "stem: 3 3 3 s, a: 3 3 s h, b: 3 3 h t, short: 1 1 s t, gain: t, head: t 4", s=4, h=6, t=6)
def convolution_shortcut(p, x):
    x = jax.nn.relu(conv(x, p["stem"]))
    y = conv(jax.nn.relu(conv(x, p["a"], stride=2)), p["b"])
    x = jax.nn.relu(conv(x, p["short"], stride=2) * p["gain"] + y)
    return x.mean((1, 2)) @ p["head"]


def _padding_shortcut(p, x, low, high):
    """Option A of He et al.: every second pixel, and zero channels around the old ones."""
    x = jax.nn.relu(conv(x, p["stem"]))
    y = conv(jax.nn.relu(conv(x, p["a"], stride=2)), p["b"])
    x = jax.nn.relu(y + jnp.pad(x[:, ::2, ::2], ((0, 0), (0, 0), (0, 0), (low, high))))
    return x.mean((1, 2)) @ p["head"]


# Old channels stand in the middle of the new ones, which move on their own before and behind them.
@theory(IMAGES, "stem: 3 3 3 s, a: 3 3 s h, b: 3 3 h u+s+v, head: u+s+v 4", s=4, u=2, v=2, h=5)
def padding_shortcut_around(p, x):
    return _padding_shortcut(p, x, 2, 2)


@theory(IMAGES, "stem: 3 3 3 s, a: 3 3 s h, b: 3 3 h s+v, head: s+v 4", s=4, v=4, h=5)
def padding_shortcut_behind(p, x):
    return _padding_shortcut(p, x, 0, 4)


@theory(IMAGES, "stem: 3 3 3 s, a: 3 3 s h, b: 3 3 h 1+s+v, head: 1+s+v 4", s=4, v=3, h=5)
def padding_shortcut_of_unequal_parts(p, x):
    return _padding_shortcut(p, x, 1, 3)


@theory(IMAGES, "k0: 3 3 3 a, k1: 3 3 a b, head: a+b 4", a=4, b=2)
def concatenated_features(p, x):
    x = conv(x, p["k0"])
    x = jnp.concatenate([x, jax.nn.relu(conv(x, p["k1"]))], -1)
    return x.mean((1, 2)) @ p["head"]


@theory(IMAGES, "k: 3 3 3 a, down: a b, up: b a, head: a 4", a=6, b=5)
def squeeze_and_excite(p, x):
    x = conv(x, p["k"])
    gate = jax.nn.sigmoid(jax.nn.relu(x.mean((1, 2)) @ p["down"]) @ p["up"])
    return (x * gate[:, None, None]).mean((1, 2)) @ p["head"]


@theory(IMAGES, "k: 3 3 3 4*a, out: 3 3 a 2", a=5)
def pixel_shuffle(p, x):
    """Sub-pixel convolution: channels are (colours, 2, 2), the 2 × 2 become pixels."""
    x = conv(x, p["k"])
    n, h, w, c = x.shape
    x = x.reshape(n, h, w, 2, 2, c // 4).transpose(0, 1, 3, 2, 4, 5).reshape(n, 2 * h, 2 * w, c // 4)
    return conv(x, p["out"])


# 6 channels are (2, 3) before the shuffle and (3, 2) behind it, and are cut as (2, 3) again.
@theory(
    IMAGES,
    "k0: 3 3 3 fix*a[fix], k1: 1 1 a[fix] fix*3, k2: 1 1 3 fixed*b[fixed], head: fixed*b[fixed] 2",
    a=3,
    b=2,
    fix=2,
    fixed=2,
)
def channel_shuffle(p, x):
    """ShuffleNet: grouped convolution, then groups and channels of a group change places."""
    x = conv(x, p["k0"])
    x = jax.nn.relu(conv(x, p["k1"], groups=2))
    x = x.reshape(*x.shape[:3], 2, 3).swapaxes(3, 4).reshape(x.shape)
    return conv(x, p["k2"], groups=2).mean((1, 2)) @ p["head"]


def _batch_groups(x, kernel):
    return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=NHWC, batch_group_count=2)


@theory(normal(0, 6, 4, 4, 3), "w: 3 a, k: 3 3 a fix*b[fix], head: fix*b[fix] 2", a=5, b=4, fix=2)
def batch_groups(p, x):
    """The transpose of a grouped convolution: 2 groups of 3 examples become groups of the features."""
    return _batch_groups(x @ p["w"], p["k"]).mean((1, 2)) @ p["head"]


@theory(normal(0, 2, 3), "images: g*n[g] 4 4 c, k: 3 3 c g*o[g], read: g*o[g]", g=2, n=3, c=3, o=4)
def batch_groups_of_a_parameter(p, x):
    """Nothing else fixes the batch here, so that it may move, and so may its groups."""
    y = _batch_groups(jnp.tanh(p["images"]), p["k"])
    return x.sum(1) * jnp.einsum("nhwc,c->", jnp.tanh(y), p["read"])


# Attention: heads as factors, fused and grouped projections, embeddings that play two roles

D, H, K, T = 6, 2, 4, 3  # features, heads, features of a head, tokens
TOKENS = np.array([[0, 2, 1], [4, 3, 3]], np.int32)
TEXT = normal(1, 2, T, D, scale=1.0)


def attend(q, k, v, causal=False):
    """(batch, tokens, heads, features of a head) each."""
    scores = jnp.einsum("bthk,bshk->bhts", q, k) / q.shape[-1] ** 0.5
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e9)
    return jnp.einsum("bhts,bshk->bthk", jax.nn.softmax(scores), v)


def heads(x, count):
    return x.reshape(*x.shape[:-1], count, -1)


@theory(TEXT, "q k: 6 h*a[h], v: 6 h*b[h], o: h*b[h] 6", h=H, a=K, b=K)
def separate_projections(p, x):
    q, k, v = (heads(x @ p[name], H) for name in "qkv")
    return attend(q, k, v, causal=True).reshape(2, T, H * K) @ p["o"]


@theory(TEXT, "q k: 6 h a[h], v: 6 h b[h], o: h b[h] 6", h=H, a=K, b=5)
def kernels_of_three_axes(p, x):
    """Kernels of shape (features, heads, features of a head), as in Flax."""
    q, k, v = (jnp.einsum("btd,dhk->bthk", x, p[name]) for name in "qkv")
    return jnp.einsum("bthk,hkd->btd", attend(q, k, v), p["o"])


# One axis holds query, key and value: the features of the first two are one group, those of the value another.
@theory(TEXT, "qkv: 6 2*h*a[h]+h*c[h], b: 2*h*a[h]+h*c[h], o: h*c[h] 6", h=H, a=K, c=K)
def fused_projection(p, x):
    q, k, v = (heads(y, H) for y in jnp.split(x @ p["qkv"] + p["b"], 3, axis=-1))
    return attend(q, k, v).reshape(2, T, H * K) @ p["o"]


@theory(TEXT, "qkv: 6 h*(2*a[h]+c[h]), o: h*c[h] 6", h=H, a=K, c=K)
def fused_projection_with_heads_outside(p, x):
    q, k, v = jnp.moveaxis((x @ p["qkv"]).reshape(2, T, H, 3, K), -2, 0)
    return attend(q, k, v).reshape(2, T, H * K) @ p["o"]


@theory(TEXT, "q: 6 g*r[g]*a[g], k: 6 g*a[g], v: 6 g*b[g], o: g*r[g]*b[g] 6", g=2, r=2, a=K, b=K)
def grouped_queries(p, x):
    """Four query heads, two key and value heads: each of those serves two queries."""
    q, k, v = heads(x @ p["q"], 4).reshape(2, T, 2, 2, K), heads(x @ p["k"], 2), heads(x @ p["v"], 2)
    scores = jax.nn.softmax(jnp.einsum("btgqk,bsgk->bgqts", q, k))
    return jnp.einsum("bgqts,bsgk->btgqk", scores, v).reshape(2, T, 4 * K) @ p["o"]


@theory(TEXT, "q: 6 g*r[g]*a[g], k: 6 g*a[g], v: 6 g*b[g], o: g*r[g]*b[g] 6", g=2, r=2, a=K, b=K)
def grouped_queries_with_keys_repeated(p, x):
    q, k, v = heads(x @ p["q"], 4), heads(x @ p["k"], 2), heads(x @ p["v"], 2)
    return attend(q, jnp.repeat(k, 2, axis=2), jnp.repeat(v, 2, axis=2)).reshape(2, T, 4 * K) @ p["o"]


@theory(TEXT, "q: 6 h*a, k: 6 a, v: 6 b, o: h*b 6", h=4, a=K, b=K)
def one_key_for_all_queries(p, x):
    scores = jax.nn.softmax(jnp.einsum("bthk,bsk->bhts", heads(x @ p["q"], 4), x @ p["k"]))
    return jnp.einsum("bhts,bsk->bthk", scores, x @ p["v"]).reshape(2, T, 4 * K) @ p["o"]


def _rotary(p, x, rotate):
    q, k, v = (heads(x @ p[name], H) for name in "qkv")
    return attend(rotate(q), rotate(k), v).reshape(2, T, H * K) @ p["o"]


# Every pair of features turns at a speed of its own, so that queries and keys cannot move at all.
@theory(TEXT, "q k: 6 h*4, v: 6 h*b[h], o: h*b[h] 6", h=H, b=K)
def rotary_in_halves(p, x):
    def rotate(x):
        angle = jnp.arange(T)[:, None] / 10 ** jnp.arange(K // 2)
        cos, sin = (jnp.concatenate([f(angle)] * 2, -1)[:, None, :] for f in (jnp.cos, jnp.sin))
        first, second = jnp.split(x, 2, axis=-1)
        return x * cos + jnp.concatenate([-second, first], -1) * sin

    return _rotary(p, x, rotate)


@theory(TEXT, "q k: 6 h*4, v: 6 h*b[h], o: h*b[h] 6", h=H, b=K)
def rotary_interleaved(p, x):
    def rotate(x):
        angle = jnp.arange(T)[:, None, None] / 10 ** jnp.arange(K // 2)
        even, odd = x[..., ::2], x[..., 1::2]
        parts = even * jnp.cos(angle) - odd * jnp.sin(angle), even * jnp.sin(angle) + odd * jnp.cos(angle)
        return jnp.stack(parts, -1).reshape(x.shape)

    return _rotary(p, x, rotate)


@theory(
    TOKENS,
    "table: 5 s, position: 3 s, q k: s h a[h], v: s h b[h], o: h b[h] s, up: s m, down: m s, head: s 5",
    s=D, h=H, a=K, b=K, m=7,
)  # fmt: skip
def language_model(p, tokens):
    """Embeddings, learned positions, one block, and a head of its own."""
    x = p["table"][tokens] + p["position"]
    x = x + jnp.einsum("bthk,hkd->btd", attend(*(jnp.einsum("btd,dhk->bthk", x, p[n]) for n in "qkv")), p["o"])
    x = x + jax.nn.gelu(x @ p["up"]) @ p["down"]
    return x @ p["head"]


@theory(TOKENS, "table: 5 s, up: s m, down: m s", s=D, m=7)
def tied_embeddings(p, tokens):
    x = p["table"][tokens]
    x = x + jnp.tanh(x @ p["up"]) @ p["down"]
    return x @ p["table"].T


@theory(TOKENS, "table: 5 a, head: a 4", a=D)
def one_hot_embeddings(p, tokens):
    return jnp.tanh(jax.nn.one_hot(tokens, 5) @ p["table"]) @ p["head"]


@theory(TEXT, "token: 1 1 s, embed: 6 s, a: s s, head: s 4", s=D)
def class_token(p, x):
    """A vision transformer's first token, prepended and read off."""
    x = jnp.concatenate([jnp.broadcast_to(p["token"], (2, 1, D)), x @ p["embed"]], axis=1)
    x = x + jax.nn.softmax(x @ p["a"] @ x.swapaxes(1, 2)) @ x
    return x[:, 0] @ p["head"]


@theory(TEXT, "embed: 6 s, t0: 3 t, t1: t 3, c0: s c, c1: c s, head: s 2", s=5, t=4, c=7)
def mixer(p, x):
    """MLP-Mixer: tokens are mixed by dense layers of their own."""
    x = x @ p["embed"]
    x = x + jnp.einsum("btd,ts,su->bud", x, p["t0"], p["t1"])
    return (x + jax.nn.relu(x @ p["c0"]) @ p["c1"]).mean(1) @ p["head"]


# Recurrence, and layers inside of scan, while, cond, vmap, remat and jit

N = 6  # units
STEPS = normal(1, 2, 4, 3, scale=1.0)
FLAT = STEPS[:, 0]


def _over_time(p, x, step, start):
    """Runs a cell over the steps, batched by vmap."""

    def one(sequence):
        _, outputs = lax.scan(lambda carry, token: step(carry, token), start, sequence)
        return outputs @ p["head"]

    return jax.vmap(one)(x)


@theory(STEPS, "i: 3 a, h: a a, b: a, head: a 2", a=N)
def rnn(p, x):
    def step(h, token):
        h = jnp.tanh(token @ p["i"] + h @ p["h"] + p["b"])
        return h, h

    return _over_time(p, x, step, jnp.zeros(N))


@theory(STEPS, "i: 3 4*a, h: a 4*a, b: 4*a, head: a 2", a=N)
def lstm(p, x):
    def step(carry, token):
        h, c = carry
        i, f, g, o = jnp.split(token @ p["i"] + h @ p["h"] + p["b"], 4)
        c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return _over_time(p, x, step, (jnp.zeros(N), jnp.zeros(N)))


@theory(STEPS, "i: 3 3*a, h: a 3*a, b: 3*a, head: a 2", a=N)
def gru(p, x):
    def step(h, token):
        z, r, n = jnp.split(token @ p["i"], 3)
        hz, hr, hn = jnp.split(h @ p["h"] + p["b"], 3)
        z, r = jax.nn.sigmoid(z + hz), jax.nn.sigmoid(r + hr)
        h = (1 - z) * jnp.tanh(n + r * hn) + z * h
        return h, h

    return _over_time(p, x, step, jnp.zeros(N))


@theory(STEPS, "i: 3 a, h: a a, c h0: a, head: a 1", a=N)
def learned_first_state(p, x):
    """The first state is a parameter, and so is a second one that the loop only reads."""
    h, _ = lax.scan(lambda h, t: (jnp.tanh(t @ p["i"] + h @ p["h"] + p["c"]), None), p["h0"], STEPS[0])
    return x[:, 0] @ p["i"] @ h[:, None] + h @ p["head"]


@theory(STEPS, "i: 3 a, h: a a, b: a, head: a 2", a=N)
def rnn_unrolled(p, x):
    h = jnp.zeros((2, N))
    for t in range(4):
        h = jnp.tanh(x[:, t] @ p["i"] + h @ p["h"] + p["b"])
    return h @ p["head"]


@theory(FLAT, "embed: 3 s, layers/up: fix s h[fix], layers/down: fix h[fix] s, head: s 2", fix=3, s=N, h=5)
def layers_under_scan(p, x):
    """One stack of kernels for all layers: one permutation serves all of them."""
    h, _ = lax.scan(lambda h, w: (h + jnp.tanh(h @ w["up"]) @ w["down"], None), x @ p["embed"], p["layers"])
    return h @ p["head"]


@theory(FLAT, "a b: 3 g, c: g, head: g 2", g=N)
def carries_that_swap(p, x):
    """Two carries that change hands at every step are one group."""

    def body(carry, _):
        a, b = carry
        return (b, jnp.tanh(a * p["c"])), None

    (a, b), _ = lax.scan(body, (x @ p["a"], x @ p["b"]), None, length=3)
    return a @ p["head"] + b.sum(-1, keepdims=True)


@theory(FLAT, "w: 3 6, head: 6 2")
def carry_that_shifts(p, x):
    """What a loop hands to its next step in another place cannot move: the carry meets itself, shifted."""
    h, _ = lax.scan(lambda h, _: (jnp.roll(h, 1, axis=-1) + 1, None), x @ p["w"], None, length=3)
    return h @ p["head"]


@theory(FLAT, "embed: 3 a, w: a a, b: a, head: a 2", a=N)
def while_loop(p, x):
    def body(carry):
        step, h = carry
        return step + 1, jnp.tanh(h @ p["w"] + p["b"])

    return lax.while_loop(lambda carry: carry[0] < 3, body, (0, x @ p["embed"]))[1] @ p["head"]


@theory(FLAT, "embed: 3 a, w: a a, head: a 2", a=N)
def while_the_units_are_large(p, x):
    def body(h):
        return 0.5 * jnp.tanh(h @ p["w"])

    return lax.while_loop(lambda h: jnp.abs(h).max() > 1e-2, body, x @ p["embed"]) @ p["head"]


@theory(FLAT, "embed: 3 a, layers: 3 a a, head: a 2", a=N)
def for_loop_over_stacked_layers(p, x):
    return lax.fori_loop(0, 3, lambda i, h: jnp.tanh(h @ p["layers"][i]), x @ p["embed"]) @ p["head"]


@theory(FLAT, "embed: 3 a, a: a b, gain: b, head: b 2", a=N, b=5)
def cond_and_switch(p, x):
    h = x @ p["embed"]
    h = lax.cond(x.sum() > 0, lambda h: jnp.tanh(h @ p["a"]), lambda h: jnp.zeros_like(h @ p["a"]), h)
    h = lax.switch(1, [lambda h: h, lambda h: h * p["gain"], jnp.sin], h)
    return h @ p["head"]


@theory(FLAT, "l0/w: 3 a, l0/b: a, l1/w: a b, l1/b: b, head: b 2", a=N, b=5)
def jit_remat_and_vmap(p, x):
    layer = jax.checkpoint(jax.jit(lambda w, h: jax.nn.relu(h @ w["w"] + w["b"])))
    return jax.vmap(lambda x: layer(p["l1"], layer(p["l0"], x)) @ p["head"])(x)


@theory(FLAT, "w0: e 3 a[e], w1: e a[e] 2", e=4, a=N)
def ensemble_under_vmap(p, x):
    """Members side by side: they may change places, and each has hidden units of its own."""
    return jax.vmap(lambda w0, w1: jax.nn.relu(x @ w0) @ w1)(p["w0"], p["w1"]).mean(0)


@theory(FLAT, "w0: e 3 a[e], w1: e a[e] 2", e=4, a=N)
def ensemble_under_map(p, x):
    """A scan without a carry is a map: its steps do not follow one another."""
    return lax.map(lambda w: jax.nn.relu(x @ w[0]) @ w[1], (p["w0"], p["w1"])).sum(0)


@jax.custom_vjp
def _clipped(x):
    return jnp.clip(x, -1, 1)


@jax.custom_jvp
def _swish(x):
    return x * jax.nn.sigmoid(x)


_clipped.defvjp(lambda x: (_clipped(x), None), lambda _, g: (g,))
_swish.defjvp(lambda x, t: (_swish(x[0]), t[0]))


@theory(FLAT, "w0: 3 a, w1: a b, head: b 2", a=N, b=5)
def custom_derivatives(p, x):
    return _clipped(_swish(x @ p["w0"]) @ p["w1"]) @ p["head"]


# Off the beaten track: nobody wrote a rule for these, and their symmetry is found all the same

LONG = normal(0, 2, 8, 3, scale=1.0)  # (batch, tokens, features)


def _conv1d(x, kernel):
    return lax.conv_general_dilated(x, kernel, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"))


@theory(LONG, "in: 3 a, a: a a, b: a, out: a 2", a=6)
def state_space(p, x):
    """A linear recurrence, run as a parallel scan."""
    u = x @ p["in"]
    decay, drive = jax.nn.sigmoid(u @ p["a"]), u * p["b"]
    _, h = lax.associative_scan(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (decay, drive), axis=1)
    return h @ p["out"]


@theory(LONG, "latents: l s, q: s a, k: 3 a, v: 3 s, w: s h, head: h 2", l=7, s=5, a=4, h=6)
def learned_queries(p, x):
    """The latents may change places, since their outputs are averaged."""
    scores = jax.nn.softmax(jnp.einsum("ld,btd->blt", p["latents"] @ p["q"], x @ p["k"]))
    z = scores @ (x @ p["v"]) + p["latents"]
    return jax.nn.relu(z @ p["w"]).mean(1) @ p["head"]


@theory(LONG, "embed: 3 a, message: a a, head: a 2", a=6)
def graph_network(p, x):
    """Messages along the edges of a ring."""
    h = x[0] @ p["embed"]
    messages = jax.nn.relu(h[jnp.arange(8)] @ p["message"])
    h = h + jax.ops.segment_sum(messages, jnp.arange(1, 9) % 8, num_segments=8)
    return h.sum(0) @ p["head"]


@theory(LONG, "w: 3 a, film: 3 2*a, head: a 2", a=6)
def conditioned(p, x):
    """Gains and offsets of one layer come from another, fused in one kernel."""
    gain, offset = jnp.split(x.mean(1) @ p["film"], 2, axis=-1)
    return jnp.tanh((x @ p["w"]) * gain[:, None] + offset[:, None]) @ p["head"]


@theory(LONG, "code: c, hyper: c 3*a, head: a 2", c=4, a=6)
def hypernetwork(p, x):
    return jnp.tanh(x @ (p["code"] @ p["hyper"]).reshape(3, 6)) @ p["head"]


@theory(LONG, "w: 3 a*p[a], head: a 2", a=5, p=3)
def maxout(p, x):
    return (x @ p["w"]).reshape(2, 8, 5, 3).max(-1) @ p["head"]


@theory(LONG, "w: 3 a, u: 3, head: a 2", a=6)
def spectral_norm(p, x):
    u = p["u"]
    for _ in range(2):
        v = p["w"].T @ u
        v = v / jnp.linalg.norm(v)
        u = p["w"] @ v
        u = u / jnp.linalg.norm(u)
    return jnp.tanh(x @ (p["w"] / (u @ p["w"] @ v))) @ p["head"]


@theory(LONG, "embed: 3 a, w: a a, head: a 2", a=4)
def neural_ode(p, x):
    h = odeint(lambda h, t: jnp.tanh(h @ p["w"]), x[:, 0] @ p["embed"], jnp.array([0.0, 1.0]))
    return h[-1] @ p["head"]


@theory(LONG, "w0: 3 a, w1: a b", a=6, b=5)
def gradient_of_a_network(p, x):
    return jax.grad(lambda x: jnp.tanh(jnp.tanh(x @ p["w0"]) @ p["w1"]).sum())(x)


@theory(LONG, "w: c 3 k[c], head: c*k[c] 2", c=4, k=5)
def capsules(p, x):
    votes = jnp.einsum("btd,cdk->btck", x, p["w"])
    logits = jnp.zeros(votes.shape[:3])
    for _ in range(2):
        pose = (jax.nn.softmax(logits, 2)[..., None] * votes).sum(1)
        pose = pose / (1 + jnp.linalg.norm(pose, axis=-1, keepdims=True))
        logits = logits + jnp.einsum("btck,bck->btc", votes, pose)
    return pose.reshape(2, -1) @ p["head"]


@theory(LONG, "embed: 3 a, codes: c a, head: a 2", a=4, c=5)
def quantised(p, x):
    """Each hidden vector is replaced by the nearest of a codebook, whatever its number."""
    h = x @ p["embed"]
    nearest = jnp.argmin(((h[:, :, None] - p["codes"]) ** 2).sum(-1), -1)
    return p["codes"][nearest] @ p["head"]


@theory(LONG, "router: 3 e, up: e 3 h[e], down: e h[e] 2", e=4, h=5)
def two_experts_a_token(p, x):
    """Routing by rank: the numbers of the best experts become one-hot vectors."""
    best, which = lax.top_k(x @ p["router"], 2)
    gates = jnp.einsum("btk,btke->bte", jax.nn.softmax(best), jax.nn.one_hot(which, 4))
    hidden = jax.nn.relu(jnp.einsum("btd,edh->bteh", x, p["up"]))
    return jnp.einsum("bte,bteh,eho->bto", gates, hidden, p["down"])


@theory(
    LONG,
    "table: 9 s, g0 g1: s, q k: s h*a[h], v: s h*b[h], o: h*b[h] s, r: s e, up: e s u[e], down: e u[e] s, w: s 2",
    s=6, h=2, a=3, b=3, e=4, u=5,
)  # fmt: skip
def decoder_with_two_experts_a_token(p, x):
    """Its router reads a normalised stream, and is never zero: scores cannot be equal."""
    norm = lambda x, gain: x * lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-5) * gain  # noqa: E731
    x = p["table"][np.arange(16).reshape(2, 8) % 9]
    q, k, v = ((norm(x, p["g0"]) @ p[name]).reshape(2, 8, 2, 3).swapaxes(1, 2) for name in "qkv")
    attended = jax.nn.softmax(q @ k.swapaxes(-1, -2)) @ v
    x = x + attended.swapaxes(1, 2).reshape(2, 8, 6) @ p["o"]
    h = norm(x, p["g1"])
    best, which = lax.top_k(jax.nn.softmax(h @ p["r"]), 2)
    gates = jnp.einsum("btk,btke->bte", best, jax.nn.one_hot(which, 4))
    hidden = jax.nn.silu(jnp.einsum("btd,edh->bteh", h, p["up"]))
    return (x + jnp.einsum("bte,bteh,eho->bto", gates, hidden, p["down"])) @ p["w"]


@theory(LONG, "router: 3 e, up: e 3 h[e], down: e h[e] 2", e=4, h=5)
def gates_written_where_the_experts_stand(p, x):
    best, which = lax.top_k(x @ p["router"], 2)
    gates = jnp.zeros((2, 8, 4)).at[jnp.arange(2)[:, None, None], jnp.arange(8)[:, None], which].set(best)
    return jnp.einsum("bte,bteh,eho->bto", gates, jax.nn.relu(jnp.einsum("btd,edh->bteh", x, p["up"])), p["down"])


@theory(LONG, "router: 3 e, up: e 3 h, down: e h 2", e=4, h=5)
def weights_of_the_best_expert(p, x):
    def of_a_token(x):
        best = jnp.argmax(x @ p["router"])
        up, down = (lax.dynamic_index_in_dim(p[name], best, 0, keepdims=False) for name in ("up", "down"))
        return jax.nn.relu(x @ up) @ down

    return jax.vmap(jax.vmap(of_a_token))(x)


@theory(LONG, "q: 3 h 4, kv: 1+1 3 h 4|v[h], o: h v[h] 2", h=2, v=4)
def keys_and_values_in_one_tensor(p, x):
    """Keys are tied to their positions, as by rotation; values are not."""
    q = jnp.einsum("btd,dhk->bthk", x, p["q"])
    k, v = jnp.einsum("btd,cdhk->cbthk", x, p["kv"])
    scores = jax.nn.softmax(jnp.einsum("bthk,bshk->bhts", jnp.cumsum(q, -1), jnp.cumsum(k, -1)))
    return jnp.einsum("bhts,bshk,hko->bto", scores, v, p["o"])


@theory(
    LONG, "q k: 1+1 3 g|h a[g]|b[h], v: 1+1 3 g|h c[g]|d[h], o: 1+1 g|h c[g]|d[h] 3", g=2, h=2, a=4, b=4, c=4, d=4
)
def layers_taken_from_stacks(p, x):
    """Without `lax.scan`: every layer has heads of its own, and sizes of its own in each."""
    for i in range(2):
        q, k, v = (jnp.einsum("btd,dhk->bthk", x, p[name][i]) for name in "qkv")
        scores = jax.nn.softmax(jnp.einsum("bthk,bshk->bhts", q, k))
        x = x + jnp.einsum("bhts,bshk,hko->bto", scores, v, p["o"][i])
    return x


@theory(LONG, "q k: 3 fix a[fix], v: 3 fix b[fix], o: fix b[fix] 3", a=4, b=4, fix=2)
def slopes(p, x):
    """Every head forgets at a speed of its own, so that heads are fixed and their features are not."""
    q, k, v = (jnp.einsum("btd,dhk->bthk", x, p[name]) for name in "qkv")
    distance = jnp.abs(jnp.arange(8)[:, None] - jnp.arange(8))
    scores = jnp.einsum("bthk,bshk->bhts", q, k) - distance * np.array([0.5, 0.25], np.float32)[:, None, None]
    return jnp.einsum("bhts,bshk,hko->bto", jax.nn.softmax(scores), v, p["o"])


@theory(LONG, "q: 3 g*r[g] a[g], k: 3 g a[g], v: 3 g b[g], o: g*r[g] b[g] 3", g=2, r=2, a=4, b=4)
def attention_of_the_library(p, x):
    q, k, v = (jnp.einsum("btd,dhk->bthk", x, p[name]) for name in "qkv")
    return jnp.einsum("bthk,hko->bto", jax.nn.dot_product_attention(q, k, v, is_causal=True), p["o"])


@theory(LONG, "k: 3 3 a, head: a 2", a=6)
def resized(p, x):
    return jax.image.resize(_conv1d(x, p["k"]), (2, 16, 6), "bilinear") @ p["head"]


@theory(LONG, "k: 3 3 a, head: a 2", a=6)
def weights_standardised(p, x):
    return _conv1d(x, (p["k"] - p["k"].mean((0, 1))) / p["k"].std((0, 1))) @ p["head"]
