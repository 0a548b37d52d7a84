"""`bayesin try` on checkpoints that another program wrote."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bayesin.cli.main import main
from bayesin.data import load
from cli_toys import status_of

NETWORK = """
import jax, jax.numpy as jnp
from bayesin import models

def init(key):
    return {"a": {"w": jnp.zeros((64, 10)), "b": jnp.zeros(10)}, "c": {"w": jnp.zeros((10, 10))}}

def apply(params, x):
    x = jax.nn.relu(x.reshape(len(x), -1) @ params["a"]["w"] + params["a"]["b"][None])
    return x @ params["c"]["w"]

model = models.from_functions(init, apply)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A classifier by the nearest mean of a class, a unit each, and a copy with its units in another order."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NETWORK)
    digits = load("digits")
    x = digits.x_train.reshape(len(digits.x_train), -1)
    means = np.stack([x[digits.y_train == label].mean(0) for label in range(10)])
    first = {"a.w": means.T, "a.b": 60 - (means**2).sum(1) / 2, "c.w": np.eye(10)}  # 60: every unit is active
    first = {name: np.ascontiguousarray(value, np.float32) for name, value in first.items()}
    perm = np.roll(np.arange(10), 3)
    second = {"a.w": first["a.w"][:, perm], "a.b": first["a.b"][perm], "c.w": first["c.w"][perm]}
    save_file(first, "first.safetensors")
    np.savez("second.npz", **{name.replace(".", "/"): np.ascontiguousarray(value) for name, value in second.items()})
    return tmp_path


def read(path):
    return load_file(path) if path.suffix == ".safetensors" else dict(np.load(path))


def act(*words: str, model: str = "net.py:model", data: str = "digits") -> int:
    small = ["--limit", "40", "--taus", "5", "--restarts", "2"]
    return main(["try", *words, "--model", model, "--data", data, *small])


def test_a_planted_permutation_has_a_barrier_that_goes_altogether(folder, capsys):
    assert act("first.safetensors", "second.npz", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    curves = result["sets"]["test"]
    assert curves["naive"]["value"] > 0.1
    assert curves["aligned"]["value"] == pytest.approx(0, abs=1e-5)
    assert result["alignment"]["moved"] == {"g0": 10}
    assert result["alignment"]["w2_after"] == pytest.approx(0, abs=1e-5)
    report = json.loads((folder / "tried" / "report.json").read_text())
    kind, state, says = status_of(capsys, folder / "tried")
    assert (kind, state) == ("barrier", "done") and says.endswith(", aligned 0.000 nats")
    assert report["title"].startswith("Alignment takes away ") and (folder / "tried" / "report.html").is_file()


def test_inputs_of_a_file_reach_the_networks_as_they_stand_and_others_are_doubted(folder, capsys):
    """The networks on inputs that are three times as large and lie elsewhere."""
    digits = load("digits")
    parts = {"x_train": digits.x_train, "x_test": digits.x_test}
    targets = {"y_train": digits.y_train, "y_test": digits.y_test}
    np.savez("mine.npz", **{name: 3 * x + 7 for name, x in parts.items()}, **targets)
    for name in ("first.safetensors", "second.npz"):
        arrays = {key.replace("/", "."): value for key, value in read(folder / name).items()}
        arrays["a.b"] = arrays["a.b"] - 7 * arrays["a.w"].sum(0) / 3
        arrays["a.w"] = np.ascontiguousarray(arrays["a.w"] / 3)
        save_file(arrays, f"other-{name.split('.')[0]}.safetensors")
    files = ("other-first.safetensors", "other-second.safetensors")
    assert act(*files, "--json", data="mine.npz") == 0
    said = capsys.readouterr()
    right = json.loads(said.out)["sets"]["test"]["naive"]["accuracy"]
    assert right[0] > 0.7 and "warning" not in said.err
    assert act(*files, "--normalise", "standard", data="mine.npz") == 0
    assert "with --normalise none they would be" in capsys.readouterr().err


def test_a_counter_that_the_network_does_not_have_is_left_out(folder, capsys):
    """As `num_batches_tracked` in every state dict of PyTorch with batch normalisation."""
    save_file(read(folder / "first.safetensors") | {"a.num_batches_tracked": np.array(300)}, "counted.safetensors")
    assert act("counted.safetensors", "second.npz", "--json") == 0
    assert json.loads(capsys.readouterr().out)["sets"]["test"]["aligned"]["value"] == pytest.approx(0, abs=1e-5)


def test_people_are_told_what_it_is_and_what_became_of_it(folder, capsys):
    assert act("first.safetensors", "second.npz") == 0
    said = capsys.readouterr().out
    for words in (
        "Two networks of net.py:model, 750 weights each; 1 group",
        "a/w[1]",
        "as they are",
        "10 of 10 units",
    ):
        assert words in said, words


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("first.safetensors", "gone.npz"), "there is no file 'gone.npz'"),
        (("first.safetensors", "pickled.pt"), "pickled.pt is pickled"),
        (("first.safetensors", "broken.npz"), "broken.npz cannot be read"),
        (("first.safetensors", "less.npz"), "less.npz has no 'c/w'"),
        (("first.safetensors", "more.npz"), "more.npz holds 'd/w'"),
        (("first.safetensors", "other.npz"), "'c/w' has shape (10, 9), in the model (10, 10)"),
        (("first.safetensors",), "needs two networks"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(folder, capsys, words, says):
    whole = dict(np.load("second.npz"))
    (folder / "pickled.pt").write_bytes(b"\x80")
    (folder / "broken.npz").write_bytes(b"PK")
    np.savez("less.npz", **{name: value for name, value in whole.items() if name != "c/w"})
    np.savez("more.npz", **whole, **{"d/w": whole["c/w"]})
    np.savez("other.npz", **(whole | {"c/w": whole["c/w"][:, :9]}))
    assert act(*words) in (1, 2)
    said = capsys.readouterr()
    assert says in said.err and said.err.count("\n") == 1 and said.out == ""
    assert not (folder / "tried").exists()


def test_a_folder_with_something_else_is_left_alone(folder, capsys):
    (folder / "tried").mkdir()
    (folder / "tried" / "barrier.json").write_text("{}")
    assert act("first.safetensors", "second.npz") == 2
    assert "holds something else" in capsys.readouterr().err


def test_numbers_stay_where_their_page_fails_and_a_line_says_how_to_get_it(folder, capsys, monkeypatch):
    def no_room(*_, **__):
        raise OSError(28, "No space left on device", "report.html")

    monkeypatch.setattr("bayesin.cli.try_pair.write_barrier_report", no_room)
    assert act("first.safetensors", "second.npz") == 1
    error = capsys.readouterr().err
    assert "kept without a page" in error and "bayesin report tried" in error and "No space left" in error
    assert [path.name for path in (folder / "tried").iterdir()] == ["barrier.json"]
