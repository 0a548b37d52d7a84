"""`bayesin align` and `bayesin barrier` on files and run folders: what they write, say and refuse."""

import json
import re

import jax
import numpy as np
import pytest

from bayesin import Gaussian, LowRankGaussian, Samples, barrier, discover, geodesic, permute
from bayesin.cli.main import main
from bayesin.data import load
from bayesin.lab.report import read_report
from bayesin.models import build
from bayesin.store import describe, load_alignment, load_posterior, save_posterior
from cli_toys import METADATA, MODEL, call, mlp, point, save_pair, status_of

pytest.importorskip("tyro")
QUICK = ["--samples", "4", "--taus", "3", "--limit", "50"]


@pytest.fixture(scope="module")
def spec():
    return discover(mlp().apply, point(), np.zeros((2, 8, 8, 1), np.float32))


@pytest.fixture
def files(tmp_path, spec):
    return save_pair(tmp_path, spec, metadata=METADATA)


def equal(one, other) -> bool:
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(a, b) for a, b in leaves)


# align -----------------------------------------------------------------------------------------------------


def test_shuffled_units_are_found_again(tmp_path, capsys, files, spec):
    before = [path.read_bytes() for path in files]
    spec_file = spec.save(tmp_path / "spec.json")
    code, result, _ = call(capsys, "align", *files, "--out", tmp_path / "out")
    assert code == 0 and result["converged"]
    assert result["w2_after"] < 1e-5 < result["w2_before"]
    assert result["function_change"] < 1e-5 and "test examples" in result["checked_on"]
    moved, stored = load_posterior(result["posterior"]), load_alignment(result["alignment"])
    assert equal(moved, load_posterior(files[0]))
    assert equal(moved.mean, permute(load_posterior(files[1]).mean, spec, stored.perms))
    assert stored.spec == spec == describe(result["posterior"]).spec
    assert stored.settings["cost"] == "wasserstein"
    assert describe(result["posterior"]).metadata["model"] == MODEL
    assert [path.read_bytes() for path in files] == before
    kind, state, says = status_of(capsys, tmp_path / "out")
    assert (kind, state) == ("align", "done") and says.startswith(f"{files[1]} to {files[0]}, W2 ")
    assert 0 <= result["gap"] <= result["objective"] + 1e-9
    # from file to file, without the network: the same bytes
    code, streamed, _ = call(capsys, "align", *files, "--out", tmp_path / "streamed", "--stream", "--spec", spec_file)
    assert code == 0 and streamed["moved"] == result["moved"]
    assert equal(load_posterior(streamed["posterior"]), moved)
    # an earlier result is replaced by force alone
    code, _, error = call(capsys, "align", *files, "--out", tmp_path / "out")
    assert code == 2 and "--force" in error
    assert call(capsys, "align", *files, "--out", tmp_path / "out", "--force")[0] == 0


def test_people_get_a_table_of_the_groups(tmp_path, capsys, files):
    assert main(["align", *map(str, files), "--out", str(tmp_path / "out")]) == 0
    text = capsys.readouterr().out
    assert all(re.search(rf"{group} +│ +8 │ +\d │", text) for group in ("g0", "g1"))
    assert "converged" in text and "discovered and verified" in text


def test_folders_members_and_points(tmp_path, capsys, files, spec):
    """RUN#1 is the second file of a folder, or the second member of its sample set; a point stays a point."""
    run = files[0].parent
    (run / "posterior-1.safetensors").write_bytes(files[1].read_bytes())
    code, result, _ = call(capsys, "align", run, f"{run}#1", "--out", tmp_path / "members")
    assert code == 0 and result["source"].endswith("a/posterior-1.safetensors") and result["w2_after"] < 1e-5
    alone = save_posterior(tmp_path / "point.safetensors", point(0), metadata=METADATA, spec=spec)
    stack = save_posterior(
        tmp_path / "run" / "posterior-0.safetensors", Samples.stack([point(0), point(1)]), metadata=METADATA
    )
    code, result, _ = call(capsys, "align", alone, f"{stack}#0", "--out", tmp_path / "same")
    assert code == 0 and result["w2_before"] == result["w2_after"] == 0 and not any(result["moved"].values())
    assert describe(result["posterior"]).kind == "point"
    code, result, _ = call(capsys, "align", alone, f"{stack.parent}#1", "--out", tmp_path / "other")
    assert code == 0 and 0 < result["w2_after"] < result["w2_before"]


@pytest.mark.parametrize("named_by", ["flags", "run", "file, without its data", "spec alone"])
def test_what_names_the_model(tmp_path, capsys, spec, named_by):
    metadata = {"model": MODEL, "data": "nowhere.npz"} if named_by.startswith("file") else {}
    files = save_pair(tmp_path, spec, metadata=metadata, spec=spec if named_by == "spec alone" else None)
    flags = ["--model", "mlp", "--width", 8, "--depth", 2, "--data", "digits"] if named_by == "flags" else []
    if named_by == "run":
        for path in files:
            (path.parent / "config.json").write_text(json.dumps(METADATA))
    code, result, error = call(capsys, "align", *files, *flags, "--out", tmp_path / "out")
    assert code == 0 and result["w2_after"] < 1e-5
    if named_by == "spec alone":
        assert result["function_change"] is None and "--model" in error
    else:
        assert result["function_change"] < 1e-5
        assert ("random" if metadata else "test examples") in result["checked_on"]


def test_a_wrong_spec_is_caught_by_the_function(tmp_path, capsys, files, spec):
    wrong = spec.to_json()
    kernel = next(path for path, axes in wrong["parameters"].items() if axes == ["g1", "10"])
    wrong["parameters"][kernel] = ["8", "10"]  # the outgoing weights of a layer no longer follow its units
    (tmp_path / "wrong.json").write_text(json.dumps(wrong))
    code, _, error = call(capsys, "align", *files, "--spec", tmp_path / "wrong.json", "--out", tmp_path / "out")
    assert code == 1 and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def retold(path, **metadata):
    return save_posterior(path, load_posterior(path), metadata=METADATA | metadata)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (lambda a, b, out: ["align", a, b], "--out"),
        (lambda a, b, out: ["align", a, "--out", out], "SOURCE"),
        (lambda a, b, out: ["align", a, "missing", "--out", out], "missing"),
        (lambda a, b, out: ["align", a, f"{b.parent}#3", "--out", out], "posterior-3"),
        (lambda a, b, out: ["align", a, f"{b.parent}#x", "--out", out], "#x"),
        (lambda a, b, out: ["align", a, f"{b}#1", "--out", out], "no member 1"),
        (lambda a, b, out: ["align", a, b, "--out", b], "folder"),
        (lambda a, b, out: ["align", a, b, "--out", b.parent], "overwrite"),
        (lambda a, b, out: ["align", a, b, "--out", f"{a.parent}/../{a.parent.name}"], "overwrite"),
        (lambda a, b, out: ["align", a, b, "--out", out, "--width", "9"], "needs"),
        (lambda a, b, out: ["align", a, b, "--out", out, "--cost", "kl", "--restarts", "0"], "restarts"),
        (lambda a, b, out: ["align", a, retold(b, model=MODEL | {"width": 9}), "--out", out], "different models"),
        (lambda a, b, out: ["align", a, retold(b, data="mnist"), "--out", out], "digits and mnist"),
        (lambda a, b, out: ["align", a, b, "--out", out, b.write_bytes(b.read_bytes()[:-1]) and "--force"], "b/"),
        (lambda a, b, out: ["align", a, save_stack(b), "--out", out], "#0"),
        (lambda a, b, out: ["align", a, f"{save_stack(b)}#2", "--out", out], "0 to 1"),
        (lambda a, b, out: ["align", save_bare(a), save_bare(b), "--out", out], "--model"),
        (lambda a, b, out: ["barrier", a], "SECOND"),
        (lambda a, b, out: ["barrier", a, b, *QUICK, "--taus", "4", "--out", out], "odd"),
        (lambda a, b, out: ["barrier", a, b, *QUICK, "--samples", "0", "--out", out], "draw"),
        (lambda a, b, out: ["barrier", a, b, *QUICK, "--data", "nothing", "--out", out], "nothing"),
        (lambda a, b, out: ["barrier", a, b, *QUICK, "--out", a], "posterior-0"),
        (lambda a, b, out: ["barrier", a, b, *QUICK, "--out", foreign(a.parent)], "something else"),
        (lambda a, b, out: ["barrier", save_bare(a), save_bare(b), *QUICK, "--out", out], "--data"),
    ],
)
def test_misuse_is_one_line_and_writes_nothing(tmp_path, capsys, files, arguments, names):
    words = arguments(*files, tmp_path / "out")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    code, result, error = call(capsys, *words)
    assert code == 2 and result == {}
    assert error.startswith("bayesin: ") and error.count("\n") == 1 and names in error
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert not (tmp_path / "out").exists()


def save_stack(path):
    return save_posterior(path, Samples.stack([point(0), point(1)]), metadata=METADATA)


def save_bare(path):
    return save_posterior(path, load_posterior(path))


def foreign(folder):
    (folder / "report.json").write_text("{}")  # of another verb
    return folder


# barrier ---------------------------------------------------------------------------------------------------


def test_naive_aligned_and_control_on_both_sets(tmp_path, capsys, files):
    out = tmp_path / "barrier.json"
    code, result, _ = call(capsys, "barrier", *files, "--align", "--control", *QUICK, "--out", out)
    assert code == 0 and set(result["sets"]) == {"test", "train"}
    for kinds in result["sets"].values():
        assert set(kinds) == {"naive", "aligned", "mixture"}
        assert kinds["aligned"]["value"] == pytest.approx(0, abs=1e-6)  # the second is the first, shuffled
        assert kinds["mixture"]["value"] <= 1e-6
    assert json.loads(out.read_text())["sets"] == result["sets"]
    data, path = load("digits", limit=50), geodesic(*(load_posterior(file) for file in files))
    direct = barrier(path, mlp().apply, (data.x_test, data.y_test), key=jax.random.key(0), samples=4, taus=3)
    np.testing.assert_allclose(result["sets"]["test"]["naive"]["nll"], direct.nll, atol=1e-5)
    assert result["sets"]["test"]["naive"]["value"] == pytest.approx(direct.value, abs=1e-5)


def test_people_get_a_table_in_80_columns_and_a_warning_of_long_work(tmp_path, capsys, files, monkeypatch):
    flags = [*QUICK, "--sets", "test", "--out", str(tmp_path / "barrier.json")]
    monkeypatch.setattr("bayesin.cli.barrier.estimate_seconds", lambda *a, **k: 1000.0)
    assert main(["barrier", *map(str, files), *flags]) == 0
    said = capsys.readouterr()
    assert re.search(r"naive +│ \d\.\d{4} ± \d\.\d{4} │", said.out) and "Training" not in said.out
    assert "17 minutes" in said.err
    monkeypatch.setattr("bayesin.cli.barrier.estimate_seconds", lambda *a, **k: 20.0)
    assert main(["barrier", *map(str, files), *flags, "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


def test_regression_needs_a_noise(tmp_path, capsys):
    random = np.random.default_rng(0)
    x, y = random.normal(size=(60, 3)).astype(np.float32), random.normal(size=60).astype(np.float32)
    np.savez(tmp_path / "line.npz", x_train=x[:40], y_train=y[:40], x_test=x[40:], y_test=y[40:])
    model = build("mlp", (3,), 1, width=4, depth=1)
    about = {"model": {"name": "mlp", "width": 4, "depth": 1}, "data": str(tmp_path / "line.npz")}
    points = [Gaussian.point(model.init(jax.random.key(seed))) for seed in range(2)]
    paths = [save_posterior(tmp_path / f"{i}.safetensors", q, metadata=about) for i, q in enumerate(points)]
    options = ["--samples", "2", "--taus", "3", "--out", tmp_path / "barrier.json"]
    code, _, error = call(capsys, "barrier", *paths, *options)
    assert code == 2 and "--noise" in error
    code, result, _ = call(capsys, "barrier", *paths, *options, "--noise", 0.5)
    assert code == 0 and result["sets"]["test"]["naive"]["accuracy"] is None


def test_the_page_has_every_section_and_its_numbers(tmp_path, capsys, files):
    folder = tmp_path / "way"
    code, result, _ = call(capsys, "barrier", *files, "--align", "--control", *QUICK, "--out", folder)
    assert code == 0 and result["page"] == str(folder / "report.html")
    assert (folder / "report.html").stat().st_size < 8e6
    report = read_report(folder)
    assert {"barrier", "walk", "alignment", "posterior", "run", "summary"} <= set(report)
    assert set(report["walk"]) >= {"naive", "aligned", "images"} and "mixture" not in report["walk"]
    curve = report["barrier"]["sets"]["test"]["naive"]
    assert curve["nll"] == pytest.approx(result["sets"]["test"]["naive"]["nll"], rel=1e-5)
    assert len(curve["accuracy_error"]) == len(curve["ece_error"]) == 3
    linked = [file["name"] for file in report["files"]]
    assert "barrier.json" in linked and all((folder / name).is_file() for name in linked)
    assert call(capsys, "barrier", *files, *QUICK, "--sets", "test", "--out", folder)[0] == 0  # the older is replaced
    assert "alignment" not in read_report(folder)


def test_two_networks_have_exact_losses_and_a_plane(tmp_path, capsys):
    points = [
        save_posterior(tmp_path / f"{seed}.safetensors", Gaussian.point(point(seed)), metadata=METADATA)
        for seed in range(2)
    ]
    flags = ["--align", *QUICK, "--sets", "test", "--out", tmp_path / "way"]
    assert call(capsys, "barrier", *points, *flags)[0] == 0
    report = read_report(tmp_path / "way")
    assert "posterior" not in report and not any(report["barrier"]["sets"]["test"]["naive"]["nll_error"])
    assert len(report["plane"]["x"]) >= 9 and len(report["plane"]["points"]) == 3
    assert (tmp_path / "way" / "figures" / "plane.svg").is_file()


def test_low_rank_posteriors_have_a_way_and_a_page(tmp_path, capsys):
    stacks = [Samples.stack([point(seed), point(seed + 2)]) for seed in range(2)]
    paths = [
        save_posterior(tmp_path / f"{i}.safetensors", LowRankGaussian.from_samples(stack), metadata=METADATA)
        for i, stack in enumerate(stacks)
    ]
    flags = ["--align", *QUICK, "--sets", "test", "--out", tmp_path / "way"]
    assert call(capsys, "barrier", *paths, *flags)[0] == 0
    assert {"barrier", "walk", "alignment", "posterior"} <= set(read_report(tmp_path / "way"))


@pytest.mark.parametrize("without", ["plotly", "wish"])
def test_without_a_page_the_numbers_are_written_all_the_same(tmp_path, capsys, files, monkeypatch, without):
    if without == "plotly":
        monkeypatch.setattr("bayesin.cli.output.find_spec", lambda name: None if name == "plotly" else True)
    flags = [*QUICK, "--sets", "test", "--out", tmp_path / "way"] + (["--no-page"] if without == "wish" else [])
    code, result, error = call(capsys, "barrier", *files, *flags)
    assert code == 0 and result["page"] is None and ("pip install plotly" in error) == (without == "plotly")
    assert [path.name for path in (tmp_path / "way").iterdir()] == ["barrier.json"]
    assert main(["report", str(tmp_path / "way"), "--quiet"]) == 0  # later, from the numbers


def test_matching_by_activations_and_a_rescaled_path(tmp_path, capsys, files):
    code, result, _ = call(
        capsys, "barrier", *files, "--align", "--cost", "activations", "--rescale", *QUICK, "--no-page",
        "--sets", "test", "--out", tmp_path / "out",
    )  # fmt: skip
    curves = result["sets"]["test"]
    assert code == 0 and result["alignment"]["cost"] == "activations" and result["alignment"]["w2_after"] < 1e-5
    assert set(curves) == {"naive", "aligned", "rescaled"}
    np.testing.assert_allclose(curves["rescaled"]["nll"], curves["aligned"]["nll"], rtol=1e-4)  # both ends are one
    code, _, error = call(capsys, "barrier", *files, "--rescale", *QUICK)
    assert code == 2 and "add --align" in error
    bare = [save_posterior(tmp_path / f"{i}.safetensors", point(i)) for i in range(2)]
    code, _, error = call(capsys, "align", *bare, "--cost", "blend", "--out", tmp_path / "blend")
    assert code == 2 and "--data" in error


def test_merging_finds_one_posterior_in_shuffled_copies(tmp_path, capsys, files):
    code, result, _ = call(capsys, "merge", *files, "--samples", "4", "--limit", "60", "--out", tmp_path / "out")
    assert code == 0 and result["function_change"] < 1e-5 and result["rescaled"]
    merged, first = load_posterior(result["posterior"]), load_posterior(files[0])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), merged, first)
    assert set(result["scores"]) == {
        *map(str, files), "average, not aligned", "average, aligned", "aligned and rescaled"
    }  # fmt: skip
    assert describe(result["posterior"]).metadata["model"] == MODEL
    assert json.loads((tmp_path / "out" / "merge.json").read_text())["scores"] == result["scores"]
    kind, state, says = status_of(capsys, tmp_path / "out")
    assert (kind, state) == ("merge", "done") and says.startswith("aligned and rescaled: ")
    for arguments, message in ((files[:1], "two posteriors or more"), (files, "--force")):
        code, _, error = call(capsys, "merge", *arguments, "--out", tmp_path / "out")
        assert code == 2 and message in error
