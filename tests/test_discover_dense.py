"""Dense networks: what moves together is what theory says, no less and no more."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayesin
from symmetry_checks import check_model, normal, reasons, weights

X = normal(1, 3, 5, scale=1.0)


def mlp(p, x):
    x = jax.nn.relu(x @ p["w0"] + p["b0"])
    x = jnp.tanh(x @ p["w1"] + p["b1"])
    return x @ p["w2"] + p["b2"]


def layer_norm(p, x):
    x = x @ p["w0"]
    x = (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-3)
    return jax.nn.gelu(x * p["gain"] + p["bias"]) @ p["w1"]


def rms_norm(p, x):
    x = x @ p["w0"]
    return (x * jax.lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-3) * p["gain"]) @ p["w1"]


def residual(p, x):
    x = x @ p["embed"]
    for i in range(2):
        x = x + jax.nn.relu(x @ p[f"up{i}"]) @ p[f"down{i}"]
    return x @ p["head"]


def x_plus_wx(p, x):
    x = x @ p["w0"]
    x = x + jax.nn.relu(x @ p["w"])
    return x @ p["w1"]


def gated(p, x):
    x = x @ p["w0"]
    return (jax.nn.silu(x @ p["gate"]) * (x @ p["up"])) @ p["down"]


def shared(p, x):
    x = jax.nn.relu(x @ p["w0"])
    x = jax.nn.relu(x @ p["w"] + p["b"])
    x = jax.nn.relu(x @ p["w"] + p["b"])
    return x @ p["w1"]


def autoencoder_tied(p, x):
    return jax.nn.relu(x @ p["w"] + p["b"]) @ p["w"].T


def siamese(p, x):
    a, b = (jnp.tanh(jnp.tanh(z @ p["w0"]) @ p["w1"]) for z in (x, 2 * x))
    return (a * b).sum(-1)


def bilinear(p, x):
    x = x @ p["w0"]
    return jnp.einsum("ni,ijk,nj->nk", x, p["t"], x)


def outer_product(p, x):
    a, b = x @ p["a"], x @ p["b"]
    return jnp.einsum("ni,nj->nij", a, b).reshape(3, -1) @ p["w"]


def compared(p, x):
    return x @ p["w"] @ jnp.where(p["b"][:, None] > p["b"][None, :], 1.0, 0.5).sum(1)


def with_scalars(p, x):
    """Layer scale, FixUp scalars and shapes such as (1, n): discovery never looks at names."""
    x = p["alpha"] * jnp.tanh(x @ p["w0"] + p["offset"]) * p["scale"]
    return x @ p["w1"] + p["beta"]


def mixture_of_experts(p, x):
    gates = jax.nn.softmax(x @ p["router"])
    hidden = jax.nn.relu(jnp.einsum("ni,eih->neh", x, p["up"]))
    return jnp.einsum("ne,neh,eho->no", gates, hidden, p["down"])


CASES = {
    "mlp": (
        mlp,
        weights(w0=(5, 8), b0=(8,), w1=(8, 7), b1=(7,), w2=(7, 4), b2=(4,)),
        {"w0": "5 a", "b0": "a", "w1": "a b", "b1": "b", "w2": "b 4", "b2": "4"},
        {"a": 8, "b": 7},
    ),
    "mlp, all sizes equal": (
        mlp,
        weights(w0=(5, 5), b0=(5,), w1=(5, 5), b1=(5,), w2=(5, 5), b2=(5,)),
        {"w0": "5 a", "b0": "a", "w1": "a b", "b1": "b", "w2": "b 5", "b2": "5"},
        {"a": 5, "b": 5},
    ),
    "layer norm": (
        layer_norm,
        weights(w0=(5, 8), gain=(8,), bias=(8,), w1=(8, 4)),
        {"w0": "5 a", "gain": "a", "bias": "a", "w1": "a 4"},
        {"a": 8},
    ),
    "rms norm": (
        rms_norm,
        weights(w0=(5, 8), gain=(8,), w1=(8, 4)),
        {"w0": "5 a", "gain": "a", "w1": "a 4"},
        {"a": 8},
    ),
    "residual stream": (
        residual,
        weights(embed=(5, 6), up0=(6, 9), down0=(9, 6), up1=(6, 9), down1=(9, 6), head=(6, 4)),
        {"embed": "5 s", "up0": "s a", "down0": "a s", "up1": "s b", "down1": "b s", "head": "s 4"},
        {"s": 6, "a": 9, "b": 9},
    ),
    "x + W x": (x_plus_wx, weights(w0=(5, 6), w=(6, 6), w1=(6, 4)), {"w0": "5 a", "w": "a a", "w1": "a 4"}, {"a": 6}),
    "gated": (
        gated,
        weights(w0=(5, 6), gate=(6, 8), up=(6, 8), down=(8, 4)),
        {"w0": "5 a", "gate": "a b", "up": "a b", "down": "b 4"},
        {"a": 6, "b": 8},
    ),
    "weights of two layers shared": (
        shared,
        weights(w0=(5, 6), w=(6, 6), b=(6,), w1=(6, 4)),
        {"w0": "5 a", "w": "a a", "b": "a", "w1": "a 4"},
        {"a": 6},
    ),
    "autoencoder with tied weights": (autoencoder_tied, weights(w=(5, 6), b=(6,)), {"w": "5 a", "b": "a"}, {"a": 6}),
    "siamese, output summed": (siamese, weights(w0=(5, 6), w1=(6, 7)), {"w0": "5 a", "w1": "a b"}, {"a": 6, "b": 7}),
    "bilinear": (bilinear, weights(w0=(5, 6), t=(6, 6, 4)), {"w0": "5 a", "t": "a a 4"}, {"a": 6}),
    "outer product": (
        outer_product,
        weights(a=(5, 3), b=(5, 4), w=(12, 2)),
        {"a": "5 a", "b": "5 b", "w": "a*b 2"},
        {"a": 3, "b": 4},
    ),
    "units compared with each other": (compared, weights(w=(5, 6), b=(6,)), {"w": "5 a", "b": "a"}, {"a": 6}),
    "scalars and unusual shapes": (
        with_scalars,
        weights(alpha=(1,), w0=(5, 6), offset=(1, 6), scale=(1, 6), w1=(6, 4), beta=(1, 4)),
        {"alpha": "1", "w0": "5 a", "offset": "1 a", "scale": "1 a", "w1": "a 4", "beta": "1 4"},
        {"a": 6},
    ),
    "mixture of experts": (
        mixture_of_experts,
        weights(router=(5, 3), up=(3, 5, 6), down=(3, 6, 4)),
        {"router": "5 e", "up": "e 5 h", "down": "e h 4"},
        {"e": 3, "h": 6},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_groups_are_those_of_theory(name):
    apply, params, expected, sizes = CASES[name]
    check_model(apply, params, X, expected, sizes)


def test_input_and_output_are_fixed_and_say_so():
    params = weights(w0=(5, 8), b0=(8,), w1=(8, 7), b1=(7,), w2=(7, 4), b2=(4,))
    spec = bayesin.discover(mlp, params, X)
    assert reasons(spec, "w0") == ["joined to the input", ""]
    assert reasons(spec, "w2") == ["", "output"]
    assert reasons(spec, "b2") == ["output"]


def test_groups_are_numbered_in_the_order_of_the_computation():
    params = {f"layer{i}": {"w": normal(i, *shape)} for i, shape in enumerate([(5, 6)] + [(6, 6)] * 11 + [(6, 2)])}

    def apply(p, x):
        for i in range(13):
            x = jnp.tanh(x @ p[f"layer{i}"]["w"])  # sorted by name, layer10 comes before layer2
        return x

    spec = bayesin.discover(apply, params, X)
    assert [spec.axes[f"layer{i}/w"][1][0].group for i in range(12)] == [f"g{i}" for i in range(12)]


def test_what_does_not_reach_the_output_is_fixed():
    def apply(p, x):
        x = jax.nn.relu(x @ p["w0"])
        jnp.sort(x @ p["dead"])  # an order-dependent use that does not matter either
        return jax.jit(lambda p, x: x @ p["w1"])(p, x)

    params = weights(w0=(5, 6), dead=(6, 6), w1=(6, 4))
    spec = check_model(apply, params, X, {"w0": "5 a", "dead": "6 6", "w1": "a 4"}, {"a": 6})
    assert reasons(spec, "dead") == ["does not reach the output"] * 2


def test_only_shapes_are_looked_at():
    params = weights(w0=(5, 8), b0=(8,), w1=(8, 7), b1=(7,), w2=(7, 4), b2=(4,))
    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), params)
    spec = bayesin.discover(mlp, shapes, jax.ShapeDtypeStruct((2, 5), np.float32))
    assert spec == bayesin.discover(mlp, params, X)
    assert bayesin.verify(mlp, shapes, jax.ShapeDtypeStruct((2, 5), np.float32), spec, key=jax.random.key(0)) < 1e-10


def test_any_tree_of_arrays_will_do():
    """Lists, tuples and dicts of inputs; lists of layers."""

    def apply(p, x):
        hidden = jnp.tanh(x["a"] @ p[0][0] + x["b"][0] @ p[0][1])
        return {"logits": hidden @ p[1], "norm": (hidden**2).sum(-1)}

    params = [(normal(0, 5, 6), normal(1, 3, 6)), normal(2, 6, 4)]
    x = {"a": X, "b": (normal(4, 3, 3),)}
    check_model(apply, params, x, {"0/0": "5 a", "0/1": "3 a", "1": "a 4"}, {"a": 6})
