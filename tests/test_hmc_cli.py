"""`bayesin train --method hmc`: chains as a run folder, and their samples folded into one posterior."""

import json

import pytest

from bayesin import Gaussian, Samples
from bayesin.cli.main import main
from bayesin.json_files import read_json
from bayesin.lab.runs import RunConfig
from bayesin.store import describe, load_posterior

pytest.importorskip("tyro")
FLAGS = [
    "--data",
    "digits",
    "--limit",
    "60",
    "--normalise",
    "unit",
    "--width",
    "5",
    "--depth",
    "1",
    "--method",
    "hmc",
]
CHAIN = ["--samples", "6", "--chains", "2", "--burn-in", "4", "--steps", "4", "--step-size", "0.01", "--thin", "2"]


def test_a_run_of_hmc_is_a_folder_like_any_other(tmp_path, capsys):
    command = ["train", *FLAGS, *CHAIN, "--out", str(tmp_path / "chain"), "--json"]
    assert main(command) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["chains"]["samples"] == 12 and len(result["chains"]["acceptance"]) == 2
    assert 0 <= result["ensemble"]["test_accuracy"] <= 1
    path = tmp_path / "chain" / "posterior-0.safetensors"
    assert isinstance(load_posterior(path), Samples) and len(load_posterior(path)) == 12
    assert describe(path).metadata["method"] == "hmc"
    assert not (tmp_path / "chain" / "checkpoints").exists()
    lines = [json.loads(line) for line in (tmp_path / "chain" / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 16 and lines[-1]["rhat_max"] is not None
    config = RunConfig.from_json(read_json(tmp_path / "chain" / "config.json"))
    assert config.method == "hmc" and config.training.thin == 2 and config.normalise == "unit"

    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["reused"]
    assert main(["train", *FLAGS, *CHAIN, "--out", str(tmp_path / "chain")]) == 0
    assert "R-hat" in capsys.readouterr().out

    by_weights = ["--match", "weights", "--reference", "mean"]  # which is what lowers the spread of the weights
    folding = ["compact", str(tmp_path / "chain"), "--out", str(tmp_path / "one"), "--draws", "4", "--json"]
    assert main([*folding, *by_weights]) == 0
    folded = json.loads(capsys.readouterr().out)
    assert folded["samples"] == 12 and folded["spread_after"] <= folded["spread_before"]
    assert isinstance(load_posterior(folded["posterior"]), Gaussian)


def test_settings_of_other_methods_are_refused_by_name(tmp_path, capsys):
    assert main(["train", *FLAGS, "--epochs", "3", "--out", str(tmp_path / "x")]) == 2
    assert "'epochs' is no setting of method 'hmc'" in " ".join(capsys.readouterr().err.split())
    assert main(["train", "--data", "digits", "--chains", "3", "--out", str(tmp_path / "x")]) == 2
    assert "'chains' is no setting of method 'vi'" in " ".join(capsys.readouterr().err.split())
