"""One rule at a time: what each primitive lets through, what it fixes, and what it says about it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import bayesin
from architectures import ARCHITECTURES
from bayesin.jaxprs import equations
from bayesin.symmetry.rules import RULES, basic
from symmetry_checks import Architecture, check, normal, reasons, weights

X = normal(1, 2, 3, scale=1.0)
VARIES = np.arange(6, dtype=np.float32)


def unit(function):
    return lambda p, x: function(x @ p["w"]) @ p["head"]


def _integer(h):
    return jnp.int64 if h.dtype == jnp.float64 else jnp.int32


def _mixed(u, v):
    one = u.dtype.type(1)
    first, second = lax.reduce((u, v), (one, one), lambda a, b: (a[0] + b[1], a[1] * b[0]), (1,))
    return first * second


def _windowed(u):
    return lax.reduce_window(u, u.dtype.type(0), lambda a, b: a * 0.5 + b, (1, 2), (1, 2), "VALID")


W = weights(w=(3, 6), head=(6, 2))

UNIT_CASES = {
    "optimization_barrier": (lambda h: lax.optimization_barrier((h, h))[0], "a"),
    "device_put": (lambda h: jax.device_put(h), "a"),
    "clamp": (lambda h: lax.clamp(-jnp.ones_like(h[0, 0]), h, jnp.ones_like(h)), "a"),
    "bitcast": (lambda h: lax.bitcast_convert_type(lax.bitcast_convert_type(h, _integer(h)) & ~1, h.dtype), "a"),
    "sort": (jnp.sort, "6"),
    "argsort": (lambda h: h * jnp.argsort(h), "6"),
    "cumsum": (lambda h: jnp.cumsum(h, -1), "6"),
    "cumsum along the batch": (lambda h: jnp.cumsum(h, 0), "a"),
    "cumprod": (lambda h: jnp.cumprod(h, -1), "6"),
    "cummax": (lambda h: lax.cummax(h, 1), "6"),
    "cumlogsumexp": (lambda h: lax.cumlogsumexp(h, 1), "6"),
    "rev": (lambda h: h[:, ::-1] + h, "6"),
    "fft": (lambda h: jnp.fft.fft(h).real, "6"),
    "fft along the batch": (lambda h: jnp.fft.fft(h, axis=0).real, "a"),
    "roll": (lambda h: jnp.roll(h, 1, -1), "a+1 -> 1+a"),
    "triangle": (lambda h: h @ jnp.tril(jnp.ones((6, 6))), "6"),
    "softmax": (jax.nn.softmax, "a"),
    "normalised": (lambda h: h / jnp.linalg.norm(h, axis=-1, keepdims=True), "a"),
    "extremes": (lambda h: h - h.max(-1, keepdims=True) * h.min(-1, keepdims=True) * h.prod(-1, keepdims=True), "a"),
    "any and all": (lambda h: jnp.where((h > 0).any(-1) ^ (h > -1).all(-1), 1.0, 2.0)[:, None] * h, "a"),
    "tile": (lambda h: jnp.tile(h, (1, 2))[:, :6] + jnp.tile(h, (1, 2))[:, 6:], "a"),
    "constant that varies": (lambda h: h + VARIES, "6"),
    "constant of one value": (lambda h: h + np.full(6, 2.0, np.float32), "a"),
    "counter": (lambda h: h * jnp.arange(6), "6"),
    "identity matrix": (lambda h: h @ jnp.eye(6), "6"),
    "constant that repeats": (lambda h: h + np.array([1, 2, 1, 2, 1, 2], np.float32), "a[fix]*fix"),
    "constant in runs": (lambda h: h + np.array([1, 1, 1, 2, 2, 2], np.float32), "a+b"),
    "constant in runs, computed": (lambda h: h + jnp.concatenate([jnp.zeros(3), jnp.ones(3)]), "a+b"),
    "halves swapped": (lambda h: jnp.concatenate([h[:, 3:], h[:, :3]], -1), "a+b -> b+a"),
    "split in three": (
        lambda h: jnp.concatenate(
            [f(z) for f, z in zip([jnp.sin, jnp.cos, jnp.tanh], jnp.split(h, 3, -1), strict=True)], -1
        ),
        "a+b+c",
    ),
    "unequal parts": (lambda h: jnp.concatenate([jnp.sin(h[:, :4]), h[:, 4:]], -1), "a+b, of two sizes"),
    "parts without a common size": (lambda h: jnp.concatenate([jnp.sin(h[:, :1]), h[:, 1:]], -1), "1+a"),
    "every second unit": (lambda h: jnp.stack([jnp.sin(h[:, ::2]), h[:, 1::2]], -1).reshape(-1, 6), "a*2"),
    "every second unit of a part": (lambda h: h.at[:, :3].add(h[:, 0:5:2]), "6"),
    "unstacked": (
        lambda h: jnp.concatenate([jnp.sin(a) for a in jnp.unstack(h.reshape(-1, 2, 3), axis=1)], -1),
        "a+b",
    ),
    "reshaped": (lambda h: jax.nn.softmax(h.reshape(-1, 2, 3), axis=1).reshape(-1, 6), "a[b]*b"),
    "reshaped in two ways": (
        lambda h: (
            jax.nn.softmax(h.reshape(-1, 2, 3)).reshape(-1, 6) + jax.nn.softmax(h.reshape(-1, 3, 2)).reshape(-1, 6)
        ),
        "6",
    ),
    "dynamic slice": (lambda h: h + lax.dynamic_slice(h, (0, jnp.argmax(h[0]) * 0), (2, 1)), "6"),
    "dynamic slice of the batch": (lambda h: h + lax.dynamic_slice(h, (jnp.int32(1), jnp.int32(0)), (1, 6)), "a"),
    "dynamic update": (lambda h: lax.dynamic_update_slice(h, 2 * h[:, :3], (jnp.int32(0), jnp.int32(1))), "6"),
    "dynamic update of the batch": (
        lambda h: lax.dynamic_update_slice(h, 2 * h[:1], (jnp.int32(1), jnp.int32(0))),
        "a",
    ),
    "at set": (lambda h: h.at[:, 0].set(1.0), "6"),
    "at set a row": (lambda h: h.at[0].set(1.0), "a"),
    "at add a row": (lambda h: h.at[jnp.array([0, 0])].add(h), "a"),
    "picked": (lambda h: h[:, jnp.array([5, 0, 1, 2, 3, 4])], "6"),
    "picked rows": (lambda h: h[jnp.array([1, 0])], "a"),
    "argmax": (lambda h: h * jnp.argmax(h, -1, keepdims=True), "6"),
    "best values": (lambda h: h * lax.top_k(h, 2)[0].sum(-1, keepdims=True), "a"),
    "numbers of the best": (lambda h: h * lax.top_k(h, 2)[1].sum(-1, keepdims=True), "6"),
    "one-hot": (lambda h: h * jax.nn.one_hot(jnp.argmax(jax.nn.softmax(h), -1), 6), "a"),
    "one-hot of a wrong size": (lambda h: h * jax.nn.one_hot(jnp.argmax(h, -1), 7)[:, :6], "6"),
    "one-hot of the next": (lambda h: h * jax.nn.one_hot(jnp.argmax(h, -1) + 1, 6), "6"),
    "one-hot of what may be equal": (lambda h: h * jax.nn.one_hot(jnp.argmax(jax.nn.relu(h), -1), 6), "6"),
    "one-hot of sums that are all one": (
        lambda h: h * jax.nn.one_hot(jnp.argmax(jax.nn.softmax(h, 0).sum(0)), 6),
        "6",
    ),
    "one-hot of rounded numbers": (lambda h: h * jax.nn.one_hot(jnp.argmax(h.astype(jnp.bfloat16), -1), 6), "6"),
    "one-hot in a loop": (
        lambda h: h * jax.nn.one_hot(lax.scan(lambda _, row: (0, jnp.argmax(row)), 0, h)[1], 6),
        "6",
    ),
    "one-hot behind a residual ReLU": (
        lambda h: h * jax.nn.one_hot(jnp.argmax(h + jax.nn.relu(h), -1), 6),
        "6",
    ),
    "one-hot of what was divided": (lambda h: h * jax.nn.one_hot(jnp.argmax(h / h.sum(-1, keepdims=True)), 6), "6"),
    "the best written": (
        lambda h: h * jnp.zeros_like(h).at[jnp.arange(len(h)), jnp.argmax(h, -1)].set(1.0),
        "a",
    ),
    "written beside the best": (
        lambda h: h * jnp.zeros_like(h).at[jnp.arange(len(h)), jnp.argmax(h, -1) % 6].set(1.0),
        "6",
    ),
    "the best picked": (lambda h: h * h.T[jnp.argmin(h, -1)].sum(-1, keepdims=True), "a"),
    "the best picked of others": (
        lambda h: h * jnp.tile(h, 2).T[jnp.argmin(h, -1)].sum(-1, keepdims=True),
        "6",
    ),
    "reduced by a function": (
        lambda h: h + lax.reduce(h, h.dtype.type(0), lambda a, b: a * 0.5 + b, (1,))[:, None],
        "6",
    ),
    "pooled over units": (lambda h: lax.reduce_window(h, 0.0, lax.add, (1, 3), (1, 1), "SAME"), "6"),
    "pooled over nothing": (lambda h: lax.reduce_window(h, 0.0, lax.add, (1, 1), (1, 1), "VALID"), "a"),
    "interior padding": (lambda h: lax.pad(h, 0.0, ((0, 0, 0), (0, -5, 1))), "6"),
    # the same three units twice: the two copies may change places
    "padding that removes": (lambda h: jnp.tile(lax.pad(h, 0.0, ((0, 0, 0), (0, -3, 0))), 2), "a+3 -> b[a]*a"),
    "unknown": (
        lambda h: jax.pure_callback(lambda h: np.asarray(h), jax.ShapeDtypeStruct(h.shape, h.dtype), h),
        "6",
    ),
    "nothing appended": (lambda h: jnp.concatenate([h, h[:, :0]], -1), "a"),
    "nothing summed": (
        lambda h: h + h[:, :0].sum(-1, keepdims=True) + h[:0].sum(0) * h[:, :0].max(initial=0.0),
        "a",
    ),
    "nothing contracted": (lambda h: h + jnp.einsum("ni,nj->ij", h[:0], h[:0]).sum(0), "a"),
    "nothing padded": (
        lambda h: (
            h + jnp.pad(h[:, :0], ((0, 0), (0, 6))) + jnp.pad(h[:0], ((0, 2), (0, 0))) + h[0:0].reshape(6, 0).sum(1)
        ),
        "a",
    ),
    "nothing carried": (
        lambda h: lax.fori_loop(0, 2, lambda _, c: (jnp.tanh(c[0]), c[1] + 1), (h, jnp.zeros((0, 3))))[0],
        "a",
    ),
    "scanned in parallel": (lambda h: lax.associative_scan(jnp.add, jnp.tile(h, (2, 1))[:3])[:2], "a"),
    "dimension numbers of a 1 × 1 convolution": (
        lambda h: lax.conv_general_dilated(h[:, :, None], jnp.ones((6, 6, 1)), (1,), "VALID")[:, :, 0] + h,
        "a",
    ),
}

VECTOR_CASES = {
    "units of a parameter alone": (lambda p: jnp.tanh(p["w"]).sum(), "w: a[b] b", {"a": 4, "b": 3}),
    "matrix times its transpose": (lambda p: jnp.tanh(p["w"] @ p["w"].T).sum(), "w: a b", {"a": 4, "b": 3}),
    "matrix plus its transpose": (lambda p: jnp.tanh(p["w"] + p["w"].T).sum(), "w: a a", {"a": 4}),
    "trace": (lambda p: jnp.trace(jnp.tanh(p["w"])), "w: 4 4", {}),
    "determinant": (lambda p: jnp.linalg.det(p["w"]), "w: 3 3", {}),
    "batch axes of a product": (
        lambda p: jnp.tanh(jnp.einsum("bij,bjk->bik", p["u"], p["v"])).sum(),
        "u: b i[b] j[b], v: b j[b] k[b]",
        {"b": 2, "i": 3, "j": 4, "k": 5},
    ),
    "products that do not cut alike": (
        lambda p: jnp.tanh(p["u"].reshape(-1) * p["v"].reshape(-1)).sum(),
        "u: a*2 3, v: a*3 2",
        {"a": 2},
    ),
    "products with a common inner part": (
        lambda p: jnp.tanh(p["u"].reshape(-1) * p["v"].reshape(-1)).sum(),
        "u: 3 2*a, v: 2 3*a",
        {"a": 2},
    ),
    "products that refine each other": (
        lambda p: jnp.tanh(p["u"].reshape(-1) * p["v"].reshape(-1)).sum(),
        "u: a*b[a,c] c[a], v: a b[a,c]*c[a]",
        {"a": 2, "b": 4, "c": 3},
    ),
    "one group twice on one axis": (
        lambda p: jnp.tanh(jnp.outer(p["u"], p["u"]).reshape(-1) * p["v"]).sum(),
        "u: a, v: a*a",
        {"a": 3},
    ),
    "gather along a batch": (
        lambda p: jnp.take_along_axis(jnp.tanh(p["w"]), jnp.ones((4, 1), int), axis=1).sum(),
        "w: a 3",
        {"a": 4},
    ),
    "dynamic slices under vmap": (
        lambda p: jnp.tanh(
            jax.vmap(lambda w, u: lax.dynamic_slice(w, (jnp.where(u > 0, 1, 0), 0), (1, 5)))(p["w"], p["u"])
        ).sum(),
        "w: a 3 b[a], u: a",
        {"a": 4, "b": 5},
    ),
    "dynamic updates under vmap": (
        lambda p: jnp.square(
            jax.vmap(lambda w, u, v: lax.dynamic_update_slice(w, v[None], (jnp.where(u > 0, 1, 0), 0)))(
                p["w"], p["u"], p["v"]
            ).sum(1)
        ).sum(),
        "w: a 3 b[a], u: a, v: a b[a]",
        {"a": 4, "b": 5},
    ),
    "indices that are units": (
        lambda p: (p["table"][jnp.where(p["u"] > 0, 0, 1)] * p["v"][:, None]).sum(),
        "table: 3 b, u: a, v: a",
        {"a": 5, "b": 2},
    ),
    "units added by index": (
        lambda p: jnp.tanh(jnp.zeros((3, 2)).at[jnp.where(p["u"] > 0, 0, 1)].add(p["v"])).sum(),
        "u: a, v: a b",
        {"a": 5, "b": 2},
    ),
    "units written by index": (
        lambda p: jnp.tanh(jnp.zeros((3, 2)).at[jnp.where(p["u"] > 0, 0, 1)].set(p["v"])).sum(),
        "u: 5, v: 5 b",
        {"b": 2},
    ),
    "scatter along a batch": (
        lambda p: jnp.tanh(jax.vmap(lambda r, i, v: r.at[i].add(v))(p["w"], jnp.ones(4, int), p["v"])).sum(),
        "w: a 3, v: a",
        {"a": 4},
    ),
    "several arrays sorted together": (
        lambda p: (lax.sort((p["u"], p["v"]), dimension=1)[1] * jnp.arange(4)).sum(),
        "u: a 4, v: a 4",
        {"a": 3},
    ),
    "reduced together by a function": (lambda p: _mixed(p["u"], p["v"]).sum(), "u: a 4, v: a 4", {"a": 3}),
    "windows of a custom function": (lambda p: _windowed(p["u"]).sum(), "u: a 4", {"a": 3}),
    "constants of two shapes": (
        lambda p: jnp.tanh(jnp.zeros((4, 3)).reshape(12) + p["u"]).sum(),
        "u: a",
        {"a": 12},
    ),
}


SIZES = {
    "a": {"a": 6},
    "2*a": {"a": 3},
    "a*2": {"a": 3},
    "a[b]*b": {"a": 2, "b": 3},
    "a[fix]*fix": {"a": 3, "fix": 2},
    "6": {},
    "a+b": {"a": 3, "b": 3},
    "a+b -> b+a": {"a": 3, "b": 3},
    "a+b+c": {"a": 2, "b": 2, "c": 2},
    "a+b, of two sizes": {"a": 4, "b": 2},
    "1+a": {"a": 5},
    "a+1 -> 1+a": {"a": 5},
}


def unit_case(name: str) -> Architecture:
    """x @ w -> function -> @ head: what becomes of the hidden units, on their way in and on their way out?"""
    function, axis = UNIT_CASES[name]
    before, _, after = axis.partition(",")[0].partition(" -> ")
    sizes = SIZES.get(axis, {"a": 3, "b": 2})
    return Architecture(unit(function), X, f"w: 3 {before}, head: {after or before} 2", sizes)


def vector_case(name: str) -> Architecture:
    """A parameter alone, folded into one number for each example."""
    function, axes, sizes = VECTOR_CASES[name]
    return Architecture(lambda p, x: x.sum(-1) * function(p), X, axes, sizes)


@pytest.mark.parametrize("name", UNIT_CASES)
def test_hidden_units(name):
    check(unit_case(name))


@pytest.mark.parametrize("name", VECTOR_CASES)
def test_parameters_alone(name):
    check(vector_case(name))


# fmt: off
ONE_ARGUMENT = [
    "exp", "exp2", "expm1", "log", "log1p", "logistic", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",
    "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erf_inv", "lgamma", "digamma", "sqrt", "rsqrt", "cbrt",
    "floor", "ceil", "round", "sign", "neg", "abs", "square", "is_finite", "bessel_i0e", "bessel_i1e",
]
TWO_ARGUMENTS = [
    "add", "sub", "mul", "div", "rem", "max", "min", "pow", "atan2", "nextafter", "eq", "ne", "lt", "le", "gt", "ge",
    "igamma", "igammac", "zeta", "polygamma",
]
# fmt: on


def test_elementwise_primitives_let_units_through():
    """All of them that take real numbers, one after another on one hidden layer."""

    def apply(p, x):
        h = jax.nn.sigmoid(x @ p["w"])
        for name in ONE_ARGUMENT:
            h = h + 1e-3 * jnp.nan_to_num(getattr(lax, name)(h).astype(h.dtype), posinf=1, neginf=1)
        for name in TWO_ARGUMENTS:
            h = h + 1e-3 * jnp.nan_to_num(getattr(lax, name)(h, p["b"] + 0 * h).astype(h.dtype), posinf=1, neginf=1)
        return h @ p["head"]

    spec = bayesin.discover(apply, weights(w=(3, 6), b=(6,), head=(6, 2)), X)
    assert spec.sizes == {"g0": 6}


def test_reasons_name_the_primitive_and_the_equation():
    def apply(p, x):
        return jax.jit(lambda h: jnp.sort(jnp.sin(h)))(x @ p["w"]) @ p["head"]

    jaxpr = jax.make_jaxpr(apply)(W, X)
    (outer,) = (i for i, e in enumerate(jaxpr.eqns) if e.primitive.name == "jit")
    inner = jaxpr.eqns[outer].params["jaxpr"]
    (middle,) = (i for i, e in enumerate(inner.eqns) if e.primitive.name == "jit")
    spec = bayesin.discover(apply, W, X)
    assert reasons(spec, "w")[1] == f"`sort` is not supported, equation {outer}.{middle}.0"


def test_where_a_finer_symmetry_may_exist_the_reason_says_so():
    every_fourth = bayesin.discover(unit(lambda h: h * h[:, ::4].sum(-1, keepdims=True)), W, X)
    assert reasons(every_fourth, "w")[1] == "tied by a slice; a finer symmetry may exist"
    params = W | {"v": np.ones((2, 6, 6), np.float32), "head": np.ones((6, 2), np.float32)}

    def sorted_stack(p, x):
        """A sort of stacked values does not tell which part it sorts."""
        first, second = jnp.sort(jnp.einsum("bd,cde->cbe", jnp.tanh(x @ p["w"]), p["v"]), 1)
        return jnp.tanh(first) @ p["head"] + jnp.sin(second) @ p["head"][::1]

    tied = bayesin.discover(sorted_stack, params, X)
    remarks = {line.group: line.remark for line in bayesin.symmetry.explain(tied).groups}
    assert "tied by a slice; a finer symmetry may exist" in remarks.values() and "" in remarks.values()
    again = bayesin.PermutationSpec.from_json(tied.to_json())
    assert {line.group: line.remark for line in bayesin.symmetry.explain(again).groups} == remarks
    case = unit_case("reshaped in two ways")
    assert "a finer symmetry may exist" in reasons(bayesin.discover(case.apply, case.params, case.x), "w")[1]


def test_equations_are_counted_as_make_jaxpr_prints_them():
    """Equations that do not reach the output are skipped, not forgotten in the count."""

    def apply(p, x):
        jnp.cos(x), jnp.tanh(p["w"])
        return lax.cumsum(x @ p["w"], 1) @ p["head"]

    jaxpr = jax.make_jaxpr(apply)(W, X)
    (number,) = (i for i, e in enumerate(jaxpr.eqns) if e.primitive.name == "cumsum")
    assert reasons(bayesin.discover(apply, W, X), "w")[1] == f"`cumsum` depends on the order, equation {number}"


@pytest.mark.parametrize("change", ["parameter", "attribute", "shape"])
def test_a_primitive_that_changed_is_frozen(monkeypatch, change):
    """A later JAX may rename a parameter or give a primitive another meaning: then nothing is claimed about it."""

    def changed(equation, *arrays):
        if change == "parameter":
            return equation.params["renamed"]
        if change == "attribute":
            return equation.params["dimension_numbers"].renamed
        return [((), *array) for array in arrays[:1]]

    monkeypatch.setitem(RULES, "dot_general", changed)
    spec = bayesin.discover(unit(jnp.tanh), W, X)
    assert spec.sizes == {}
    assert reasons(spec, "w")[1] == "`dot_general` is not supported, equation 0"


def test_what_prints_does_not_fix():
    def apply(p, x):
        h = x @ p["w"]
        jax.debug.callback(lambda h: None, h)
        return h @ p["head"]

    assert bayesin.discover(apply, W, X).sizes == {"g0": 6}


def test_memory_that_is_written_fixes_what_is_written():
    """An equation without outputs may still hand something on."""

    def apply(p, x):
        total = jax.new_ref(jnp.zeros((2, 6)))
        total[...] += x @ p["w"]
        return total[...] @ p["head"]

    spec = bayesin.discover(apply, W, X)
    assert spec.sizes == {}
    assert "is not supported" in reasons(spec, "w")[1]


def test_every_rule_is_exercised():
    """Each primitive with a rule of its own stands in a case of these tests, and exists in this JAX."""
    cases = [*map(unit_case, UNIT_CASES), *map(vector_case, VECTOR_CASES), *ARCHITECTURES.values()]
    jaxprs = [jax.make_jaxpr(case.apply)(case.params, case.x).jaxpr for case in cases]
    seen = {equation.primitive.name for jaxpr in jaxprs for equation in equations(jaxpr)}
    # of each of these another one with the same rule is there
    alike = {"closed_call", "composite", "custom_vmap_call", "cummin", "argmin", "reduce_window_min", "reduce_xor"}
    alike |= {"scatter-sub", "scatter-mul", "scatter-min", "scatter-max"}
    assert set(RULES) - set(basic.RULES) - alike <= seen
