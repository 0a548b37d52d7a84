"""The guides run as they stand, do what they say, and stay short."""

import ast
import importlib
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
LINES = 60  # of code, at most


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs a guide in a folder of its own and returns what it printed."""
    monkeypatch.chdir(tmp_path)

    def act(name: str, *arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        act.names = runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return act


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_guide_is_short_and_begins_with_what_it_does(script):
    tree = ast.parse(script.read_text())
    strings = [
        node.body[0] for node in ast.walk(tree) if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)
    ]
    quoted = {
        line
        for first in strings
        if isinstance(first, ast.Expr)
        for line in range(first.lineno, (first.end_lineno or first.lineno) + 1)
    }
    lines = script.read_text().splitlines()
    code = [line for number, line in enumerate(lines, 1) if number not in quoted and line.split("#")[0].strip()]
    assert ast.get_docstring(tree)
    assert len(code) <= LINES


def test_every_guide_is_on_a_page_of_the_documentation():
    pages = "".join(path.read_text() for path in (EXAMPLES.parent / "docs").glob("*.md"))
    for script in [*SCRIPTS, EXAMPLES / "demo.ipynb"]:
        assert script.name in pages, script.name


PUBLIC = {"bayesin"} | {
    f"bayesin.{name}"
    for name in (
        "compact", "costs", "data", "errors", "evaluation", "inference", "likelihoods", "matching", "models", "paths",
        "posteriors", "store", "symmetry", "lab.report",
    )
}  # fmt: skip


@pytest.mark.parametrize("guide", [*SCRIPTS, EXAMPLES / "demo.ipynb"], ids=lambda path: path.name)
def test_a_guide_imports_public_names_that_are_there(guide):
    code = guide.read_text()
    if guide.suffix == ".ipynb":
        code = "\n".join("".join(c["source"]) for c in json.loads(code)["cells"] if c["cell_type"] == "code")
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bayesin"):
            assert node.module in PUBLIC, node.module
            module = importlib.import_module(node.module)
            for name in node.names:
                assert f"{node.module}.{name.name}" in PUBLIC or hasattr(module, name.name), name.name


def barriers(text: str) -> list[float]:
    return [float(value) for value in re.findall(r"barrier (\d\.\d+)", text)]


def percents(line: str) -> list[float]:
    return [float(value) for value in re.findall(r"(\d+\.\d)%", line)]


@pytest.mark.slow
def test_own_flax_model(run):
    text = run("own_flax_model.py")
    assert "'g0': 16, 'g1': 64" in text
    naive, aligned = barriers(text)
    assert naive > 0.3 and aligned < naive / 4
    assert min(percents(text)) > 93


@pytest.mark.slow
def test_own_equinox_model(run):
    text = run("own_equinox_model.py")
    assert "'g0': 32" in text
    naive, aligned = barriers(text)
    assert naive > 0.05 and aligned < naive / 4


@pytest.mark.slow
def test_merge_networks(run, tmp_path):
    text = run("merge_networks.py")
    first, second, moved, average, merged = percents(text)
    assert moved == second
    assert merged > average + 1 and merged > min(first, second) - 2
    naive, aligned = barriers(text)
    assert aligned < naive / 4
    assert (tmp_path / "merged.safetensors").is_file()


@pytest.mark.slow
def test_regression(run, tmp_path):
    text = run("regression.py")
    gap, seen = map(float, re.search(r"between the points ([\d.]+), among them ([\d.]+)", text).groups())
    scores = {name: float(value) for name, value in re.findall(r"(\w+) (-?\d\.\d{3})", text)}
    assert gap > 3 * seen and (tmp_path / "regression.png").stat().st_size > 0
    assert scores["rmse"] < 0.15 and 0.8 < scores["coverage_90"] < 0.98  # the standard error of 120 targets is 0.027


@pytest.mark.slow
def test_ensemble_to_posterior(run):
    text = run("ensemble_to_posterior.py")
    before, after = map(float, re.search(r"spread ([\d.]+) as trained, ([\d.]+)", text).groups())
    assert after < before
    rows = {line.split(":")[0]: [float(v) for v in re.findall(r"\d\.\d{3}", line)] for line in text.splitlines()}
    assert rows["compact"][0] > rows["direct"][0] + 0.2 and rows["compact"][1] < rows["direct"][1]
    assert rows["lowrank"][0] > rows["samples"][2] - 0.05


@pytest.mark.slow
@pytest.mark.promotes
def test_a_network_with_batchnorm(run):
    collected, as_trained, aligned, halfway = run("batchnorm_cnn.py").splitlines()
    assert "std 0.0" in collected
    assert barriers(aligned)[0] < barriers(as_trained)[0] - 0.2
    assert percents(aligned)[0] > 85 and percents(halfway)[0] > 85


@pytest.mark.slow
@pytest.mark.promotes
def test_a_transformer_on_tokens(run):
    groups, accuracy = run("token_transformer.py").splitlines()
    assert "'g0': 32" in groups
    assert percents(accuracy)[0] > 90


@pytest.mark.slow
@pytest.mark.promotes
def test_pytorch_networks(run, tmp_path):
    torch = pytest.importorskip("torch", reason="pip install 'bayesin[torch]'")
    as_trained, aligned, merged = run("pytorch_networks.py").splitlines()
    assert barriers(aligned)[0] < barriers(as_trained)[0] - 0.2
    assert percents(merged)[0] > percents(as_trained)[0] and percents(merged)[0] > 95
    assert torch.load(tmp_path / "merged.pt")["1.running_mean"].shape == (32,)


@pytest.mark.slow
@pytest.mark.promotes
def test_pytorch_ensemble(run, tmp_path):
    pytest.importorskip("torch", reason="pip install 'bayesin[torch]'")
    groups, spread, ensemble, folded, drawn = run("pytorch_ensemble.py").splitlines()
    assert "'g0': 48" in groups
    before, after = map(float, re.findall(r"\d\.\d+", spread))
    assert after < before
    accuracy = {
        line.split(":")[0]: float(re.search(r"accuracy (\d\.\d+)", line)[1]) for line in (ensemble, folded, drawn)
    }
    assert min(accuracy.values()) > max(accuracy.values()) - 0.03 and min(accuracy.values()) > 0.93
    assert "five PyTorch networks, folded" in (tmp_path / "posterior" / "README.md").read_text()


@pytest.mark.slow
def test_reading_without_bayesin(tmp_path, monkeypatch, capsys):
    """The files of two verbs, read by a process in which neither bayesin nor JAX can be imported."""
    pytest.importorskip("tyro")
    from sklearn.datasets import load_digits

    from bayesin.cli.main import main

    monkeypatch.chdir(tmp_path)
    x, y = load_digits(return_X_y=True)
    np.savez("mine.npz", x_train=x[:1400], y_train=y[:1400], x_test=x[1400:], y_test=y[1400:])
    train = "train --data mine.npz --width 64 --depth 1 --members 2 --epochs 30 --batch 100 --prior-variance 0.1"
    assert main([*train.split(), "--temperature", "0.1", "--learning-rate", "0.003", "--out", "run", "--json"]) == 0
    trained = json.loads(capsys.readouterr().out)
    assert main(["align", "run#0", "run#1", "--out", "aligned", "--quiet"]) == 0
    script = EXAMPLES / "read_without_bayesin.py"
    code = f"import sys, runpy; sys.modules.update(bayesin=None, jax=None); runpy.run_path({str(script)!r})"
    files = ["run/posterior-0.safetensors", "aligned/alignment.safetensors", "mine.npz"]
    done = subprocess.run([sys.executable, "-c", code, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "gaussian of mlp on mine.npz" in done.stdout and "perms/g0" in done.stdout
    # Other draws of the weights: some of 397 answers may change sides.
    accuracy = float(re.search(r"accuracy: ([\d.]+)", done.stdout)[1])
    assert accuracy == pytest.approx(trained["members"][0]["test_accuracy"], abs=0.02) and accuracy > 0.85


@pytest.mark.slow
def test_the_notebook_executes_and_holds_no_output(tmp_path, monkeypatch, capsys):
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("IPython")
    notebook = nbformat.read(EXAMPLES / "demo.ipynb", as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in cells)
    monkeypatch.chdir(tmp_path)
    names = {}
    for cell in cells:  # it has no magics, so that a kernel would do nothing else
        exec(compile(cell.source, "demo.ipynb", "exec"), names)
    text = capsys.readouterr().out
    naive, aligned = (float(re.search(rf"{kind}: (\d\.\d+) ±", text)[1]) for kind in ("naive", "aligned"))
    assert naive > 0.3 and aligned < naive / 4
    assert (tmp_path / "figures" / "barrier.pdf").is_file()
