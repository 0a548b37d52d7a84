"""`bayesin barrier` on files: numbers against the library, the table, the announcement, misuse."""

import json
import re

import jax
import numpy as np
import pytest

from bayesin import barrier, geodesic
from bayesin.cli.main import main
from bayesin.data import load
from bayesin.report import read_report
from bayesin.store import load_posterior, save_posterior
from test_cli_align import METADATA, _gaussian, _mlp, files, spec  # noqa: F401

pytest.importorskip("tyro")
QUICK = ["--samples", "4", "--taus", "3", "--limit", "50"]


def _barrier(capsys, *arguments) -> tuple[int, dict, str]:
    code = main(["barrier", *map(str, arguments), "--json"])
    captured = capsys.readouterr()
    return code, json.loads(captured.out) if captured.out.strip() else {}, captured.err


def test_naive_aligned_and_control_on_both_sets(tmp_path, capsys, files):  # noqa: F811
    out = tmp_path / "barrier.json"
    code, result, _ = _barrier(capsys, *files, "--align", "--control", *QUICK, "--out", out)
    assert code == 0
    assert set(result["sets"]) == {"test", "train"}
    for kinds in result["sets"].values():
        assert set(kinds) == {"naive", "aligned", "mixture"}
        assert kinds["aligned"]["value"] == pytest.approx(0, abs=1e-6)  # the second is the first, shuffled
        assert kinds["mixture"]["value"] <= 1e-6
    assert json.loads(out.read_text())["sets"] == result["sets"]
    data = load("digits", limit=50)
    first, second = (load_posterior(path) for path in files)
    direct = barrier(
        geodesic(first, second), _mlp().apply, (data.x_test, data.y_test), key=jax.random.key(0), samples=4, taus=3
    )
    np.testing.assert_allclose(result["sets"]["test"]["naive"]["nll"], direct.nll, atol=1e-5)
    assert result["sets"]["test"]["naive"]["value"] == pytest.approx(direct.value, abs=1e-5)


def test_a_table_for_people(tmp_path, capsys, files):  # noqa: F811
    out = tmp_path / "barrier.json"
    assert main(["barrier", *map(str, files), *QUICK, "--sets", "test", "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert "Test set: loss on the way" in text
    assert re.search(r"naive +│ \d\.\d{4} ± \d\.\d{4} │", text)  # on one line of 80 characters
    assert "Training set" not in text
    assert main(["barrier", *map(str, files), *QUICK, "--sets", "test", "--out", str(out), "--quiet"]) == 0
    assert capsys.readouterr().out == ""


def test_a_long_measurement_is_announced(tmp_path, capsys, files, monkeypatch):  # noqa: F811
    monkeypatch.setattr("bayesin.cli.barrier.estimate_seconds", lambda *a, **k: 1000.0)
    code, _, error = _barrier(capsys, *files, *QUICK, "--out", tmp_path / "barrier.json")
    assert code == 0
    assert "about 33 minutes: 1 paths × 3 points × 4 draws × 100 examples" in error
    monkeypatch.setattr("bayesin.cli.barrier.estimate_seconds", lambda *a, **k: 20.0)
    assert "minutes" not in _barrier(capsys, *files, *QUICK, "--out", tmp_path / "barrier.json")[2]


def test_regression(tmp_path, capsys):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 3)).astype(np.float32), rng.normal(size=60).astype(np.float32)
    np.savez(tmp_path / "line.npz", x_train=x[:40], y_train=y[:40], x_test=x[40:], y_test=y[40:])
    from bayesin import Gaussian
    from bayesin.models import build

    model = build("mlp", (3,), 1, width=4, depth=1)
    about = {"model": {"name": "mlp", "width": 4, "depth": 1}, "data": str(tmp_path / "line.npz")}
    paths = [
        save_posterior(tmp_path / f"{s}.safetensors", Gaussian.point(model.init(jax.random.key(s))), metadata=about)
        for s in range(2)
    ]
    options = ["--samples", "2", "--taus", "3", "--out", tmp_path / "barrier.json"]
    code, _, error = _barrier(capsys, *paths, *options)
    assert code == 2 and "--noise" in error
    code, result, _ = _barrier(capsys, *paths, *options, "--noise", 0.5)
    assert code == 0
    assert result["sets"]["test"]["naive"]["accuracy"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--taus", "4"], "odd number"),
        (["--samples", "0"], "at least one draw"),
        (["--data", "nothing"], "nothing"),
    ],
)
def test_misuse_is_one_line_and_writes_nothing(tmp_path, capsys, files, arguments, message):  # noqa: F811
    code, _, error = _barrier(capsys, *files, *QUICK, *arguments, "--out", tmp_path / "barrier.json")
    assert code == 2
    assert message in error
    assert not (tmp_path / "barrier.json").exists()


def test_places_and_missing_names(tmp_path, capsys, files):  # noqa: F811
    code, _, error = _barrier(capsys, files[0])
    assert code == 2 and "needs two posteriors" in error
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "report.json").write_text("{}")  # of another verb
    code, _, error = _barrier(capsys, *files, *QUICK, "--out", tmp_path / "taken")
    assert code == 2 and "holds something else" in error
    before = files[0].read_bytes()
    code, _, error = _barrier(capsys, *files, *QUICK, "--out", files[0])
    assert code == 2 and "choose another name" in error
    assert files[0].read_bytes() == before
    for path in files:
        save_posterior(path, load_posterior(path), metadata={"model": METADATA["model"]})
    code, _, error = _barrier(capsys, *files, *QUICK, "--out", tmp_path / "barrier.json")
    assert code == 2 and "--data" in error


def test_the_page_has_every_section_and_its_numbers(tmp_path, capsys, files):  # noqa: F811
    code, result, _ = _barrier(capsys, files[0], files[1], "--align", "--control", *QUICK, "--out", tmp_path / "way")
    assert code == 0
    folder = tmp_path / "way"
    assert result["page"] == str(folder / "report.html") and (folder / "report.html").stat().st_size < 8e6
    report = read_report(folder)
    assert {"barrier", "walk", "alignment", "posterior", "run", "summary"} <= set(report)
    assert set(report["walk"]) >= {"naive", "aligned", "images"} and "mixture" not in report["walk"]
    curve = report["barrier"]["sets"]["test"]["naive"]
    assert curve["nll"] == pytest.approx(result["sets"]["test"]["naive"]["nll"], rel=1e-5)
    assert len(curve["accuracy_error"]) == len(curve["ece_error"]) == 3
    linked = [file["name"] for file in report["files"]]
    assert "barrier.json" in linked and all((folder / name).is_file() for name in linked)
    for ending in ("svg", "pdf", "csv", "json"):
        assert (folder / "figures" / f"barrier.{ending}").is_file()
    assert _barrier(capsys, *files, *QUICK, "--out", folder)[0] == 0  # an older result is replaced
    assert "alignment" not in read_report(folder)
    code, result, _ = _barrier(capsys, *files, *QUICK, "--sets", "test", "--no-page", "--out", tmp_path / "bare")
    assert code == 0 and result["page"] is None
    assert [path.name for path in (tmp_path / "bare").iterdir()] == ["barrier.json"]


def test_the_page_of_two_points_has_a_plane(tmp_path, capsys):
    """Two deterministic networks: no posterior section, exact losses, and a plane through three points."""
    from bayesin import Gaussian

    points = [
        save_posterior(
            tmp_path / f"{seed}.safetensors", Gaussian.point(_mlp().init(jax.random.key(seed))), metadata=METADATA
        )
        for seed in range(2)
    ]
    code, _, _ = _barrier(capsys, *points, "--align", *QUICK, "--sets", "test", "--out", tmp_path / "way")
    report = read_report(tmp_path / "way")
    assert code == 0 and "posterior" not in report and "exact" in report["barrier"]["says"]
    assert len(report["plane"]["x"]) >= 9 and len(report["plane"]["points"]) == 3
    assert (tmp_path / "way" / "figures" / "plane.svg").is_file()


def test_without_plotly_the_numbers_are_written_all_the_same(tmp_path, capsys, files, monkeypatch):  # noqa: F811
    monkeypatch.setattr("bayesin.cli.drawing.find_spec", lambda name: None if name == "plotly" else True)
    code, result, error = _barrier(capsys, *files, *QUICK, "--sets", "test", "--out", tmp_path / "way")
    assert code == 0 and result["page"] is None and "pip install plotly" in error
    assert [path.name for path in (tmp_path / "way").iterdir()] == ["barrier.json"]
    assert main(["report", str(tmp_path / "way"), "--quiet"]) == 0  # later, from the numbers
