"""The demonstration: small, for its plumbing; at full size, for what it promises."""

import json

import numpy as np
import pytest

from bayesin.cli.main import VERBS, main
from bayesin.inference import VI
from bayesin.lab.demo import STAGES, DemoProgress, DemoSettings, run_demo
from bayesin.lab.report.demo_report import write_demo_report
from bayesin.store import describe, load_alignment, load_posterior
from bayesin.symmetry import permute
from bayesin.trees import flatten
from cli_toys import status_of

TINY = DemoSettings(
    width=12,
    training=VI(members=2, temperature=0.1, prior_variance=0.05, learning_rate=3e-3, epochs=4, batch=200),
    restarts=2,
    taus=3,
    samples=4,
    train_samples=2,
    plane_resolution=3,
    plane_samples=2,
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder, told = tmp_path_factory.mktemp("demo"), []
    demo = run_demo(folder, 5, settings=TINY, on_progress=told.append)
    return folder, demo, told


def test_everything_is_saved_and_reads_back(tiny):
    folder, demo, _ = tiny
    for name, posterior in (("first", demo.first), ("second", demo.second), ("aligned", demo.alignment.posterior)):
        stored = load_posterior(folder / f"{name}.safetensors")
        for part in ("mean", "std"):
            for path, leaf in flatten(getattr(posterior, part)).items():
                np.testing.assert_array_equal(flatten(getattr(stored, part))[path], leaf)
    described = describe(folder / "first.safetensors")
    assert described.spec == demo.spec
    assert described.metadata == {"model": {"name": "mlp", "width": 12, "depth": 2}, "data": "digits"}
    stored = load_alignment(folder / "alignment.safetensors")
    moved = permute(load_posterior(folder / "second.safetensors").mean, stored.spec, stored.perms)
    for path, leaf in flatten(moved).items():
        np.testing.assert_array_equal(leaf, flatten(demo.alignment.posterior.mean)[path])
    numbers = json.loads((folder / "barrier.json").read_text())
    assert numbers["test"]["naive"]["value"] == demo.barriers["test"]["naive"].value
    assert json.loads((folder / "config.json").read_text())["training"]["temperature"] == 0.1
    assert json.loads((folder / "plane.json").read_text())["corners"][0] == [0.0, 0.0]


def test_moving_units_changes_no_output(tiny):
    _, demo, _ = tiny
    assert demo.function_change < 1e-4
    assert demo.spec.sizes == {"g0": 12, "g1": 12}
    np.testing.assert_allclose(
        demo.barriers["test"]["naive"].accuracy[-1], demo.barriers["test"]["aligned"].accuracy[-1], atol=0.02
    )


def test_progress_rises_from_nothing_to_all(tiny):
    _, _, told = tiny
    shares = [progress.overall for progress in told]
    assert shares == sorted(shares) and shares[-1] == pytest.approx(1.0)
    assert {progress.stage for progress in told} == set(STAGES)
    assert DemoProgress("train", 0.0).overall == 0.0


def test_the_page_is_made_from_the_saved_numbers(tiny, capsys):
    folder, demo, _ = tiny
    page = write_demo_report(folder, demo)
    assert 4e6 < page.stat().st_size < 8e6
    written = page.read_bytes()
    page.unlink()
    assert main(["report", str(folder), "--quiet"]) == 0
    assert page.read_bytes() == written
    for name in ("barrier", "barrier-train", "plane"):
        assert all((folder / "figures" / f"{name}.{kind}").is_file() for kind in ("svg", "pdf", "png", "json"))
    files = {file["name"] for file in json.loads((folder / "report.json").read_text())["files"]}
    assert all((folder / name).is_file() for name in files)
    assert status_of(capsys, folder)[:2] == ("demo", "done")


def test_the_same_key_gives_the_same_numbers(tiny, tmp_path):
    folder, _, _ = tiny
    run_demo(tmp_path, 5, settings=TINY)
    for name in ("first.safetensors", "alignment.safetensors", "barrier.json", "plane.json"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes(), name


def test_the_verb_prints_a_table_and_the_way_to_the_page(tiny, tmp_path, monkeypatch, capsys):
    _, demo, _ = tiny
    monkeypatch.setattr("bayesin.lab.demo.run_demo", lambda *args, **kwargs: demo)
    assert main(["demo", "--out", str(tmp_path / "x")]) == 0
    out = capsys.readouterr().out
    assert "barrier after alignment, test set" in out and "units moved" in out and "report.html" in out
    assert main(["demo", "--out", str(tmp_path / "y"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["barrier"]["test"]["naive"]["value"] == demo.barriers["test"]["naive"].value
    assert result["units"] == 24 and result["page"].endswith("report.html")
    assert next(iter(VERBS)) == "demo"


def test_a_folder_that_cannot_be_written_is_one_line(tiny, tmp_path, monkeypatch, capsys):
    _, demo, _ = tiny
    monkeypatch.setattr("bayesin.lab.demo.run_demo", lambda *args, **kwargs: demo)
    (tmp_path / "file").write_text("")
    assert main(["demo", "--out", str(tmp_path / "file")]) == 2
    assert "must be a folder" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("key", [0])
def test_the_promise(key, tmp_path):
    """Good posteriors, a barrier that is high, and one in twenty of it left after alignment."""
    settings = DemoSettings(taus=9, train_samples=2, plane_resolution=2, plane_samples=1)
    demo = run_demo(tmp_path, key, settings=settings)
    naive, aligned = demo.barriers["test"]["naive"], demo.barriers["test"]["aligned"]
    assert min(demo.accuracies) >= 0.97
    assert naive.value - 2 * naive.standard_error >= 0.5
    assert aligned.value + 2 * aligned.standard_error <= 0.05 * naive.value
    assert demo.alignment.converged
    assert demo.function_change < 1e-4
