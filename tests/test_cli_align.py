"""`bayesin align` on files and run folders: what it writes, what it says, what it refuses."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from bayesin import Gaussian, Samples, discover, permute
from bayesin.cli.main import main
from bayesin.models import build
from bayesin.store import describe, load_alignment, load_posterior, save_posterior

pytest.importorskip("tyro")
MODEL = {"name": "mlp", "input_shape": [8, 8, 1], "classes": 10, "width": 8, "depth": 2}
METADATA = {"model": MODEL, "data": "digits"}


def _mlp():
    return build("mlp", (8, 8, 1), 10, width=8, depth=2)


def _gaussian(seed: int = 0) -> Gaussian:
    mean = jax.tree.map(np.asarray, _mlp().init(jax.random.key(seed)))
    rng = np.random.default_rng(seed)
    return Gaussian(mean, jax.tree.map(lambda m: (0.05 * rng.random(m.shape)).astype(np.float32), mean))


@pytest.fixture(scope="module")
def spec():
    model = _mlp()
    return discover(model.apply, model.init(jax.random.key(0)), np.zeros((2, 8, 8, 1), np.float32))


@pytest.fixture
def files(tmp_path, spec) -> tuple[Path, Path]:
    """A posterior, and the same one with its units shuffled."""
    q = _gaussian()
    perms = spec.random(jax.random.key(7))
    moved = Gaussian(permute(q.mean, spec, perms), permute(q.std, spec, perms))
    return (
        save_posterior(tmp_path / "a" / "posterior-0.safetensors", q, metadata=METADATA),
        save_posterior(tmp_path / "b" / "posterior-0.safetensors", moved, metadata=METADATA),
    )


def _align(capsys, *arguments) -> tuple[int, dict, str]:
    code = main(["align", *map(str, arguments), "--json"])
    captured = capsys.readouterr()
    return code, json.loads(captured.out) if captured.out.strip() else {}, captured.err


def test_shuffled_units_are_found_again(tmp_path, capsys, files, spec):
    first, second = files
    before = first.read_bytes(), second.read_bytes()
    code, result, _ = _align(capsys, first, second, "--out", tmp_path / "out")
    assert code == 0
    assert result["w2_after"] < 1e-5 < result["w2_before"]
    assert result["converged"]
    assert result["function_change"] < 1e-5
    assert "test examples" in result["checked_on"]
    moved = load_posterior(result["posterior"])
    for a, b in zip(jax.tree.leaves(moved), jax.tree.leaves(load_posterior(first)), strict=True):
        np.testing.assert_array_equal(a, b)
    stored = load_alignment(result["alignment"])
    assert stored.spec == spec == describe(result["posterior"]).spec
    assert stored.settings["cost"] == "wasserstein"
    source = load_posterior(second)
    for a, b in zip(
        jax.tree.leaves(permute(source.mean, spec, stored.perms)), jax.tree.leaves(moved.mean), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    assert describe(result["posterior"]).metadata["model"] == MODEL
    assert (first.read_bytes(), second.read_bytes()) == before


def test_run_folders_and_members(tmp_path, capsys, files):
    first, second = files
    (first.parent / "posterior-1.safetensors").write_bytes(second.read_bytes())
    code, result, _ = _align(capsys, first.parent, f"{first.parent}#1", "--out", tmp_path / "out")
    assert code == 0
    assert result["source"].endswith("a/posterior-1.safetensors")
    assert result["w2_after"] < 1e-5


def test_a_table_for_people(tmp_path, capsys, files):
    assert main(["align", *map(str, files), "--out", str(tmp_path / "out")]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Units moved" in text
    assert "g0" in text and "g1" in text
    assert "The function is preserved: its outputs on 64 test examples changed by at most" in text
    assert "discovered and verified" in text
    assert "sweeps, converged" in text


def test_points_and_members_of_sample_sets(tmp_path, capsys, spec):
    members = [_gaussian(0).mean, _gaussian(1).mean]
    point = save_posterior(tmp_path / "point.safetensors", members[0], metadata=METADATA, spec=spec)
    folder = save_posterior(tmp_path / "run" / "posterior-0.safetensors", Samples.stack(members), metadata=METADATA)
    code, result, _ = _align(capsys, point, f"{folder}#0", "--out", tmp_path / "one")
    assert code == 0
    assert result["w2_before"] == result["w2_after"] == 0
    assert sum(result["moved"].values()) == 0
    assert describe(result["posterior"]).kind == "point"
    code, result, _ = _align(capsys, point, f"{folder.parent}#1", "--out", tmp_path / "two")
    assert code == 0
    assert 0 < result["w2_after"] < result["w2_before"]
    for text, message in ((folder, "pick one"), (f"{folder}#2", "0 to 1"), (f"{point}#1", "one posterior")):
        code, _, error = _align(capsys, point, text, "--out", tmp_path / "three")
        assert code == 2
        assert message in error
    assert not (tmp_path / "three").exists()


def test_data_that_are_not_here_are_not_needed(tmp_path, capsys, files):
    metadata = {"model": MODEL, "data": "nowhere.npz"}
    for path in files:
        save_posterior(path, load_posterior(path), metadata=metadata)
    code, result, _ = _align(capsys, *files, "--out", tmp_path / "out")
    assert code == 0
    assert result["checked_on"] == "64 random inputs"


def test_flags_name_what_files_do_not(tmp_path, capsys, files):
    for path in files:
        save_posterior(path, load_posterior(path))
    code, _, error = _align(capsys, *files, "--out", tmp_path / "out")
    assert code == 2
    assert "--model" in error
    flags = ["--model", "mlp", "--width", 8, "--depth", 2, "--data", "digits"]
    code, result, _ = _align(capsys, *files, *flags, "--out", tmp_path / "out")
    assert code == 0
    assert result["function_change"] < 1e-5


def test_a_run_names_what_its_files_do_not(tmp_path, capsys, files):
    for path in files:
        save_posterior(path, load_posterior(path))
        (path.parent / "config.json").write_text(json.dumps(METADATA))
    assert _align(capsys, *files, "--out", tmp_path / "out")[0] == 0


def test_a_spec_alone_aligns_and_says_that_nothing_was_compared(tmp_path, capsys, files, spec):
    for path in files:
        save_posterior(path, load_posterior(path), spec=spec)
    code, result, error = _align(capsys, *files, "--out", tmp_path / "out")
    assert code == 0
    assert result["function_change"] is None
    assert "not compared" in error


def test_a_wrong_spec_is_caught_by_the_function(tmp_path, capsys, files, spec):
    wrong = spec.to_json()
    kernels = [path for path, axes in wrong["parameters"].items() if axes == ["g1", "10"]]
    wrong["parameters"][kernels[0]] = ["8", "10"]  # the outgoing weights of a layer no longer follow its units
    (tmp_path / "wrong.json").write_text(json.dumps(wrong))
    code, _, error = _align(capsys, *files, "--spec", tmp_path / "wrong.json", "--out", tmp_path / "out")
    assert code == 1
    assert "the spec is wrong for this model" in " ".join(error.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda a, b, out: [a, b], "--out FOLDER"),
        (lambda a, b, out: [a, "--out", out], "needs two posteriors"),
        (lambda a, b, out: [a, "missing", "--out", out], "no run folder or file 'missing'"),
        (lambda a, b, out: [a, f"{b.parent}#3", "--out", out], "has no posterior-3.safetensors"),
        (lambda a, b, out: [a, f"{b.parent}#x", "--out", out], "number of a member"),
        (lambda a, b, out: [a, b, "--out", b], "must be a folder"),
        (lambda a, b, out: [a, b, "--out", b.parent], "would overwrite the input"),
        (lambda a, b, out: [a, b, "--out", f"{a.parent}/../{a.parent.name}"], "would overwrite the input"),
        (lambda a, b, out: [a, b, "--out", out, "--width", "9"], "the model needs"),
        (lambda a, b, out: [a, b, "--out", out, "--cost", "kl", "--restarts", "0"], "start at 1"),
    ],
)
def test_misuse_is_one_line_and_writes_nothing(tmp_path, capsys, files, edit, message):
    before = [path.read_bytes() for path in files]
    code, _, error = _align(capsys, *edit(*files, tmp_path / "out"))
    assert code == 2
    assert message in error
    assert "Traceback" not in error
    assert not (tmp_path / "out").exists()
    assert [path.read_bytes() for path in files] == before


def test_earlier_results_are_replaced_only_by_force(tmp_path, capsys, files):
    assert _align(capsys, *files, "--out", tmp_path / "out")[0] == 0
    code, _, error = _align(capsys, *files, "--out", tmp_path / "out")
    assert code == 2
    assert "--force" in error
    assert _align(capsys, *files, "--out", tmp_path / "out", "--force")[0] == 0


def test_posteriors_of_different_models_or_data_are_refused(tmp_path, capsys, files):
    first, second = files
    save_posterior(second, load_posterior(second), metadata=METADATA | {"model": MODEL | {"width": 9}})
    code, _, error = _align(capsys, first, second, "--out", tmp_path / "out")
    assert code == 2 and "different models" in error
    save_posterior(second, load_posterior(second), metadata=METADATA | {"data": "mnist"})
    code, _, error = _align(capsys, first, second, "--out", tmp_path / "out")
    assert code == 2 and "different data (digits and mnist)" in error
    damaged = second.read_bytes()[:-1]
    second.write_bytes(damaged)
    code, _, error = _align(capsys, first, second, "--out", tmp_path / "out")
    assert code == 2 and "cut off" in error
