"""Bad input: one line of our own that says what and where, never a traceback of JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayesin
from bayesin.errors import ModelError
from symmetry_checks import normal, weights

X = normal(1, 2, 5, scale=1.0)
PARAMS = weights(w0=(5, 6), w1=(6, 3))


def mlp(p, x):
    return jnp.tanh(x @ p["w0"]) @ p["w1"]


def looks_at_values(p, x):
    return mlp(p, x) if p["w0"].sum() > 0 else x


def looks_at_values_later(p, x):
    return mlp(p, x) * float(p["w0"][0, 0])


def uses_numpy(p, x):
    return np.tanh(np.asarray(x @ p["w0"])) @ p["w1"]


def counts_by_value(p, x):
    return jnp.arange(x[0, 0]) * mlp(p, x)


def misspells(p, x):
    return x @ p["w2"]


def fails(p, x):
    raise RuntimeError("first line\nsecond line")


def returns_nothing(p, x):
    mlp(p, x)


def returns_words(p, x):
    return "logits"


CASES = {
    "branch on values": (looks_at_values, PARAMS, X, "cannot be traced, since it looks at values"),
    "float of values": (looks_at_values_later, PARAMS, X, "cannot be traced, since it looks at values"),
    "numpy on values": (uses_numpy, PARAMS, X, "cannot be traced, since it looks at values.*jax.numpy"),
    "shape from values": (counts_by_value, PARAMS, X, "cannot be traced, since it looks at values"),
    "unknown parameter": (misspells, PARAMS, X, "apply fails.*KeyError: 'w2'"),
    "raises": (fails, PARAMS, X, "apply fails.*RuntimeError: first line$"),
    "no function": ("mlp", PARAMS, X, "apply must be a function of .params, x., not str"),
    "one argument": (lambda p: p["w0"], PARAMS, X, "apply fails.*positional argument"),
    "returns nothing": (returns_nothing, PARAMS, X, "apply returns no arrays"),
    "returns words": (returns_words, PARAMS, X, "apply fails.*TypeError"),
    "wrong input": (mlp, PARAMS, X[:, :4], r"apply fails on params and an input of shape \(2, 4\).*dot_general"),
    "wrong input in a dict": (lambda p, x: mlp(p, x["a"]), PARAMS, {"a": X[:, :4]}, r"a shape \(2, 4\)"),
    "no parameters": (mlp, {}, X, "params has no arrays"),
    "nested nothing": (mlp, {"a": {"b": {}}, "c": None}, X, "params has no arrays"),
    "a word": (mlp, PARAMS | {"name": "mlp"}, X, "params: 'name' is no array but str"),
    "a number": (mlp, PARAMS | {"rate": 0.5}, X, "params: 'rate' is no array but float"),
    "a function": (mlp, PARAMS | {"act": {"f": jnp.tanh}}, X, "params: 'act/f' is no array but"),
    "an array of objects": (mlp, PARAMS | {"w0": np.array([None, "a"])}, X, "params: 'w0' holds object"),
    "an empty array": (mlp, PARAMS | {"w0": np.zeros((5, 0))}, X, r"params: 'w0' is empty: its shape is \(5, 0\)"),
    "no input": (mlp, PARAMS, None, "x has no arrays"),
    "an input that is a list": (mlp, PARAMS, [[1.0, 2.0]], "x: '0/0' is no array but float"),
    "an empty input": (mlp, PARAMS, X[:0], r"x is empty: its shape is \(0, 5\)"),
    "keys that cannot be sorted": (mlp, {1: X, "a": X}, X, "params is no tree of arrays"),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_one_clear_line(name):
    apply, params, x, message = CASES[name]
    with pytest.raises(ModelError, match=message) as caught:
        bayesin.discover(apply, params, x)
    assert "\n" not in str(caught.value)
    spec = bayesin.discover(mlp, PARAMS, X)
    with pytest.raises(bayesin.errors.BayesinError) as caught:
        bayesin.verify(apply, params, x, spec, key=jax.random.key(0))
    assert "\n" not in str(caught.value)


def test_errors_of_our_own_pass_through():
    def apply(p, x):
        raise ModelError("this model wants images")

    with pytest.raises(ModelError) as caught:
        bayesin.discover(apply, PARAMS, X)
    assert str(caught.value) == "this model wants images"


@pytest.mark.parametrize("kind", ["int8", "int32", "uint8", "bool", "float16", "bfloat16", "complex64"])
def test_leaves_of_any_number_type_work(kind):
    def apply(p, x):
        return jnp.tanh(x @ jnp.abs(p["w0"]).astype(jnp.float32)) @ p["w1"]

    params = PARAMS | {"w0": jnp.asarray(10 * PARAMS["w0"]).astype(kind)}
    spec = bayesin.discover(apply, params, X)
    assert spec.sizes == {"g0": 6}
    assert bayesin.verify(apply, params, X, spec, key=jax.random.key(0)) < 1e-2


def test_random_keys_may_be_leaves():
    def apply(p, x):
        return mlp(p, x) + jax.random.normal(p["key"], (3,))

    spec = bayesin.discover(apply, PARAMS | {"key": jax.random.key(0)}, X)
    assert spec.sizes == {"g0": 6}
    assert bayesin.verify(apply, PARAMS | {"key": jax.random.key(0)}, X, spec, key=jax.random.key(0)) < 1e-10


def test_values_of_the_caller_are_not_touched():
    params = {path: leaf.copy() for path, leaf in PARAMS.items()}
    for leaf in params.values():
        leaf.setflags(write=False)
    bayesin.discover(mlp, params, X)
    assert list(params) == list(PARAMS)


def test_nothing_of_the_tracing_settings_leaks():
    bayesin.verify(mlp, PARAMS, X, bayesin.discover(mlp, PARAMS, X), key=jax.random.key(0))
    assert jnp.ones(1).dtype == jnp.float32
    assert jax.config.jax_default_matmul_precision is None
