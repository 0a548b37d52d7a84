"""Hidden activations found in the jaxpr, and similarities streamed over data."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesin.compact import compact
from bayesin.errors import ModelError
from bayesin.inputs import cut
from bayesin.matching import activation_similarity
from bayesin.models import build
from bayesin.posteriors import Samples
from bayesin.symmetry import PermutationSpec, discover, hidden_activations, permute

KEY = jax.random.key(5)
RNG = np.random.default_rng(0)


def dense(params, x):
    hidden = jax.nn.gelu(x @ params["w0"] + params["b0"][None])
    return jax.jit(lambda h: jnp.tanh(h @ params["w1"]))(hidden) @ params["w2"]


DENSE = {"w0": (5, 7), "b0": (7,), "w1": (7, 4), "w2": (4, 3)}


def test_activations_of_each_layer_are_those_after_the_non_linearity():
    params = {path: RNG.normal(size=shape).astype(np.float32) for path, shape in DENSE.items()}
    x = RNG.normal(size=(7, 5)).astype(np.float32)  # as many examples as units: no excuse for confusing axes
    spec = discover(dense, params, x)
    for apply in (dense, jax.jit(dense)):
        found = hidden_activations(apply, params, x, spec, key=KEY)(params, x)
        hidden = jax.nn.gelu(x @ params["w0"] + params["b0"][None])
        np.testing.assert_allclose(found["g0"], hidden, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found["g1"], np.tanh(hidden @ params["w1"]), rtol=1e-4, atol=1e-5)


def test_the_builtin_mlp_and_other_batch_sizes():
    model = build("mlp", (3, 3, 1), 4, width=6, depth=2)
    params = model.init(KEY)
    x = RNG.normal(size=(11, 3, 3, 1)).astype(np.float32)
    spec = discover(model.apply, params, x)
    found = jax.jit(hidden_activations(model.apply, params, x[:3], spec, key=KEY))(params, x)
    assert {group: value.shape for group, value in found.items()} == {"g0": (11, 6), "g1": (11, 6)}
    assert all(float(value.min()) == 0 for value in found.values())  # after the ReLU


def test_channels_of_a_convolution_are_compared_over_all_places():
    def apply(params, x):
        hidden = jax.nn.relu(jax.lax.conv_general_dilated(x, params["k"], (1, 1), "SAME", dimension_numbers=LAYOUT))
        return hidden.reshape(len(x), -1) @ params["w"]

    params = {"k": RNG.normal(size=(3, 3, 2, 5)).astype(np.float32), "w": RNG.normal(size=(80, 3)).astype(np.float32)}
    x = RNG.normal(size=(6, 4, 4, 2)).astype(np.float32)
    spec = discover(apply, params, x)
    assert spec.sizes == {"g0": 5}
    activations = hidden_activations(apply, params, x, spec, key=KEY)
    assert activations(params, x)["g0"].shape == (6, 4, 4, 5)
    shuffle = {"g0": np.array([3, 0, 4, 1, 2])}
    samples = Samples.stack([params, permute(params, spec, shuffle)])
    found = compact(samples, spec, key=KEY, reference="first", match="activations", apply=apply, x=x)
    np.testing.assert_array_equal(found.perms["g0"][1], np.argsort(shuffle["g0"]))


LAYOUT = ("NHWC", "HWIO", "NHWC")


def test_similarities_are_the_direct_sums_whatever_the_chunks():
    reference = {"w": RNG.normal(size=(4, 3)).astype(np.float32)}
    stack = {"w": RNG.normal(size=(2, 4, 3)).astype(np.float32)}
    stack["w"][1, :, 2] = 0  # a unit that never varies
    x = RNG.normal(size=(23, 4)).astype(np.float32) + 0.5

    def activations(params, x):
        return {"g0": x @ params["w"]}

    ours, theirs = x @ reference["w"], np.einsum("pi,bij->bpj", x, stack["w"])
    chunks = cut(x, np.zeros(23, np.int32), 10)
    raw = activation_similarity(activations, reference, stack, chunks, correlation=False)["g0"]
    np.testing.assert_allclose(raw, np.einsum("pi,bpj->bij", ours, theirs), rtol=1e-4, atol=1e-3)
    scaled = activation_similarity(activations, reference, stack, chunks, correlation=True)["g0"]
    np.testing.assert_allclose(scaled[0], np.corrcoef(ours.T, theirs[0].T)[:3, 3:], atol=1e-4)
    np.testing.assert_allclose(scaled[1][:, 2], 0)


@pytest.mark.parametrize("match", ["activations", "correlations"])
def test_an_anti_correlated_unit_is_no_match(match):
    spec = PermutationSpec.parse({"w": ["2", "g0"]}, {"g0": 2})
    # on centred inputs: unit 0 of the sample is minus unit 0 of the reference, and weakly like its unit 1
    reference = np.array([[1.0, 0.0], [0.0, 1.0]], np.float32)
    sample = np.array([[-1.0, 0.3], [0.1, -0.1]], np.float32)
    x = RNG.normal(size=(400, 2)).astype(np.float32)
    x -= x.mean(0)
    found = compact(
        Samples({"w": np.stack([reference, sample])}),
        spec,
        key=KEY,
        reference="first",
        match=match,
        x=x,
        activations=lambda params, x: {"g0": x @ params["w"]},
    )
    assert found.perms["g0"][1].tolist() == [1, 0]


def test_what_cannot_be_found_is_said():
    spec = PermutationSpec.parse({"w": ["4", "3"], "unused": ["g0"]}, {"g0": 3})
    params = {"w": np.ones((4, 3), np.float32), "unused": np.ones(3, np.float32)}
    with pytest.raises(ModelError, match="no value inside the network follows group 'g0'"):
        hidden_activations(lambda p, x: x @ p["w"], params, np.ones((2, 4), np.float32), spec, key=KEY)
