"""The built-in models against plain numpy, and the promises of `build`."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from bayesin import models
from bayesin.errors import ConfigError, ModelError
from bayesin.jaxprs import equations
from bayesin.models.networks import EPSILON, FilterResponseNorm, Threshold
from bayesin.trees import flatten, map_with_path

KEY = jax.random.key(0, impl="unsafe_rbg")  # its bits take much less time to compile
jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})  # small programs, run once


@pytest.fixture(autouse=True)
def full_precision():
    """Accelerators multiply in less than single precision by default; the formulas here are exact."""
    with jax.default_matmul_precision("highest"):
        yield


def _random_params(model, seed=0):
    """Values for every leaf, drawn on the host: initialisers would leave biases and thresholds at zero."""
    draws = np.random.default_rng(seed)
    shapes = jax.eval_shape(model.init, KEY)
    return map_with_path(lambda path, leaf: draws.normal(0, 0.5, leaf.shape).astype(np.float32), shapes)


def _input(*shape):
    return np.random.default_rng(9).normal(size=shape).astype(np.float32)


def test_mlp_is_the_textbook_formula():
    model = models.build("mlp", (4, 4, 2), 5, width=6, depth=2)
    params, x = _random_params(model), _input(3, 4, 4, 2)
    hidden = x.reshape(3, 32)
    for name in ("0", "1"):
        hidden = np.maximum(hidden @ params["layers"][name]["kernel"] + params["layers"][name]["bias"], 0)
    expected = hidden @ params["layers"]["2"]["kernel"] + params["layers"]["2"]["bias"]
    np.testing.assert_allclose(model.apply(params, x), expected, rtol=1e-5, atol=1e-5)


def test_an_mlp_without_hidden_layers_is_linear():
    model = models.build("mlp", (3,), 2, depth=0)
    params = _random_params(model)
    expected = np.eye(3) @ params["layers"]["0"]["kernel"] + params["layers"]["0"]["bias"]
    np.testing.assert_allclose(model.apply(params, jnp.eye(3)), expected, rtol=1e-6)


def _convolve(x, kernel, stride):
    """A 3 × 3 convolution as nine shifted products; zeros are added as XLA's "SAME" does."""
    size = -(-x.shape[1] // stride)
    total = max((size - 1) * stride + 3 - x.shape[1], 0)
    low, high = total // 2, total - total // 2
    padded = np.pad(x, ((0, 0), (low, high), (low, high), (0, 0)))
    end = (size - 1) * stride + 1
    return sum(
        padded[:, i : i + end : stride, j : j + end : stride] @ kernel[i, j] for i in range(3) for j in range(3)
    )


def _layer_norm(x, p):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON) * p["scale"] + p["bias"]


def _filter_response_norm(x, p):
    return p["gamma"] * x / np.sqrt((x**2).mean((1, 2), keepdims=True) + EPSILON) + p["beta"]


def _resnet20(params, x, norm):
    """The network written out in double precision, with no layer of ours."""

    def conv_norm(x, p, stride=1):
        return (_filter_response_norm if norm == "frn" else _layer_norm)(
            _convolve(x, p["conv"]["kernel"], stride), p["norm"]
        )

    def rectify(x, p, name):
        return np.maximum(x, p[name]["tau"] if norm == "frn" else 0)

    x = rectify(conv_norm(x, params["stem"]), params, "stem_rectify")
    for number in range(9):
        p = params["blocks"][str(number)]
        stride = 2 if number in (3, 6) else 1
        branch = conv_norm(rectify(conv_norm(x, p["first"], stride), p, "rectify_first"), p["second"])
        shortcut = conv_norm(x, p["shortcut"], 2) if stride == 2 else x
        x = rectify(shortcut + branch, p, "rectify")
    return x.mean((1, 2)) @ params["dense"]["kernel"] + params["dense"]["bias"]


@pytest.mark.parametrize("norm", ["layernorm", "frn"])
@pytest.mark.parametrize("size", [8, 7])
def test_resnet20_is_the_network_written_out(norm, size):
    model = models.build("resnet20", (size, size, 3), 4, width=2, norm=norm)
    params, x = _random_params(model), _input(2, size, size, 3)
    double = jax.tree.map(lambda leaf: leaf.astype(np.float64), params)
    expected = _resnet20(double, x.astype(np.float64), norm)
    np.testing.assert_allclose(jit(model.apply)(params, x), expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


@pytest.mark.parametrize("norm, vectors", [("layernorm", 2), ("frn", 2)])
def test_resnet20_has_the_published_layers(norm, vectors):
    model = models.build("resnet20", (32, 32, 3), 10, norm=norm)
    flat = {path: leaf.shape for path, leaf in flatten(jax.eval_shape(model.init, KEY)).items()}
    kernels = sorted(shape for path, shape in flat.items() if path.endswith("conv/kernel"))
    stages = [(16, 16)] * 6 + [(16, 32)] * 2 + [(32, 32)] * 5 + [(32, 64)] * 2 + [(64, 64)] * 5
    assert kernels == sorted([(3, 3, 3, 16), *((3, 3, *pair) for pair in stages)])
    norms = [path for path in flat if "/norm/" in path]
    assert len(norms) == vectors * len(kernels)
    thresholds = [path for path in flat if path.endswith("tau")]
    assert len(thresholds) == (19 if norm == "frn" else 0)  # one for every ReLU
    assert flat["dense/kernel"] == (64, 10) and flat["dense/bias"] == (10,)
    assert "stem/conv/bias" not in flat


@pytest.mark.parametrize("name, shape", [("mlp", (8, 8, 1)), ("resnet20", (8, 8, 3))])
def test_kernels_start_he_normal_and_the_rest_at_the_identity(name, shape):
    params = models.build(name, shape, 10, width=16 if name == "resnet20" else 64).init(KEY)
    for path, leaf in flatten(params).items():
        if path.endswith("kernel"):
            deviation = np.sqrt(2 / np.prod(leaf.shape[:-1]))
            # the standard error of a sample's deviation is at most deviation / sqrt(2 n) here: tails are cut
            assert abs(np.std(leaf) - deviation) < 5 * deviation / np.sqrt(2 * leaf.size)
            assert abs(np.mean(leaf)) < 5 * deviation / np.sqrt(leaf.size)
        else:
            assert (leaf == (1 if path.endswith("scale") else 0)).all()


def test_every_layer_has_its_own_bits_and_the_key_decides():
    model = models.build("mlp", (8,), 8, width=8, depth=2)
    kernels = [leaf for path, leaf in flatten(model.init(KEY)).items() if path.endswith("kernel")]
    assert not np.array_equal(kernels[0], kernels[1])
    other = model.init(jax.random.key(1, impl="unsafe_rbg"))
    assert not np.array_equal(kernels[0], other["layers"]["0"]["kernel"])


def test_init_is_the_module_made_by_hand():
    key = jax.random.key(5)
    params = models.build("mlp", (3,), 2, width=4, depth=1).init(key)
    module = models.MLP(3, 2, width=4, depth=1, rngs=nnx.Rngs(key))
    np.testing.assert_allclose(params["layers"]["0"]["kernel"], module.layers[0].kernel[...], rtol=1e-6)
    np.testing.assert_allclose(params["layers"]["1"]["kernel"], module.layers[1].kernel[...], rtol=1e-6)


def test_filter_response_norm_forgets_the_scale_of_a_channel():
    layer, x = FilterResponseNorm(3), 5 * _input(2, 4, 4, 3)
    y = layer(x)
    np.testing.assert_allclose((y**2).mean((1, 2)), 1, rtol=1e-5)
    np.testing.assert_allclose(layer(x * np.array([2.0, 30.0, 0.5], np.float32)), y, rtol=1e-4, atol=1e-5)


def test_threshold_starts_as_relu_and_learns_below_zero():
    layer = Threshold(2)
    x = jnp.array([[-3.0, 2.0]])
    assert layer(x).tolist() == [[0, 2]]
    layer.tau[...] = jnp.array([-1.0, 4.0])
    assert layer(x).tolist() == [[-1, 4]]


def test_the_same_settings_are_the_same_functions_so_that_programs_are_compiled_once():
    net = models.build("mlp", (8, 8, 1), 10, width=4)
    assert models.build("mlp", [8, 8, 1], 10, width=4, norm="frn").apply is net.apply  # it has no norm
    others = (dict(width=5), dict(width=4, depth=2), dict(width=4, dtype=jnp.bfloat16))
    assert all(models.build("mlp", (8, 8, 1), 10, **other).apply is not net.apply for other in others)


@pytest.mark.promotes  # flax's LayerNorm does
@pytest.mark.parametrize("name, norm", [("mlp", "layernorm"), ("resnet20", "layernorm"), ("resnet20", "frn")])
def test_bfloat16_computes_in_bfloat16_on_float32_parameters(name, norm):
    half, single = (models.build(name, (8, 8, 1), 4, width=8, norm=norm, dtype=d) for d in (jnp.bfloat16, None))
    params, x = _random_params(half), _input(3, 8, 8, 1)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(jax.eval_shape(half.init, KEY)))
    jaxpr = jax.make_jaxpr(half.apply)(params, x)
    heavy = [e for e in equations(jaxpr.jaxpr) if e.primitive.name in ("dot_general", "conv_general_dilated")]
    assert heavy and all(var.aval.dtype == jnp.bfloat16 for eqn in heavy for var in eqn.invars)
    assert jaxpr.out_avals[0].dtype == jnp.float32
    if (name, norm) == ("resnet20", "layernorm"):
        return  # compiling it takes seconds, and shows no more than the other two
    logits, expected = jit(half.apply)(params, x), jit(single.apply)(params, x)
    # eight bits, some twenty roundings on the way, each up to 2^-8 of the value
    assert np.abs(logits - expected).max() < 20 * 2**-8 * np.abs(expected).max()


@pytest.mark.promotes  # flax's LayerNorm does
@pytest.mark.parametrize("name", ["mlp", "resnet20"])
def test_double_precision_parameters_compute_in_double_precision(name):
    model = models.build(name, (8, 8, 1), 4, width=2)
    with jax.enable_x64(True):
        params = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), _random_params(model))
        assert jax.eval_shape(model.apply, params, jnp.ones((2, 8, 8, 1), jnp.float64)).dtype == jnp.float64


def test_apply_is_traced_once():
    model = models.build("mlp", (8,), 4, width=8)
    apply = jit(model.apply)
    for seed in range(3):
        apply(_random_params(model, seed), _input(2, 8))
    assert apply._cache_size() == 1


BAD = {
    "typo": (dict(name="resnet"), "did you mean 'resnet20'?"),
    "case": (dict(name="MLP"), "did you mean 'mlp'?"),
    "unknown": (dict(name="transformer"), "choose mlp or resnet20"),
    "width": (dict(width=0), "width must be a whole number of at least 1, not 0"),
    "depth": (dict(depth=-1), "depth must be a whole number of at least 0"),
    "classes": (dict(classes=None), "classes must be a whole number"),
    "fraction": (dict(width=1.5), "width must be a whole number"),
    "shape": (dict(input_shape=(8, 0)), "every size of the input shape"),
    "not images": (dict(name="resnet20", input_shape=(64,)), "resnet20 takes images"),
    "norm": (dict(name="resnet20", norm="batchnorm"), "there is no norm 'batchnorm'; choose layernorm or frn"),
}


@pytest.mark.parametrize("change, message", BAD.values(), ids=BAD.keys())
def test_settings_without_meaning_are_refused(change, message):
    arguments = dict(name="mlp", input_shape=(8, 8, 1), classes=10) | change
    name, shape, classes = (arguments.pop(word) for word in ("name", "input_shape", "classes"))
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")):
        models.build(name, shape, classes, **arguments)


def test_an_input_of_the_wrong_size_is_our_error():
    model = models.build("mlp", (8, 8, 1), 10, width=4)
    with pytest.raises(ModelError, match=r"mlp failed on an input of shape \(2, 7, 7, 1\)"):
        model.apply(_random_params(model), jnp.ones((2, 7, 7, 1)))
