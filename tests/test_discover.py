"""Discovery: every architecture has the groups that theory names, no less and no more, and every reason is given."""

import itertools
from collections import OrderedDict
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import architectures
import bayesin
from architectures import ARCHITECTURES
from bayesin import models
from bayesin.errors import BayesinError, InconclusiveWarning, LeftBehindWarning, ModelError, SymmetryError
from bayesin.symmetry.spec import factors_of
from symmetry_checks import Architecture, check, normal, reasons, weights
from symmetry_programs import Program
from transformer import Transformer

KEY = jax.random.key(0)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_groups_are_those_of_theory(name):
    check(ARCHITECTURES[name])


REASONS = {
    ("mlp", "w0"): ["joined to the input", ""],
    ("mlp", "w2"): ["", "output"],
    ("tied embeddings", "table"): ["rows are picked by index", ""],
    ("flatten hwc", "k"): ["spatial axis of a convolution"] * 2 + ["joined to the input", ""],
    ("flatten hwc", "head"): ["spatial axis of a convolution", "output"],
    ("layers under scan", "layers/up"): ["steps of a scan", "", ""],
    ("carry that shifts", "w"): ["joined to the input", "position of a slice"],
}


@pytest.mark.parametrize("name, path", REASONS)
def test_a_fixed_axis_says_why(name, path):
    apply, x, *_ = ARCHITECTURES[name]
    assert reasons(bayesin.discover(apply, ARCHITECTURES[name].params, x), path) == REASONS[name, path]


TABLE = np.sin(np.arange(3)[:, None] * np.arange(6)).astype(np.float32)
FIXED = {
    "joined to a counter": lambda h: h + jnp.sin(jnp.arange(3)[:, None] * jnp.arange(6)),
    "joined to a constant that varies": lambda h: h + TABLE,
    "joined to a counter ": lambda h: lax.cond(h.sum() > 0, lambda h: h, lambda h: h * jnp.arange(6), h),
    "`random_bits` is not supported": lambda h: jnp.where(jax.random.bernoulli(KEY, 0.5, (6,)), h, 0.0),
}


@pytest.mark.parametrize("why", FIXED)
def test_features_tied_to_an_order_are_fixed(why):
    """Positions that are counted or closed over, one branch that counts, dropout with a fixed key."""
    model = Architecture(
        lambda p, x: FIXED[why](x @ p["embed"]) @ p["head"], architectures.TEXT, "embed: 6 6, head: 6 4", {}
    )
    spec = check(model)
    assert any(text.startswith(why.strip()) for text in (reasons(spec, "embed")[1], reasons(spec, "head")[0]))


def test_groups_are_numbered_in_the_order_of_the_computation():
    params = {f"layer{i}": {"w": normal(i, *shape)} for i, shape in enumerate([(5, 6)] + [(6, 6)] * 11 + [(6, 2)])}

    def apply(p, x):
        for i in range(13):
            x = jnp.tanh(x @ p[f"layer{i}"]["w"])  # sorted by name, layer10 comes before layer2
        return x

    spec = bayesin.discover(apply, params, architectures.X)
    assert [spec.axes[f"layer{i}/w"][1][0][0].group for i in range(12)] == [f"g{i}" for i in range(12)]


def test_what_does_not_reach_the_output_is_fixed():
    def apply(p, x):
        x = jax.nn.relu(x @ p["w0"])
        jnp.sort(x @ p["dead"])  # an order-dependent use that does not matter either
        return jax.jit(lambda p, x: x @ p["w1"])(p, x)

    with pytest.warns(LeftBehindWarning, match="1 parameters .*'dead' "):
        spec = check(Architecture(apply, architectures.X, "w0: 5 a, dead: 6 6, w1: a 4", {"a": 6}))
    assert reasons(spec, "dead") == ["does not reach the output"] * 2


def test_only_shapes_are_looked_at():
    model = ARCHITECTURES["mlp"]
    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), model.params)
    x = jax.ShapeDtypeStruct((2, 5), np.float32)
    assert bayesin.discover(model.apply, shapes, x) == bayesin.discover(model.apply, model.params, model.x)


def test_any_tree_of_arrays_will_do():
    """Lists, tuples and dicts of inputs; lists of layers."""

    def apply(p, x):
        hidden = jnp.tanh(x["a"] @ p[0][0] + x["b"][0] @ p[0][1])
        return {"logits": hidden @ p[1], "norm": (hidden**2).sum(-1)}

    params = [(normal(0, 5, 6), normal(1, 3, 6)), normal(2, 6, 4)]
    x = {"a": architectures.X, "b": (normal(4, 3, 3),)}
    check(Architecture(apply, x, "0/0: 5 a, 0/1: 3 a, 1: a 4", {"a": 6}), params)


def discovered(model: models.Model, x: jax.ShapeDtypeStruct) -> bayesin.PermutationSpec:
    return bayesin.discover(model.apply, jax.eval_shape(model.init, KEY), x)


def test_networks_of_real_size():
    """From shapes alone; `benchmarks/start.py` has the times."""
    spec = discovered(models.build("resnet20", (32, 32, 3), 10), jax.ShapeDtypeStruct((8, 32, 32, 3), jnp.float32))
    assert sorted(spec.sizes.values()) == [16] * 4 + [32] * 4 + [64] * 4
    spec = discovered(models.from_nnx(Transformer), jax.ShapeDtypeStruct((2, 128), jnp.int32))
    # The stream, and for every layer its heads, their queries and keys, their values, and the hidden units.
    assert sorted(spec.sizes.values()) == sorted([768] + 12 * [12, 64, 64, 3072])


# What one trace alone does not tell


def batch_normalised(p, x, train):
    h = x @ p["w0"]
    mean, var = (h.mean(0), h.var(0)) if train else (p["mean"], p["var"])
    return jax.nn.relu((h - mean) / jnp.sqrt(var + 1e-3) * p["gain"]) @ p["w1"]


def test_statistics_that_only_evaluation_reads_are_named_and_move_with_both_modes():
    params = weights(w0=(5, 6), gain=(6,), w1=(6, 3), mean=(6,)) | {"var": np.ones(6, np.float32)}
    train, evaluate = (partial(batch_normalised, train=train) for train in (True, False))
    with pytest.warns(LeftBehindWarning, match=r"2 parameters .*'mean' \(the size of g0\).*pass modes="):
        alone = bayesin.discover(train, params, architectures.X)
    assert {path for path, _, _ in alone.touched_by("g0")} == {"w0", "gain", "w1"}
    both = bayesin.discover(train, params, architectures.X, modes=[(evaluate, architectures.X)])
    assert both == bayesin.discover(evaluate, params, architectures.X)


def test_one_output_of_several_may_be_meant():
    def apply(p, x):
        hidden = jax.nn.relu(x @ p["w0"])
        return {"logits": hidden @ p["w1"], "hidden": hidden}

    params = weights(w0=(5, 6), w1=(6, 3))
    assert bayesin.discover(apply, params, architectures.X).sizes == {}
    for output in ("logits", lambda result: result["logits"]):
        spec = bayesin.discover(apply, params, architectures.X, output=output)
        assert spec.sizes == {"g0": 6}
        assert bayesin.verify(apply, params, architectures.X, spec, key=KEY, output=output) < 1e-10


def test_a_constant_that_could_be_another_is_named():
    edges = np.ones((3, 4), np.float32)
    params = weights(w0=(5, 6), edge=(4, 6), w1=(6, 3))

    def apply(p, x):
        return jax.nn.relu(x @ p["w0"] + edges @ p["edge"]) @ p["w1"]

    with pytest.warns(LeftBehindWarning, match=r"4 units of 'edge' .*closed-over value of shape \(3, 4\).*axis 1"):
        bayesin.discover(apply, params, architectures.X)


# Random programs against numbers, small models against all permutations there are

SMALL_X = normal(1, 2, 3, scale=1.0)
MANY_X = normal(2, 64, 3, scale=1.0)  # so that every expert is chosen by some


# Of the last ones, earlier versions of the rules for sums and indexed groups found wrong symmetries.
SEEDS = [*((seed, 10) for seed in range(24)), (1065, 14), (1164, 14), (2043, 14), (3204, 14)]


@pytest.mark.filterwarnings("ignore:inconclusive", "ignore::bayesin.errors.LeftBehindWarning")
@pytest.mark.parametrize("seed, steps", SEEDS)
def test_random_programs_keep_their_output(seed, steps):
    """`make torture` tries hundreds of longer ones."""
    program = Program(seed, steps)
    params = program.params()
    spec = bayesin.discover(program, params, SMALL_X, signs=True, scales=True)
    bayesin.verify(program, params, SMALL_X, spec, key=jax.random.key(seed), trials=1)


# In the last one a rule for sums over two axes once found a sign that is none.
MULTIPLIED_SEEDS = [*((seed, True) for seed in range(12)), (187, False)]


@pytest.mark.filterwarnings("ignore:inconclusive", "ignore::bayesin.errors.LeftBehindWarning")
def test_random_programs_keep_their_output_under_signs_and_scales():
    found = 0
    for seed, multiplied in MULTIPLIED_SEEDS:
        program = Program(seed, multiplied=multiplied)
        spec = bayesin.discover(program, program.params(), SMALL_X, signs=True, scales=True)
        found += len(spec.signed) + len(spec.scaled)
        if spec.signed or spec.scaled:
            bayesin.verify(program, program.params(), SMALL_X, spec, key=jax.random.key(seed), trials=1)
    assert found >= 8


@pytest.mark.filterwarnings("ignore:inconclusive", "ignore::bayesin.errors.LeftBehindWarning")
def test_random_programs_that_choose_keep_their_output():
    for seed in range(6):
        program = Program(seed, steps=8, choosing=True, stacked=seed % 2 == 0)
        spec = bayesin.discover(program, program.params(), SMALL_X, signs=True, scales=True)
        bayesin.verify(program, program.params(), SMALL_X, spec, key=jax.random.key(seed), trials=1)


@pytest.mark.filterwarnings("ignore::bayesin.errors.LeftBehindWarning")
def test_random_programs_have_symmetries_to_lose():
    """The tests above mean something: most programs have groups, some of them with products of factors."""
    specs = [bayesin.discover(p, p.params(), SMALL_X) for p in map(Program, range(24))]
    assert sum(bool(spec.sizes) for spec in specs) >= 12
    assert any(len(list(factors_of(axis))) > 1 for spec in specs for axes in spec.axes.values() for axis in axes)


def small_mlp(p, x):
    return jnp.tanh(jnp.tanh(x @ p["w0"] + p["b0"]) @ p["w1"]) @ p["w2"]


def residual(p, x):
    h = x @ p["w0"]
    return (h + jnp.tanh(h @ p["w1"]) @ p["w2"]) @ p["w3"]


def tied(p, x):
    return jnp.tanh(x @ p["w"]) @ p["v"] @ p["w"].T


def normalised(p, x):
    h = x @ p["w0"]
    return (p["g"] * (h - h.mean(-1, keepdims=True)) / h.std(-1, keepdims=True)) @ p["w1"]


def experts(p, x):
    return jnp.einsum("ne,nei->ni", jax.nn.softmax(x @ p["r"]), jnp.tanh(jnp.einsum("ni,eij->nej", x, p["w"])))


def best_expert(p, x):
    gates = jax.nn.one_hot(jnp.argmax(x @ p["r"], -1), 3)
    return jnp.einsum("ne,nei->ni", gates, jnp.tanh(jnp.einsum("ni,eij->nej", x, p["w"])))


def nearest_code(p, x):
    h = x @ p["w"]
    nearest = jnp.argmin(((h[:, None] - p["codes"]) ** 2).sum(-1), -1)
    return jnp.asarray(p["codes"])[nearest] @ p["v"]


def quadratic(p, x):
    h = jnp.tanh(x @ p["w"])
    return jnp.einsum("ni,ij,nj->n", h, p["m"], h)


def side_by_side(p, x):
    return jnp.concatenate([jnp.tanh(x @ p["w0"]), jnp.sin(x @ p["w1"])], -1) @ p["w2"]


def pairs(p, x):
    return jnp.tanh((x @ p["w"]).reshape(-1, 2, 2).max(-1)) @ p["v"]


def gated(p, x):
    gate, up = jnp.split(x @ p["w"], 2, -1)
    return (jnp.tanh(gate) * up) @ p["v"]


def of_unequal_parts(p, x):
    first, rest = jnp.split(x @ p["w"], [1], -1)
    return jnp.concatenate([jnp.tanh(first), jnp.sin(rest)], -1) @ p["v"]


SMALL = {
    "side by side": (side_by_side, weights(w0=(3, 2), w1=(3, 2), w2=(4, 2))),
    "pairs": (pairs, weights(w=(3, 4), v=(2, 2))),
    "gated": (gated, weights(w=(3, 4), v=(2, 2))),
    "of unequal parts": (of_unequal_parts, weights(w=(3, 4), v=(4, 2))),
    "mlp": (small_mlp, weights(w0=(3, 3), b0=(3,), w1=(3, 2), w2=(2, 2))),
    "residual": (residual, weights(w0=(3, 3), w1=(3, 2), w2=(2, 3), w3=(3, 2))),
    "x + W x": (architectures.x_plus_wx, weights(w0=(3, 3), w=(3, 3), w1=(3, 2))),
    "tied": (tied, weights(w=(3, 3), v=(3, 3))),
    "normalised": (normalised, weights(w0=(3, 3), g=(3,), w1=(3, 3))),
    "experts": (experts, weights(r=(3, 2), w=(2, 3, 3))),
    "best expert": (best_expert, weights(r=(3, 3), w=(3, 3, 2))),
    "nearest code": (nearest_code, weights(w=(3, 2), codes=(3, 2), v=(2, 2))),
    "quadratic": (quadratic, weights(w=(3, 4), m=(4, 4))),
}


@pytest.mark.parametrize("name", SMALL)
def test_discovery_finds_all_permutations_there_are(name):
    """Tries every combination of permutations of all axes of all parameters; counts those that change nothing."""
    apply, params = SMALL[name]
    x = MANY_X if apply in (best_expert, nearest_code) else SMALL_X
    sizes = [size for leaf in params.values() for size in leaf.shape]
    choices = [np.array(list(itertools.permutations(range(size)))) for size in sizes]
    picked = [c.reshape(-1) for c in np.meshgrid(*[np.arange(len(c)) for c in choices], indexing="ij")]
    perms = [choice[index] for choice, index in zip(choices, picked, strict=True)]  # one row a combination

    def moved(perms):
        perms, leaves = iter(perms), {}
        for path, leaf in params.items():
            for axis in range(leaf.ndim):
                leaf = jnp.take(leaf, next(perms), axis)
            leaves[path] = leaf
        return jnp.abs(apply(leaves, x) - apply(params, x)).max()

    unchanged = int((jax.jit(lambda perms: lax.map(moved, perms, batch_size=4096))(perms) < 1e-5).sum())
    spec = bayesin.discover(apply, params, x)
    assert unchanged == round(10**spec.log10_order)


# Bad input: one line of our own that says what and where, never a traceback of JAX

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


BAD = {
    "branch on values": (looks_at_values, PARAMS, X, "cannot be traced, since it looks at values"),
    "float of values": (looks_at_values_later, PARAMS, X, "cannot be traced, since it looks at values"),
    "numpy on values": (uses_numpy, PARAMS, X, "cannot be traced, since it looks at values.*jax.numpy"),
    "shape from values": (counts_by_value, PARAMS, X, "cannot be traced, since it looks at values"),
    "unknown parameter": (misspells, PARAMS, X, "apply fails.*KeyError: 'w2'"),
    "raises": (fails, PARAMS, X, "apply fails.*RuntimeError: first line$"),
    "no function": ("mlp", PARAMS, X, "a Model or a function apply.params, x., not str"),
    "one argument": (lambda p: p["w0"], PARAMS, X, "apply fails.*positional argument"),
    "returns nothing": (returns_nothing, PARAMS, X, "apply returns no arrays"),
    "returns words": (returns_words, PARAMS, X, "apply fails.*TypeError"),
    "wrong input": (mlp, PARAMS, X[:, :4], r"apply fails on params and an input of shape \(2, 4\).*dot_general"),
    "wrong input in a dict": (lambda p, x: mlp(p, x["a"]), PARAMS, {"a": X[:, :4]}, r"a shape \(2, 4\)"),
    "no parameters": (mlp, {}, X, "params has no arrays"),
    "nested nothing": (mlp, {"a": {"b": {}}, "c": None}, X, "params has no arrays"),
    "a word": (mlp, PARAMS | {"name": "mlp"}, X, "params: 'name' is a str, not an array"),
    "a number": (mlp, PARAMS | {"rate": 0.5}, X, "params: 'rate' is a float, not an array"),
    "a function": (mlp, PARAMS | {"act": {"f": jnp.tanh}}, X, "params: 'act/f' is a .*, not an array"),
    "an array of objects": (mlp, PARAMS | {"w0": np.array([None, "a"])}, X, "params: 'w0' holds object"),
    "an empty array": (mlp, PARAMS | {"w0": np.zeros((5, 0))}, X, r"params: 'w0' is empty: its shape is \(5, 0\)"),
    "no input": (mlp, PARAMS, None, "x has no arrays"),
    "an input that is a list": (mlp, PARAMS, [[1.0, 2.0]], "x: '0/0' is a float, not an array"),
    "an empty input": (mlp, PARAMS, X[:0], r"x is empty: its shape is \(0, 5\)"),
    "keys that cannot be sorted": (mlp, {1: X, "a": X}, X, "cannot be sorted"),
    "keys of one name": (mlp, OrderedDict({1: X, "1": X}), X, r"two leaves have the path '1': \[1\] and \['1'\]"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_clear_line(name):
    apply, params, x, message = BAD[name]
    with pytest.raises(ModelError, match=message) as caught:
        bayesin.discover(apply, params, x)
    assert "\n" not in str(caught.value)
    with pytest.raises(BayesinError) as caught:
        bayesin.verify(apply, params, x, bayesin.discover(mlp, PARAMS, X), key=KEY)
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

    params = PARAMS | {"w0": jnp.round(2 * PARAMS["w0"]).astype(kind)}
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


# Signs and scales

HIDDEN = {"w0": (3, 4), "b0": (4,), "w1": (4, 2)}
FUNCTIONS = {  # what a hidden unit does: whether it may flip, and whether what reads it does; the same for scales
    "tanh": (jnp.tanh, "±a", "±a"),
    "erf": (lax.erf, "±a", "±a"),
    "sine": (jnp.sin, "±a", "±a"),
    "soft sign": (jax.nn.soft_sign, "±a", "±a"),
    "x / sqrt(1 + x²)": (lambda h: h * lax.rsqrt(1 + h**2), "±a", "±a"),
    "linear": (lambda h: h, "±a{s}", "±a{-s}"),
    "x |x|": (lambda h: h * jnp.abs(h), "±a{s}", "±a{-2 s}"),
    "cube": (lambda h: h**3, "±a{s}", "±a{-3 s}"),
    "square": (jnp.square, "±a{s}", "a{-2 s}"),
    "square root of the size": (lambda h: jnp.sqrt(jnp.abs(h)), "±a{2 s}", "a{-s}"),
    "cosine": (jnp.cos, "±a", "a"),
    "relu": (jax.nn.relu, "a{s}", "a{-s}"),
    "leaky relu": (jax.nn.leaky_relu, "a{s}", "a{-s}"),
    "where": (lambda h: jnp.where(h > 0, h, 0.0), "a{s}", "a{-s}"),
    "sigmoid": (jax.nn.sigmoid, "a", "a"),
    "gelu": (jax.nn.gelu, "a", "a"),
    "relu6": (jax.nn.relu6, "a", "a"),
    "over the norm": (lambda h: h / jnp.linalg.norm(h, axis=0, keepdims=True), "±a{s}", "±a"),
    "from zero, added": (lambda h: jnp.zeros_like(h) + jnp.tanh(h), "±a", "±a"),
    "less the mean": (lambda h: jnp.tanh(h - h.mean(-1, keepdims=True)), "a", "a"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_signs_and_scales_of_a_hidden_unit(name):
    function, incoming, outgoing = FUNCTIONS[name]

    def apply(p, x):
        return function(x @ p["w0"] + p["b0"]) @ p["w1"]

    spec = bayesin.discover(apply, weights(**HIDDEN), SMALL_X, signs=True, scales=True)
    written = {path: " ".join(axes) for path, axes in spec.to_json()["parameters"].items()}
    named = {p: t.replace("g0", "a").replace("s0", "s") for p, t in written.items()}
    assert named == {"w0": f"3 {incoming}", "b0": incoming, "w1": f"{outgoing} 2"}
    bayesin.verify(apply, weights(**HIDDEN), SMALL_X, spec, key=KEY, trials=1)


def recurrent(p, x):
    def step(h, row):
        h = jnp.tanh(row @ p["in"] + h @ p["h"])
        return h, h

    return lax.scan(step, jnp.zeros(2), x)[0] @ p["out"]


def one_by_one(p, x):
    h = jnp.zeros(2)
    for row in x:
        h = jnp.tanh(row @ p["in"] + h @ p["h"])
    return h @ p["out"]


def long_short(p, x):
    """An LSTM cell with all gates in one kernel: of the four only one is odd."""
    h = c = jnp.zeros(2)
    for row in x:
        i, f, g, o = jnp.split(row @ p["w"] + h @ p["u"], 4)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return h @ p["out"]


def attention(p, x):
    q, k, v = (jnp.einsum("td,dhk->thk", x, p[name]) for name in "qkv")
    scores = jax.nn.softmax(jnp.einsum("thk,shk->hts", q, k), axis=-1)
    return jnp.einsum("hts,shk,hkd->td", scores, v, p["o"])


def row_of_the_best(p, x):
    """A number cannot follow a sign: neither the scores nor what they choose may flip."""
    return jnp.tanh(jax.vmap(lambda x: lax.dynamic_slice_in_dim(p["rows"], jnp.argmax(x @ p["w"]), 1)[0])(x)) @ p["v"]


def two_in_one(p, x):
    return jnp.tanh(x @ p["w"][0]) @ p["v"][0] + jax.nn.sigmoid(x @ p["w"][1]) @ p["v"][1]


HEADS = weights(q=(3, 1, 2), k=(3, 1, 2), v=(3, 1, 2), o=(1, 2, 3))
SIGNED = {
    "mlp": (small_mlp, weights(w0=(3, 2), b0=(2,), w1=(2, 2), w2=(2, 2))),
    "recurrent": (recurrent, weights(**{"in": (3, 2), "h": (2, 2), "out": (2, 2)})),
    "one by one": (one_by_one, weights(**{"in": (3, 2), "h": (2, 2), "out": (2, 2)})),
    "attention": (attention, HEADS),
    "side by side": SMALL["side by side"],
    "gated": SMALL["gated"],
    "quadratic": (quadratic, weights(w=(3, 3), m=(3, 3))),
    "best expert": (best_expert, weights(r=(3, 3), w=(3, 3, 2))),
    "nearest code": (nearest_code, weights(w=(3, 2), codes=(3, 2), v=(2, 2))),
    "row of the best": (row_of_the_best, weights(w=(3, 3), rows=(3, 2), v=(2, 2))),
}
CHOOSING = ("best expert", "nearest code", "row of the best")  # what no input chooses could be flipped as one likes


@pytest.mark.parametrize("name", SIGNED)
def test_discovery_finds_all_signs_there_are(name):
    """Flips every combination of positions along the axes that the spec has; counts those that change nothing.

    What a combination does to the weights is what counts: a unit that is flipped twice is not flipped.
    """
    apply, params = SIGNED[name]
    x = MANY_X if name in CHOOSING else SMALL_X
    spec = bayesin.discover(apply, params, x, signs=True)
    bayesin.verify(apply, params, x, spec, key=KEY, trials=1)
    moving = [
        (path, i)
        for path, axes in spec.axes.items()
        for i, axis in enumerate(axes)
        if any(f.group for f in factors_of(axis))
    ]
    sizes = [params[path].shape[i] for path, i in moving]
    signs = 1 - 2 * ((np.arange(2 ** sum(sizes))[:, None] >> np.arange(sum(sizes))) & 1).astype(np.float32)
    want = apply(params, x)

    def flipped(row):
        changed, at = dict(params), 0
        for (path, i), size in zip(moving, sizes, strict=True):
            shape = [size if axis == i else 1 for axis in range(params[path].ndim)]
            changed[path], at = changed[path] * row[at : at + size].reshape(shape), at + size
        return jnp.abs(apply(changed, x) - want).max(), jnp.concatenate([jnp.ravel(a) for a in changed.values()])

    changes, moved = jax.jit(jax.vmap(flipped))(signs)
    found = np.unique(np.asarray(moved)[np.asarray(changes) < 1e-5 * np.abs(want).max()], axis=0)
    units = sum(int(np.prod(spec.perm_shape(group))) for group in spec.signed)
    ways = (
        2 if name == "gated" else 1
    )  # either half of a product of odd functions may flip: a spec has one sign a unit
    assert len(found) == 2 ** (ways * units)


def test_of_the_gates_in_one_kernel_one_is_odd():
    params = weights(w=(3, 8), u=(2, 8), out=(2, 2))
    spec = bayesin.discover(long_short, params, SMALL_X, signs=True)
    gates = "2 * g0 + ±g0 + g0"
    assert spec.to_json()["parameters"] == {"w": ["3", gates], "u": ["±g0", gates], "out": ["±g0", "2"]}
    bayesin.verify(long_short, params, SMALL_X, spec, key=KEY, trials=1)


def test_of_two_parts_of_one_tensor_one_is_odd():
    params = weights(w=(2, 3, 4), v=(2, 4, 2))
    spec = bayesin.discover(two_in_one, params, SMALL_X, signs=True)
    parts = {"w": ["1 + 1", "3", "±g0 | g1"], "v": ["1 + 1", "±g0 | g1", "2"]}
    assert spec.to_json()["parameters"] == parts and spec.to_json()["version"] == 3
    bayesin.verify(two_in_one, params, SMALL_X, spec, key=KEY, trials=1)


def test_a_sign_or_scale_that_is_none_is_refused_by_name():
    apply, params = (lambda p, x: jax.nn.relu(x @ p["w0"] + p["b0"]) @ p["w1"]), weights(**HIDDEN)
    for axes, message in [
        ({"w0": ["3", "±a"], "b0": ["±a"], "w1": ["±a", "2"]}, "the signs of group 'a'"),
        ({"w0": ["3", "a{s}"], "b0": ["a{s}"], "w1": ["a{-2 s}", "2"]}, "the scale 's'"),
    ]:
        wrong = bayesin.PermutationSpec.parse(axes, {"a": 4})
        with pytest.raises(SymmetryError, match=message):
            bayesin.verify(apply, params, SMALL_X, wrong, key=KEY, trials=1)


def test_verify_says_where_signs_would_not_be_seen():
    """Square forgets the sign of what goes in: a spec that flips one tensor alone would be right."""
    apply = lambda p, x: jnp.square(x @ p["w0"]) @ p["w1"]  # noqa: E731
    params = weights(w0=(3, 4), w1=(4, 2))
    spec = bayesin.PermutationSpec.parse({"w0": ["3", "±a"], "w1": ["a", "2"]}, {"a": 4})
    assert bayesin.verify(apply, params, SMALL_X, spec, key=KEY, trials=1) < 1e-9
    dead = bayesin.PermutationSpec.parse({"w0": ["3", "±a"], "b": ["±a"], "w1": ["a", "2"]}, {"a": 4})
    with pytest.warns(InconclusiveWarning, match="a"):
        bayesin.verify(apply, params | weights(b=(4,)), SMALL_X, dead, key=KEY, trials=1)
