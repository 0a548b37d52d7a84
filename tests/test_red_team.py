"""Attacks that once got through, each by the command that showed it; the numbers are those of the tests' names.

Most need no training: what does shares the runs of two fixtures.
"""

import dataclasses
import errno
import hashlib
import io
import json
import os
import re
import resource
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

import bayesin
from bayesin import (
    Gaussian,
    GaussianMixture,
    LowRankGaussian,
    PermutationSpec,
    Samples,
    align,
    canonical,
    compact,
    evaluate,
    marginal_loss,
    permute,
    predict,
)
from bayesin.cli.main import main
from bayesin.cli.output import Output
from bayesin.data import from_arrays
from bayesin.errors import ArtifactError, BayesinError, ConfigError, DataError, PosteriorError
from bayesin.file_sets import UNFINISHED, replaced_already, replaced_together
from bayesin.files import write_bytes
from bayesin.json_files import read_json, write_json
from bayesin.lab.runs import RunConfig, finished
from bayesin.locks import is_locked
from bayesin.models import build
from bayesin.paths import geodesic, wasserstein
from bayesin.randomness import seed_key
from bayesin.store import describe, load_posterior, save_posterior
from torture import edits

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
    """Files may not grow beyond so many bytes meanwhile.

    JAX writes its compilation cache in place, so that a quota would leave cut entries for everyone who shares it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    kept = jax.config.jax_enable_compilation_cache  # pyright: ignore[reportAttributeAccessIssue]
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()  # which otherwise remembers whether it is used
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        jax.config.update("jax_enable_compilation_cache", kept)
        compilation_cache.reset_cache()


def contents(folder: str) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()}


ALIGN = ["align", "run#0", "run#1", "--out", "al"]
BARRIER = ["barrier", "run#0", "run#1", "--samples", "4", "--taus", "3", "--sets", "test", "--out", "b"]


def test_2_what_a_forced_result_would_replace_stays_until_the_new_one_is_whole(project, capsys):
    assert said_by(capsys, *ALIGN)[0] == 0
    before = contents("al")
    with quota(1000):
        code, said = said_by(capsys, *ALIGN, "--force")
    assert code == 2 and re.search(r"al/(alignment|posterior-0)\.safetensors: File too large", said)
    assert contents("al") == before
    assert said_by(capsys, *ALIGN, "--force")[0] == 0 and contents("al").keys() == before.keys()


@pytest.mark.slow
def test_4_numbers_and_page_are_of_one_making(project, capsys):
    assert said_by(capsys, *BARRIER)[0] == 0
    before = contents("b")
    with quota(1_000):  # nothing can be written
        code, said = said_by(capsys, *BARRIER, "--key", "1")
    assert code == 2 and "b/barrier.json: File too large" in said
    assert contents("b") == before
    with quota(50_000):  # the numbers can, the page of 4 MB cannot
        code, said = said_by(capsys, *BARRIER, "--key", "2")
    assert code == 2 and "b/figures/barrier.png: File too large" in said
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


@pytest.mark.parametrize("name", ["posterior-1.safetensors", "results.json", "provenance.json"])
def test_13_a_done_run_is_checked_and_repaired(project, capsys, name):
    before, path = contents("run"), Path("run", name)
    content = bytearray(path.read_bytes())
    content[len(content) * 2 // 3] ^= 1
    path.write_bytes(content if name != "provenance.json" else content[:-20])
    code, said = said_by(capsys, *TRAIN)
    after = contents("run")
    assert code == 0 and "Done already" not in said
    assert after.keys() == before.keys()
    for changing in ("run/provenance.json", "run/metrics.jsonl"):  # times
        del after[changing], before[changing]
    assert after == before
    assert "Done already" in said_by(capsys, *TRAIN)[1]


EDITS = {  # (file, field) -> what a hand or a stranger may have put there
    ("results.json", "members"): [3, [None], [{"member": "x"}], {}],
    ("results.json", "memory"): [[], 7, {"member": None}],
    ("results.json", "steps"): ["many", None, [1]],
    ("provenance.json", "train_seconds"): ["long", None, []],
    ("provenance.json", "files"): [[], {"results.json": 5}],
    ("config.json", "training"): [[], {"epochs": "x"}, {"epochs": [1]}],
    ("config.json", "data"): ["points.npz", {"name": 7}],
}


@pytest.mark.parametrize(("file", "field"), EDITS)
def test_19_edited_files_of_a_run_are_named_or_mended(project, capsys, monkeypatch, file, field):
    module = sys.modules["bayesin.lab.runs.run"]  # the name means the function
    monkeypatch.setattr(module, "_fit", lambda *_: pytest.fail("was trained again"))
    content = read_json(f"run/{file}")
    for value in EDITS[file, field]:
        write_json(f"run/{file}", content | {field: value})
        if file == "config.json":
            code, said = said_by(capsys, *TRAIN)
            assert code == 2 and "config" in said
        else:
            with pytest.raises(ArtifactError, match=f"run/{file}: '{field}"):
                finished(Path("run"))


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000, "loop"])
def test_20_odd_links_of_a_report_are_no_links(tmp_path, capsys, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    os.symlink("loop", "loop")
    write_json("report.json", {"format": "bayesin-report", "version": 1, "files": [{"name": name}]})
    assert said_by(capsys, "report", ".")[0] == 0 and Path("report.html").is_file()


def test_21_names_from_files_are_looked_up_among_our_own():
    """`VERDICTS["constructor"]` is a function, and the page stayed empty; the browser's tests open such a page."""
    assets = Path(bayesin.__file__).parent / "lab" / "report" / "assets"
    assert "Object.hasOwn(table, name)" in (assets / "core.js").read_text()
    for script in assets.glob("*.js"):
        assert not re.search(r"\[[a-z]+\.(verdict|role|tone)\] *\|\|", script.read_text()), script.name


@pytest.mark.parametrize("shape", ["one axis", "one parameter", "many parameters"])
def test_23_a_spec_of_thirty_thousand_groups_is_refused(tmp_path, capsys, shape):
    groups = {f"g{number}": 1 for number in range(30_000)}
    axes = {
        "one axis": {"w": [" * ".join(groups)]},
        "one parameter": {"w": [*groups]},
        "many parameters": {f"w{number}": [group] for number, group in enumerate(groups)},
    }
    spec = {"format": "bayesin-spec", "version": 1, "groups": groups, "parameters": axes[shape]}
    write_json(tmp_path / "spec.json", spec)
    code, said = said_by(capsys, "explain", tmp_path / "spec.json")
    assert code == 2 and "30,000 groups" in said
    write_json(tmp_path / "few.json", spec | {"groups": {"g0": 1}, "parameters": {"w": [" * ".join(["g0"] * 40)]}})
    code, said = said_by(capsys, "explain", tmp_path / "few.json")
    assert code == 2 and "40 factors" in said


def test_11_inputs_that_a_file_promises_are_paid_for_before_they_are_made(tmp_path, capsys):
    model = {"name": "resnet20", "width": 1, "classes": 2}
    params = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), small_resnet())
    for number, side in enumerate((32, 2048)):
        metadata = {"model": model | {"input_shape": [side, side, 1]}}
        save_posterior(tmp_path / f"{number}.safetensors", params, metadata=metadata)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    path = tmp_path / "1.safetensors"
    code, said = said_by(capsys, "align", path, path, "--out", tmp_path / "out")
    assert code == 2 and "[2048, 2048, 1]" in said and "bytes" in said
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 300_000  # kB


def small_resnet():
    return jax.eval_shape(build("resnet20", (32, 32, 1), 2, width=1).init, jax.random.key(0))


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_9_output_survives_any_encoding(monkeypatch, encoding):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    out = Output()
    out.line("at τ = ½: 0.5 ± 0.1, 3 × 4 – 漢")
    out.table("τ", ["at τ", "±"], [["½", "漢"]])
    assert out.finish() is None
    text = stream.buffer.getvalue().decode(encoding)
    assert "at tau = " in text and "\\u6f22" in text


def test_9_what_cannot_be_said_costs_no_result(project, monkeypatch, capsys):
    class Full(io.RawIOBase):
        def writable(self):
            return True

        def write(self, _):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(Full(), 10), write_through=True))
    assert main([*ALIGN]) == 1
    assert "standard output: No space left" in capsys.readouterr().err
    assert {path.name for path in Path("al").iterdir()} == {"alignment.safetensors", "posterior-0.safetensors"}


@pytest.mark.parametrize("verb", ["doctor", "report", "train"])
def test_25_a_working_folder_that_is_gone_is_called_so(tmp_path, monkeypatch, capsys, verb):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    os.chdir("here")
    Path.rmdir(tmp_path / "here")
    code, said = said_by(capsys, verb)
    assert code == 2 and "working folder is gone" in said


@pytest.mark.parametrize("kind", ["1: a link", "10: a pipe"])
def test_1_and_10_locks_follow_no_links_and_open_no_pipes(project, capsys, kind):
    precious = Path("precious.txt")
    precious.write_text("mine")
    for folder, words in {"run": TRAIN, "al": ALIGN}.items():
        Path(folder).mkdir(exist_ok=True)
        os.symlink("../precious.txt", f"{folder}/.lock") if "link" in kind else os.mkfifo(f"{folder}/.lock")
        code, said = said_by(capsys, *words)
        assert code == 2 and "remove it" in said
        assert not is_locked(f"{folder}/.lock") and precious.read_text() == "mine"


def test_3_writers_of_one_file_do_not_fail_each_other(tmp_path):
    path = tmp_path / "one.json"
    with ThreadPoolExecutor(4) as pool:  # each write has a lock of its own, as in a process of its own
        assert len([*pool.map(lambda number: write_json(path, {"by": number}), range(200))]) == 200
    assert read_json(path)["by"] in range(200) and len([*tmp_path.iterdir()]) == 1


REFUSED = {  # values that would come back as something else
    "8: two leaves of one path": ({1: np.ones(2), "1": np.zeros(2)}, "cannot be sorted"),
    "18: forty axes": ({"w": np.ones((1,) * 40)}, "40 axes"),
    "24: random keys": ({"w": jax.random.key(0)}, "random keys"),
    "24: a mask": ({"w": np.ma.masked_array([1.0, 2.0], [True, False])}, "masked"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_file_keeps_is_refused_before_it_is_written(tmp_path, name):
    tree, why = REFUSED[name]
    with pytest.raises(BayesinError, match=why):
        save_posterior(tmp_path / "q.safetensors", tree)
    assert not list(tmp_path.iterdir())


def test_12_what_a_file_says_is_escaped_on_standard_output(tmp_path, capsys):
    hostile = "\x1b[2J\x1b]0;owned\x07"
    task = {"name": "t", "kind": "train", "title": f"title {hostile}"}
    ledger = {"format": "bayesin-campaign", "version": 1, "name": f"name {hostile}", "tasks": [task]}
    write_json(tmp_path / "campaigns" / "c.json", ledger)
    write_json(tmp_path / "t" / "provenance.json", {"status": "failed", "error": hostile})
    spec = {"groups": {}, "parameters": {f"w{hostile}": ["3"]}, "why": {f"w{hostile}": [hostile]}}
    write_json(tmp_path / "spec.json", {"format": "bayesin-spec", "version": 1, **spec})
    for words in (["status", tmp_path], ["explain", tmp_path / "spec.json"]):
        _, said = said_by(capsys, *words)
        assert "owned" in said and "\x1b" not in said and "\x07" not in said


@pytest.mark.parametrize("cost", ["wasserstein", "kl"])
def test_15_alignment_is_scale_free(cost):
    spec = PermutationSpec.parse({"a": ["5", "g0"], "b": ["g0", "3"]}, {"g0": 6})
    random = np.random.default_rng(0)
    shapes = {name: spec.shape(name) for name in spec.axes}
    mean, std = ({name: random.random(shape) for name, shape in shapes.items()} for _ in range(2))
    hidden = spec.random(jax.random.key(1))

    def found(scale: float) -> list[int]:
        q = Gaussian(*({n: (scale * leaf).astype(np.float32) for n, leaf in tree.items()} for tree in (mean, std)))
        moved = Gaussian(permute(q.mean, spec, hidden), permute(q.std, spec, hidden))
        return np.asarray(align(q, moved, spec, key=jax.random.key(0), cost=cost).perms["g0"]).tolist()

    right = np.argsort(hidden["g0"]).tolist()
    assert all(found(scale) == right for scale in (1.0, 1e-30, 1e-15, 1e15, 1e30))


KEY = jax.random.key(0)
VERBS = {  # what gives weights to JAX
    "wasserstein": lambda p, q: wasserstein(p, q),
    "geodesic": lambda p, q: geodesic(p, q),
    "sample": lambda p, q: Gaussian(p, q).sample(jax.random.key(0), 2),
    "log_density": lambda p, q: Gaussian(p, q).log_density(p),
    "low rank": lambda p, q: LowRankGaussian(p, {"w": q["w"][None]}).sample(jax.random.key(0), 2),
    "predict": lambda p, q: predict(p, _two_classes, np.ones((2, 1), np.float32), key=KEY),
    "evaluate": lambda p, q: evaluate(p, _two_classes, (np.ones((2, 1), np.float32), np.zeros(2, int)), key=KEY),
    "marginal_loss": lambda p, q: marginal_loss(
        p, _two_classes, (np.ones((2, 1), np.float32), np.zeros(2, int)), key=KEY
    ),
}


def _two_classes(params, x):
    return jax.numpy.concatenate([x, x * params["w"].astype(x.dtype)[None]], 1)


@pytest.mark.parametrize("verb", VERBS)
def test_16_leaves_that_jax_would_narrow_are_exact_or_refused(verb):
    for first, second in ((1e300, 2e300), (1 + 1e-9, 1.0), (2**40, 2**41)):
        with pytest.raises(PosteriorError, match="64, which JAX rounds"):
            VERBS[verb]({"w": np.array([first])}, {"w": np.array([second])})
    assert float(wasserstein({"w": np.array([0.0, 0.0])}, {"w": np.array([3.0, 4.0])})) == 5.0


def test_16_alignment_keeps_them_exact_as_far_as_their_squares_go():
    spec = PermutationSpec.parse({"w": ["g0"]}, {"g0": 2})
    ends = [{"w": np.array(values)} for values in ([1.0, 2 + 1e-9], [2 + 1e-9, 1.0])]
    found = align(*ends, spec, key=jax.random.key(0))
    assert np.asarray(found.perms["g0"]).tolist() == [1, 0] and found.posterior["w"].tolist() == [1.0, 2 + 1e-9]
    with pytest.raises(PosteriorError, match="beyond float64"):
        align(*({"w": 1e300 * end["w"]} for end in ends), spec, key=jax.random.key(0))


WIDE = {"w": np.array([[1 + 1e-9, 2.0], [2 + 1e-9, 1.0]]), "n": np.array([[2**40], [2**40 + 1]])}
KEPT = {  # what gathers weights without computing in JAX
    "stack": lambda one: Samples.stack(one),
    "mixture": lambda one: GaussianMixture.of([Gaussian.point(p) for p in one], [0.5, 0.5]).means,
    "canonical": lambda one: canonical(Samples.stack(one), SCALED),
    "canonical mixture": lambda one: (
        canonical(GaussianMixture.of([Gaussian.point(p) for p in one], [0.5, 0.5]), SCALED).means
    ),
}
SCALED = PermutationSpec.parse({"w": ["g0{s0}"], "n": ["1"]}, {"g0": 2})


@pytest.mark.parametrize("verb", KEPT)
def test_16_what_only_gathers_them_keeps_them(verb):
    found = KEPT[verb]([{name: leaf[k] for name, leaf in WIDE.items()} for k in range(2)])
    found = getattr(found, "params", found)
    assert all(np.asarray(leaf).tolist() == WIDE[name].tolist() for name, leaf in found.items())


def test_16_folding_keeps_them():
    spec = PermutationSpec.parse({"w": ["2"], "n": ["1"]}, {})
    ends = [Gaussian({"w": np.array([1 + k * 1e-9, 2.0]), "n": np.array([2**40])}, _zeros()) for k in range(3)]
    folded = compact(ends, spec, key=KEY).posterior
    assert np.asarray(folded.mean["w"]).tolist() == [1 + 1e-9, 2.0] and folded.mean["n"].tolist() == [2**40]
    directions = LowRankGaussian.from_samples(Samples.stack([end.mean for end in ends]), 1)
    assert np.abs(np.asarray(directions.factors["w"])).ravel() == pytest.approx([1e-9, 0.0], rel=1e-6, abs=1e-20)
    assert np.asarray(directions.factors["w"]).dtype == np.float64


def _zeros():
    return {"w": np.zeros(2), "n": np.zeros(1, int)}


def test_16_tokens_beyond_32_bits_are_refused():
    with pytest.raises(DataError, match="beyond 32 bits"):
        predict({"w": np.ones(1, np.float32)}, _two_classes, np.array([[2**40]]), key=KEY)


@pytest.mark.parametrize("unit", [1e-200, 1e-30, 1e30, 1e200])
def test_15_balancing_is_scale_free(unit):
    spec = PermutationSpec.parse({"w0": ["1", "g0{s0}"], "w1": ["g0{-s0}", "1"]}, {"g0": 2})
    found = canonical({"w0": unit * np.array([[4.0, 1.0]]), "w1": unit * np.array([[1.0], [9.0]])}, spec)
    assert (found["w0"] / unit).round(6).tolist() == [[2.0, 3.0]]
    nothing = {"w0": np.zeros((1, 2)), "w1": np.zeros((2, 1))}
    assert canonical(nothing, spec)["w0"].tolist() == [[0.0, 0.0]]


def test_results_of_other_verbs_in_a_folder_are_not_replaced(project, capsys):
    """`demo` over a run took its config and record, `evaluate` over a barrier its page."""
    before = contents("run")
    code, said = said_by(capsys, "demo", "--out", "run")
    assert code == 2 and "something else than a demo" in said and contents("run") == before
    write_json("other/report.json", {"format": "bayesin-report", "version": 1, "title": "of a barrier"})
    before = contents("other")
    code, said = said_by(capsys, "evaluate", "run#0", "--samples", "2", "--out", "other")
    assert code == 2 and "report.json exists" in said and contents("other") == before


def test_17_labels_that_are_no_times_and_inputs_that_are_all_alike():
    x, y = np.arange(8.0).reshape(4, 2), np.array([0, 1, 0, 1])
    for inputs, labels in ((x, y.astype("datetime64[s]")), (x, np.full(4, "NaT", "m8[s]")), (x * 1e-170, y)):
        with pytest.raises(DataError):
            from_arrays(inputs, labels, inputs, labels)


def test_22_a_user_without_a_home(monkeypatch, capsys):
    for name in ("HOME", "XDG_CACHE_HOME", "BAYESIN_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda _: (_ for _ in ()).throw(KeyError("no such user")))
    assert said_by(capsys, "data", "list")[0] == 0
    code, said = said_by(capsys, "data", "fetch", "mnist")
    assert code == 2 and "home folder" in said


def test_24_a_member_that_is_not_there():
    samples = Samples({"w": np.zeros((3, 2), np.float32)})
    with pytest.raises(IndexError):
        samples[7]


def test_every_call_that_writes_may_fail(tmp_path):
    """A little of `python -m torture inject`, in this process: each call of a replacement fails once."""
    old, new = ({"a.json": by, "b.json": by} for by in (b"old", b"new"))
    old["page.html"] = b"old"
    calls = ("mkdir", "replace", "fsync", "unlink", "rename")
    for kind in calls:
        for at in range(1, 12):
            folder = tmp_path / f"{kind}-{at}"
            for name, content in old.items():
                write_bytes(folder / name, content)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(os, kind, failing(getattr(os, kind), at))
                try:
                    with replaced_together(folder, gone=["page.html"]) as place:
                        for name, content in new.items():
                            write_bytes(place / name, content)
                except ArtifactError as error:
                    assert "No space" in str(error)
            now = {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file() and p.name != UNFINISHED}
            assert now in (old, new) or replaced_already(folder), (kind, at, now)
            assert not any(path.is_dir() for path in folder.iterdir())


def failing(function, at: int):
    """The function, which fails once, when it is called for the `at`-th time."""
    calls = iter(range(1, 1_000_000))

    def called(*arguments, **named):
        if next(calls) == at:
            raise OSError(errno.ENOSPC, "No space left on device")
        return function(*arguments, **named)

    return called


@pytest.mark.parametrize("name", edits.FILES)
def test_19_json_edited_by_type_is_read_or_refused_by_name(tmp_path, name):
    tally = edits.edit_one(name, 40, tmp_path, seed=1)
    assert tally.tries == 40 and not tally.losses
