"""The built wheel in an environment that holds it, what it declares as needed, and nothing else.

That its dependencies can be installed as they are pinned is shown by `make`, which begins every target with it.
"""

import json
import os
import subprocess
import sys
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement  # pytest needs it too

REPOSITORY = Path(__file__).resolve().parents[1]
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
    pytest.importorskip("hatchling", reason="hatchling is not installed, so there is nothing to build with")
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder]
    _run(sys.executable, "-m", "pip", "wheel", *options, REPOSITORY, cwd=folder)
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
        "import bayesin, importlib.metadata as m\n"
        "print(bayesin.__file__, bayesin.__version__, m.version('bayesin'))\n"
        "for absent in ('pytest', 'ray', 'haiku'):\n"
        "    try: __import__(absent)\n"
        "    except ModuleNotFoundError: print(absent)\n"
    )
    place, version, declared, *absent = _run(programs / "python", "-c", code, cwd=elsewhere).split()
    assert Path(place).is_relative_to(programs.parent) and version == declared
    assert absent == ["pytest", "ray", "haiku"]

    result = json.loads(_run(programs / "bayesin", "doctor", "--json", cwd=elsewhere))
    assert not [check for check in result["checks"] if check["status"] == "problem"]
    found = {check["subject"]: check["status"] for check in result["checks"]}
    assert found["packages"] == found["solver"] == found["JAX"] == "ok"

    arguments = ["mlp", "--data", "digits", "--width", "8", "--json"]
    explained = json.loads(_run(programs / "bayesin", "explain", *arguments, cwd=elsewhere))
    assert [line["size"] for line in explained["groups"]] == [8, 8, 8]


def _install(wheel, folder):
    """Makes an environment of the wheel and what it asks for; returns its programs.

    What it asks for is installed here already, so that its files are linked and not unpacked once more.
    """
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "--disable-pip-version-check"]
    _run(*pip, "install", "--quiet", "--no-deps", "--no-index", "--no-compile", wheel, cwd=folder)
    (installed,) = metadata.distributions(name="bayesin", path=[str(packages)])
    for needed in _needed(installed):
        for top in {file.parts[0] for file in needed.files or ()} - {"..", "__pycache__"}:
            if not (packages / top).exists():  # parts of a namespace share their folder
                (packages / top).symlink_to(Path(str(needed.locate_file(top))).resolve())
    return folder / "bin"


def _needed(distribution) -> list[metadata.Distribution]:
    """What a distribution declares as needed, with what that needs."""
    found: dict[tuple[str, str], metadata.Distribution] = {}
    waiting = [(distribution, "")]
    while waiting:
        asking, extra = waiting.pop()
        for line in asking.requires or ():
            wanted = Requirement(line)
            if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
                continue
            for name in ("", *wanted.extras):
                if (wanted.name, name) not in found:
                    found[wanted.name, name] = metadata.distribution(wanted.name)
                    waiting.append((found[wanted.name, name], name))
            assert found[wanted.name, ""].version in wanted.specifier, f"{asking.name} needs {line}"
    return [one for (_, extra), one in found.items() if not extra]
