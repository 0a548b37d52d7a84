"""Convolutional networks: layouts, groups, norms, shortcuts, flattening."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import bayesin
from symmetry_checks import check_model, normal, reasons, weights

NHWC = ("NHWC", "HWIO", "NHWC")
NCHW = ("NCHW", "OIHW", "NCHW")
IMAGES = normal(1, 2, 4, 4, 3, scale=1.0)


def conv(x, kernel, layout=NHWC, stride=1, groups=1, padding="SAME"):
    return lax.conv_general_dilated(
        x, kernel, (stride, stride), padding, dimension_numbers=layout, feature_group_count=groups
    )


def stack_nhwc(p, x):
    x = jax.nn.relu(conv(x, p["k0"]) + p["b0"])
    x = jax.nn.relu(conv(x, p["k1"], stride=2) + p["b1"])
    return x.mean((1, 2)) @ p["head"]


def stack_nchw(p, x):
    x = x.transpose(0, 3, 1, 2)
    x = jax.nn.relu(conv(x, p["k0"], NCHW) + p["b0"][:, None, None])
    x = jax.nn.relu(conv(x, p["k1"], NCHW, stride=2) + p["b1"][:, None, None])
    return x.mean((2, 3)) @ p["head"]


def flatten_hwc(p, x):
    x = jax.nn.relu(conv(x, p["k"], stride=2))  # 2 × 2 pixels are left
    return x.reshape(len(x), -1) @ p["head"]


def flatten_chw(p, x):
    x = jax.nn.relu(conv(x.transpose(0, 3, 1, 2), p["k"], NCHW, stride=2))
    return x.reshape(len(x), -1) @ p["head"]


def pooled(p, x):
    x = conv(x, p["k0"])
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = lax.reduce_window(conv(x, p["k1"]), 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return x.reshape(len(x), -1) @ p["head"]


def grouped(p, x):
    """6 channels in 3 groups of 2 in, 12 channels in 3 groups of 4 out."""
    x = jax.nn.relu(conv(x, p["k0"]))
    x = jax.nn.relu(conv(x, p["k1"], groups=3) + p["b1"])
    return x.mean((1, 2)) @ p["head"]


def depthwise(p, x):
    x = jax.nn.relu(conv(x, p["k0"]))
    x = jax.nn.relu(conv(x, p["depth"], groups=6) + p["b"])
    return conv(x, p["point"]).max((1, 2)) @ p["head"]


def transposed(p, x):
    x = jax.nn.relu(conv(x, p["down"], stride=2))
    x = jax.nn.relu(lax.conv_transpose(x, p["up"], (2, 2), "SAME") + p["b"])
    return x.mean((1, 2)) @ p["head"]


def transposed_kernel(p, x):
    """The gradient of a convolution: input and output axes of the kernel change places."""
    x = jax.nn.relu(conv(x, p["down"], stride=2))
    x = jax.nn.relu(lax.conv_transpose(x, p["up"], (2, 2), "SAME", transpose_kernel=True) + p["b"])
    return x.mean((1, 2)) @ p["head"]


def group_norm(groups):
    def apply(p, x):
        x = conv(x, p["k"])
        y = x.reshape(*x.shape[:-1], groups, -1)
        mean, var = y.mean((1, 2, 4), keepdims=True), y.var((1, 2, 4), keepdims=True)
        y = ((y - mean) * lax.rsqrt(var + 1e-3)).reshape(x.shape) * p["gain"] + p["bias"]
        return jax.nn.relu(y).mean((1, 2)) @ p["head"]

    return apply


def batch_norm(p, x):
    x = conv(x, p["k"])
    x = (x - p["mean"]) * lax.rsqrt(jnp.abs(p["var"]) + 1e-3) * p["gain"] + p["bias"]
    return jax.nn.relu(x).mean((1, 2)) @ p["head"]


def batch_norm_training(p, x):
    x = conv(x, p["k"])
    x = (x - x.mean((0, 1, 2))) * lax.rsqrt(x.var((0, 1, 2)) + 1e-3) * p["gain"] + p["bias"]
    return jax.nn.relu(x).mean((1, 2)) @ p["head"]


def filter_response_norm(p, x):
    x = conv(x, p["k"])
    x = x * lax.rsqrt((x**2).mean((1, 2), keepdims=True) + jnp.abs(p["eps"])) * p["gain"] + p["bias"]
    return jnp.maximum(x, p["tau"]).mean((1, 2)) @ p["head"]


def filter_response_norm_nchw(p, x):
    x = conv(x.transpose(0, 3, 1, 2), p["k"], NCHW)
    x = x * lax.rsqrt((x**2).mean((2, 3), keepdims=True) + 1e-3) * p["gain"] + p["bias"]
    return jnp.maximum(x, p["tau"]).mean((2, 3)) @ p["head"]


def identity_shortcut(p, x):
    x = jax.nn.relu(conv(x, p["stem"]))
    x = jax.nn.relu(x + conv(jax.nn.relu(conv(x, p["a"])), p["b"]))
    return x.mean((1, 2)) @ p["head"]


def convolution_shortcut(p, x):
    x = jax.nn.relu(conv(x, p["stem"]))
    y = conv(jax.nn.relu(conv(x, p["a"], stride=2)), p["b"])
    x = jax.nn.relu(conv(x, p["short"], stride=2) * p["gain"] + y)
    return x.mean((1, 2)) @ p["head"]


def padding_shortcut(low, high):
    """Option A of He et al.: every second pixel, and zero channels around the old ones."""

    def apply(p, x):
        x = jax.nn.relu(conv(x, p["stem"]))
        y = conv(jax.nn.relu(conv(x, p["a"], stride=2)), p["b"])
        x = jax.nn.relu(y + jnp.pad(x[:, ::2, ::2], ((0, 0), (0, 0), (0, 0), (low, high))))
        return x.mean((1, 2)) @ p["head"]

    return apply


def dense_net(p, x):
    x = conv(x, p["k0"])
    x = jnp.concatenate([x, jax.nn.relu(conv(x, p["k1"]))], -1)
    return x.mean((1, 2)) @ p["head"]


def squeeze_excite(p, x):
    x = conv(x, p["k"])
    gate = jax.nn.sigmoid(jax.nn.relu(x.mean((1, 2)) @ p["down"]) @ p["up"])
    return (x * gate[:, None, None]).mean((1, 2)) @ p["head"]


def pixel_shuffle(p, x):
    """Sub-pixel convolution: channels are (colours, 2, 2), the 2 × 2 become pixels."""
    x = conv(x, p["k"])
    n, h, w, c = x.shape
    x = x.reshape(n, h, w, 2, 2, c // 4).transpose(0, 1, 3, 2, 4, 5).reshape(n, 2 * h, 2 * w, c // 4)
    return conv(x, p["out"])


def channel_shuffle(p, x):
    """ShuffleNet: grouped convolution, then groups and channels of a group change places."""
    x = conv(x, p["k0"])
    x = jax.nn.relu(conv(x, p["k1"], groups=2))
    x = x.reshape(*x.shape[:3], 2, 3).swapaxes(3, 4).reshape(x.shape)
    return conv(x, p["k2"], groups=2).mean((1, 2)) @ p["head"]


HEAD = {"head": (6, 4)}
CASES = {
    "NHWC": (
        stack_nhwc,
        weights(k0=(3, 3, 3, 6), b0=(6,), k1=(3, 3, 6, 8), b1=(8,), head=(8, 4)),
        {"k0": "3 3 3 a", "b0": "a", "k1": "3 3 a b", "b1": "b", "head": "b 4"},
        {"a": 6, "b": 8},
    ),
    "NCHW": (
        stack_nchw,
        weights(k0=(6, 3, 3, 3), b0=(6,), k1=(8, 6, 3, 3), b1=(8,), head=(8, 4)),
        {"k0": "a 3 3 3", "b0": "a", "k1": "b a 3 3", "b1": "b", "head": "b 4"},
        {"a": 6, "b": 8},
    ),
    "everything of size 3": (
        stack_nhwc,
        weights(k0=(3, 3, 3, 3), b0=(3,), k1=(3, 3, 3, 3), b1=(3,), head=(3, 3)),
        {"k0": "3 3 3 a", "b0": "a", "k1": "3 3 a b", "b1": "b", "head": "b 3"},
        {"a": 3, "b": 3},
    ),
    "flatten H·W·C": (
        flatten_hwc,
        weights(k=(3, 3, 3, 6), head=(24, 4)),
        {"k": "3 3 3 a", "head": "4*a 4"},
        {"a": 6},
    ),
    "flatten C·H·W": (
        flatten_chw,
        weights(k=(6, 3, 3, 3), head=(24, 4)),
        {"k": "a 3 3 3", "head": "a*4 4"},
        {"a": 6},
    ),
    "pooling": (
        pooled,
        weights(k0=(3, 3, 3, 6), k1=(3, 3, 6, 5), head=(5, 4)),
        {"k0": "3 3 3 a", "k1": "3 3 a b", "head": "b 4"},
        {"a": 6, "b": 5},
    ),
    "grouped": (
        grouped,
        weights(k0=(3, 3, 3, 6), k1=(3, 3, 2, 12), b1=(12,), head=(12, 4)),
        {"k0": "3 3 3 g*a", "k1": "3 3 a g*b", "b1": "g*b", "head": "g*b 4"},
        {"g": 3, "a": 2, "b": 4},
    ),
    "grouped, square": (
        grouped,
        weights(k0=(3, 3, 3, 9), k1=(3, 3, 3, 9), b1=(9,), head=(9, 4)),
        {"k0": "3 3 3 g*a", "k1": "3 3 a g*b", "b1": "g*b", "head": "g*b 4"},
        {"g": 3, "a": 3, "b": 3},
    ),
    "depthwise": (
        depthwise,
        weights(k0=(3, 3, 3, 6), depth=(3, 3, 1, 6), b=(6,), point=(1, 1, 6, 5), head=(5, 4)),
        {"k0": "3 3 3 a", "depth": "3 3 1 a", "b": "a", "point": "1 1 a b", "head": "b 4"},
        {"a": 6, "b": 5},
    ),
    "depthwise, two outputs a channel": (
        depthwise,
        weights(k0=(3, 3, 3, 6), depth=(3, 3, 1, 12), b=(12,), point=(1, 1, 12, 5), head=(5, 4)),
        {"k0": "3 3 3 a", "depth": "3 3 1 a*m", "b": "a*m", "point": "1 1 a*m b", "head": "b 4"},
        {"a": 6, "m": 2, "b": 5},
    ),
    "transposed": (
        transposed,
        weights(down=(3, 3, 3, 6), up=(3, 3, 6, 5), b=(5,), head=(5, 4)),
        {"down": "3 3 3 a", "up": "3 3 a b", "b": "b", "head": "b 4"},
        {"a": 6, "b": 5},
    ),
    "transposed, square": (
        transposed,
        weights(down=(3, 3, 3, 6), up=(3, 3, 6, 6), b=(6,), **HEAD),
        {"down": "3 3 3 a", "up": "3 3 a b", "b": "b", "head": "b 4"},
        {"a": 6, "b": 6},
    ),
    "transposed kernel, square": (
        transposed_kernel,
        weights(down=(3, 3, 3, 6), up=(3, 3, 6, 6), b=(6,), **HEAD),
        {"down": "3 3 3 a", "up": "3 3 b a", "b": "b", "head": "b 4"},
        {"a": 6, "b": 6},
    ),
    "group norm, one group": (
        group_norm(1),
        weights(k=(3, 3, 3, 6), gain=(6,), bias=(6,), **HEAD),
        {"k": "3 3 3 a", "gain": "a", "bias": "a", "head": "a 4"},
        {"a": 6},
    ),
    "group norm, three groups": (
        group_norm(3),
        weights(k=(3, 3, 3, 6), gain=(6,), bias=(6,), **HEAD),
        {"k": "3 3 3 g*a", "gain": "g*a", "bias": "g*a", "head": "g*a 4"},
        {"g": 3, "a": 2},
    ),
    "group norm, one channel a group": (
        group_norm(6),
        weights(k=(3, 3, 3, 6), gain=(6,), bias=(6,), **HEAD),
        {"k": "3 3 3 a", "gain": "a", "bias": "a", "head": "a 4"},
        {"a": 6},
    ),
    "batch norm": (
        batch_norm,
        weights(k=(3, 3, 3, 6), mean=(6,), var=(6,), gain=(6,), bias=(6,), **HEAD),
        {"k": "3 3 3 a", "mean": "a", "var": "a", "gain": "a", "bias": "a", "head": "a 4"},
        {"a": 6},
    ),
    "batch norm in training": (
        batch_norm_training,
        weights(k=(3, 3, 3, 6), gain=(6,), bias=(6,), **HEAD),
        {"k": "3 3 3 a", "gain": "a", "bias": "a", "head": "a 4"},
        {"a": 6},
    ),
    "filter response norm": (
        filter_response_norm,
        weights(k=(3, 3, 3, 6), gain=(6,), bias=(6,), tau=(6,), eps=(1,), **HEAD),
        {"k": "3 3 3 a", "gain": "a", "bias": "a", "tau": "a", "eps": "1", "head": "a 4"},
        {"a": 6},
    ),
    "filter response norm, NCHW": (
        filter_response_norm_nchw,
        weights(k=(6, 3, 3, 3), gain=(1, 6, 1, 1), bias=(1, 6, 1, 1), tau=(1, 6, 1, 1), **HEAD),
        {"k": "a 3 3 3", "gain": "1 a 1 1", "bias": "1 a 1 1", "tau": "1 a 1 1", "head": "a 4"},
        {"a": 6},
    ),
    "identity shortcut": (
        identity_shortcut,
        weights(stem=(3, 3, 3, 6), a=(3, 3, 6, 6), b=(3, 3, 6, 6), **HEAD),
        {"stem": "3 3 3 s", "a": "3 3 s h", "b": "3 3 h s", "head": "s 4"},
        {"s": 6, "h": 6},
    ),
    "convolution shortcut": (
        convolution_shortcut,
        weights(stem=(3, 3, 3, 4), a=(3, 3, 4, 6), b=(3, 3, 6, 6), short=(1, 1, 4, 6), gain=(6,), **HEAD),
        {"stem": "3 3 3 s", "a": "3 3 s h", "b": "3 3 h t", "short": "1 1 s t", "gain": "t", "head": "t 4"},
        {"s": 4, "h": 6, "t": 6},
    ),
    # Old channels stand in the middle of the new ones: both are blocks of 2, and all blocks move alike.
    "padding shortcut around": (
        padding_shortcut(2, 2),
        weights(stem=(3, 3, 3, 4), a=(3, 3, 4, 5), b=(3, 3, 5, 8), head=(8, 4)),
        {"stem": "3 3 3 2*s", "a": "3 3 2*s h", "b": "3 3 h 4*s", "head": "4*s 4"},
        {"s": 2, "h": 5},
    ),
    "padding shortcut behind": (
        padding_shortcut(0, 4),
        weights(stem=(3, 3, 3, 4), a=(3, 3, 4, 5), b=(3, 3, 5, 8), head=(8, 4)),
        {"stem": "3 3 3 s", "a": "3 3 s h", "b": "3 3 h 2*s", "head": "2*s 4"},
        {"s": 4, "h": 5},
    ),
    "padding shortcut that blocks cannot express": (
        padding_shortcut(1, 3),
        weights(stem=(3, 3, 3, 4), a=(3, 3, 4, 5), b=(3, 3, 5, 8), head=(8, 4)),
        {"stem": "3 3 3 4", "a": "3 3 4 h", "b": "3 3 h 8", "head": "8 4"},
        {"h": 5},
    ),
    "concatenated features": (
        dense_net,
        weights(k0=(3, 3, 3, 4), k1=(3, 3, 4, 2), **HEAD),
        {"k0": "3 3 3 2*a", "k1": "3 3 2*a a", "head": "3*a 4"},
        {"a": 2},
    ),
    "squeeze and excite": (
        squeeze_excite,
        weights(k=(3, 3, 3, 6), down=(6, 5), up=(5, 6), **HEAD),
        {"k": "3 3 3 a", "down": "a b", "up": "b a", "head": "a 4"},
        {"a": 6, "b": 5},
    ),
    "pixel shuffle": (
        pixel_shuffle,
        weights(k=(3, 3, 3, 20), out=(3, 3, 5, 2)),
        {"k": "3 3 3 4*a", "out": "3 3 a 2"},
        {"a": 5},
    ),
    "channel shuffle": (
        channel_shuffle,
        weights(k0=(3, 3, 3, 6), k1=(1, 1, 3, 6), k2=(1, 1, 3, 4), head=(4, 2)),
        # 6 channels are (2, 3) before the shuffle and (3, 2) behind it, and are cut as (2, 3) again.
        {"k0": "3 3 3 2*a", "k1": "1 1 a 6", "k2": "1 1 3 2*b", "head": "2*b 2"},
        {"a": 3, "b": 2},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_groups_are_those_of_theory(name):
    apply, params, expected, sizes = CASES[name]
    check_model(apply, params, IMAGES, expected, sizes)


def test_spatial_axes_say_why_they_are_fixed():
    params = weights(k=(3, 3, 3, 6), head=(24, 4))
    spec = bayesin.discover(flatten_hwc, params, IMAGES)
    assert reasons(spec, "k") == ["spatial axis of a convolution"] * 2 + ["joined to the input", ""]
    assert reasons(spec, "head") == ["spatial axis of a convolution", "output"]


def test_batch_groups():
    """The transpose of a grouped convolution: groups of the batch become groups of the features."""

    def apply(p, x):
        x = x @ p["w"]  # (6, 4, 4, 5); the batch is 2 groups of 3
        x = lax.conv_general_dilated(x, p["k"], (1, 1), "SAME", dimension_numbers=NHWC, batch_group_count=2)
        return x.mean((1, 2)) @ p["head"]

    params = weights(w=(3, 5), k=(3, 3, 5, 8), head=(8, 2))
    x = normal(0, 6, 4, 4, 3)
    check_model(apply, params, x, {"w": "3 a", "k": "3 3 a 2*b", "head": "2*b 2"}, {"a": 5, "b": 4})


def test_batch_groups_of_a_parameter():
    """Nothing else fixes the batch here, so that it may move, and so may its groups."""

    def apply(p, x):
        images = jnp.tanh(p["images"])
        y = lax.conv_general_dilated(images, p["k"], (1, 1), "SAME", dimension_numbers=NHWC, batch_group_count=2)
        return x.sum(1) * jnp.einsum("nhwc,c->", jnp.tanh(y), p["read"])

    params = weights(images=(6, 4, 4, 3), k=(3, 3, 3, 8), read=(8,))
    expected = {"images": "g*n 4 4 c", "k": "3 3 c g*o", "read": "g*o"}
    check_model(apply, params, normal(0, 2, 3), expected, {"g": 2, "n": 3, "c": 3, "o": 4})
