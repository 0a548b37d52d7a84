"""Attacks on what has come since the first red team: code named by files, pickles, checkpoints of others, flags."""

import json
import os
import pickle
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import save_file

from bayesin.cli.main import main
from bayesin.cli.output import Output
from bayesin.errors import ArtifactError
from bayesin.file_sets import replaced_together
from bayesin.json_files import parse_json
from bayesin.lab.report.page import _embed
from bayesin.lab.runs import own_checkpoints
from bayesin.lab.runs.own_checkpoints import read_checkpoint
from bayesin.store import describe, load_posterior, save_posterior

FIXTURES = Path(__file__).parent / "fixtures"
LIKE = {"a": {"b": np.zeros(2, np.float32)}, "n": np.zeros(1, np.int32)}
GOOD = {"a/b": np.ones(2, np.float32), "n": np.ones(1, np.int32)}


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A run whose config and posterior name code that lies beside it."""
    folder = tmp_path_factory.mktemp("planted")
    (folder / "evil.py").write_text("import os\nos.mkdir('executed')\nmodel = None\n")
    shutil.copytree(FIXTURES / "run-v1", folder / "run")
    config = json.loads((folder / "run" / "config.json").read_text())
    config["model"] = {**config["model"], "name": "evil.py:model"}
    (folder / "run" / "config.json").write_text(json.dumps(config))
    path = folder / "run" / "posterior-0.safetensors"
    about = describe(path)
    metadata = {**about.metadata, "model": config["model"]}
    save_posterior(path, load_posterior(path), spec=about.spec, metadata=metadata)
    return folder


PAIR = ["run#0", "run/posterior-0.safetensors"]
VERBS = {
    "align": [*PAIR, "--out", "out"],
    "barrier": [*PAIR, "--out", "out"],
    "merge": [*PAIR, "--out", "out"],
    "evaluate": ["run#0", "--out", "out"],
    "compact": ["run", "--out", "out"],
    "try": ["run/posterior-0.safetensors", "run/posterior-0.safetensors", "--out", "out"],
    "report": ["run#0", "--out", "out"],
    "explain": ["run/config.json"],
    "status": ["."],
    "train": ["--preset", "demo", "--out", "run"],
}


@pytest.mark.parametrize("verb", VERBS)
def test_code_that_a_file_names_is_not_run(planted, monkeypatch, capsys, verb):
    monkeypatch.chdir(planted)
    main([verb, *VERBS[verb]])
    said = capsys.readouterr().err
    assert not Path("executed").exists() and not Path("out").exists()
    assert "unexpected" not in said and "Traceback" not in said


class Hostile:
    """Leaves a trace when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ("executed",)


@pytest.mark.parametrize("name", ["a.pt", "a.bin", "a.ckpt", "a.npz", "a.npy", "a.safetensors", "a"])
def test_checkpoints_are_never_unpickled(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(pickle.dumps(Hostile()))
    with pytest.raises(ArtifactError, match=r"pickled|cannot be read"):
        read_checkpoint(name, LIKE)
    np.savez("b.npz", a=np.array([Hostile()], object))
    with pytest.raises(ArtifactError, match="never loaded"):
        read_checkpoint("b.npz", LIKE)
    assert not Path("executed").exists()


ODD = {
    "two spellings": ({"a.b": np.zeros(2, np.float32)}, "twice"),
    "whole numbers for weights": ({"a/b": np.ones(2, np.int32)}, "int32, the model float32"),
    "weights for whole numbers": ({"n": np.full(1, 1.5)}, "float64, the model int32"),
    "beyond the precision": ({"a/b": np.full(2, 1e300)}, "beyond float32"),
    "counts beyond the precision": ({"n": np.array([2**40])}, "beyond int32"),
}


@pytest.mark.parametrize("case", ODD)
def test_checkpoints_of_others_are_read_as_they_are_or_refused(tmp_path, case):
    arrays, said = ODD[case]
    save_file(GOOD | arrays, tmp_path / "x.safetensors")
    with pytest.raises(ArtifactError, match=said):
        read_checkpoint(tmp_path / "x.safetensors", LIKE)
    save_file({"a.b": np.array([1, 1 + 1e-12]), "n": np.array([7])}, tmp_path / "y.safetensors")
    found = read_checkpoint(tmp_path / "y.safetensors", LIKE)
    assert found["a"]["b"].dtype == np.float32 and found["n"].tolist() == [7]


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_a_checkpoint_that_promises_gigabytes_is_refused_before_they_are_read(tmp_path, monkeypatch, ending):
    path, gigabytes = tmp_path / f"x.{ending}", 2 << 30
    if ending == "npz":  # a megabyte of zeros, packed, stands for them
        np.savez_compressed(path, **{"a/b": np.zeros(1 << 18, np.float32)})
    else:  # a file with a hole
        header = {"a/b": {"dtype": "F32", "shape": [gigabytes >> 2], "data_offsets": [0, gigabytes]}}
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text)
        os.truncate(path, 8 + len(text) + gigabytes)
    for owner, name in (
        (own_checkpoints, "read_npz"),
        (own_checkpoints.SteadyFile, "check"),
    ):
        monkeypatch.setattr(owner, name, lambda *_, **__: pytest.fail("it was read"))
    with pytest.raises(ArtifactError, match="has no 'n'"):
        read_checkpoint(path, LIKE)
    with pytest.raises(ArtifactError, match="has shape"):
        read_checkpoint(path, {"a": LIKE["a"]})


def test_a_complex_checkpoint_does_not_lose_half_of_itself(tmp_path):
    np.savez(tmp_path / "x.npz", **{"a/b": np.ones(2) * 1j, "n": np.ones(1, int)})
    with pytest.raises(ArtifactError, match="complex128, the model float32"):
        read_checkpoint(tmp_path / "x.npz", LIKE)


FLAGS = [
    ["explain", "mlp", "--width", "18446744073709551616"],
    ["explain", "mlp", "--input-shape", "9999999999", "1"],
    ["barrier", "a", "b", "--samples", "1000000000000"],
    ["pull", "me/x", "--out", "out", "--largest", "inf"],
]


@pytest.mark.parametrize("words", FLAGS, ids=range(len(FLAGS)))
def test_absurd_numbers_are_refused_before_any_work(tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said.startswith("bayesin: --") and said.count("\n") == 1


def test_memory_that_is_not_there_is_said_in_one_line(monkeypatch, capsys):
    from bayesin.cli import main as cli

    for error in (MemoryError("Unable to allocate 3.64 TiB"), RuntimeError("RESOURCE_EXHAUSTED: Out of memory")):

        def fail(argv, error=error):
            raise error

        monkeypatch.setattr(cli, "_dispatch", fail)
        assert cli.main(["doctor"]) == 1
        assert capsys.readouterr().err.startswith("bayesin: there is not memory enough: ")


def test_json_for_machines_and_pages_is_json_whatever_the_numbers(monkeypatch):
    import io

    value = {
        "nan": float("nan"),
        "half": "\ud800é τ",
        "np": np.float32(1.5),
        "inf": np.array([1.0, np.inf]),
        "p": Path("x"),
    }
    right = {"nan": None, "half": "?é τ", "np": 1.5, "inf": [1.0, None], "p": "x"}
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, "ascii"))
    out = Output(as_json=True)
    out.result(value)
    assert out.finish() is None and parse_json(written.getvalue(), "stdout") == right
    assert parse_json(_embed(value | {"end": "</script>"}), "page") == right | {"end": "</script>"}
    assert "<" not in _embed({"end": "</script>"})


def test_draws_on_a_disk_without_room_end_in_one_line(tmp_path, monkeypatch):
    from bayesin.inference.hmc import draws

    shutil.copytree(FIXTURES / "hmc-v1", tmp_path / "chain")
    found = draws.Draws(tmp_path / "chain")
    assert jax.tree.all(jax.tree.map(np.array_equal, found.mapped().params, found.load().params))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(ArtifactError, match=r"cannot write draws to .*No space"):
        found.mapped()


def test_what_a_killed_replacement_left_goes_with_the_next(tmp_path):
    left = tmp_path / ".tmp-1-0a1b2c3d-result" / "kl"
    left.mkdir(parents=True)
    (left / "kl.json").write_text("half")
    with replaced_together(tmp_path) as place:
        (place / "kl.json").write_text("whole")
        assert not left.exists() and place.is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["kl.json"]


def test_the_lock_of_a_dead_process_goes_from_a_task_that_is_done(tmp_path):
    from bayesin.lab.campaign.perform import _remove_stale_lock
    from bayesin.locks import locked

    lock = tmp_path / ".lock"
    lock.write_text("process 7 on elsewhere")
    _remove_stale_lock(lock)
    assert not lock.exists()
    with locked(lock):
        _remove_stale_lock(lock)
        assert lock.exists()
