"""The doctor on this machine, and on machines that are broken in known ways."""

import dataclasses
import json
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

from bayesin.cli.main import main
from bayesin.lab import machine
from bayesin.lab.machine import Check
from bayesin.matching import assignment


@pytest.fixture
def own_cache(monkeypatch, tmp_path):
    """A cache folder for this test alone; what the doctor tells JAX about it is taken back."""
    names = [name for name in jax.config.values if "compilation_cache" in name or "persistent_cache" in name]
    before = {name: jax.config.values[name] for name in names}
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    yield tmp_path
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()  # it would go on writing into the folder it began with


def test_this_machine_is_well(capsys, own_cache):
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    for subject in ("Python", "packages", "JAX", "solver", "data", "compilation cache"):
        assert subject in printed
    assert "problem" not in printed.lower().replace("problems: 0", "")


@pytest.mark.parametrize(("status", "code"), [("ok", 0), ("warning", 0), ("problem", 1)])
def test_only_a_problem_exits_with_1_and_all_say_what_to_do(monkeypatch, capsys, status, code):
    check = Check("JAX", status, "no [device]", "buy one")
    monkeypatch.setattr(machine, "CHECKS", {"JAX": lambda: [check]})
    assert main(["doctor"]) == code
    printed = capsys.readouterr().out
    assert "no [device]" in printed and "buy one" in printed
    assert main(["doctor", "--json"]) == code
    result = json.loads(capsys.readouterr().out)
    assert result == {"checks": [dataclasses.asdict(check)], "exit_code": code}
    assert main(["doctor", "--quiet"]) == code
    quiet = capsys.readouterr()
    assert quiet.out == "" and ("no [device]" in quiet.err) == (code == 1)


def test_a_check_that_fails_is_a_problem_and_the_others_go_on(monkeypatch, capsys):
    def explode():
        raise RuntimeError("Unable to initialize backend 'cuda'\nmany lines")

    monkeypatch.setattr(machine, "CHECKS", {"JAX": explode, "Python": machine.python})
    assert main(["doctor", "--json"]) == 1
    first, second = json.loads(capsys.readouterr().out)["checks"]
    assert first["found"] == "RuntimeError: Unable to initialize backend 'cuda'" and second["status"] == "ok"


@pytest.fixture
def other_lap(monkeypatch):
    """Puts another module in place of `lap`, and forgets what the solver remembered."""

    def replace(module):
        monkeypatch.setitem(sys.modules, "lap", module)
        assignment._lapx.cache_clear()

    yield replace
    assignment._lapx.cache_clear()


WRONG = {"lapjvh": lambda cost, return_cost: (None, range(len(cost))), "lapjvh_batch": None}


@pytest.mark.parametrize(
    ("module", "status", "remedy"),
    [
        ({}, "warning", "pip uninstall"),  # of the package lap: it has lapjv and no lapjvh
        (None, "warning", "pip install lapx"),
        (WRONG, "problem", "pip uninstall"),
    ],
)
def test_a_solver_that_is_another_missing_or_wrong(other_lap, module, status, remedy):
    if module is not None:
        module, attributes = ModuleType("lap"), module
        vars(module).update(attributes)
    other_lap(module)
    (check,) = machine.solver()
    assert check.status == status and check.remedy.startswith(remedy)


def test_lap_beside_lapx_is_a_warning(monkeypatch):
    monkeypatch.setattr(machine, "_version", lambda name: "0.5" if name == "lap" else "0.11")
    (check,) = machine.solver()
    assert check.status == "warning" and "overwrite" in check.found


REQUIREMENTS = ["numpy>=2.0", "requests>=2.31", "pytest>=8; extra == 'dev'"]


def test_missing_and_old_packages_are_named(monkeypatch):
    monkeypatch.setattr(metadata, "requires", lambda name: [*REQUIREMENTS, "no-such-thing>=3", "rich>=999"])
    found = {check.subject: check for check in machine.packages()}
    assert found["packages"].found == "2 of 4 as needed"
    assert found["no-such-thing"].status == "problem" and "not installed" in found["no-such-thing"].found
    assert found["no-such-thing"].remedy == "pip install --upgrade 'no-such-thing>=3'"
    assert found["rich"].status == "problem" and "older than 999" in found["rich"].found
    assert "pytest" not in found


def test_a_package_that_only_some_verbs_need_is_a_warning(monkeypatch):
    monkeypatch.setattr(metadata, "requires", lambda name: REQUIREMENTS)
    monkeypatch.setitem(sys.modules, "requests", None)
    found = {check.subject: check for check in machine.packages()}
    assert found["requests"].status == "warning" and "no downloads" in found["requests"].found


def test_every_dependency_is_read_from_the_installed_package():
    names = [name for name, _ in machine._required()]
    assert {"jax", "flax", "numpy", "tyro"} <= set(names) and "ruff" not in names


def test_a_broken_import_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "broken_package.py").write_text("raise OSError('libfoo.so: cannot open\\nsecond line')")
    (tmp_path / "needy_package.py").write_text("import no_such_neighbour")
    monkeypatch.syspath_prepend(tmp_path)
    assert machine._import_problem("broken_package") == "cannot be imported: libfoo.so: cannot open"
    assert machine._import_problem("needy_package") == "needs 'no_such_neighbour'"
    assert machine._import_problem("no_such_package") == "not installed"


def test_data_sets_that_are_absent_or_partial_are_named(tmp_path, monkeypatch):
    (tmp_path / "MNIST" / "raw").mkdir(parents=True)
    (tmp_path / "MNIST" / "raw" / "train-labels-idx1-ubyte").write_bytes(b"")
    monkeypatch.setenv("BAYESIN_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "nowhere"))
    monkeypatch.chdir(tmp_path)
    found = {check.subject: check for check in machine.data()}
    assert "cifar10" in found["data"].found.split("not here")[1]
    assert "digits" in found["data"].found.split("not here")[0]
    assert found["data: mnist"].remedy == "bayesin data fetch mnist"


def test_folders_that_do_not_exist_yet_are_measured_above(tmp_path):
    check = machine._folder("cache", tmp_path / "not" / "yet", "elsewhere")
    assert check.status == "ok" and "GiB free" in check.found
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_a_problem():
    check = machine._folder("cache", Path("/proc/nowhere"), "set ANOTHER")
    assert check.status == "problem" and check.remedy == "set ANOTHER"


def test_a_compilation_cache_that_cannot_be_written_is_a_warning(own_cache, monkeypatch):
    (check,) = machine.compilation_cache()
    assert check.status == "ok" and str(own_cache) in check.found
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    (check,) = machine.compilation_cache()
    assert check.status == "warning" and "JAX_COMPILATION_CACHE_DIR" in check.remedy


def test_a_full_disk_is_a_problem(tmp_path, monkeypatch):
    for free, status in ((10 << 30, "ok"), (1 << 30, "warning"), (1 << 20, "problem")):
        usage = type("Usage", (), {"free": free})
        monkeypatch.setattr(machine.shutil, "disk_usage", lambda place, usage=usage: usage)
        assert machine._folder("disk", tmp_path, "").status == status


def test_half_a_compiled_program_of_a_killed_process_goes(own_cache):
    filelock = pytest.importorskip("filelock")
    folder = machine.use_compilation_cache()
    assert folder is not None
    for name in ("whole-cache", "whole-atime", "half-cache"):
        (folder / name).write_bytes(bytes(8))
    with filelock.FileLock(folder / ".lockfile"):  # of a process that may be writing it
        machine.use_compilation_cache()
        assert (folder / "half-cache").exists()
    machine.use_compilation_cache()
    assert sorted(path.name for path in folder.glob("*-*")) == ["whole-atime", "whole-cache"]
