"""Faults that were once lost: each stays mended."""

import gc
import os
import shutil
import signal
from collections import Counter
from pathlib import Path

import jax
import numpy as np
import pytest

import training_toys as toys
from bayesin import HMC, Gaussian, fit_hmc
from bayesin.cli import main as cli
from bayesin.cli.output_dir import result_folder
from bayesin.cli.signals import stoppable
from bayesin.errors import ArtifactError, ConfigError, LockedError, PosteriorError
from bayesin.file_sets import check_one_making, replaced_already
from bayesin.locks import locked
from bayesin.paths import wasserstein
from torture import soak
from torture.verbs import METHODS


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
    lock = tmp_path / ".lock"
    with locked(lock), pytest.raises(LockedError, match="another process"), locked(lock):
        pass
    assert not list(tmp_path.iterdir())


def test_results_of_a_killed_verb_are_replaced_and_whole_ones_are_not(tmp_path, monkeypatch):
    names, folder = ("first", "second"), tmp_path / "out"

    def write(force: bool, content: str) -> None:
        with result_folder(folder, names, [], force=force) as place:
            for name in names:
                (place / name).write_text(content)

    with monkeypatch.context() as patch:
        moves = iter([os.replace, os.replace])  # the mark and the first file; then it is killed
        patch.setattr(os, "replace", lambda *paths: next(moves)(*paths))
        with pytest.raises(RuntimeError):
            write(False, "half")
    assert [*replaced_already(folder)] == ["first"] and not (folder / "second").exists()
    with pytest.raises(ArtifactError, match="two results"):
        check_one_making(folder)
    for force in (False, True):
        write(force, "whole")
        assert sorted(path.name for path in folder.iterdir()) == ["first", "second"]
        with pytest.raises(ConfigError, match="--force"), result_folder(folder, names, [], force=False):
            pass
    with pytest.raises(ConfigError), result_folder(tmp_path / "new", names, [], force=False):
        raise ConfigError("before anything was written")
    assert not (tmp_path / "new").exists()


def test_what_a_process_left_that_was_killed_when_its_result_was_whole_goes(tmp_path, monkeypatch):
    folder = tmp_path / "out"

    def write() -> None:
        with result_folder(folder, ("first", "second"), [], force=False) as place:
            for name in ("first", "second"):
                (place / name).write_text("whole")

    with monkeypatch.context() as patch:  # killed before the mark goes, and the lock
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        write()
    left = folder / f".tmp-1-{'0' * 8}-result"
    left.mkdir()
    assert {".lock", ".unfinished"} < {path.name for path in folder.iterdir()}
    with pytest.raises(ConfigError, match="--force"):
        write()
    assert sorted(path.name for path in folder.iterdir()) == ["first", "second"]
    with locked(folder / ".lock"):
        left.mkdir()
        with pytest.raises(ConfigError, match="--force"):
            write()
        assert left.exists()  # which a living process may have made


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


def test_densities_and_distances_beyond_the_squares_of_float32():
    point = {"w": np.zeros(3, np.float32)}
    tiny = Gaussian(point, {"w": np.full(3, 1e-20, np.float32)})
    expected = -3 * (np.log(1e-20) + 0.5 * np.log(2 * np.pi))
    assert float(tiny.log_density(point)) == pytest.approx(expected, rel=1e-6)
    with pytest.raises(PosteriorError, match="no density"):
        Gaussian.point(point).log_density(point)
    far = {"w": np.array([3e25, 4e25, 0], np.float32)}
    assert float(wasserstein(point, far)) == pytest.approx(5e25, rel=1e-6)
    assert wasserstein(point, point) == 0.0


def test_a_signal_after_the_result_is_whole_says_so(tmp_path, monkeypatch, capsys):
    def verb(argv):
        with result_folder(tmp_path / "out", ["one"], [], force=True) as place:
            (place / "one").write_text(argv[0])
            if argv[0] == "early":
                raise KeyboardInterrupt
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(cli, "_dispatch", verb)
    for when, words in (("late", f"the result in {tmp_path / 'out'} is whole"), ("early", "run the same command")):
        assert cli.main([when]) == 130
        assert words in capsys.readouterr().err
    assert (tmp_path / "out" / "one").read_text() == "late"


@pytest.mark.usefixtures("svg_alone")
def test_verbs_over_and_over_leave_no_programs_and_no_traces_behind(tmp_path):
    """A cycle of all verbs once left 120 records in JAX's caches; SWAG and SG-MCMC left a compiled program."""
    work = soak._Work(tmp_path / "work")
    for number in (SWAG_TURN, SGMCMC_TURN):
        work._verbs(number)
    before = _kept()
    for number in (SWAG_TURN, SGMCMC_TURN):
        work._verbs(number + len(METHODS) + 2)  # other keys
    after = _kept()
    assert after["programs"] == before["programs"]
    assert after["traces"] <= before["traces"] + 10  # of the JAX library's own, where it first meets something
    assert after["classes"] <= before["classes"] + 10


SWAG_TURN, SGMCMC_TURN = (2 + [*METHODS].index(name) for name in ("swag", "sgmcmc"))  # after VI and HMC


def _kept() -> dict[str, int]:
    """What stays in the process: compiled programs, traces, classes."""
    gc.collect()
    kinds = Counter(type(one).__name__ for one in gc.get_objects())
    programs = len(jax.devices()[0].client.live_executables())
    return {"programs": programs, "traces": kinds["PjitParams"], "classes": kinds["type"]}
