"""Faults that were once lost: each stays mended."""

import dataclasses
import os
import shutil
import signal

import jax
import numpy as np
import pytest

import training_toys as toys
from bayesin import HMC, VI, Gaussian, fit_hmc
from bayesin.cli import main as cli
from bayesin.cli.places import UNFINISHED, begin_writing, result_folder
from bayesin.cli.signals import stoppable
from bayesin.errors import ArtifactError, ConfigError, PosteriorError
from bayesin.experiments import LockedError, RunConfig, run
from bayesin.experiments.lock import locked
from bayesin.experiments.metrics import read_metrics
from bayesin.experiments.run import run_together
from bayesin.files import write_json
from bayesin.paths import wasserstein

TINY = RunConfig(
    "digits", "mlp", VI(epochs=2, batch=50, checkpoint_epochs=1), width=4, depth=1, limit=100, test_samples=2
)


@pytest.mark.slow
def test_a_run_stopped_after_its_last_step_has_the_results_of_an_undisturbed_one(tmp_path):
    whole = run(TINY, tmp_path / "whole")

    def stop(stage):
        if stage == "test":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(TINY, tmp_path / "cut", on_stage=stop)
    assert run(TINY, tmp_path / "cut").results == whole.results
    for name in ("results.json", "posterior-0.safetensors"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_run_whose_posteriors_are_gone_says_so(tmp_path):
    done = run(TINY, tmp_path)
    (tmp_path / "posterior-0.safetensors").unlink()
    with pytest.raises(ArtifactError, match="posteriors are gone"):
        run(TINY, tmp_path)
    write_json(tmp_path / "results.json", [done.results])
    with pytest.raises(ArtifactError, match=r"results\.json is damaged"):
        run(TINY, tmp_path)


@pytest.mark.slow
def test_runs_trained_together_leave_nothing_of_a_killed_try(tmp_path):
    from bayesin.data import load
    from bayesin.experiments.config import build_model

    configs = [
        dataclasses.replace(TINY, training=dataclasses.replace(TINY.training, prior_variance=variance))
        for variance in (0.1, 0.2, 0.3)
    ]
    data = load("digits", None, 100)
    prepared = data, build_model(TINY, data)
    folders = [tmp_path / config.name for config in configs]
    write_json(tmp_path / ".together-dead" / "members.json", [folders[0].name, "gone"])
    write_json(tmp_path / ".together-other" / "members.json", ["another"])
    run_together(configs, folders, prepared=prepared)
    assert sorted(path.name for path in tmp_path.glob(".*")) == [".together-other"]
    alone = run(configs[1], tmp_path / "alone")
    assert (folders[1] / "posterior-0.safetensors").read_bytes() == (
        alone.folder / "posterior-0.safetensors"
    ).read_bytes()


@pytest.mark.slow
def test_hmc_killed_between_its_first_draws_and_the_state_that_counts_them(tmp_path):
    config = HMC(samples=6, burn_in=2, steps=3, step_size=0.01, draws_per_file=2)
    job = jax.random.key(3), toys.mlp(), toys.blobs(), config
    whole = fit_hmc(*job, checkpoint=tmp_path / "whole").posterior

    def stop(progress):
        if progress.step == 1:
            raise InterruptedError  # nothing is saved on this one

    with pytest.raises(InterruptedError):
        fit_hmc(*job, checkpoint=tmp_path / "cut", on_progress=stop)
    shutil.copy(tmp_path / "whole" / "draws-000000.safetensors", tmp_path / "cut" / "draws-000000.safetensors")
    assert toys.same_bits(fit_hmc(*job, checkpoint=tmp_path / "cut").posterior, whole)


def test_a_lock_on_a_full_disk_is_held_by_someone_unnamed(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with locked(tmp_path), pytest.raises(LockedError, match="another process"), locked(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


def test_results_of_a_killed_verb_are_replaced_and_whole_ones_are_not(tmp_path):
    names, folder = ("first", "second"), tmp_path / "out"
    with pytest.raises(InterruptedError), result_folder(folder, names, [], force=False) as places:
        begin_writing(places)
        places[0].write_text("half")
        raise InterruptedError
    assert (folder / UNFINISHED).exists()
    for force in (False, True):
        with result_folder(folder, names, [], force=force) as places:
            begin_writing(places)
            assert not any(place.exists() for place in places)
            for place in places:
                place.write_text("whole")
        assert sorted(path.name for path in folder.iterdir()) == ["first", "second"]
        with pytest.raises(ConfigError, match="--force"), result_folder(folder, names, [], force=False):
            pass
    with pytest.raises(ConfigError), result_folder(tmp_path / "new", names, [], force=False):
        raise ConfigError("before anything was written")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_where_there_is_something_to_save_and_not_before(number):
    before = signal.getsignal(number)
    with stoppable(), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), number)
    with stoppable() as stop:
        stop.check()
        os.kill(os.getpid(), number)
        assert stop.asked
        with pytest.raises(KeyboardInterrupt):
            stop.check()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) == before


def test_every_verb_is_stopped_in_order_by_sigterm(monkeypatch, capsys):
    monkeypatch.setattr(cli, "_dispatch", lambda argv: os.kill(os.getpid(), signal.SIGTERM))
    before = signal.getsignal(signal.SIGTERM)
    assert cli.main(["report"]) == 130
    assert "run the same command again" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) == before


def test_metrics_with_a_bad_line_in_the_middle_are_refused(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"st\n{"step": 3}\n')
    with pytest.raises(ArtifactError, match="line 2"):
        read_metrics(tmp_path)
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 1}\n\xff\xfe')
    assert read_metrics(tmp_path) == [{"step": 1}]
    with pytest.raises(ArtifactError, match="cannot read"):
        read_metrics(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "change", [{"data": {"name": 5, "limit": None, "normalise": "unit"}}, {"key": []}, {"test_samples": True}]
)
def test_a_config_of_the_wrong_kinds_is_refused(change):
    with pytest.raises(ArtifactError, match="cannot be read"):
        RunConfig.from_json(TINY.to_json() | change)


def test_densities_and_distances_beyond_the_squares_of_float32():
    point = {"w": np.zeros(3, np.float32)}
    tiny = Gaussian(point, {"w": np.full(3, 1e-20, np.float32)})
    expected = -3 * (np.log(1e-20) + 0.5 * np.log(2 * np.pi))
    assert float(tiny.log_density(point)) == pytest.approx(expected, rel=1e-6)
    with pytest.raises(PosteriorError, match="no density"):
        Gaussian.point(point).log_density(point)
    far = {"w": np.array([3e25, 4e25, 0], np.float32)}
    assert wasserstein(point, far) == pytest.approx(5e25, rel=1e-6)
    assert wasserstein(point, point) == 0.0


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_a_temperature_that_is_none_is_refused_with_the_reason(temperature):
    with pytest.raises(ConfigError, match="no prior"):
        VI(temperature=temperature)
