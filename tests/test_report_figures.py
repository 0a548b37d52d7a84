"""Print figures: every format, the same bytes every time, and the numbers beside them."""

import csv
import json

import numpy as np
import pytest

from bayesin.errors import ConfigError
from bayesin.lab.report.figures import barrier_figure, compact_figure, plane_figure
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
