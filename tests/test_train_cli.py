"""`bayesin train` from the outside: flags, output, exit codes. Its signals are met in tests/torture/kill.py."""

import json
import re

import numpy as np
import pytest

from bayesin.cli.main import main
from bayesin.cli.parsing import field_texts
from bayesin.cli.train import Train
from bayesin.inference import VI, Training
from cli_toys import status_of

TINY = ["train", "--width", "8", "--depth", "1", "--limit", "200", "--batch", "50", "--test-samples", "4"]


def test_train_prints_a_table_and_writes_a_run(tmp_path, capsys):
    assert main([*TINY, "--epochs", "3", "--members", "2", "--out", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().out
    for word in ("test accuracy", "mean std", "while it trains", "12 steps"):
        assert word in " ".join(shown.split())
    assert (tmp_path / "run" / "posterior-1.safetensors").is_file()
    assert main([*TINY, "--epochs", "3", "--members", "2", "--out", str(tmp_path / "run"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["reused"] and len(found["members"]) == 2 and found["memory"]["member"] > 0
    kind, state, says = status_of(capsys, tmp_path / "run")
    assert (kind, state) == ("train", "done") and says.startswith("vi: mlp of width 8 on digits, ")
    assert main([*TINY, "--epochs", "4", "--members", "2", "--out", str(tmp_path / "run")]) == 2
    assert "epochs 3, not 4" in capsys.readouterr().err.replace("\n", " ")


def test_folder_is_named_by_the_hash(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*TINY, "--epochs", "1", "--method", "ensemble", "--members", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["folder"] == f"runs/digits-mlp8-ensemble-{found['hash']}" and "ensemble" in found


@pytest.mark.parametrize(
    "flags, words",
    [
        (["--epochs", "0"], "epochs must be at least 1"),
        (["--prior-variance", "-1"], "prior_variance must be positive"),
        (["--preset", "demo", "--data", "mnist"], "preset 'demo' is for --data digits"),
        (["--method", "ensemble", "--temperature", "0.1"], "no setting of method 'ensemble'"),
        (["--data", "minst"], "mnist"),
        (["--width", "0"], "width must be"),
        (["--warmup", "100000"], "warm up over fewer"),
    ],
)
def test_misuse_is_one_line(tmp_path, capsys, flags, words):
    assert main(["train", "--out", str(tmp_path / "run"), *flags]) == 2
    shown = capsys.readouterr()
    assert words in shown.err.replace("\n", " ") and len(shown.err.strip().splitlines()) == 1
    assert shown.out == "" or "--warmup" in flags  # which the fit itself refuses; no header of the others


def test_the_help_groups_flags_by_method(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    titled = re.split(r"^\W*(\w[\w, ]*) options\W*$", capsys.readouterr().out, flags=re.M)[1:]
    groups = zip(titled[::2], titled[1::2], strict=True)
    flags = {title: set(re.findall(r"^[│ ]*(--[\w-]+)", text, re.M)) for title, text in groups}
    assert "--prior-variance" in flags["every method"]
    trained = next(flags[title] for title in flags if title.startswith("VI, Ensemble"))
    assert {"--epochs", "--members"} <= trained
    assert "--initial-std" in flags["VI"] and "--chains" in flags["HMC"]
    assert not flags["VI"] & flags["HMC"]


def test_divergence_is_one_line(tmp_path, capsys):
    assert main([*TINY, "--optimiser", "sgd", "--learning-rate", "1e6", "--out", str(tmp_path / "run")]) == 1
    shown = capsys.readouterr().err
    assert "diverged" in shown and "warmup" in shown and len(shown.strip().splitlines()) == 1


def test_every_setting_is_a_flag_with_its_text():
    texts = field_texts(VI)
    for name in VI.__dataclass_fields__.keys() - {"prior"}:  # an object, which only Python can make
        assert name in Train.__dataclass_fields__, name
        assert texts[name].endswith("."), name
    assert texts["members"].startswith("How many") and field_texts(Training)["batch"] == texts["batch"]


def test_flags_overrule_the_preset():
    config = Train(data="mnist", preset="paper", learning_rate=0.01, members=2).config()
    assert config.training == VI(optimiser="sgd", learning_rate=0.01, epochs=100, members=2)
    accurate = Train(data="cifar10", model="resnet20", preset="accurate").config()
    assert (accurate.width, accurate.training.initial_std, accurate.training.clip) == (64, 0.003, 5.0)
    assert Train(preset="demo").config().width == 256 and Train(preset="demo", width=64).config().width == 64


def test_regression_file_is_seen(tmp_path):
    x = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    path = tmp_path / "line.npz"
    np.savez(path, x_train=x, y_train=x.sum(1), x_test=x, y_test=x.sum(1))
    train = Train(data=str(path))
    assert train.config(train.data_file()).training.likelihood == "gaussian"


def test_a_misspelt_data_set_leaves_nothing_behind(tmp_path, capsys):
    assert main(["train", "--data", "mnst", "--out", str(tmp_path / "run")]) == 2
    assert "mnist" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
