"""The doctor on this machine, and on machines that are broken in known ways."""

import json
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType

import jax
import pytest

from bayesin.cli import checks, doctor
from bayesin.cli.checks import Check
from bayesin.cli.main import main
from bayesin.matching import assignment


@pytest.fixture
def quick(monkeypatch):
    """Only the cheap checks, each of which can be replaced."""
    monkeypatch.setattr(doctor, "CHECKS", {"Python": checks.python, "solver": checks.solver})


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


def test_this_machine_is_well(capsys, own_cache):
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    for subject in ("Python", "packages", "JAX", "solver", "data", "compilation cache"):
        assert subject in printed
    assert "problem" not in printed.lower().replace("problems: 0", "")


def test_json_is_one_object_with_every_check(quick, capsys):
    assert main(["doctor", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["exit_code"] == 0
    assert [check["status"] for check in result["checks"]] == ["ok", "ok"]


def test_a_problem_exits_with_1_and_says_what_to_do(monkeypatch, capsys):
    broken = {"JAX": lambda: [Check("JAX", "problem", "no device", "buy one")]}
    monkeypatch.setattr(doctor, "CHECKS", broken)
    assert main(["doctor"]) == 1
    printed = capsys.readouterr().out
    assert "no device" in printed and "buy one" in printed and "Problems: 1" in printed
    assert main(["doctor", "--quiet"]) == 1
    quiet = capsys.readouterr()
    assert quiet.out == "" and "no device" in quiet.err


def test_a_warning_exits_with_0(monkeypatch):
    monkeypatch.setattr(doctor, "CHECKS", {"data": lambda: [Check("data", "warning", "none", "fetch it")]})
    assert main(["doctor"]) == 0


def test_a_check_that_fails_is_a_problem_and_the_others_go_on(monkeypatch, capsys):
    def explode():
        raise RuntimeError("Unable to initialize backend 'cuda'\nmany lines")

    monkeypatch.setattr(doctor, "CHECKS", {"JAX": explode, "Python": checks.python})
    assert main(["doctor", "--json"]) == 1
    first, second = json.loads(capsys.readouterr().out)["checks"]
    assert first["found"] == "RuntimeError: Unable to initialize backend 'cuda'" and second["status"] == "ok"


@pytest.fixture
def other_lap(monkeypatch):
    """Puts another module in place of `lap`, and forgets what the solver remembered."""

    def replace(module):
        monkeypatch.setitem(sys.modules, "lap", module)
        assignment._lapjvh.cache_clear()

    yield replace
    assignment._lapjvh.cache_clear()


def test_the_wrong_lap_module_is_recognised(other_lap):
    other_lap(ModuleType("lap"))  # of the package lap: it has lapjv and no lapjvh
    (check,) = checks.solver()
    assert check.status == "warning" and "not of lapx" in check.found and "pip uninstall" in check.remedy


def test_a_missing_lap_module_is_a_warning(other_lap):
    other_lap(None)
    (check,) = checks.solver()
    assert check.status == "warning" and check.remedy == "pip install lapx"


def test_a_solver_that_is_wrong_is_a_problem(other_lap):
    wrong = ModuleType("lap")
    wrong.lapjvh = lambda cost, return_cost: (None, range(len(cost)))  # pyright: ignore
    other_lap(wrong)
    (check,) = checks.solver()
    assert check.status == "problem" and "disagree" in check.found


def test_lap_beside_lapx_is_a_warning(monkeypatch):
    monkeypatch.setattr(checks, "_version", lambda name: "0.5" if name == "lap" else "0.11")
    (check,) = checks.solver()
    assert check.status == "warning" and "overwrite" in check.found


REQUIREMENTS = ["numpy>=2.0", "pooch>=1.8", "pytest>=8; extra == 'dev'"]


def test_missing_and_old_packages_are_named(monkeypatch):
    monkeypatch.setattr(metadata, "requires", lambda name: [*REQUIREMENTS, "no-such-thing>=3", "rich>=999"])
    found = {check.subject: check for check in checks.packages()}
    assert found["packages"].found == "2 of 4 as needed"
    assert found["no-such-thing"].status == "problem" and "not installed" in found["no-such-thing"].found
    assert found["no-such-thing"].remedy == "pip install --upgrade 'no-such-thing>=3'"
    assert found["rich"].status == "problem" and "older than 999" in found["rich"].found
    assert "pytest" not in found


def test_a_package_that_only_some_verbs_need_is_a_warning(monkeypatch):
    monkeypatch.setattr(metadata, "requires", lambda name: REQUIREMENTS)
    monkeypatch.setitem(sys.modules, "pooch", None)
    found = {check.subject: check for check in checks.packages()}
    assert found["pooch"].status == "warning" and "no downloads" in found["pooch"].found


def test_every_dependency_is_read_from_the_installed_package():
    names = [name for name, _ in checks._required()]
    assert {"jax", "flax", "numpy", "tyro"} <= set(names) and "ruff" not in names


def test_a_broken_import_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "broken_package.py").write_text("raise OSError('libfoo.so: cannot open\\nsecond line')")
    (tmp_path / "needy_package.py").write_text("import no_such_neighbour")
    monkeypatch.syspath_prepend(tmp_path)
    assert checks._import_problem("broken_package") == "cannot be imported: libfoo.so: cannot open"
    assert checks._import_problem("needy_package") == "needs 'no_such_neighbour'"
    assert checks._import_problem("no_such_package") == "not installed"


def test_data_sets_that_are_absent_or_partial_are_named(tmp_path, monkeypatch):
    (tmp_path / "MNIST" / "raw").mkdir(parents=True)
    (tmp_path / "MNIST" / "raw" / "train-labels-idx1-ubyte").write_bytes(b"")
    monkeypatch.setenv("BAYESIN_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "nowhere"))
    monkeypatch.chdir(tmp_path)
    found = {check.subject: check for check in checks.data()}
    assert "cifar10" in found["data"].found.split("not here")[1]
    assert "digits" in found["data"].found.split("not here")[0]
    assert found["data: mnist"].remedy == "bayesin data fetch mnist"


def test_folders_that_do_not_exist_yet_are_measured_above(tmp_path):
    check = checks._folder("cache", tmp_path / "not" / "yet", "elsewhere")
    assert check.status == "ok" and "GiB free" in check.found
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_a_problem():
    check = checks._folder("cache", Path("/proc/nowhere"), "set ANOTHER")
    assert check.status == "problem" and check.remedy == "set ANOTHER"


def test_a_compilation_cache_that_cannot_be_written_is_a_warning(own_cache, monkeypatch):
    (check,) = checks.compilation_cache()
    assert check.status == "ok" and str(own_cache) in check.found
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    (check,) = checks.compilation_cache()
    assert check.status == "warning" and "JAX_COMPILATION_CACHE_DIR" in check.remedy


def test_a_full_disk_is_a_problem(tmp_path, monkeypatch):
    for free, status in ((10 << 30, "ok"), (1 << 30, "warning"), (1 << 20, "problem")):
        usage = type("Usage", (), {"free": free})
        monkeypatch.setattr(checks.shutil, "disk_usage", lambda place, usage=usage: usage)
        assert checks._folder("disk", tmp_path, "").status == status
