"""Every adapter, on models that its library ships: the adapted model is the library's own.

The oracle is the library itself: its object, made from the same key and called in its own way, never touches
our nested dicts.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from bayesin import models
from bayesin.errors import ModelError
from bayesin.trees import flatten, unflatten

KEY = jax.random.key(3, impl="unsafe_rbg")  # its bits take much less time to compile
jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})  # small programs, run once
OTHER = jax.random.key(4, impl="unsafe_rbg")
IMAGES = (4, 8, 8, 3)
VECTORS = (4, 6)
TOKENS = (4, 5, 8)


class Case(NamedTuple):
    """A model in its library's words: the adapter's argument, and how the library itself gets the output."""

    adapted: Callable[[], models.Model]
    library: Callable[[Any, Any], Any]  # (key, x) -> output
    shape: tuple[int, ...]
    statistics: int = 0  # how many leaves are statistics


def _input(shape):
    return jax.random.normal(jax.random.key(1), shape)


def _nnx_convolutions(rngs):
    return nnx.Sequential(
        nnx.Conv(3, 4, (3, 3), rngs=rngs),
        nnx.BatchNorm(4, rngs=rngs),
        nnx.relu,
        nnx.Dropout(0.5, rngs=rngs),
        nnx.Conv(4, 2, (3, 3), strides=2, rngs=rngs),
    )


def _nnx_attention(rngs):
    return nnx.MultiHeadAttention(num_heads=2, in_features=8, decode=False, dropout_rate=0.5, rngs=rngs)


def _nnx_recurrent(rngs):
    return nnx.RNN(nnx.LSTMCell(8, 6, rngs=rngs), rngs=rngs)


def _nnx_lora(rngs):
    return nnx.LoRALinear(6, 3, lora_rank=2, rngs=rngs)


def _run_nnx(constructor, key, x):
    module = constructor(rngs=nnx.Rngs(key))
    module.eval()
    return module(x)


def _nnx(constructor, shape, statistics=0):
    return Case(lambda: models.from_nnx(constructor), partial(_run_nnx, constructor), shape, statistics)


def _linen(module, shape, statistics=0, **options):
    def library(key, x):
        return module.apply(module.init(key, x, **options), x, **options)

    return Case(lambda: models.from_linen(module, _input(shape), **options), library, shape, statistics)


def _equinox(constructor, shape, statistics=0):
    def library(key, x):
        made = constructor(key=key)
        if isinstance(made, tuple):
            module, state = made
            run = eqx.nn.inference_mode(module)
            return jnp.stack([run(example, state)[0] for example in x])
        return jnp.stack([eqx.nn.inference_mode(made)(example) for example in x])

    return Case(lambda: models.from_equinox(constructor), library, shape, statistics)


def _haiku(function, shape, statistics=0, **options):
    stateful = statistics > 0
    transformed = (hk.transform_with_state if stateful else hk.transform)(function)

    def library(key, x):
        made = transformed.init(key, x, **{option: True for option in options})  # the option is is_training
        if stateful:
            return transformed.apply(*made, None, x, **options)[0]
        return transformed.apply(made, None, x, **options)

    return Case(lambda: models.from_haiku(transformed, _input(shape), **options), library, shape, statistics)


def _equinox_sequential(key):
    first, second = jax.random.split(key)
    return eqx.nn.Sequential(
        [
            eqx.nn.Conv2d(8, 4, 3, padding=1, key=first),
            eqx.nn.BatchNorm(4, "batch", mode="batch"),
            eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.Dropout(0.5),
            eqx.nn.Conv2d(4, 2, 3, key=second),
        ]
    )


def _equinox_attention(key):
    class SelfAttention(eqx.Module):
        attention: eqx.nn.MultiheadAttention

        def __call__(self, x):
            return self.attention(x, x, x)

    return SelfAttention(eqx.nn.MultiheadAttention(2, 8, dropout_p=0.5, key=key))


CASES = {
    "nnx Linear": _nnx(lambda rngs: nnx.Linear(6, 3, rngs=rngs), VECTORS),
    "nnx partial": _nnx(partial(nnx.Linear, 6, 3), VECTORS),
    "nnx Sequential of Conv, BatchNorm, Dropout": _nnx(_nnx_convolutions, IMAGES, statistics=2),
    "nnx MultiHeadAttention": _nnx(_nnx_attention, TOKENS),
    "nnx RNN of LSTMCell": _nnx(_nnx_recurrent, TOKENS),
    "nnx LoRALinear": _nnx(_nnx_lora, VECTORS),
    "linen Dense": _linen(nn.Dense(3), VECTORS),
    "linen Sequential": _linen(nn.Sequential([nn.Dense(5), nn.relu, nn.Dense(3)]), VECTORS),
    "linen Conv": _linen(nn.Sequential([nn.Conv(4, (3, 3)), nn.GroupNorm(2), nn.relu]), IMAGES),
    "linen BatchNorm": _linen(nn.BatchNorm(), VECTORS, statistics=2, use_running_average=True),
    "linen MultiHeadDotProductAttention": _linen(
        nn.MultiHeadDotProductAttention(num_heads=2, dropout_rate=0.5), TOKENS, deterministic=True
    ),
    "linen RNN of OptimizedLSTMCell": _linen(nn.RNN(nn.OptimizedLSTMCell(6)), TOKENS),
    "linen SpectralNorm": _linen(nn.SpectralNorm(nn.Dense(3)), VECTORS, statistics=2, update_stats=False),
    "equinox MLP": _equinox(partial(eqx.nn.MLP, 6, 3, 8, 2), VECTORS),
    "equinox Sequential of Conv2d, BatchNorm, Dropout": _equinox(
        eqx.nn.make_with_state(_equinox_sequential), (4, 8, 8, 8), statistics=3
    ),
    "equinox MultiheadAttention": _equinox(_equinox_attention, TOKENS),
    "equinox GroupNorm": _equinox(lambda key: eqx.nn.GroupNorm(2, 8), (4, 8, 3)),
    "haiku MLP": _haiku(lambda x: hk.nets.MLP([8, 3])(x), VECTORS),
    "haiku MultiHeadAttention": _haiku(
        lambda x: hk.MultiHeadAttention(2, 4, w_init=hk.initializers.VarianceScaling(), model_size=8)(x, x, x), TOKENS
    ),
    "haiku LSTM": _haiku(
        lambda x: hk.dynamic_unroll(hk.LSTM(6), x, hk.LSTM(6).initial_state(len(x)), time_major=False)[0], TOKENS
    ),
    "haiku BatchNorm": _haiku(
        lambda x, is_training: hk.BatchNorm(True, True, 0.9)(hk.Linear(5)(x), is_training),
        VECTORS,
        statistics=6,
        is_training=False,
    ),
}


# Haiku's own norm mixes dtypes.
MARKED = [pytest.param(CASES[name], marks=[pytest.mark.promotes] * (name == "haiku BatchNorm")) for name in CASES]


@pytest.fixture(scope="module", params=MARKED, ids=CASES.keys())
def case(request):
    return request.param


@pytest.fixture(scope="module")
def model(case):
    return case.adapted()


@pytest.fixture(scope="module")
def params(model):
    return model.init(KEY)


@pytest.fixture(scope="module")
def x(case):
    return _input(case.shape)


@pytest.fixture(scope="module")
def output(model, params, x):
    return jit(model.apply)(params, x)


def test_output_is_the_librarys_own(case, x, output):
    np.testing.assert_allclose(output, jit(case.library)(KEY, x), rtol=1e-4, atol=1e-5)


def test_params_are_a_nested_dict_of_arrays_and_only_statistics_may_be_whole_numbers(case, model, params):
    def check(node):
        if isinstance(node, dict):
            for key, child in node.items():
                assert isinstance(key, str)
                check(child)
        else:
            assert isinstance(node, jax.Array)

    assert isinstance(params, dict) and params
    check(params)
    whole = {path for path, leaf in flatten(params).items() if not jnp.issubdtype(leaf.dtype, jnp.floating)}
    assert whole <= model.statistics
    assert model.statistics <= set(flatten(params))
    assert len(model.statistics) == case.statistics


def test_init_follows_the_key_alone(model, params):
    again = model.init(KEY)
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(params), jax.tree.leaves(again), strict=True))


def test_init_can_be_mapped(model, params):
    stack = jax.eval_shape(jax.vmap(model.init), jax.random.split(KEY, 2))
    for one, two in zip(jax.tree.leaves(params), jax.tree.leaves(stack), strict=True):
        assert two.shape == (2, *one.shape)


def test_apply_can_be_mapped_over_a_stack(model, params, x, output):
    stack = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf + 1]), params)
    stacked = jit(jax.vmap(model.apply, in_axes=(0, None)))(stack, x)
    assert stacked.shape == (2, *output.shape)
    np.testing.assert_allclose(stacked[0], output, rtol=1e-4, atol=1e-5)


def test_apply_is_traced_without_effects(model, params, x, output):
    jaxpr = jax.make_jaxpr(model.apply)(params, x)
    assert not jaxpr.effects
    assert jaxpr.out_avals[0].shape == output.shape


def test_a_missing_or_unknown_parameter_is_named(model, params, x):
    with pytest.raises(ModelError, match="'extra' is unknown"):
        model.apply({**params, "extra": jnp.zeros(())}, x)
    first = next(iter(flatten(params)))
    lacking = unflatten({path: leaf for path, leaf in flatten(params).items() if path != first})
    with pytest.raises(ModelError, match=f"'{re.escape(first)}' is missing"):
        model.apply(lacking, x)


def test_an_input_of_the_wrong_shape_is_our_error(model, params):
    with pytest.raises(ModelError, match=r"failed on an input of shape \(2, 9, 1, 9, 9\)"):
        model.apply(params, jnp.zeros((2, 9, 1, 9, 9)))


def test_trained_nnx_statistics_are_leaves_and_the_module_is_not_changed():
    module = _nnx_convolutions(nnx.Rngs(OTHER))
    module.train()
    x = 3 + 2 * jax.random.normal(jax.random.key(1), IMAGES)
    module(x)  # moves the running statistics
    model = models.from_nnx(module)
    params = model.init(KEY)
    assert module.layers[1].use_running_average is False
    assert model.statistics == {"layers/1/mean", "layers/1/var"}
    np.testing.assert_array_equal(params["layers"]["1"]["mean"], module.layers[1].mean[...])
    assert float(jnp.abs(params["layers"]["1"]["mean"]).min()) > 0
    module.eval()
    np.testing.assert_allclose(model.apply(params, x), module(x), rtol=1e-6, atol=1e-6)


def test_values_return_to_an_nnx_module():
    module = _nnx_convolutions(nnx.Rngs(OTHER))
    params = models.from_nnx(_nnx_convolutions).init(KEY)
    filled = models.into_nnx(params, module)
    x = jax.random.normal(jax.random.key(1), IMAGES)
    filled.eval()
    np.testing.assert_allclose(filled(x), _run_nnx(_nnx_convolutions, KEY, x), rtol=1e-6, atol=1e-6)  # jit rounds
    assert not np.array_equal(module.layers[0].kernel[...], filled.layers[0].kernel[...])


@pytest.mark.parametrize(
    "constructor",
    [partial(eqx.nn.MLP, 6, 3, 8, 2), eqx.nn.make_with_state(_equinox_sequential)],
    ids=["plain", "state"],
)
def test_values_return_to_an_equinox_module(constructor):
    shapes = eqx.filter_eval_shape(constructor, key=KEY)
    empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype) if _is_shape(leaf) else leaf, shapes)
    draws = np.random.default_rng(0)
    wanted = jax.tree.map(lambda leaf: draws.normal(size=leaf.shape), models.from_equinox(empty).init(KEY))
    filled = models.into_equinox(wanted, empty)
    assert jax.tree.structure(filled) == jax.tree.structure(empty)
    found = models.from_equinox(filled).init(KEY)
    assert all(map(np.array_equal, jax.tree.leaves(found), jax.tree.leaves(wanted)))


def _is_shape(leaf):
    return isinstance(leaf, jax.ShapeDtypeStruct)


def test_trained_linen_variables_fit_as_they_are():
    module = nn.BatchNorm(use_running_average=False)
    x = 3 + 2 * jax.random.normal(jax.random.key(1), VECTORS)
    variables = module.init(KEY, x)
    _, updates = module.apply(variables, x, mutable=["batch_stats"])
    variables = {**variables, **updates}
    evaluation = nn.BatchNorm(use_running_average=True)
    model = models.from_linen(evaluation, x)
    np.testing.assert_array_equal(model.apply(variables, x), evaluation.apply(variables, x))
    assert model.statistics == {"batch_stats/mean", "batch_stats/var"}


def test_linen_in_training_mode_is_refused_with_the_remedy():
    module, x = nn.BatchNorm(use_running_average=False), jnp.ones(VECTORS)
    model = models.from_linen(module, x)
    with pytest.raises(ModelError, match="failed on an input of shape"):
        model.apply(model.init(KEY), x)


def test_linen_partitioning_boxes_are_opened():
    kernel = nn.with_partitioning(nn.initializers.lecun_normal(), (None, "model"))
    model = models.from_linen(nn.Dense(3, kernel_init=kernel), jax.ShapeDtypeStruct(VECTORS, jnp.float32))
    params = model.init(KEY)
    assert set(flatten(params)) == {"params/kernel", "params/bias"}
    assert model.apply(params, jnp.ones(VECTORS)).shape == (4, 3)


def test_shared_nnx_weights_are_one_leaf():
    class Tied(nnx.Module):
        def __init__(self, rngs):
            self.first = nnx.Linear(6, 6, rngs=rngs)
            self.second = self.first

        def __call__(self, x):
            return self.second(nnx.relu(self.first(x)))

    model = models.from_nnx(Tied)
    assert set(flatten(model.init(KEY))) == {"first/kernel", "first/bias"}
    x = jnp.ones(VECTORS)
    np.testing.assert_allclose(model.apply(model.init(KEY), x), _run_nnx(Tied, KEY, x), rtol=1e-6)


def test_shared_equinox_weights_are_one_leaf():
    def constructor(key):
        layers = eqx.nn.Linear(6, 6, use_bias=False, key=key), eqx.nn.Linear(6, 6, use_bias=False, key=key)
        where, get = (lambda pair: pair[1].weight), (lambda pair: pair[0].weight)
        shared = eqx.nn.Shared(layers, where, get)

        class Tied(eqx.Module):
            shared: eqx.nn.Shared

            def __call__(self, x):
                first, second = self.shared()
                return second(jax.nn.relu(first(x)))

        return Tied(shared)

    model = models.from_equinox(constructor)
    params = model.init(KEY)
    assert len(flatten(params)) == 1
    (weight,) = flatten(params).values()
    x = jax.random.normal(jax.random.key(1), VECTORS)
    np.testing.assert_allclose(model.apply(params, x), jax.nn.relu(x @ weight.T) @ weight.T, rtol=1e-5, atol=1e-6)


def test_batched_equinox_module_takes_the_whole_batch():
    class Mean(eqx.Module):
        scale: jax.Array

        def __call__(self, x):
            return self.scale[None] * (x - x.mean(0, keepdims=True))

    x = jax.random.normal(jax.random.key(1), VECTORS)
    model = models.from_equinox(Mean(jnp.ones(6)), batched=True)
    np.testing.assert_allclose(model.apply(model.init(KEY), x), x - x.mean(0, keepdims=True), rtol=1e-6)


def test_functions_with_any_tree():
    class Pair(NamedTuple):
        weight: Any
        bias: Any

    def init(key):
        layers = [Pair(jax.random.normal(k, (3, 3)), jnp.zeros(3)) for k in jax.random.split(key, 2)]
        return {"layers": layers, "scale": {7: (jnp.ones(3), None)}, "count": jnp.asarray(5)}

    def apply(params, x):
        for layer in params["layers"]:
            x = jnp.tanh(x @ layer.weight + layer.bias[None])
        return x * params["scale"][7][0][None] * params["count"].astype(x.dtype)

    model = models.from_functions(init, apply, statistics=["scale/7/0"])
    params = model.init(KEY)
    assert set(flatten(params)) == {
        "layers/0/weight",
        "layers/0/bias",
        "layers/1/weight",
        "layers/1/bias",
        "scale/7/0",
    }
    assert model.statistics == {"scale/7/0"}
    x = jnp.ones((2, 3))
    np.testing.assert_allclose(model.apply(params, x), apply(init(KEY), x), rtol=1e-6)


def test_functions_whose_parameters_are_one_array():
    model = models.from_functions(lambda key: jax.random.normal(key, (3, 2)), lambda w, x: x @ w)
    params = model.init(KEY)
    assert list(params) == ["params"]
    np.testing.assert_allclose(model.apply(params, jnp.eye(3)), params["params"], rtol=1e-6)


def test_functions_that_cannot_be_traced_run_for_real():
    def init(key):
        seed = int(jax.random.randint(key, (), 0, 1000))
        return {"w": np.random.default_rng(seed).normal(size=(3, 2)).astype(np.float32)}

    model = models.from_functions(init, lambda params, x: x @ params["w"])
    np.testing.assert_array_equal(model.init(KEY)["w"], init(KEY)["w"])
    assert not np.array_equal(model.init(jax.random.key(9))["w"], init(KEY)["w"])


BAD = {
    "nnx: a number": (lambda: models.from_nnx(3), "from_nnx takes an nnx.Module"),
    "nnx: makes no module": (lambda: models.from_nnx(lambda rngs: 3), "should return an nnx.Module, not int"),
    "nnx: constructor fails": (lambda: models.from_nnx(lambda rngs: nnx.Linear(-1, 2, rngs=rngs)), "initialised"),
    "nnx: no parameters": (lambda: models.from_nnx(nnx.Sequential(nnx.relu)), "no floating-point parameters"),
    "linen: a number": (lambda: models.from_linen(3, jnp.ones(2)), "from_linen takes a flax.linen.Module"),
    "linen: a class": (lambda: models.from_linen(nn.Dense, jnp.ones(2)), "from_linen takes a flax.linen.Module"),
    "linen: no example": (lambda: models.from_linen(nn.Dense(3), "mnist"), "should be an array"),
    "linen: wrong example": (lambda: models.from_linen(nn.Conv(3, (3, 3)), jnp.ones((2, 2))), "initialised"),
    "equinox: a number": (lambda: models.from_equinox(3), "from_equinox takes an eqx.Module"),
    "equinox: makes no module": (lambda: models.from_equinox(lambda key: 3), "should return an eqx.Module, not int"),
    "equinox: no parameters": (lambda: models.from_equinox(eqx.nn.Identity()), "no floating-point parameters"),
    "haiku: not transformed": (lambda: models.from_haiku(lambda x: x, jnp.ones(2)), "the result of hk.transform"),
    "haiku: needs a state": (
        lambda: models.from_haiku(hk.transform(lambda x: hk.BatchNorm(True, True, 0.9)(x, False)), jnp.ones((2, 3))),
        "cannot be initialised",
    ),
    "functions: not a function": (lambda: models.from_functions({}, lambda p, x: x), "takes two functions"),
    "functions: a number as parameter": (
        lambda: models.from_functions(lambda key: {"a": {"rate": 0.1}}, lambda p, x: x),
        "parameter 'a/rate' is 0.1, not an array",
    ),
    "functions: integers only": (
        lambda: models.from_functions(lambda key: {"n": jnp.arange(3)}, lambda p, x: x),
        "no floating-point parameters",
    ),
    "functions: empty": (lambda: models.from_functions(lambda key: {}, lambda p, x: x), "no floating-point"),
    "functions: init fails": (lambda: models.from_functions(lambda key: 1 / 0, lambda p, x: x), "division by zero"),
    "functions: unknown statistic": (
        lambda: models.from_functions(lambda key: {"w": jnp.ones(2)}, lambda p, x: x, statistics=["v"]),
        "no floating-point parameter 'v'",
    ),
}


@pytest.mark.parametrize("make, message", BAD.values(), ids=BAD.keys())
def test_what_is_no_model_is_refused_in_one_line(make, message):
    with pytest.raises(ModelError, match=message) as raised:
        make()
    assert "\n" not in str(raised.value)


def test_two_leaves_of_one_name_are_refused():
    with pytest.raises(ModelError, match="two parameters '1'"):
        models.from_functions(lambda key: _Colliding(), lambda params, x: x)


@jax.tree_util.register_pytree_with_keys_class
class _Colliding:
    def tree_flatten_with_keys(self):
        key = jax.tree_util.DictKey
        return [(key("1"), jnp.ones(2)), (key(1), jnp.ones(2))], None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls()
