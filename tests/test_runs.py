"""Runs: folders that are done once, whatever happened before; configs, hashes, presets, traces."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from bayesin import HMC, SGMCMC, SWAG, VI, Ensemble, Gaussian, Laplace, Samples
from bayesin.data import load, published_content
from bayesin.errors import ArtifactError, ConfigError, TrainingError
from bayesin.inference import FanIn
from bayesin.json_files import read_json, write_json
from bayesin.lab.runs import (
    METHODS,
    ModelChoice,
    RunConfig,
    build_model,
    dataset_of,
    differences,
    find_posterior,
    make_training,
    preset,
    read_metrics,
    run,
    run_together,
)
from bayesin.lab.runs.records import append_metrics, write_metrics
from bayesin.store import describe, load_posterior, save_posterior

FIXTURES = Path(__file__).parent / "fixtures"
TRAINING = {
    "vi": VI(epochs=3, batch=50, members=2, learning_rate=1e-2, checkpoint_epochs=1),
    "ensemble": Ensemble(epochs=3, batch=50, members=3, learning_rate=1e-2, checkpoint_epochs=1),
    "hmc": HMC(samples=4, chains=2, burn_in=2, steps=3, step_size=0.01, draws_per_file=1),
    "swag": SWAG(epochs=3, batch=50, rank=2, collect_from=0.3, collect_every=1, checkpoint_epochs=1),
    "laplace": Laplace(epochs=3, batch=50, checkpoint_epochs=1),
    "sgmcmc": SGMCMC(epochs=3, batch=50, samples=2, step_size=1e-5, checkpoint_epochs=1),
}


def tiny(method="vi", **changes) -> RunConfig:
    training = dataclasses.replace(TRAINING[method], **changes)
    return RunConfig("digits", "mlp", training, width=8, depth=1, limit=200, test_samples=4)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The outcome of each method's run, each done once for all tests, in a folder that does not bear its name."""
    outcomes = {}

    def outcome(method="vi"):
        if method not in outcomes:
            outcomes[method] = run(tiny(method), tmp_path_factory.mktemp("runs") / method)
        return outcomes[method]

    return outcome


def assert_same_run(folder, whole):
    """The same files, and the same bits in all of them that hold no clock."""
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in whole.iterdir())
    for path in whole.iterdir():
        if path.name not in ("provenance.json", "metrics.jsonl"):
            assert (folder / path.name).read_bytes() == path.read_bytes(), path.name
    assert [row["step"] for row in read_metrics(folder)] == [row["step"] for row in read_metrics(whole)]


def test_every_method_is_tried_here():
    assert set(TRAINING) == set(METHODS)


@pytest.mark.parametrize("method", METHODS)
def test_a_run_leaves_everything_and_is_not_done_again(done, method):
    folder = done(method).folder
    files = {"config.json", "metrics.jsonl", "provenance.json", "results.json"}
    files |= {"posterior-0.safetensors", "README.md"}
    names = {path.name for path in folder.iterdir()}
    assert names == (files | {"posterior-1.safetensors"} if method == "vi" else files)
    asked = dataclasses.replace(tiny(method), data_content=published_content("digits"))
    assert RunConfig.from_json(read_json(folder / "config.json")) == asked
    record, results = read_json(folder / "provenance.json"), read_json(folder / "results.json")
    assert record["status"] == "done" and record["packages"]["jax"] and record["train_seconds"] > 0
    scores = results["members"] + ([results["ensemble"]] if "ensemble" in results else [])
    assert scores and all(0 < score["test_accuracy"] <= 1 and score["test_nll"] > 0 for score in scores)
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    again = run(tiny(method), folder, on_progress=lambda progress: pytest.fail("it trained again"))
    assert again.reused and again.results == results
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before


@pytest.mark.parametrize("stopped_in", ["train", "test"])
@pytest.mark.parametrize("method", METHODS)
def test_an_interrupted_run_goes_on_to_the_same_bits(done, tmp_path, method, stopped_in):
    (tmp_path / ".tmp-1-left").write_text("from a killed process")
    steps = [row["step"] for row in read_metrics(done(method).folder)]

    def stop_training(progress):
        if stopped_in == "train" and progress.step == steps[1]:
            raise KeyboardInterrupt

    def stop_testing(stage):
        if stopped_in == stage == "test":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tiny(method), tmp_path, on_progress=stop_training, on_stage=stop_testing)
    assert read_json(tmp_path / "provenance.json")["status"] == "interrupted"
    append_metrics(tmp_path, {"step": 99})  # from after the checkpoint
    told = []
    assert not run(tiny(method), tmp_path, on_progress=told.append).reused
    assert told[0].resumed and told[0].step == (steps[1] if stopped_in == "train" else steps[-1])
    assert_same_run(tmp_path, done(method).folder)


def test_what_is_saved_says_what_it_is(done):
    path = done().folder / "posterior-1.safetensors"
    posterior, about = load_posterior(path), describe(path).metadata
    assert isinstance(posterior, Gaussian) and posterior.mean["layers"]["0"]["kernel"].shape == (64, 8)
    assert about["model"] == {"name": "mlp", "width": 8, "depth": 1, "input_shape": [8, 8, 1], "classes": 10}
    assert about["data"]["name"] == "digits" and about["member"] == 1


def test_an_ensemble_is_one_file_and_predicts_no_worse_than_its_members_do_on_average(done):
    samples = load_posterior(done("ensemble").folder / "posterior-0.safetensors")
    results = done("ensemble").results
    assert isinstance(samples, Samples) and len(samples) == len(results["members"]) == 3
    assert results["ensemble"]["test_nll"] <= np.mean([score["test_nll"] for score in results["members"]])  # Jensen


def test_a_regression_from_a_file(tmp_path):
    generator = np.random.default_rng(0)
    x = generator.normal(size=(60, 3)).astype(np.float32)
    y = (x @ np.array([1.0, -1.0, 0.5]) + 0.1 * generator.normal(size=60)).astype(np.float32)
    np.savez(tmp_path / "line.npz", x_train=x[:40], y_train=y[:40], x_test=x[40:], y_test=y[40:])
    training = VI(likelihood="gaussian", learn_noise=True, epochs=5, batch=20)
    config = RunConfig(str(tmp_path / "line.npz"), "mlp", training, width=8, depth=1, test_samples=4)
    (score,) = run(config, tmp_path / "run").results["members"]
    assert "test_accuracy" not in score and np.isfinite(score["test_nll"])


def test_runs_trained_together_have_the_bits_of_each_alone_and_leave_nothing_of_a_killed_try(done, tmp_path):
    configs = [tiny(prior_variance=variance) for variance in (0.01, 0.2)]  # the first is the one that was done
    data = load("digits", None, 200)
    folders = [tmp_path / config.name for config in configs]
    write_json(tmp_path / ".together-dead" / "members.json", [folders[0].name, "gone"])
    write_json(tmp_path / ".together-other" / "members.json", ["another"])
    run_together(configs, folders, prepared=(data, build_model(configs[0], data)))
    assert sorted(path.name for path in tmp_path.glob(".*")) == [".together-other"]
    assert_same_run(folders[0], done().folder)


@pytest.mark.parametrize(
    ("damage", "error", "match"),
    [
        (lambda folder: (folder / "config.json").write_text("{"), ArtifactError, "config.json"),
        (lambda folder: (folder / "config.json").unlink(), ConfigError, "something else than a run"),
    ],
)
def test_a_folder_that_does_not_say_which_run_it_is_is_left_alone(done, tmp_path, damage, error, match):
    """One that bears the name of its run is done again: test_campaign.py."""
    folder = shutil.copytree(done().folder, tmp_path / "mine")
    damage(folder)
    with pytest.raises(error, match=match):
        run(tiny(), folder)


@pytest.mark.parametrize("bears_the_name", [False, True])
def test_another_run_is_refused_and_the_difference_named(done, tmp_path, bears_the_name):
    other = tiny(epochs=5)
    folder = shutil.copytree(done().folder, tmp_path / (other.name if bears_the_name else "mine"))
    with pytest.raises(ConfigError, match="epochs 3, not 5"):
        run(other, folder)


def test_a_diverged_run_says_so_and_keeps_its_trace(tmp_path):
    with pytest.raises(TrainingError, match="lower learning_rate"):
        run(tiny(optimiser="sgd", learning_rate=1e6, members=1), tmp_path)
    record = read_json(tmp_path / "provenance.json")
    assert record["status"] == "failed" and "learning_rate" in record["error"]
    assert read_metrics(tmp_path)[-1]["loss"] is not None and not list(tmp_path.glob("*.safetensors"))


def test_an_error_that_is_not_ours_is_kept_in_a_line(tmp_path):
    def fall(progress):
        raise RuntimeError("out of memory\nlist of buffers")

    with pytest.raises(RuntimeError):
        run(tiny(), tmp_path, on_progress=fall)
    record = read_json(tmp_path / "provenance.json")
    assert record["status"] == "failed" and record["error"] == "RuntimeError: out of memory"


def test_a_folder_that_is_moved_while_its_run_goes_on_is_named_and_nothing_begins_in_its_place(done, tmp_path):
    folder, moved = tmp_path / "run", tmp_path / "moved"

    def move(progress):
        if folder.exists():
            folder.rename(moved)

    with pytest.raises(ArtifactError, match="run was moved or removed while its run went on"):
        run(tiny("vi"), folder, on_progress=move)
    assert not folder.exists()
    again = run(tiny("vi"), moved)
    np.testing.assert_equal(again.results, done("vi").results)
    assert not list(moved.glob(".*"))


def test_run_folders_of_the_first_version_stay_valid(tmp_path):
    folder = shutil.copytree(FIXTURES / "run-v1", tmp_path / "run")
    config = RunConfig.from_json(read_json(folder / "config.json"))
    assert config.hash == read_json(folder / "config.json")["hash"] == "8da1157e6f"
    assert run(config, folder, on_progress=lambda progress: pytest.fail("it trained again")).reused


def test_the_hash_names_what_is_computed():
    config = tiny(checkpoint_epochs=0)
    assert config.hash == "4a63450e19"  # a new one must be said in the changelog
    often = tiny(checkpoint_minutes=9.0)
    assert often.hash == config.hash and not differences(often, config)
    others = [dataclasses.replace(config, key=1), tiny(temperature=0.5), tiny("ensemble", members=2)]
    assert len({other.hash for other in [config, *others]}) == 4
    assert config.name == f"digits-mlp8-vi-{config.hash}"


@pytest.mark.parametrize("training", [*TRAINING.values(), VI(temperature=0.1, gains="points")])
def test_a_config_comes_back(training):
    config = dataclasses.replace(tiny(), training=training)
    assert RunConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"method": "mcmc"},
        {"training": {"epoch": 3}},
        {"training": {"epochs": -3}},
        {"data": None},
        {"data": {"name": 5, "limit": None, "normalise": "unit"}},
        {"key": []},
        {"test_samples": True},
    ],
)
def test_a_config_of_something_else_is_refused(change):
    with pytest.raises(ArtifactError):
        RunConfig.from_json(tiny().to_json() | change)


@pytest.mark.parametrize("data", ["mnist", "fashion-mnist", "cifar10", "cifar100", "digits"])
@pytest.mark.parametrize("model", ["mlp", "resnet20"])
@pytest.mark.parametrize("name", ["paper", "converged"])
def test_presets_make_settings(name, data, model):
    for method in ("vi", "ensemble"):
        training = make_training(method, preset(name, data, model))
        assert training.optimiser == ("sgd" if name == "paper" else "adam") and training.schedule == "cosine"
        assert (training.clip > 0) == (training.warmup > 0) == (model == "resnet20")
        if data != "digits":
            assert training.prior_variance == (0.0025 if "cifar" in data and model == "mlp" else 0.01)
            assert training.batch == 500


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: preset("best", "mnist", "mlp"), "choose paper"),
        (lambda: preset("demo", "mnist", "mlp"), "digits"),
        (lambda: preset("accurate", "mnist", "mlp"), "is for --model resnet20"),
        (lambda: make_training("vi", {"lerning_rate": 1.0}), "did you mean 'learning_rate'"),
        (lambda: make_training("ensemble", {"temperature": 1.0}), "belongs to method 'vi'"),
        (lambda: make_training("mcmc", {}), "there is no method 'mcmc'"),
        (lambda: tiny(prior=FanIn()), "fit it by fit_vi yourself"),
    ],
)
def test_settings_that_mean_nothing_are_refused(make, match):
    with pytest.raises(ConfigError, match=match):
        make()


def test_a_trace_has_no_nan_survives_a_cut_line_and_no_other_damage(tmp_path):
    write_metrics(tmp_path, [{"step": 1, "loss": np.array([np.nan, 2.0], np.float32)}])
    lines = tmp_path / "metrics.jsonl"
    whole = lines.read_bytes()
    for cut in (b'{"step": 2, "lo', b"\xff\xfe"):
        lines.write_bytes(whole + cut)
        assert read_metrics(tmp_path) == [{"step": 1, "loss": [None, 2.0]}]
    lines.write_bytes(whole + b'{"st\n' + whole)
    with pytest.raises(ArtifactError, match="line 2"):
        read_metrics(tmp_path)
    with pytest.raises(ArtifactError, match="cannot read"):
        read_metrics(tmp_path / "nowhere")


def test_data_named_anew_are_prepared_as_those_of_the_run(tmp_path):
    """A file that has moved is no reason to standardise what was trained on as it is."""
    x, y = np.arange(8.0, dtype=np.float32).reshape(4, 2), np.array([0, 1, 0, 1])
    np.savez(tmp_path / "moved.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    about = {"data": {"name": "points.npz", "normalise": "none"}}
    file = find_posterior(str(save_posterior(tmp_path / "q.safetensors", {"w": x}, metadata=about)))
    choice = ModelChoice(data=str(tmp_path / "moved.npz"))
    for chosen, way in ((choice, "none"), (dataclasses.replace(choice, normalise="standard"), "standard")):
        data = dataset_of(chosen, file)
        assert data is not None and data.normalise == way
    np.testing.assert_array_equal(dataset_of(choice, file).x_test, x)  # pyright: ignore[reportOptionalMemberAccess]
