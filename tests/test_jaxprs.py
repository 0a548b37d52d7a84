"""Trees as paths, and programs as equations: what everything else stands on."""

from collections import OrderedDict

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from bayesin import jaxprs
from bayesin.errors import ModelError, first_line
from bayesin.trees import check_same_structure, flatten, map_with_path, unflatten

KEYS = st.text(max_size=4)
NESTED = st.recursive(st.integers(), lambda inner: st.dictionaries(KEYS, inner, min_size=1, max_size=3), max_leaves=8)


@settings(deadline=None, max_examples=100, derandomize=True)
@given(st.dictionaries(KEYS, NESTED, min_size=1, max_size=3))
def test_a_nested_dict_survives_its_flat_form(tree):
    """Whatever the keys are: slashes, per cent signs, nothing at all."""
    flat = flatten(tree)
    assert unflatten(flat) == tree
    assert list(flat.values()) == jax.tree.leaves(tree)
    assert map_with_path(lambda path, leaf: flat[path] == leaf, tree) == jax.tree.map(lambda leaf: True, tree)


@pytest.mark.parametrize(
    "tree, message",
    [
        (OrderedDict({1: 0, "1": 0}), r"two leaves have the path '1': \[1\] and \['1'\]"),
        ({"a": OrderedDict({"0": 0, 0: 0})}, "two leaves have the path 'a/0'"),
        ({1: 0, "1": 0}, "cannot be sorted"),
    ],
)
def test_two_leaves_of_one_path_are_refused_by_name(tree, message):
    with pytest.raises(ModelError, match=message):
        flatten(tree)


def test_flat_forms_that_are_no_tree_are_refused():
    with pytest.raises(ModelError, match="'a/b' runs through a leaf"):
        unflatten({"a": 0, "a/b": 1})
    with pytest.raises(ModelError, match="'a' is named twice"):
        unflatten({"a/b": 0, "a": 1})


def test_trees_that_differ_say_where():
    tree = {"a": np.ones(2), "b": np.ones(3)}
    check_same_structure(tree, tree, "posteriors")
    for other, message in [
        ({"a": np.ones(2)}, "posteriors: 'b' is in the first tree only"),
        ({**tree, "c": np.ones(1)}, "'c' is in the second tree only"),
        ({**tree, "b": np.ones(4)}, r"'b' has shape \(3,\) in the first tree and \(4,\) in the second"),
    ]:
        with pytest.raises(ModelError, match=message):
            check_same_structure(tree, other, "posteriors")


def test_the_first_line_of_an_error_is_one_line_people_read():
    assert first_line(ValueError("\n  said\nmore")) == "said"
    assert first_line(AssertionError()) == "AssertionError"
    assert len(first_line(ValueError("x" * 1000), limit=50)) == 50


def nested(params, x):
    """A convolution in a loop in a branch in a call."""

    def convolve(h):
        return lax.conv(h, params["k"], (1, 1), "SAME")

    def loop(h):
        return lax.fori_loop(0, 2, lambda _, h: convolve(h), h)

    return jax.jit(lambda h: lax.cond(h.sum() > 0, loop, lambda h: h, h))(x)


def test_equations_inside_of_calls_loops_and_branches_are_found():
    params, x = {"k": jnp.ones((2, 2, 3, 3))}, jnp.ones((1, 2, 4, 4))
    names = [e.primitive.name for e in jaxprs.equations(jax.make_jaxpr(nested)(params, x).jaxpr)]
    assert names.count("conv_general_dilated") == 1 and {"jit", "cond"} <= set(names)
    assert jaxprs.has_convolution(nested, params, x)
    # a name is not enough
    assert not jaxprs.has_convolution(lambda p, x: jax.named_call(jnp.sin, name="conv_general_dilated")(x), params, x)


def mlp(params, x):
    return jax.nn.relu(x @ params["w0"] + params["b0"][None]) @ params["w1"]


PARAMS = {"w0": jnp.ones((4, 500)), "b0": jnp.arange(500.0), "w1": jnp.ones((500, 3))}


def test_every_value_is_computed_as_the_program_does():
    x = jnp.ones((2, 4))
    values = jaxprs.values(mlp, PARAMS, x)
    hidden = jax.nn.relu(x @ PARAMS["w0"] + PARAMS["b0"][None])
    assert any(v.shape == hidden.shape and bool((v == hidden).all()) for v in values)  # relu, inside of its call
    np.testing.assert_allclose(values[-1], mlp(PARAMS, x), rtol=1e-6)
    traced = jax.jit(lambda params, x: jaxprs.values(mlp, params, x))(PARAMS, x)
    assert [v.shape for v in traced] == [v.shape for v in values]


def test_the_largest_activation_of_one_example():
    assert jaxprs.activation_bytes(mlp, PARAMS, np.ones((9, 4), np.float32)) == 500 * 4
    assert jaxprs.activation_bytes(lambda p, x: x.sum(1), {}, np.ones((9, 70), np.float32)) == 70 * 4  # its input
    # a large parameter that is transformed does not grow with the batch
    assert (
        jaxprs.activation_bytes(lambda p, x: x @ jnp.tanh(p["w"]), {"w": jnp.ones((4, 900))}, np.ones((9, 4))) == 3600
    )


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float16"])
def test_the_coarsest_type_counts(kind):
    jaxpr = jax.make_jaxpr(lambda x: lax.fori_loop(0, 2, lambda _, h: h.astype(kind).astype("float32") + 1, x))(1.0)
    assert jaxprs.coarsest_eps(jaxpr.jaxpr) == float(jnp.finfo(kind).eps)
    assert jaxprs.coarsest_eps(jax.make_jaxpr(lambda x: x + 1)(1).jaxpr) == 0


def test_any_callable_can_be_a_key_of_a_compiled_program():
    class Network(eqx.Module):
        scale: jax.Array

        def __call__(self, params, x):
            return self.scale * x

    network = Network(jnp.ones(3))
    with pytest.raises(TypeError):
        hash(network)
    apply = jaxprs.hashable(network)
    assert hash(apply) == hash(apply) and bool((apply({}, jnp.ones(3)) == 1).all())
    assert jaxprs.hashable(mlp) is mlp
    with pytest.raises(ModelError, match="a Model or a function apply"):
        jaxprs.hashable(3)


def _running(params, x):
    """Two loops, one in the other, one backwards; a carry, rows of results, constants of the body."""

    def inner(state, row):
        return state + row, state * 2

    def outer(carry, row):
        total, _ = lax.scan(inner, row[0], row)
        carry = jnp.tanh(carry * params["a"] + total)
        return carry, (carry, total)

    last, (states, totals) = lax.scan(outer, jnp.zeros(3), x, reverse=True)
    return last + params["b"], states, jnp.cumsum(totals, 0)


@pytest.mark.parametrize("limit, seen", [(5_000, 5), (40, 3), (1, 1)])
def test_a_network_whose_loops_are_written_out_computes_what_it_did(monkeypatch, limit, seen):
    """All of their turns, some, or the last alone, behind a loop of the others."""
    monkeypatch.setattr(jaxprs, "WRITTEN_OUT", limit)
    params = {"a": np.float32(0.3), "b": np.arange(3, dtype=np.float32)}
    x = np.random.default_rng(0).normal(size=(5, 4, 3)).astype(np.float32)
    flat = jaxprs.unrolled(_running, params, x)
    assert [step.primitive for step in jaxprs.steps(flat, params, x)].count("tanh") == seen
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), flat(params, x), _running(params, x))
    assert jaxprs.unrolled(_running, params, x) is flat  # what is known of it is found again


def test_loops_of_unknown_length_and_of_no_turn_stay():
    def until(params, x):
        return lax.while_loop(lambda v: v.sum() < 9, lambda v: v * 2, x * params)

    assert jaxprs.unrolled(until, np.ones(()), np.ones(3)) is until
    empty = lambda p, x: lax.scan(lambda h, row: (h + row, row), p, x)  # noqa: E731
    flat = jaxprs.unrolled(empty, np.ones(2), np.ones((0, 2)))
    assert flat(np.ones(2), np.ones((0, 2)))[1].shape == (0, 2)
