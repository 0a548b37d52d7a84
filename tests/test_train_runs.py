"""Runs: folders that are done once, presets, hashes, locks."""

import dataclasses
import json
import multiprocessing
import os
import shutil

import numpy as np
import pytest

from bayesin import VI, Ensemble, Gaussian, Samples
from bayesin.errors import ArtifactError, ConfigError, TrainingError
from bayesin.experiments import LockedError, RunConfig, make_training, preset, run
from bayesin.experiments.config import differences
from bayesin.experiments.lock import locked
from bayesin.experiments.metrics import append_metrics, read_metrics, write_metrics
from bayesin.files import read_json
from bayesin.store import describe, load_posterior

TINY = RunConfig(
    "digits",
    "mlp",
    VI(epochs=3, batch=50, members=2, learning_rate=1e-2),
    width=8,
    depth=1,
    limit=200,
    test_samples=4,
)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return run(TINY, tmp_path_factory.mktemp("runs") / "tiny")


def test_a_run_leaves_everything(done):
    names = sorted(path.name for path in done.folder.iterdir())
    assert names == [
        "config.json", "metrics.jsonl", "posterior-0.safetensors", "posterior-1.safetensors", "provenance.json",
        "results.json",
    ]  # fmt: skip
    assert RunConfig.from_json(read_json(done.folder / "config.json")) == TINY
    record = read_json(done.folder / "provenance.json")
    assert record["status"] == "done" and record["packages"]["jax"] and record["train_seconds"] > 0
    rows = read_metrics(done.folder)
    assert [row["step"] for row in rows] == [4, 8, 12] and len(rows[0]["loss"]) == 2
    scores = read_json(done.folder / "results.json")["members"]
    assert len(scores) == 2 and all(0 < score["test_accuracy"] <= 1 and score["test_nll"] > 0 for score in scores)
    posterior = load_posterior(done.folder / "posterior-1.safetensors")
    assert isinstance(posterior, Gaussian) and posterior.mean["layers"]["0"]["kernel"].shape == (64, 8)
    metadata = describe(done.folder / "posterior-1.safetensors").metadata
    assert metadata["model"] == {"name": "mlp", "width": 8, "depth": 1, "input_shape": [8, 8, 1], "classes": 10}
    assert metadata["data"]["name"] == "digits" and metadata["member"] == 1


def test_running_again_does_nothing(done):
    before = {path.name: path.stat().st_mtime_ns for path in done.folder.iterdir()}
    again = run(TINY, done.folder, on_progress=lambda progress: pytest.fail("it trained again"))
    assert again.reused and again.results == done.results
    assert {path.name: path.stat().st_mtime_ns for path in done.folder.iterdir()} == before


def test_another_run_is_refused(done):
    other = dataclasses.replace(TINY, training=dataclasses.replace(TINY.training, epochs=5))
    with pytest.raises(ConfigError, match="epochs 3, not 5"):
        run(other, done.folder)


def test_another_run_is_refused_under_its_own_name_too(done, tmp_path):
    other = dataclasses.replace(TINY, key=1)
    folder = shutil.copytree(done.folder, tmp_path / other.name)
    with pytest.raises(ConfigError, match="key 0, not 1"):
        run(other, folder)


@pytest.mark.parametrize("name", ["config.json", "provenance.json"])
def test_a_damaged_folder_of_any_name_is_left_alone(done, tmp_path, name):
    folder = shutil.copytree(done.folder, tmp_path / "mine")
    (folder / name).write_text("{")
    with pytest.raises(ArtifactError, match=name):
        run(TINY, folder)
    (folder / name).unlink()
    if name == "config.json":
        with pytest.raises(ConfigError, match="something else than a run"):
            run(TINY, folder)


def test_each_posterior_of_a_run_that_is_done_must_be_there(done, tmp_path):
    folder = shutil.copytree(done.folder, tmp_path / "mine")
    (folder / "posterior-1.safetensors").unlink()
    with pytest.raises(ArtifactError, match=r"gone \(posterior-1.safetensors\); remove it"):
        run(TINY, folder)


def test_interrupted_run_goes_on_to_the_same_bits(done, tmp_path):
    (tmp_path / ".tmp-1-left").write_text("from a killed process")

    def stop(progress):
        if progress.step == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(TINY, tmp_path, on_progress=stop)
    assert read_json(tmp_path / "provenance.json")["status"] == "interrupted"
    append_metrics(tmp_path, {"step": 99})
    seen = []
    assert not run(TINY, tmp_path, on_progress=seen.append).reused
    assert seen[0].resumed and seen[0].step == 8
    for number in range(2):
        name = f"posterior-{number}.safetensors"
        assert (tmp_path / name).read_bytes() == (done.folder / name).read_bytes()
    assert (tmp_path / "results.json").read_bytes() == (done.folder / "results.json").read_bytes()
    assert [row["step"] for row in read_metrics(tmp_path)] == [4, 8, 12]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in done.folder.iterdir())


def test_diverged_run_says_so(tmp_path):
    training = dataclasses.replace(TINY.training, optimiser="sgd", learning_rate=1e6, members=1)
    with pytest.raises(TrainingError, match="lower learning_rate"):
        run(dataclasses.replace(TINY, training=training), tmp_path)
    record = read_json(tmp_path / "provenance.json")
    assert record["status"] == "failed" and "learning_rate" in record["error"]
    assert read_metrics(tmp_path)[-1]["loss"] is not None and not list(tmp_path.glob("*.safetensors"))


def test_an_error_that_is_not_ours_is_kept_too(tmp_path):
    def fall(progress):
        raise RuntimeError("out of memory\nlist of buffers")

    with pytest.raises(RuntimeError):
        run(TINY, tmp_path, on_progress=fall)
    record = read_json(tmp_path / "provenance.json")
    assert record["status"] == "failed" and record["error"] == "RuntimeError: out of memory"


def test_ensemble_is_one_file(tmp_path):
    training = Ensemble(members=3, epochs=3, batch=50, learning_rate=1e-2)
    found = run(dataclasses.replace(TINY, training=training), tmp_path).results
    samples = load_posterior(tmp_path / "posterior-0.safetensors")
    assert isinstance(samples, Samples) and len(samples) == 3 and len(found["members"]) == 3
    assert found["ensemble"]["test_nll"] <= np.mean([score["test_nll"] for score in found["members"]])  # Jensen


def test_regression_from_a_file(tmp_path):
    generator = np.random.default_rng(0)
    x = generator.normal(size=(60, 3)).astype(np.float32)
    y = (x @ np.array([1.0, -1.0, 0.5]) + 0.1 * generator.normal(size=60)).astype(np.float32)
    np.savez(tmp_path / "line.npz", x_train=x[:40], y_train=y[:40], x_test=x[40:], y_test=y[40:])
    training = VI(likelihood="gaussian", learn_noise=True, epochs=5, batch=20)
    config = RunConfig(str(tmp_path / "line.npz"), "mlp", training, width=8, depth=1, test_samples=4)
    (score,) = run(config, tmp_path / "run").results["members"]
    assert "test_accuracy" not in score and np.isfinite(score["test_nll"])


def test_hash_names_what_is_computed():
    assert TINY.hash == "4a63450e19"  # changes only when a field is added or a default moves: say so in the changelog
    often = dataclasses.replace(TINY, training=dataclasses.replace(TINY.training, checkpoint_minutes=9.0))
    assert often.hash == TINY.hash and not differences(often, TINY)
    others = [
        dataclasses.replace(TINY, key=1),
        dataclasses.replace(TINY, training=dataclasses.replace(TINY.training, temperature=0.5)),
        dataclasses.replace(TINY, training=Ensemble(members=2)),
    ]
    assert len({other.hash for other in others} | {TINY.hash}) == 4
    assert TINY.name == f"digits-mlp8-vi-{TINY.hash}"


@pytest.mark.parametrize("training", [VI(), VI(temperature=0.1, gains="points"), Ensemble(members=7)])
def test_config_comes_back(training):
    config = dataclasses.replace(TINY, training=training)
    assert RunConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_config_that_is_none():
    plain = TINY.to_json()
    for broken in (
        [], {}, plain | {"version": 2}, plain | {"method": "mcmc"}, plain | {"training": {"epoch": 3}},
        plain | {"training": {"epochs": -3}}, {k: v for k, v in plain.items() if k != "data"},
    ):  # fmt: skip
        with pytest.raises(ArtifactError):
            RunConfig.from_json(broken)


@pytest.mark.parametrize("data", ["mnist", "fashion-mnist", "cifar10", "cifar100", "digits"])
@pytest.mark.parametrize("model", ["mlp", "resnet20"])
@pytest.mark.parametrize("name", ["paper", "converged"])
@pytest.mark.parametrize("method", ["vi", "ensemble"])
def test_presets_make_settings(name, data, model, method):
    training = make_training(method, preset(name, data, model))
    assert training.optimiser == ("sgd" if name == "paper" else "adam") and training.schedule == "cosine"
    assert (training.clip > 0) == (training.warmup > 0) == (model == "resnet20")
    if data != "digits":
        assert training.prior_variance == (0.0025 if "cifar" in data and model == "mlp" else 0.01)
        assert training.batch == 500


def test_presets_are_refused_where_they_mean_nothing():
    with pytest.raises(ConfigError, match="choose paper"):
        preset("best", "mnist", "mlp")
    with pytest.raises(ConfigError, match="digits"):
        preset("demo", "mnist", "mlp")
    with pytest.raises(ConfigError, match="did you mean 'learning_rate'"):
        make_training("vi", {"lerning_rate": 1.0})
    with pytest.raises(ConfigError, match="there is no method 'mcmc'"):
        make_training("mcmc", {})


def test_two_at_once(tmp_path):
    with locked(tmp_path), pytest.raises(LockedError, match=f"process {os.getpid()}"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


def _hold(folder, ready):
    with locked(folder):
        ready.set()
        os._exit(9)  # dies with the lock held


def test_lock_of_a_dead_process_is_nothing(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    child = context.Process(target=_hold, args=(tmp_path, ready))
    child.start()
    child.join(60)
    assert (tmp_path / ".lock").exists()
    with locked(tmp_path):
        pass


def test_metrics_have_no_nan_and_survive_a_cut_line(tmp_path):
    write_metrics(tmp_path, [{"step": 1, "loss": np.array([np.nan, 2.0], np.float32)}])
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 2, "lo')
    assert read_metrics(tmp_path) == [{"step": 1, "loss": [None, 2.0]}]
