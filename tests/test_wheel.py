"""The built wheel, alone with its dependencies in an empty environment."""

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
CONSTRAINTS = REPOSITORY / "constraints.txt"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def _run(*command, cwd):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, (
        f"{command} exited with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
    )
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    probe = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        str(folder / "probe"),
        "hatchling",
    ]
    if subprocess.run(probe, capture_output=True).returncode != 0:
        pytest.skip("pip cannot reach a package index, so there is nothing to build and install with")
    _run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, REPOSITORY, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_every_module_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    source = REPOSITORY / "src"
    wanted = {str(path.relative_to(source)) for path in (source / "bayesin").rglob("*.py")}
    assert wanted <= held
    assert "bayesin/py.typed" in held
    assert all(name.startswith("bayesin/") and not name.endswith(".pyc") for name in held)


def test_it_works_in_an_empty_environment(wheel, tmp_path):
    """One test, so that one environment is made, whoever runs the tests in parallel."""
    programs = _install(wheel, tmp_path / "environment")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    code = (
        "import bayesin, importlib.metadata as m; print(bayesin.__file__, bayesin.__version__, m.version('bayesin'))"
    )
    place, version, declared = _run(programs / "python", "-c", code, cwd=elsewhere).split()
    assert Path(place).is_relative_to(programs.parent) and version == declared

    result = json.loads(_run(programs / "bayesin", "doctor", "--json", cwd=elsewhere))
    assert not [check for check in result["checks"] if check["status"] == "problem"]
    found = {check["subject"]: check["status"] for check in result["checks"]}
    assert found["packages"] == found["solver"] == found["JAX"] == "ok"

    arguments = ["mlp", "--data", "digits", "--width", "8", "--json"]
    explained = json.loads(_run(programs / "bayesin", "explain", *arguments, cwd=elsewhere))
    assert [line["size"] for line in explained["groups"]] == [8, 8, 8]


def _install(wheel, folder):
    """Makes an environment that holds the wheel and what it asks for, and nothing else; returns its programs."""
    venv.create(folder, with_pip=True)
    constraints = ["--constraint", CONSTRAINTS] if CONSTRAINTS.is_file() else []
    pip = [folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
    _run(*pip, "install", "--quiet", "--no-compile", *constraints, wheel, cwd=folder)
    return folder / "bin"
