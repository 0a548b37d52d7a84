"""Print figures: every format, the same bytes every time, and the numbers beside them."""

import csv
import itertools
import json
from types import SimpleNamespace

import numpy as np
import pytest

from bayesin.errors import ConfigError
from bayesin.lab.report import panels_of
from bayesin.lab.report.figures import KINDS, barrier_figure, compact_figure, plane_figure
from report_data import synthetic


def test_barrier_figure_and_its_numbers(tmp_path):
    section = synthetic()["barrier"]
    paths = barrier_figure(section, tmp_path / "barrier")
    assert sorted(path.suffix for path in paths) == [".csv", ".json", ".pdf", ".png", ".svg"]
    assert (tmp_path / "barrier.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "barrier.pdf").read_bytes().startswith(b"%PDF")
    svg = (tmp_path / "barrier.svg").read_text()
    assert "loss (nats)" in svg and "0.830 ± 0.010 nats" in svg  # text stays text
    rows = list(csv.DictReader((tmp_path / "barrier.csv").read_text().splitlines()))
    naive = [float(row["nll"]) for row in rows if row["path"] == "naive"]
    np.testing.assert_allclose(naive, section["sets"]["test"]["naive"]["nll"], rtol=1e-5)
    assert len(rows) == 50
    assert json.loads((tmp_path / "barrier.json").read_text())["aligned"]["value"] == 0.026


def test_plane_figure(tmp_path):
    section = synthetic()["plane"]
    section["points"][0]["name"] = "$x^{ <b>"  # no mathematics, no markup
    paths = plane_figure(section, tmp_path / "plane")
    assert sorted(path.suffix for path in paths) == [".json", ".pdf", ".png", ".svg"]
    assert "second, aligned" in (tmp_path / "plane.svg").read_text()


def test_compact_figure(tmp_path):
    section = synthetic()["compact"]
    paths = compact_figure(section, tmp_path / "compact")
    assert sorted(path.suffix for path in paths) == [".json", ".pdf", ".png", ".svg"]
    assert "in a common order" in (tmp_path / "compact.svg").read_text()
    assert json.loads((tmp_path / "compact.json").read_text())["groups"] == section["groups"]
    compact_figure({"groups": section["groups"]}, tmp_path / "points")  # without spread


def test_the_same_numbers_give_the_same_files(tmp_path):
    for name in ("a", "b"):
        barrier_figure(synthetic()["barrier"], tmp_path / name / "f", part="train")
    for kind in ("svg", "pdf", "png", "csv", "json"):
        assert (tmp_path / "a" / f"f.{kind}").read_bytes() == (tmp_path / "b" / f"f.{kind}").read_bytes(), kind


def test_an_unknown_set_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no set 'validation'"):
        barrier_figure(synthetic()["barrier"], tmp_path / "f", part="validation")


def test_drawing_leaves_the_user_s_matplotlib_alone(tmp_path):
    import matplotlib

    before = dict(matplotlib.rcParams)
    barrier_figure(synthetic()["barrier"], tmp_path / "f")
    assert dict(matplotlib.rcParams) == before


def test_panels_hold_what_was_drawn():
    """Every kind of mark comes back with the coordinates it was drawn at, and its meaning in place of its colour."""
    from matplotlib.figure import Figure

    figure = Figure()
    left, right = figure.subplots(1, 2)
    left.plot([1, 10], [0.0, 2.0], "--o", color=KINDS["naive"]["color"], label="naive")
    left.fill_between([1, 10], [0, 1], [1, 2], color="#123456", alpha=0.5)
    left.axhline(0.5, linestyle=":")
    left.set(xscale="log", xlim=(1, 10), xlabel="width", title="first")
    right.barh(range(2), [3, 4])
    right.set_yticks(range(2), ["one", "two"])
    first, second = panels_of(figure)
    line, area, rule = (next(mark for mark in first["marks"] if mark["kind"] == k) for k in ("line", "area", "rule"))
    assert (line["x"], line["y"], line["colour"], line["dash"]) == ([1.0, 10.0], [0.0, 2.0], "naive", "dash")
    assert (line["mode"], line["symbol"], line["label"]) == ("lines+markers", "circle", "naive")
    assert area["colour"] == "#123456/0.50" and max(area["y"]) == 2.0
    assert rule["y"] == [0.5] and "x" not in rule
    assert (first["title"], first["x"]["label"], first["x"]["scale"], first["x"]["range"]) == (
        "first",
        "width",
        "log",
        [1, 10],
    )
    (bars,) = second["marks"]
    assert (bars["lying"], bars["x"], bars["y"]) == (True, [3.0, 4.0], [0.0, 1.0])
    assert second["y"]["ticks"] == [[0.0, "one"], [1.0, "two"]]


def test_a_scale_that_the_page_lacks_keeps_its_numbers_on_the_ticks():
    from matplotlib.figure import Figure

    figure = Figure()
    axes = figure.subplots()
    axes.plot([0, 1], [0.0, 1.0])
    axes.set_yscale("symlog", linthresh=1e-2)
    axes.set_ylim(0, 1)
    (panel,) = panels_of(figure)
    ticks = {text: place for place, text in panel["y"]["ticks"]}
    assert panel["y"]["scale"] == "linear" and panel["marks"][0]["y"][1] == ticks["1"]
    assert ticks["0"] < ticks["0.01"] < ticks["0.1"] < ticks["1"]
    assert ticks["1"] - ticks["0.1"] == pytest.approx(ticks["0.1"] - ticks["0.01"])  # decades are equally wide


def test_a_figure_with_something_else_in_it_has_no_panels():
    from matplotlib.figure import Figure

    figure = Figure()
    figure.subplots().contourf(np.arange(9.0).reshape(3, 3))
    assert panels_of(figure) is None


def test_a_busy_machine_draws_without_a_warning(tmp_path, monkeypatch):
    """Matplotlib warns where it looks for the best place of a legend for more than a second."""
    clock = SimpleNamespace(perf_counter=itertools.count(0.0, 2.0).__next__)
    monkeypatch.setattr("matplotlib.legend.time", clock)
    compact_figure(synthetic()["compact"], tmp_path / "compact")
    assert clock.perf_counter() > 2  # somebody looked at it
