"""The verifier refuses every planted error, however small, and names the group and the tensor."""

import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import bayesin
from bayesin.errors import ConfigError, InconclusiveWarning, ModelError, SpecError, SymmetryError
from bayesin.symmetry import PermutationSpec, check_same_function, permute
from symmetry_checks import edited, normal, weights

KEY = jax.random.key(0)
X = normal(1, 2, 5, scale=1.0)


def mlp(p, x):
    return jnp.tanh(jax.nn.relu(x @ p["w0"] + p["b0"][None]) @ p["w1"] + p["b1"][None]) @ p["w2"]


PARAMS = weights(w0=(5, 6), b0=(6,), w1=(6, 6), b1=(6,), w2=(6, 3))
FRESH = {path: np.zeros_like(a) if a.ndim == 1 else a for path, a in PARAMS.items()}  # zero biases
SPEC = bayesin.discover(mlp, PARAMS, X)  # g0: w0, b0, w1; g1: w1, b1, w2


def test_a_right_spec_passes_to_rounding():
    assert bayesin.verify(mlp, PARAMS, X, SPEC, key=KEY) < 1e-12


def test_the_same_key_gives_the_same_number():
    first, second = (bayesin.verify(mlp, PARAMS, X, SPEC, key=jax.random.key(7)) for _ in range(2))
    assert first == second


PLANTED = {
    "bias left out": (edited(SPEC, "b0", 0, 0, None), "g0", "axis 0 of 'b0' should move with it"),
    "kernel left out": (edited(SPEC, "w2", 0, 0, None), "g1", "axis 0 of 'w2' should move with it"),
    "output permuted": (edited(SPEC, "w2", 1, 0, "g9"), "g9", "axis 1 of 'w2' does not belong to it"),
    "input permuted": (edited(SPEC, "w0", 0, 0, "g9"), "g9", "axis 0 of 'w0' does not belong to it"),
    "bias in the wrong group": (edited(SPEC, "b1", 0, 0, "g0"), "g0", "axis 0 of 'b1' does not belong to it"),
    "axes of a square kernel swapped": (
        edited(edited(SPEC, "w1", 0, 0, "g1"), "w1", 1, 0, "g0"),
        "g0",
        "axes 0 and 1 of 'w1' are swapped",
    ),
}


@pytest.mark.parametrize("params", [PARAMS, FRESH], ids=["random", "freshly initialised"])
@pytest.mark.parametrize("name", PLANTED)
def test_planted_errors_name_group_and_tensor(name, params):
    wrong, group, verdict = PLANTED[name]
    with pytest.raises(SymmetryError, match=f"group '{group}' is not a symmetry.*{verdict}"):
        bayesin.verify(mlp, params, X, wrong, key=KEY)


def test_groups_merged_by_mistake_are_caught():
    merged = SPEC
    for path, number in (("w1", 1), ("b1", 0)):  # but not w2
        merged = edited(merged, path, number, 0, "g0")
    with pytest.raises(SymmetryError, match="group 'g0'"):
        bayesin.verify(mlp, PARAMS, X, merged, key=KEY)


def test_errors_far_below_single_precision_are_caught():
    """The wrong bias moves the output by a part in a hundred million."""

    def apply(p, x):
        return mlp(p, x) + 1e-8 * (x @ p["small"])

    params = PARAMS | weights(small=(5, 3))
    spec = bayesin.discover(apply, params, X)
    assert bayesin.verify(apply, params, X, spec, key=KEY) < 1e-12
    with pytest.raises(SymmetryError, match=r"group 'g9'.*axis 1 of 'small' does not belong to it"):
        bayesin.verify(apply, params, X, edited(spec, "small", 1, 0, "g9"), key=KEY)


def test_running_statistics_that_stay_behind_are_caught():
    """Fresh statistics (zero mean, unit variance) look the same in every order; noise tells them apart."""

    def apply(p, x):
        h = (x @ p["w0"] - p["mean"][None]) * lax.rsqrt(p["var"] + 1e-3)[None]
        return jax.nn.relu(h) @ p["w1"]

    params = weights(w0=(5, 6), w1=(6, 3)) | {"mean": np.zeros(6, np.float32), "var": np.ones(6, np.float32)}
    spec = bayesin.discover(apply, params, X)
    assert bayesin.verify(apply, params, X, spec, key=KEY) < 1e-12
    for name in ("mean", "var"):
        with pytest.raises(SymmetryError, match=f"axis 0 of '{name}' should move with it"):
            bayesin.verify(apply, params, X, edited(spec, name, 0, 0, None), key=KEY)


def test_an_input_of_zeros_hides_nothing():
    with pytest.raises(SymmetryError, match="g9"):
        wrong = edited(SPEC, "w0", 0, 0, "g9")
        bayesin.verify(mlp, PARAMS, np.zeros((2, 5), np.float32), wrong, key=KEY)


def test_shapes_alone_are_enough():
    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), PARAMS)
    x = jax.ShapeDtypeStruct((2, 5), np.float32)
    assert bayesin.verify(mlp, shapes, x, SPEC, key=KEY) < 1e-12
    with pytest.raises(SymmetryError):
        bayesin.verify(mlp, shapes, x, PLANTED["bias left out"][0], key=KEY)


@pytest.mark.promotes  # half-precision parameters on single-precision inputs
@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32"])
def test_half_precision_parameters(kind):
    params = {path: jnp.asarray(a, kind) for path, a in PARAMS.items()}
    spec = bayesin.discover(mlp, params, X)
    assert spec == SPEC
    assert bayesin.verify(mlp, params, X, spec, key=KEY) < 1e-10
    with pytest.raises(SymmetryError, match="'b0'"):
        bayesin.verify(mlp, params, X, edited(SPEC, "b0", 0, 0, None), key=KEY)


@pytest.mark.parametrize("kind", ["bfloat16", "float32"])
def test_a_model_that_computes_in_lower_precision_is_held_to_that(kind):
    def apply(p, x):
        p = jax.tree.map(lambda a: a.astype(kind), p)
        return mlp(p, x.astype(kind)).astype(jnp.float32)

    gap = bayesin.verify(apply, PARAMS, X, SPEC, key=KEY)
    assert gap < float(jnp.finfo(kind).eps) ** (2 / 3)
    with pytest.raises(SymmetryError, match="group 'g0'"):
        bayesin.verify(apply, PARAMS, X, edited(SPEC, "w1", 0, 0, None), key=KEY)


def test_a_model_that_refuses_double_precision_is_checked_in_its_own():
    """The loop's state is single precision by decree."""

    def apply(p, x):
        h, _ = lax.scan(lambda h, _: (jnp.tanh(h @ p["w"]), None), jnp.ones((2, 6), jnp.float32), None, length=2)
        return (h + x @ p["i"]) @ p["head"]

    params = weights(w=(6, 6), i=(5, 6), head=(6, 3))
    spec = bayesin.discover(apply, params, X)
    assert 0 <= bayesin.verify(apply, params, X, spec, key=KEY) < 2e-5
    with pytest.raises(SymmetryError):
        bayesin.verify(apply, params, X, edited(spec, "i", 1, 0, None), key=KEY)


@pytest.mark.promotes
def test_integer_parameters_and_tokens():
    def apply(p, tokens):
        return jnp.tanh(p["table"][tokens] * p["on"] + p["count"]) @ p["head"]

    params = weights(table=(7, 6), head=(6, 3)) | {"on": np.arange(6, dtype=np.int32), "count": np.int32(3)}
    tokens = np.array([[0, 6], [2, 1]], np.int32)
    spec = bayesin.discover(apply, params, tokens)
    assert spec.sizes == {"g0": 6}
    assert bayesin.verify(apply, params, tokens, spec, key=KEY) < 1e-10
    assert bayesin.verify(apply, params, jax.ShapeDtypeStruct((2, 2), np.int32), spec, key=KEY) < 1e-10
    with pytest.raises(SymmetryError, match="'on'"):
        bayesin.verify(apply, params, tokens, edited(spec, "on", 0, 0, None), key=KEY)


def test_complex_parameters_and_several_outputs():
    def apply(p, x):
        h = jnp.fft.fft(x) @ p["w"]
        return {"power": jnp.abs(h).sum(-1), "class": jnp.argmax(jnp.abs(h @ p["v"]), -1)}

    params = {"w": normal(0, 5, 6) + 1j * normal(1, 5, 6), "v": normal(2, 6, 3) + 0j}
    params = {path: a.astype(np.complex64) for path, a in params.items()}
    spec = bayesin.discover(apply, params, X)
    assert spec.sizes == {"g0": 6}
    assert bayesin.verify(apply, params, X, spec, key=KEY) < 1e-10


def test_infinite_outputs_are_compared_as_they_are():
    def apply(p, x):
        return jnp.concatenate([mlp(p, x), jnp.full((2, 1), -jnp.inf)], -1)

    assert bayesin.verify(apply, PARAMS, X, SPEC, key=KEY) < 1e-12


def test_nan_weights_are_named():
    wrong = PARAMS | {"w1": np.where(np.eye(6), np.nan, PARAMS["w1"]).astype(np.float32)}
    assert bayesin.discover(mlp, wrong, X) == SPEC  # shapes are enough to discover
    with pytest.raises(ModelError, match="params: 'w1' holds NaN in 6 of 36 entries"):
        bayesin.verify(mlp, wrong, X, SPEC, key=KEY)
    with pytest.raises(ModelError, match="x holds NaN in 1 of 10 entries"):
        x = X.copy()
        x[0, 0] = np.nan
        bayesin.verify(mlp, PARAMS, x, SPEC, key=KEY)


def test_nan_outputs_are_said_to_be_that():
    with pytest.raises(ModelError, match="output holds NaN"):
        bayesin.verify(lambda p, x: jnp.log(-jnp.abs(mlp(p, x))), PARAMS, X, SPEC, key=KEY)


def test_nan_only_when_permuted_is_a_failure():
    def apply(p, x):
        return jnp.where(p["b0"][0] > p["b0"][1], jnp.nan, 1.0) * mlp(p, x)

    params = PARAMS | {"b0": np.arange(6, dtype=np.float32)}
    with pytest.raises(SymmetryError, match="group 'g0'"):
        for seed in range(20):  # some cycle puts a larger bias first
            bayesin.verify(apply, params, X, SPEC, key=jax.random.key(seed))


def test_misuse_is_refused():
    with pytest.raises(SpecError, match="'b0' is not in the spec"):
        bayesin.verify(mlp, PARAMS, X, PermutationSpec.parse({"w0": ["5", "6"]}, {}), key=KEY)
    with pytest.raises(SpecError, match="not a stack"):
        bayesin.verify(mlp, {p: np.stack([a, a]) for p, a in PARAMS.items()}, X, SPEC, key=KEY)
    with pytest.raises(ConfigError, match="at least one trial"):
        bayesin.verify(mlp, PARAMS, X, SPEC, key=KEY, trials=0)
    with pytest.raises(ModelError, match=r"input of shape \(2, 4\)"):
        bayesin.verify(mlp, PARAMS, X[:, :4], SPEC, key=KEY)
    with pytest.raises(SymmetryError, match="tolerance 0"):
        bayesin.verify(mlp, PARAMS, X, SPEC, key=KEY, tolerance=0.0, trials=5)


def test_inputs_are_left_as_they_are():
    params = {path: a.copy() for path, a in PARAMS.items()}
    for array in (*params.values(),):
        array.setflags(write=False)
    bayesin.verify(mlp, params, X, SPEC, key=KEY)
    assert all((params[path] == PARAMS[path]).all() for path in params)


# The check of two given sets of parameters

MOVED = permute(PARAMS, SPEC, SPEC.random(KEY))


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_moved_parameters_compute_the_same_function_in_any_precision(kind, scale):
    def apply(p, x):
        p = jax.tree.map(lambda a: a.astype(kind), p)
        return scale * mlp(p, x.astype(kind)).astype(jnp.float32)

    assert 0 <= check_same_function(apply, PARAMS, MOVED, X) < float(jnp.finfo(kind).eps) ** (2 / 3)
    with pytest.raises(SymmetryError, match="computes another function"):
        check_same_function(apply, PARAMS, MOVED | {"w1": PARAMS["w1"]}, X)


def test_a_change_of_a_thousandth_is_another_function():
    with pytest.raises(SymmetryError, match=r"changed by .* of their largest \(tolerance"):
        check_same_function(mlp, PARAMS, MOVED | {"w2": MOVED["w2"] * np.float32(1.001)}, X)


def test_functions_of_nan_are_not_compared():
    with pytest.raises(ModelError, match="the output holds NaN before"):
        check_same_function(mlp, PARAMS | {"b0": PARAMS["b0"] * np.nan}, MOVED, X)
    with pytest.raises(SymmetryError, match="changed by inf"):
        check_same_function(mlp, PARAMS, MOVED | {"b0": MOVED["b0"] * np.nan}, X)


# What a check that passes is worth


def test_a_group_that_could_be_wrong_unseen_is_said_to_be_inconclusive():
    """Single precision by decree, and a branch too faint for it: the spec could leave out a tensor of its group."""

    def apply(p, x):
        x = x.astype(jnp.float32)
        faint = jnp.tanh(x @ p["up"].astype(jnp.float32)) @ p["down"].astype(jnp.float32)
        return (mlp(jax.tree.map(lambda a: a.astype(jnp.float32), p), x) + 1e-9 * faint).astype(jnp.float32)

    params = PARAMS | weights(up=(5, 4), down=(4, 3))
    spec = bayesin.discover(apply, params, X)
    (faint,) = (group for group in spec.sizes if spec.touched_by(group)[0][0] == "down")
    for checked in (spec, edited(spec, "up", 1, 0, None)):  # the right one, and a wrong one that passes
        with pytest.warns(InconclusiveWarning, match=rf"1 of 3 groups \({faint}\) could be wrong.*pass trained"):
            assert bayesin.verify(apply, params, X, checked, key=KEY) < 2e-5


@pytest.mark.parametrize("faint, seen", [(1.0, True), (1e-9, True), (1e-15, False)])
def test_breaks_are_looked_for_in_single_precision_first_and_then_in_double(faint, seen, monkeypatch):
    """Where single precision shows a break, where only double precision does, and where neither."""
    monkeypatch.setattr(sys.modules["bayesin.symmetry.verify"], "GROUPS_FOR_SINGLE", 1)

    def apply(p, x):
        h = jax.lax.conv(x[:, None, :, None], p["conv"], (1, 1), "SAME")
        return jnp.tanh(h).mean((2, 3)) @ p["head"] + faint * jnp.tanh(x @ p["up"]) @ p["down"]

    params = weights(conv=(6, 1, 3, 1), head=(6, 3), up=(5, 4), down=(4, 3))
    spec, broken = bayesin.discover(apply, params, X), []
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        bayesin.verify(apply, params, X, spec, key=KEY, trials=1, on_group=lambda *done: broken.append(done))
    assert [issubclass(one.category, InconclusiveWarning) for one in raised] == [True] * (not seen)
    assert broken == [(1, 2), (2, 2)]


def test_an_index_that_is_not_there_is_caught():
    """Heads that share one output kernel: their units move together, not each in its own way."""

    def apply(p, x):
        h = jnp.tanh(x @ p["w"]).reshape(2, 4, 2)
        return jnp.einsum("bhk,ko->bo", h, p["head"])

    params = weights(w=(5, 8), head=(2, 3))
    spec = bayesin.discover(apply, params, X)
    assert spec.to_json()["parameters"] == {"head": ["g1", "3"], "w": ["5", "g0[g1] * g1"]}
    wrong = PermutationSpec.parse({"head": ["2", "3"], "w": ["5", "h * k[h]"]}, {"h": 4, "k[h]": 2})
    with pytest.raises(SymmetryError, match="group 'k' is not a symmetry"):
        bayesin.verify(apply, params, X, wrong, key=KEY)
