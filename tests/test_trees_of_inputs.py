"""Inputs that are a dict of arrays go through every verb, and give what the same numbers in one array give.

The network with two inputs joins them and is otherwise the other; verbs take it as a `Model`, the other as an apply.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayesin
import training_toys as toys
from bayesin import costs, data, models
from bayesin.errors import DataError
from cli_toys import call

X, Y = toys.blobs()
KEY = jax.random.key(0)
PARTS = {"left": X[:, :2], "right": X[:, 2:]}
ONE = toys.mlp().apply
TWO = models.from_functions(
    toys.mlp().init, lambda params, x: ONE(params, jnp.concatenate([x["left"], x["right"]], 1)), name="two parts"
)
NETS = [toys.mlp().init(jax.random.key(seed)) for seed in range(4)]
SPEC = bayesin.discover(ONE, NETS[0], X[:2])

VERBS = {
    "discover": lambda net, x: bayesin.discover(net, NETS[0], jax.tree.map(lambda leaf: leaf[:2], x)).sizes,
    "align": lambda net, x: bayesin.align(*NETS[:2], SPEC, key=KEY, cost=costs.Activations(net, x)).perms,
    "incoming": lambda net, x: bayesin.align(*NETS[:2], SPEC, key=KEY, cost=costs.Incoming(net, x)).perms,
    "barrier": lambda net, x: bayesin.barrier(bayesin.geodesic(*NETS[:2]), net, (x, Y), key=KEY, taus=3).nll,
    "rescale": lambda net, x: bayesin.rescale(bayesin.geodesic(*NETS[:2]), net, x, key=KEY)(0.5).mean,
    "labels": lambda net, x: (
        bayesin.rescale(bayesin.geodesic(*NETS[:2]), net, x, key=KEY, labels=Y, steps=2)(0.5).mean
    ),
    "ends": lambda net, x: (
        bayesin.rescale(bayesin.geodesic(*NETS[:2]), net, x, key=KEY, labels="ends", steps=2)(0.5).mean
    ),
    "merge": lambda net, x: bayesin.merge(NETS, SPEC, key=KEY, apply=net, x=x).posterior,
    "compact": lambda net, x: bayesin.compact(NETS, SPEC, key=KEY, match="activations", apply=net, x=x).posterior.std,
    "evaluate": lambda net, x: bayesin.evaluate(NETS[0], net, (x, Y), key=None).log_likelihood,
    "linearised": lambda net, x: bayesin.predict(NETS[0], bayesin.linearised(net, NETS[1]), x, key=None).log_probs,
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_dict_of_inputs_is_one_array_in_parts(verb):
    found, expected = VERBS[verb](TWO, PARTS), VERBS[verb](ONE, X)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("x", [{"left": X, "right": X[:5]}, X[:1], np.float32(1.0)])
def test_inputs_that_count_nothing_are_named(x):
    with pytest.raises(DataError, match="need two or more inputs, batch first"):
        bayesin.rescale(bayesin.geodesic(*NETS[:2]), TWO, x, key=KEY)


TOKENS = """
from flax import nnx
class Net(nnx.Module):
    def __init__(self, rngs):
        self.words, self.out = nnx.Embed(5, 4, rngs=rngs), nnx.Linear(4, 3, rngs=rngs)
    def __call__(self, x):
        return self.out((self.words(x["ids"]) * x["mask"][..., None]).sum(1))
"""


def test_tokens_and_their_mask_in_a_file_go_through_the_command_line(tmp_path, monkeypatch, capsys):
    """What --data names is prepared as the run's data were: tokens that were standardised would be others."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(TOKENS)
    ids, mask = np.random.default_rng(0).integers(0, 5, (60, 6)), np.ones((60, 6), np.float32)
    parts = {"x_train/ids": ids, "x_train/mask": mask, "x_test/ids": ids[:30], "x_test/mask": mask[:30]}
    np.savez("tokens.npz", **parts, y_train=ids[:, 0] % 3, y_test=ids[:30, 0] % 3)
    read = data.load("tokens.npz", normalise="none")
    assert read.input_shape == {"ids": (6,), "mask": (6,)} and read.x_train["ids"].dtype == np.int32
    train = ["train", "--data", "tokens.npz", "--model", "net.py:Net", "--method", "ensemble", "--members", 2]
    code, _, said = call(capsys, *train, "--epochs", 1, "--batch", 20, "--out", "run")
    assert code == 2 and "--normalise none" in " ".join(said.split())
    code, _, said = call(capsys, *train, "--epochs", 1, "--batch", 20, "--out", "run", "--normalise", "none")
    assert code == 0, said
    code, kept, said = call(capsys, "evaluate", "run#0", "--model", "net.py:Net")
    assert code == 0, said
    code, named, said = call(capsys, "evaluate", "run#0", "--model", "net.py:Net", "--data", "tokens.npz")
    assert code == 0 and named["scores"] == kept["scores"], said
    assert call(capsys, "align", "run#0", "run#1", "--model", "net.py:Net", "--out", "aligned")[0] == 0
