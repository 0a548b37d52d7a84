"""A run that is killed, interrupted or damaged ends with the bits of an undisturbed one."""

import dataclasses
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

import training_toys as toys
from bayesin import VI, Ensemble, fit_ensemble, fit_vi
from bayesin.errors import ArtifactError, ConfigError, TrainingError
from bayesin.inference import checkpoint as checkpoints

KEY = jax.random.key(11)
CONFIG = VI(epochs=12, batch=20, members=2, learning_rate=1e-2, checkpoint_epochs=2)
CHILD = """
import sys, time
import jax
sys.path.insert(0, sys.argv[1])
import test_vi_resume as here
import training_toys as toys
from bayesin import fit_vi

def told(progress):
    print(progress.step, flush=True)
    time.sleep(0.1)

fit_vi(here.KEY, toys.mlp(), toys.blobs(), here.CONFIG, checkpoint=sys.argv[2], on_progress=told)
"""


@pytest.fixture(scope="module")
def undisturbed():
    return fit_vi(KEY, toys.mlp(), toys.blobs(), CONFIG)


def resume(folder, config=CONFIG, **options):
    return fit_vi(KEY, toys.mlp(), toys.blobs(), config, checkpoint=folder, **options)


def stop_after(step):
    def told(progress):
        if progress.step >= step and not progress.resumed:
            raise KeyboardInterrupt

    return told


def assert_same(fit, undisturbed):
    assert toys.same_bits(fit.posteriors, undisturbed.posteriors)
    for name in ("step", "loss", "nll", "kl", "accuracy", "std_mean"):
        np.testing.assert_array_equal(fit.trace[name], undisturbed.trace[name])
        assert fit.trace[name].dtype == undisturbed.trace[name].dtype


@pytest.mark.parametrize(
    "moment",
    [
        "between checkpoints",
        pytest.param("while a checkpoint is written", marks=pytest.mark.slow),
        pytest.param("again and again", marks=pytest.mark.slow),
    ],
)
def test_killed_and_started_again(tmp_path, undisturbed, moment):
    if moment == "again and again":
        for _ in range(2):
            _kill(tmp_path, lambda steps: len(steps) >= 5)
    elif moment == "between checkpoints":
        _kill(tmp_path, lambda steps: bool(steps) and steps[-1] >= 21)
    else:
        _kill(tmp_path, lambda steps: bool(steps) and any(not p.name.isdigit() for p in tmp_path.iterdir()))
    seen = []
    assert_same(resume(tmp_path, on_progress=seen.append), undisturbed)
    if moment != "while a checkpoint is written":
        assert seen[0].resumed and seen[0].step >= 12


def _kill(folder: Path, moment) -> None:
    """Runs the training in a process of its own and kills it when the moment has come."""
    command = [sys.executable, "-c", CHILD, str(Path(__file__).parent), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        steps: list[int] = []
        for line in child.stdout or ():
            steps.append(int(line))
            until = time.monotonic() + 0.12  # longer than the pause after a line, so that a write is met
            while not moment(steps) and time.monotonic() < until:
                time.sleep(0.0005)
            if moment(steps):
                break
        child.send_signal(signal.SIGKILL)
    assert steps and steps[-1] < 36, "the child finished before it was killed"


def test_interrupt_saves_at_once(tmp_path, undisturbed):
    with pytest.raises(KeyboardInterrupt):
        resume(tmp_path, dataclasses.replace(CONFIG, checkpoint_epochs=0), on_progress=stop_after(15))
    assert [int(p.name) for p in tmp_path.iterdir()] == [15]
    assert_same(resume(tmp_path), undisturbed)


def test_damaged_checkpoint_falls_back_to_the_one_before(tmp_path, undisturbed):
    with pytest.raises(KeyboardInterrupt):
        resume(tmp_path, on_progress=stop_after(24))
    assert sorted(int(p.name) for p in tmp_path.iterdir()) == [18, 24]  # the last two are kept
    newest = tmp_path / "24" / "state"
    for part in newest.rglob("*"):
        if part.is_file():
            part.write_bytes(part.read_bytes()[: part.stat().st_size // 2])
    seen = []
    assert_same(resume(tmp_path, on_progress=seen.append), undisturbed)
    assert seen[0].step == 18


def test_all_damaged_starts_afresh(tmp_path, undisturbed):
    (tmp_path / "18").mkdir()
    assert_same(resume(tmp_path), undisturbed)


def test_checkpoint_of_another_run_is_refused(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        resume(tmp_path, on_progress=stop_after(6))
    with pytest.raises(ConfigError, match="another run"):
        resume(tmp_path, dataclasses.replace(CONFIG, learning_rate=0.5))
    with pytest.raises(ConfigError, match="another run"):
        fit_vi(jax.random.key(1), toys.mlp(), toys.blobs(), CONFIG, checkpoint=tmp_path)
    with pytest.raises(ConfigError, match="another run"):
        fit_vi(KEY, toys.mlp(), toys.blobs(seed=1), CONFIG, checkpoint=tmp_path)


def test_ensembles_resume_too(tmp_path):
    config = Ensemble(members=2, epochs=6, batch=20)
    whole = fit_ensemble(KEY, toys.mlp(), toys.blobs(), config).posterior
    with pytest.raises(KeyboardInterrupt):
        fit_ensemble(KEY, toys.mlp(), toys.blobs(), config, checkpoint=tmp_path, on_progress=stop_after(9))
    again = fit_ensemble(KEY, toys.mlp(), toys.blobs(), config, checkpoint=tmp_path).posterior
    assert toys.same_bits(whole, again)


def test_folder_that_cannot_be_written_is_reported_before_the_first_step(tmp_path):
    (tmp_path / "file").write_text("")
    seen = []
    with pytest.raises(ArtifactError, match="cannot write"):
        resume(tmp_path / "file" / "folder", on_progress=seen.append)
    assert not seen


def test_full_disk_is_reported_before_the_first_step(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(checkpoints.shutil, "disk_usage", lambda path: usage._replace(free=1000))
    seen = []
    with pytest.raises(ArtifactError, match="free some space"):
        resume(tmp_path, on_progress=seen.append)
    assert not seen


def test_divergence_names_the_last_good_checkpoint(tmp_path):
    config = dataclasses.replace(CONFIG, optimiser="sgd", learning_rate=1.0, warmup=30, checkpoint_epochs=1, clip=0.0)
    config = dataclasses.replace(config, explosion=1.01)
    with pytest.raises(TrainingError) as caught:
        resume(tmp_path, config)
    error = caught.value
    assert error.checkpoint is None or (
        error.checkpoint.parent == tmp_path and int(error.checkpoint.name) < error.step
    )
    assert str(error.checkpoint or "no checkpoint") in str(error)
