"""A run that is killed, interrupted or damaged ends with the bits of an undisturbed one."""

import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import training_toys as toys
from bayesin import VI, Ensemble, fit_ensemble, fit_vi
from bayesin.errors import ArtifactError, ConfigError, TrainingError
from bayesin.inference import FanIn
from bayesin.store import checkpoints

KEY = jax.random.key(11)
CHILD = """
import sys, time
import jax
sys.path.insert(0, sys.argv[1])
import training_toys as toys
from bayesin import fit_vi

def slowly(progress):
    print(progress.step, flush=True)
    time.sleep(0.1)

fit_vi(jax.random.key(11), toys.mlp(), toys.blobs(), toys.RESUMED, checkpoint=sys.argv[2], on_progress=slowly)
"""


@pytest.fixture(scope="module")
def undisturbed():
    return fit_vi(KEY, toys.mlp(), toys.blobs(), toys.RESUMED)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A folder with the checkpoints of a run that was stopped at step 24; to be copied."""
    folder = tmp_path_factory.mktemp("stopped")
    with pytest.raises(KeyboardInterrupt):
        resume(folder, on_progress=stop_after(24))
    assert sorted(int(path.name) for path in folder.iterdir()) == [18, 24]  # the last two are kept
    return folder


def resume(folder, config=toys.RESUMED, **options):
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


@pytest.mark.slow
def test_killed_between_checkpoints_and_while_one_is_written(tmp_path, undisturbed):
    _kill(tmp_path, lambda steps: bool(steps) and steps[-1] >= 9)
    assert {path.name for path in tmp_path.iterdir() if path.name.isdigit()} == {"6"}
    _kill(tmp_path, lambda steps: bool(steps) and any(not path.name.isdigit() for path in tmp_path.iterdir()))
    seen = []
    assert_same(resume(tmp_path, on_progress=seen.append), undisturbed)
    assert seen[0].resumed and 6 <= seen[0].step < 36


def _kill(folder: Path, moment) -> None:
    """Runs the training in a process of its own and kills it when the moment has come."""
    command = [sys.executable, "-c", CHILD, str(Path(__file__).parent), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as child:
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
        resume(tmp_path, replace(toys.RESUMED, checkpoint_epochs=0), on_progress=stop_after(15))
    assert [int(p.name) for p in tmp_path.iterdir()] == [15]
    assert_same(resume(tmp_path), undisturbed)


@pytest.mark.parametrize("damaged, taken_up_at", [(("24",), 18), (("18", "24"), None)])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path, stopped, undisturbed, damaged, taken_up_at):
    folder = shutil.copytree(stopped, tmp_path / "run")
    for name in damaged:
        for part in (folder / name / "state").rglob("*"):
            if part.is_file():
                part.write_bytes(part.read_bytes()[: part.stat().st_size // 2])
    seen = []
    assert_same(resume(folder, on_progress=seen.append), undisturbed)
    assert (seen[0].step, seen[0].resumed) == ((taken_up_at, True) if taken_up_at else (3, False))


def test_checkpoint_of_another_run_is_refused(stopped):
    model, data = toys.mlp(), toys.blobs()
    for arguments in [
        (KEY, model, data, replace(toys.RESUMED, learning_rate=0.5)),
        (KEY, model, data, replace(toys.RESUMED, prior=FanIn())),
        (KEY, model, data, replace(toys.RESUMED, optimiser=optax.adam(1e-3), learning_rate=1e-3)),
        (jax.random.key(1), model, data, toys.RESUMED),
        (KEY, model, toys.blobs(seed=1), toys.RESUMED),
    ]:
        with pytest.raises(ConfigError, match="another run"):
            fit_vi(*arguments, checkpoint=stopped)


@dataclass(frozen=True)
class Tilted:
    """A likelihood with a number of its own, which is learned."""

    shift: float = 0.1

    def log_likelihood(self, outputs, targets):
        shifted = outputs + self.shift * jnp.arange(3.0)[None]
        return jnp.take_along_axis(jax.nn.log_softmax(shifted), targets[:, None], 1)[:, 0]

    def parameters(self):
        return {"shift": self.shift}

    def at(self, parameters):
        return Tilted(parameters["shift"])


def test_objects_resume_too_and_are_told_apart(tmp_path):
    """An ensemble with an optimiser, a prior and a likelihood of the user's own."""
    model, data = toys.mlp(), toys.blobs()
    config = Ensemble(
        members=2, epochs=4, batch=20, likelihood=Tilted(), prior=FanIn(0.5), optimiser=optax.adamw(0.01)
    )
    whole = fit_ensemble(KEY, model, data, config)
    assert whole.likelihoods[0] != Tilted() and whole.trace["shift"].shape == (4, 2)
    with pytest.raises(KeyboardInterrupt):
        fit_ensemble(KEY, model, data, config, checkpoint=tmp_path, on_progress=stop_after(6))
    for other in ({"prior": FanIn(0.6)}, {"optimiser": optax.adamw(0.02)}, {"likelihood": Tilted(0.2)}):
        with pytest.raises(ConfigError, match="another run"):
            fit_ensemble(KEY, model, data, replace(config, **other), checkpoint=tmp_path)
    again = fit_ensemble(KEY, model, data, replace(config, optimiser=optax.adamw(0.01)), checkpoint=tmp_path)
    assert toys.same_bits(whole.posterior, again.posterior) and whole.likelihoods == again.likelihoods
    nameless = replace(config, likelihood=lambda outputs, targets: outputs[:, 0])
    with pytest.raises(ConfigError, match="told apart"):
        fit_ensemble(KEY, model, data, nameless, checkpoint=tmp_path / "other")


def test_trouble_with_the_folder_is_reported_before_the_first_step(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    seen = []
    with pytest.raises(ArtifactError, match="cannot write"):
        resume(tmp_path / "file" / "folder", on_progress=seen.append)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(checkpoints.shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(ArtifactError, match="free some space"):
        resume(tmp_path, on_progress=seen.append)
    assert not seen


def test_divergence_names_the_last_good_checkpoint(tmp_path):
    config = VI(
        epochs=12, batch=20, optimiser="sgd", learning_rate=30.0, warmup=30, checkpoint_epochs=1, explosion=3.0
    )
    with pytest.raises(TrainingError) as caught:
        resume(tmp_path, config)
    error = caught.value
    assert error.checkpoint is not None and error.checkpoint.parent == tmp_path
    assert int(error.checkpoint.name) < error.step and str(error.checkpoint) in str(error)


@pytest.mark.parametrize("times", [1, 2])
def test_a_save_that_finds_another_in_its_way_is_tried_once_more(tmp_path, monkeypatch, undisturbed, times):
    """Threads of the storage may write on for a moment after a save that failed, where the next one begins."""
    import orbax.checkpoint as ocp

    monkeypatch.setattr(checkpoints, "LATE", 0.0)
    real, left = ocp.CheckpointManager.save, [times]

    def save(manager, step, **arguments):
        if left[0]:
            left[0] -= 1
            (tmp_path / f"{step}.orbax-checkpoint-tmp" / "state").mkdir(parents=True, exist_ok=True)
            raise OSError(39, "Directory not empty")
        return real(manager, step, **arguments)

    monkeypatch.setattr(ocp.CheckpointManager, "save", save)
    if times == 2:
        with pytest.raises(ArtifactError, match=r"cannot write a checkpoint to .*: Directory not empty"):
            resume(tmp_path)
    assert_same(resume(tmp_path), undisturbed)
    assert not list(tmp_path.glob("*.orbax-checkpoint-tmp*"))


def test_a_write_that_orbax_gave_up_is_not_told_long_after(caplog, capsys, monkeypatch):
    """Its thread and asyncio tell of it when they like, as tracebacks after the one line of ours."""
    python_as_it_starts(monkeypatch)
    with pytest.raises(OSError, match="full"), checkpoints._quiet():
        raise OSError("full")
    task = "<Task finished coro=<_open_and_write() defined at /site-packages/orbax/checkpoint/type_handlers.py:110>>"
    logging.getLogger("asyncio").error("Task exception was never retrieved\nfuture: %s", task)
    logging.getLogger("absl").error("_SignalingThread.run() raised an exception: %s", "10.orbax-checkpoint-tmp/state")
    logging.getLogger("asyncio").error("Task exception was never retrieved\nfuture: %s", "<Task of somebody else>")
    assert [record.args for record in caplog.records] == [("<Task of somebody else>",)]
    for error in (RuntimeError("Event loop is closed"), RuntimeError("something else")):
        sys.excepthook(type(error), error, None)
    assert capsys.readouterr().err == "RuntimeError: something else\n"


def test_a_save_that_succeeds_leaves_pythons_hooks_alone(monkeypatch):
    python_as_it_starts(monkeypatch)
    before = sys.unraisablehook, sys.excepthook
    with checkpoints._quiet():
        assert (sys.unraisablehook, sys.excepthook) != before
    assert (sys.unraisablehook, sys.excepthook) == before


def python_as_it_starts(monkeypatch):
    """Its own hooks, until the end of the test: one before may have had an error."""
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
