"""Attacks that once got through, each by the command that showed it; the numbers are those of the tests' names.

Most need no training: what does shares the runs of two fixtures.
"""

import dataclasses
import hashlib
import json
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
import numpy as np
import pytest

from bayesin.cli.main import main
from bayesin.errors import ConfigError
from bayesin.json_files import read_json, write_json
from bayesin.lab.runs import RunConfig
from bayesin.randomness import seed_key

TINY = ["--width", "4", "--depth", "1", "--members", "2", "--epochs", "1", "--batch", "20", "--test-samples", "4"]


def blobs(path: Path, seed: int) -> Path:
    """Two classes of points in the plane, as a file of data."""
    random = np.random.default_rng(seed)
    labels = np.arange(60) % 2
    points = (random.normal(size=(60, 2)) + 3 * labels[:, None]).astype(np.float32)
    path.parent.mkdir(exist_ok=True)
    np.savez(path, x_train=points[:40], y_train=labels[:40], x_test=points[40:], y_test=labels[40:])
    return path


def said_by(capsys, *words) -> tuple[int, str]:
    """The exit code of a command, and all it said."""
    capsys.readouterr()
    code = main([str(word) for word in words])
    said = capsys.readouterr()
    assert "unexpected" not in said.err, said.err
    return code, said.out + said.err


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a file of data, and a run on it that was started in there."""
    folder = tmp_path_factory.mktemp("trained")
    blobs(folder / "w1" / "points.npz", 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder / "w1")
        assert main(["train", "--data", "points.npz", *TINY, "--out", "run", "--quiet"]) == 0
    return shutil.move(folder / "w1", folder / "kept")  # where nobody finds the data


@pytest.fixture
def project(trained, tmp_path, monkeypatch):
    """A copy of it to damage; the working folder is the one that the run was started in."""
    shutil.copytree(trained, tmp_path / "w1")
    monkeypatch.chdir(tmp_path / "w1")
    return tmp_path


TRAIN = ["train", "--data", "points.npz", *TINY, "--out", "run"]


def test_5_every_64_bit_key_has_its_own_stream():
    seeds = [0, 1, 2**32 - 1, 2**32, 2**32 + 1, 2**63, 2**64 - 1]
    assert len({tuple(jax.random.key_data(seed_key(seed)).tolist()) for seed in seeds}) == len(seeds)
    for seed in seeds[:3]:  # numbers of earlier versions stay
        assert (jax.random.key_data(seed_key(seed)) == jax.random.key_data(jax.random.key(seed))).all()


@pytest.mark.parametrize("seed", [-1, 2**64, True, 1.0])
def test_5_other_keys_are_refused(seed):
    with pytest.raises(ConfigError, match="from 0 to"):
        seed_key(seed)


@pytest.mark.parametrize("verb", ["train", "align", "barrier", "explain"])
def test_5_the_verbs_refuse_them_too(project, capsys, verb):
    for key in ("-1", str(2**64)):
        words = {"train": [], "explain": ["mlp", "--width", 4, "--seed", key]}.get(verb, ["run#0", "run#1"])
        code, said = said_by(capsys, verb, *words, *([] if verb == "explain" else ["--key", key, "--out", "new"]))
        assert code == 2 and "from 0 to" in said
    assert not Path("new").exists()


def test_6_a_run_whose_data_changed_is_not_called_done(project, capsys):
    code, said = said_by(capsys, *TRAIN)
    assert code == 0 and "Done already" in said
    blobs(Path("points.npz"), 1)
    code, said = said_by(capsys, *TRAIN)
    assert code == 2 and "other data" in said and "points.npz" in said


def test_6_what_was_trained_on_is_known_by_content_not_by_compression(project, capsys):
    with np.load("points.npz") as arrays:
        np.savez_compressed("moved.npz", **arrays)
    Path("points.npz").unlink()
    code, said = said_by(capsys, *[word.replace("points", "moved") for word in TRAIN])
    assert code == 0 and "Done already" in said


def test_6_runs_of_version_01_load_and_say_that_they_cannot_be_checked(project, capsys):
    config = read_json("run/config.json")
    del config["data"]["content"], config["hash"]
    write_json("run/config.json", config)
    code, said = said_by(capsys, *TRAIN)
    assert code == 0 and "Done already" in said and "kept no content" in said


@pytest.mark.parametrize("where", ["namesake", "moved", "moved with the run", "gone", "another"])
def test_7_data_are_found_by_content(project, monkeypatch, capsys, where):
    barrier = ["barrier", "run#0", "run#1", "--samples", "4", "--taus", "3", "--sets", "test"]
    assert main([*barrier, "--out", "right.json", "--quiet"]) == 0
    right, runs = read_json("right.json")["sets"], ["../w1/run#0", "../w1/run#1"]
    blobs(project / "w2" / "points.npz", 1)
    monkeypatch.chdir(project / "w2")
    if where in ("moved", "gone"):
        shutil.move("../w1/points.npz", "../elsewhere.npz")
    if where == "moved with the run":
        shutil.move("../w1", "../w9")
        runs = ["../w9/run#0", "../w9/run#1"]
    named = {"moved": ["--data", "../elsewhere.npz"], "another": ["--data", "points.npz"]}.get(where, [])
    code, said = said_by(capsys, "barrier", *runs, *barrier[3:], "--out", "here.json", *named)
    if where == "gone":
        assert code == 2 and "points.npz" in said and "not what" in said and not Path("here.json").exists()
    elif where == "another":  # a wish, which is granted and remarked
        assert code == 0 and "not what" in said
    else:
        assert code == 0 and "warning" not in said
        assert read_json("here.json")["sets"] == right


def test_7_files_of_version_01_are_measured_with_a_warning(project, capsys):
    from bayesin.store import describe, load_posterior, save_posterior

    for number in (0, 1):
        path = Path(f"run/posterior-{number}.safetensors")
        metadata = describe(path).metadata
        del metadata["data"]["content"]
        save_posterior(f"{number}.safetensors", load_posterior(path), metadata=metadata)
    words = ["barrier", "0.safetensors", "1.safetensors", "--samples", "4", "--taus", "3", "--out", "b.json"]
    code, said = said_by(capsys, *words)
    assert code == 0 and "cannot be checked" in said


def test_hashes_of_published_data_are_those_of_version_01():
    from bayesin import VI

    config = RunConfig(data="digits", model="mlp", training=VI())
    assert config.hash == dataclasses.replace(config, data_content="0" * 64).hash
    npz = dataclasses.replace(config, data="points.npz")
    assert npz.hash != dataclasses.replace(npz, data_content="0" * 64).hash


@contextmanager
def quota(size: int) -> Iterator[None]:
    """Files may not grow beyond so many bytes meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def contents(folder: str) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()}


ALIGN = ["align", "run#0", "run#1", "--out", "al"]
BARRIER = ["barrier", "run#0", "run#1", "--samples", "4", "--taus", "3", "--sets", "test", "--out", "b"]


def test_2_what_a_forced_result_would_replace_stays_until_the_new_one_is_whole(project, capsys):
    assert said_by(capsys, *ALIGN)[0] == 0
    before = contents("al")
    with quota(1000):
        code, said = said_by(capsys, *ALIGN, "--force")
    assert code == 2 and "al/posterior-0.safetensors: File too large" in said
    assert contents("al") == before
    assert said_by(capsys, *ALIGN, "--force")[0] == 0 and contents("al").keys() == before.keys()


def test_4_numbers_and_page_are_of_one_making(project, capsys):
    assert said_by(capsys, *BARRIER)[0] == 0
    before = contents("b")
    with quota(1_000):  # nothing can be written
        code, said = said_by(capsys, *BARRIER, "--key", "1")
    assert code == 2 and "b/barrier.json: File too large" in said
    assert contents("b") == before
    with quota(50_000):  # the numbers can, the page of 4 MB cannot
        code, said = said_by(capsys, *BARRIER, "--key", "2")
    assert code == 2 and "b/report.html: File too large" in said
    assert contents("b").keys() == {"b/barrier.json"} and read_json("b/barrier.json")["key"] == 2
    assert said_by(capsys, "report", "b")[0] == 0  # of the numbers that are there


@pytest.mark.parametrize("mark", ["", "{}", "true to the file"])
def test_14_a_planted_mark_gives_no_right_to_replace(project, capsys, mark):
    assert said_by(capsys, *ALIGN)[0] == 0
    before = contents("al")
    if mark.startswith("true"):
        digests = {Path(name).name: hashlib.sha256(content).hexdigest() for name, content in before.items()}
        mark = json.dumps({"format": "bayesin-unfinished", "version": 1, "files": digests | {"x": ""}, "gone": []})
    Path("al/.unfinished").write_text(mark)
    code, said = said_by(capsys, *ALIGN)
    assert code == 2 and "--force" in said
    Path("al/.unfinished").unlink()
    assert contents("al") == before
