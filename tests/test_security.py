"""No code execution: what the source may not call, and files that would like to run something."""

import ast
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from bayesin.cli.main import main
from bayesin.data import fetch, load
from bayesin.errors import DataError
from bayesin.store import save_posterior

SOURCE = Path(__file__).resolve().parents[1] / "src" / "bayesin"
MODULES = {
    "pickle",
    "cPickle",
    "dill",
    "cloudpickle",
    "joblib",
    "marshal",
    "shelve",
    "yaml",
    "torch",
    "h5py",
    "subprocess",
}
CALLS = {"eval", "exec", "compile", "__import__", "input"}
METHODS = {"popen", "extractall", "unsafe_load", "full_load", "spawnl", "execv", "literal_eval"}


def offences(text: str) -> list[str]:
    """Imports and calls by which a file, or a name in one, could become code."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found += [node.module or ""] if (node.module or "").split(".")[0] in MODULES else []
        elif isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            bare = isinstance(node.func, ast.Name)
            owner = getattr(getattr(node.func, "value", None), "id", "")
            found += [name] if (bare and name in CALLS) or (not bare and name in METHODS) else []
            for keyword in node.keywords:
                if keyword.arg in ("shell", "allow_pickle") and getattr(keyword.value, "value", None) is not False:
                    found.append(f"{name}({keyword.arg}=…)")
            if f"{owner}.{name}" in ("os.system", "np.load", "numpy.load"):
                found.append(f"{owner}.{name}")
    return found


# The commit of a checkout goes into the provenance; the words are a list, never a string for a shell.
# PyTorch is imported to run a module that the user has made; no checkpoint is read with it.
ALLOWED = {"lab/runs/records.py": ["subprocess"], "models/torch.py": ["torch"]}


def test_the_source_has_no_way_to_run_a_file():
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        assert offences(path.read_text()) == ALLOWED.get(name, []), name


@pytest.mark.parametrize(
    "text",
    ["import pickle", "from yaml import load", "eval('1')", "exec(x)", "os.system('x')", "run(x, shell=True)",
     "np.load(p)", "np.load(p, allow_pickle=True)", "tar.extractall()", "import torch.serialization"],
)  # fmt: skip
def test_the_walk_sees_each_of_them(text):
    assert offences(text)


class Hostile:
    """Leaves a trace when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ("executed",)


@pytest.mark.parametrize("name", ["q.safetensors", "config.json", "data.npz", "spec.json"])
@pytest.mark.parametrize("verb", ["align", "barrier", "compact", "report", "explain", "train"])
def test_hostile_files_run_nothing(tmp_path, monkeypatch, capsys, name, verb):
    import pickle

    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(pickle.dumps(Hostile()))
    if name == "data.npz":
        np.savez(
            "data.npz",
            x_train=np.array([Hostile()], object),
            y_train=np.zeros(1),
            x_test=np.zeros(1),
            y_test=np.zeros(1),
        )
    flags = {"train": ["--data", name], "report": [name], "explain": [name], "compact": [name]}.get(
        verb, [name, name]
    )
    assert main([verb, *flags, "--out", "out"] if verb != "explain" else [verb, *flags]) in (1, 2)
    assert not Path("executed").exists() and not Path("out").exists()
    said = capsys.readouterr().err
    assert "bayesin:" in said and "Traceback" not in said and "unexpected" not in said


def test_metadata_cannot_name_code_or_fill_memory(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("evil.py").write_text("import os\nos.mkdir('executed')\nmodel = None\n")
    params = {"w": np.zeros(3, np.float32)}
    sizes = {"name": "mlp", "input_shape": [4], "classes": 2}
    hostile = [{"name": name} for name in ("evil.py:model", "evil:model", ["mlp"], 7, "\x00")]
    hostile += [sizes | {"input_shape": shape} for shape in ([10**9, 10**9], "x", [-1], [0], [True], [[4]], {})]
    hostile += [sizes | {"name": "resnet20", "input_shape": [10**6, 10**6, 3]}, sizes | {"classes": 10**30}]
    hostile += [sizes | {"width": -1}, sizes | {"width": "8"}, sizes | {"depth": 10**6}, sizes | {"norm": []}]
    for number, model in enumerate(hostile):
        save_posterior(f"{number}.safetensors", params, metadata={"model": model})
        assert main(["align", f"{number}.safetensors", f"{number}.safetensors", "--out", "out"]) in (1, 2)
        said = capsys.readouterr().err
        assert "unexpected" not in said, (model, said)
    assert not Path("executed").exists() and not Path("out").exists()


def test_an_archive_of_arrays_cannot_climb_out(tmp_path):
    """Nothing of an npz touches the disk; tarballs are in test_data_fetch.py."""
    with zipfile.ZipFile(tmp_path / "up.npz", "w") as file:
        file.writestr("../climbed", b"evil")
        file.writestr("two\nlines", b"evil")
    with pytest.raises(DataError, match=r"two.{1,2}nlines"):
        load(str(tmp_path / "up.npz"))
    assert main(["train", "--data", str(tmp_path / "up.npz"), "--out", str(tmp_path / "run")]) == 2
    assert not (tmp_path / "climbed").exists()


def test_downloads_are_never_taken_without_their_hash():
    from bayesin.data.sources import SOURCES

    for source in SOURCES.values():
        assert all(len(item.sha256) == 64 for item in (*source.files, *source.downloads)), source.name
    with pytest.raises(DataError):
        fetch("http://example.invalid/data.npz")


@pytest.mark.parametrize("suffix", [".json", ".npz", ".safetensors"])
def test_pipes_and_devices_do_not_block(tmp_path, suffix, capsys):
    pipe = tmp_path / f"pipe{suffix}"
    os.mkfifo(pipe)
    assert main(["train", "--data", str(pipe)] if suffix == ".npz" else ["report", str(pipe)]) == 2


def test_names_in_messages_cannot_drive_the_terminal(tmp_path, capsys):
    assert main(["report", str(tmp_path / "\x1b[2Jgone")]) == 2
    assert "\x1b[2J" not in capsys.readouterr().err
