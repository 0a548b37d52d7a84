"""`bayesin explain`: built-in models, the user's own, spec files, and what can go wrong with each."""

import json
import math
import sys

import pytest

from bayesin.cli.main import main
from bayesin.symmetry import PermutationSpec, drawing, fold_names

OWN = '''
"""A user's file."""
import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from bayesin import models
from neighbour import HIDDEN

class Small(nnx.Module):
    def __init__(self, rngs):
        self.first, self.second = nnx.Linear(5, HIDDEN, rngs=rngs), nnx.Linear(HIDDEN, 2, rngs=rngs)

    def __call__(self, x):
        return self.second(nnx.relu(self.first(x)))

def flax_nnx():
    print("made on the way")
    return Small(nnx.Rngs(0))

model = models.from_nnx(Small)
linen = nn.Sequential([nn.Dense(HIDDEN), nn.relu, nn.Dense(2)])
equinox = eqx.nn.MLP(5, 2, HIDDEN, 1, key=jax.random.key(0))
haiku = hk.transform(lambda x: hk.nets.MLP([HIDDEN, 2])(x))
pair = (haiku, jnp.ones((1, 5)))

def init():
    return {"a": np.ones((5, HIDDEN)), "b": np.ones((HIDDEN, 2))}

def triple():
    return lambda params, x: jnp.tanh(x @ params["a"]) @ params["b"], init(), jnp.ones((1, 5))

def sorting():
    return lambda params, x: jnp.sort(x @ params["a"]) @ params["b"], init(), jnp.ones((1, 5))

def untraceable():
    return lambda params, x: x @ params["a"] if float(x[0, 0]) > 0 else x, init(), jnp.ones((1, 5))

def broken():
    return 1 / 0

def leaves():
    raise SystemExit("goodbye")

number = 3
four = (1, 2, 3, 4)

class Space:
    inside = pair
'''


def _line(text):
    return next(number for number, line in enumerate(OWN.splitlines(), 1) if text in line)


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_model.py").write_text(OWN)
    (tmp_path / "neighbour.py").write_text("HIDDEN = 7")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in ("own_model", "neighbour", "_bayesin_own_model"):
        sys.modules.pop(name, None)


def _json(capsys, *arguments):
    assert main(["explain", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def _fails(capsys, *arguments, code=2):
    assert main(["explain", *arguments]) == code
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err and len(printed.err.strip().splitlines()) == 1
    return printed.err


def test_mlp(capsys):
    result = _json(capsys, "mlp", "--data", "digits", "--width", "9", "--depth", "2")
    assert [(line["group"], line["size"]) for line in result["groups"]] == [("g0", 9), ("g1", 9)]
    assert result["parameters"] == 64 * 9 + 9 + 9 * 9 + 9 + 9 * 10 + 10
    assert result["log10_copies"] == pytest.approx(2 * math.log10(math.factorial(9)))
    assert 0 <= result["largest_change"] < 1e-10
    reasons = {line["tensor"]: line["reason"] for line in result["fixed"]}
    assert reasons["layers/0/kernel[0]"] == "joined to the input"
    assert reasons["layers/2/kernel[1]"] == reasons["layers/2/bias[0]"] == "output"


@pytest.mark.parametrize("norm, tensors", [("layernorm", 65), ("frn", 84)])
def test_resnet20_has_a_stream_for_each_stage_and_a_group_for_each_block(capsys, norm, tensors):
    result = _json(capsys, "resnet20", "--input-shape", "8", "8", "1", "--norm", norm, "--no-verify")
    assert sorted(line["size"] for line in result["groups"]) == [16] * 4 + [32] * 4 + [64] * 4
    assert result["tensors"] == tensors and result["largest_change"] is None


def test_a_table_for_people(capsys):
    assert main(["explain", "mlp", "--input-shape", "6", "--classes", "3", "--width", "4", "--depth", "1"]) == 0
    printed = capsys.readouterr().out
    assert "g0" in printed and "joined to the input" in printed and "layers/0/kernel[1]" in printed
    assert "10^1 settings" in printed and "Verified" in printed


@pytest.mark.parametrize("attribute", ["model", "flax_nnx", "linen", "equinox", "haiku"])
def test_ones_own_model_of_every_library(own, capsys, attribute):
    result = _json(capsys, f"own_model.py:{attribute}", "--input-shape", "5")
    assert [line["size"] for line in result["groups"]] == [7]
    assert result["largest_change"] < 1e-10


@pytest.mark.parametrize("address", ["own_model:pair", "own_model:triple", "own_model.py:Space.inside"])
def test_models_that_bring_their_input(own, capsys, address):
    assert [line["size"] for line in _json(capsys, address)["groups"]] == [7]


def test_an_operation_that_is_not_supported_is_named(own, capsys):
    result = _json(capsys, "own_model.py:sorting")
    assert result["groups"] == []
    assert any("sort" in line["reason"] for line in result["fixed"])


def test_a_spec_is_saved_explained_and_edited(own, capsys):
    first = _json(capsys, "own_model:triple", "--out", "folder/spec.json")
    again = _json(capsys, "folder/spec.json")
    assert again["groups"] == first["groups"] and again["fixed"] == first["fixed"]
    saved = json.loads((own / "folder" / "spec.json").read_text())
    assert PermutationSpec.from_json(saved).sizes == {"g0": 7}
    saved["parameters"]["a"][1] = "6"
    (own / "edited.json").write_text(json.dumps(saved))
    assert _json(capsys, "edited.json")["groups"][0]["tensors"] == ["b[0]"]
    saved["groups"]["g0"] = 0
    (own / "edited.json").write_text(json.dumps(saved))
    assert "group 'g0' needs a positive whole size" in _fails(capsys, "edited.json")


BAD = {
    "typo": (["reznet20"], "did you mean 'resnet20'?"),
    "unknown": (["transformer"], "there is no model 'transformer'"),
    "data typo": (["mlp", "--data", "fashion-mnits"], "did you mean 'fashion-mnist'?"),
    "no images": (["resnet20", "--input-shape", "64"], "resnet20 takes images"),
    "width": (["mlp", "--width", "0"], "width must be a whole number of at least 1"),
    "two shapes": (["mlp", "--data", "mnist", "--input-shape", "64"], "leave one out"),
    "no spec": (["missing.json"], "cannot read missing.json"),
    "no file": (["missing.py:model"], "there is no file missing.py"),
    "no module": (["missing_module:model"], "ModuleNotFoundError: No module named 'missing_module'"),
    "no attribute": (["own_model.py:"], "is not the address of a model"),
    "unknown attribute": (["own_model.py:equinoxe"], "did you mean 'equinox'?"),
    "no input": (["own_model.py:equinox"], "comes without an example input"),
    "wrong input": (["own_model.py:equinox", "--input-shape", "6"], "input of shape (2, 6)"),
    "raises": (["own_model.py:broken"], f"failed, line {_line('1 / 0')}: ZeroDivisionError: division by zero"),
    "leaves": (["own_model.py:leaves"], f"failed, line {_line('SystemExit')}: SystemExit: goodbye"),
    "not a model": (["own_model.py:number"], "is 3; it should be a bayesin Model"),
    "too many": (["own_model.py:four"], "holds 4 values"),
    "not traceable": (["own_model.py:untraceable"], "trace"),
    "syntax": (["syntax.py:model"], "syntax.py failed, line 2: SyntaxError"),
    "not a name": (["some/thing:model"], "neither a Python file nor the name of a module"),
}


@pytest.mark.parametrize("arguments, message", BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_line(own, capsys, arguments, message):
    (own / "syntax.py").write_text("model = 1\nmodel = = 2\n")
    assert message in " ".join(_fails(capsys, *arguments).split())


def test_names_that_differ_in_a_number_are_one():
    names = [f"blocks/{i}/w[0]" for i in (0, 1, 2, 10)] + ["blocks/4/v[0]", "dense/b"]
    assert fold_names(names) == "blocks/{0-2,10}/w[0], blocks/4/v[0], dense/b"
    assert fold_names(["a%2Fb/1/w", "a%2Fb/2/w"]) == "a/b/{1,2}/w"
    assert fold_names(["block_0/w[0]", "block_0/w[1]", "block_1/w[0]", "block_1/w[1]"]) == (
        "block_{0,1}/w[0], block_{0,1}/w[1]"
    )
    assert fold_names([]) == ""


def test_equal_layers_share_a_row_and_a_picture_is_drawn(own, capsys):
    heads = {f"block_{i}/w": ["5", f"h{i} * q{i}[h{i}]"] for i in range(3)}
    groups = {f"h{i}": 2 for i in range(3)} | {f"q{i}[h{i}]": 4 for i in range(3)}
    PermutationSpec.parse(heads, groups).save(own / "spec.json")
    assert main(["explain", "spec.json", "--svg", "spec.svg"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "q{0-2}" in printed and "2 of h{0-2}" in printed and "block_{0-2}/w[1]" in printed
    drawn = (own / "spec.svg").read_text()
    assert drawn.startswith("<svg") and drawn.count("<rect") == 1 + 1 + 3
    assert "block_{0-2}" in drawn and "× 3" in drawn
    assert drawn.count('class="rail"') == 2 and "<title>q{0-2}: 2 × 4, 3 groups</title>" in drawn


def test_layers_that_share_a_stream_repeat_and_those_in_a_chain_do_not():
    def drawn(parameters, groups, order=()):
        shapes = drawing(PermutationSpec.parse(parameters, groups), order)["shapes"]
        texts = {kind: [one["text"] for one in shapes if one["kind"] == kind] for kind in ("name", "times")}
        return texts["name"], texts["times"], sum(one["kind"] == "rail" for one in shapes)

    chain = {f"{i}/w": [f"g{i}", f"g{i + 1}"] for i in range(3)}
    names = ["2", "0", "1"]
    order = [f"{name}/w" for name in names]
    assert drawn(chain, {f"g{i}": 4 for i in range(4)}, order) == (names, [], 4)
    stream = {"a/w": ["3", "s"], "z/w": ["s", "3"]}
    stream |= {f"{i}/in": ["s", f"u{i}"] for i in range(3)} | {f"{i}/out": [f"u{i}", "s"] for i in range(3)}
    order = ["a/w", *(f"{i}/{name}" for i in range(3) for name in ("in", "out")), "z/w"]
    assert drawn(stream, {"s": 4} | {f"u{i}": 5 for i in range(3)}, order) == (["a", "{0-2}", "z"], ["× 3"], 2)
    stream["z/v"] = ["u0", "u1"]  # units that something else has, too, are no repetition
    assert drawn(stream, {"s": 4} | {f"u{i}": 5 for i in range(3)}, order)[1] == []
