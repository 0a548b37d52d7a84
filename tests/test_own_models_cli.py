"""A network and data of the user's own at the command line: trained, aligned, measured, folded."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayesin
import training_toys as toys
from bayesin import data, models
from bayesin.errors import DataError, ModelError
from cli_toys import call

pytestmark = pytest.mark.promotes
TEXT = """
from flax import nnx

class Net(nnx.Module):
    def __init__(self, rngs):
        self.hidden, self.norm = nnx.Linear(4, 6, rngs=rngs), nnx.BatchNorm(6, rngs=rngs)
        self.out = nnx.Linear(6, 3, rngs=rngs)

    def __call__(self, x):
        return self.out(nnx.relu(self.norm(self.hidden(x))))

print("whatever a file says goes to standard error")
"""
MAKERS = """
import equinox as eqx, jax
from flax import linen as nn, nnx

def of_key(key): return eqx.nn.MLP(4, 3, 5, 1, key=key)
def of_rngs(rngs): return nnx.Linear(4, 3, rngs=rngs)

class Stateful(eqx.Module):
    norm: eqx.nn.BatchNorm
    out: eqx.nn.Linear
    def __init__(self, key):
        self.norm, self.out = eqx.nn.BatchNorm(4, "batch", mode="batch"), eqx.nn.Linear(4, 3, key=key)
    def __call__(self, x, state):
        x, state = self.norm(x, state)
        return self.out(x), state

class _Switched(nn.Module):
    @nn.compact
    def __call__(self, x, train: bool = False):
        return nn.Dense(3)(nn.BatchNorm(use_running_average=not train)(x))
Switched = _Switched()
"""
TRAIN = [
    "train",
    "--data",
    "mine.npz",
    "--model",
    "net.py:Net",
    "--epochs",
    "3",
    "--batch",
    "20",
    "--test-samples",
    "4",
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(TEXT)
    x, y = toys.blobs()
    np.savez("mine.npz", x_train=x, y_train=y, x_test=x[:30], y_test=y[:30])
    return tmp_path


def test_a_network_of_ones_own_goes_through_every_verb(folder, capsys):
    code, done, _ = call(capsys, *TRAIN, "--members", 2, "--out", "run")
    assert code == 0 and not done["reused"]
    own = ["--model", "net.py:Net"]
    code, _, said = call(
        capsys, "barrier", "run", "run#1", "--align", *own, "--samples", 4, "--taus", 3, "--out", "b"
    )
    assert code == 0, said
    assert list((folder / "b").glob("*.html"))
    assert call(capsys, "align", "run", "run#1", *own, "--out", "aligned")[0] == 0
    code, again, _ = call(capsys, *TRAIN, "--members", 2, "--out", "run")
    assert code == 0 and again["reused"] and again["hash"] == done["hash"]

    code, _, said = call(capsys, "barrier", "run", "run#1", "--out", "c")
    assert code == 2 and "code that is run only where you name it: --model net.py:Net" in " ".join(said.split())
    (folder / "moved.py").write_text(TEXT)
    assert call(capsys, "align", "run", "run#1", "--model", "moved.py:Net", "--out", "d")[0] == 0
    (folder / "net.py").write_text(TEXT.replace("relu", "tanh"))
    code, _, said = call(capsys, "barrier", "run", "run#1", *own, "--out", "e")
    assert code == 2 and "is not the text that run was trained with" in " ".join(said.split())
    code, _, said = call(capsys, *TRAIN, "--members", 2, "--out", "run")
    assert code == 2 and "model" in said


def test_an_ensemble_of_ones_own_is_folded(folder, capsys):
    code, done, _ = call(capsys, *TRAIN, "--method", "ensemble", "--members", 3)
    assert code == 0 and done["folder"].startswith("runs/mine-net-Net-ensemble-")
    code, _, said = call(capsys, "compact", done["folder"], "--model", "net.py:Net", "--out", "one")
    assert code == 0, said
    folded = bayesin.load_posterior(folder / "one" / "posterior-0.safetensors")
    assert not np.any(folded.std["norm"]["var"]) and np.any(folded.std["out"]["kernel"])
    first, second = (f"{done['folder']}#{member}" for member in (0, 1))  # of the one sample set
    assert call(capsys, "align", first, second, "--model", "net.py:Net", "--out", "aligned")[0] == 0


def test_what_an_address_may_hold(folder):
    (folder / "makers.py").write_text(MAKERS)
    x = jax.ShapeDtypeStruct((2, 4), jnp.float32)
    for name in ("of_key", "of_rngs", "Stateful", "Switched"):
        model = models.load_model(f"makers.py:{name}", x)
        params = model.init(jax.random.key(0))
        assert model.apply(params, jnp.ones((2, 4))).shape == (2, 3)
        assert (model.apply_train is not None) == (name in ("Stateful", "Switched"))


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--model", "nte.py:Net"], "there is no file or module nte.py"),
        (["--model", "net.py:Nte"], "there is no 'Nte'"),
        (["--model", "net.py:Net", "--width", "3"], "has sizes of its own"),
        (["--model", "mpl"], "did you mean 'mlp'"),
        (["--model", "net.py"], "or your own: file.py:model"),
        (["--model", "net.py:Net", "--preset", "paper"], "preset 'paper' is for"),
    ],
)
def test_misuse_is_one_line(folder, capsys, flags, words):
    code, _, said = call(capsys, "train", "--data", "mine.npz", *flags)
    assert code == 2 and words in " ".join(said.split())


def test_a_page_is_one_call_from_python(tmp_path):
    x, y = toys.blobs()
    parts = {"left": x[:, :2], "right": x[:, 2:]}
    mine = data.from_arrays(parts, y, parts, y, normalise="none")
    inner = toys.mlp()
    model = models.from_functions(
        inner.init,
        lambda params, x: inner.apply(params, jnp.concatenate([x["left"], x["right"]], 1)),
        name="two parts",
    )
    ends = [model.init(jax.random.key(seed)) for seed in range(2)]
    page = bayesin.report(*ends, model, mine, tmp_path / "page", key=jax.random.key(0), samples=2, taus=3)
    assert page == tmp_path / "page" / "report.html" and "two parts" in page.read_text()
    with pytest.raises(DataError, match="takes a Dataset"):
        bayesin.report(*ends, model, (x, y), tmp_path / "none", key=jax.random.key(0))
    with pytest.raises(ModelError, match="takes a bayesin Model"):
        bayesin.report(*ends, model.apply, mine, tmp_path / "none", key=jax.random.key(0))
    assert not hasattr(bayesin, "reprot")
