"""The report: plain data in, one page out that holds everything and believes nothing."""

import base64
import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest

from bayesin.cli.main import main
from bayesin.errors import ArtifactError, ConfigError
from bayesin.report import read_report, render, write_page, write_report
from bayesin.report.document import check_report, plain
from report_data import HOSTILE, synthetic

ASSETS = Path(__file__).parents[1] / "src" / "bayesin" / "report" / "assets"


@pytest.fixture(scope="module")
def page() -> str:
    report = synthetic(title=HOSTILE + " {{plotly}}", group=HOSTILE)
    return render([report])


def embedded(page: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


def test_the_page_holds_the_numbers_unchanged(page):
    report = synthetic(title=HOSTILE + " {{plotly}}", group=HOSTILE)
    assert embedded(page)["runs"] == [json.loads(json.dumps(report))]


def test_hostile_names_stay_text(page):
    assert HOSTILE not in page
    assert "<img" not in page.replace(ASSETS.joinpath("page.html").read_text(), "").split('id="data"')[0]
    head = page.split("<style>")[0]
    assert "&lt;/script&gt;" in head and "{{plotly}}" in head  # escaped, and braces of a title are not a template


def test_only_our_three_scripts_may_run(page):
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1].replace("&#x27;", "'")
    scripts = re.findall(r"<script>(.*?)</script>", page, re.S)
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    assert len(scripts) == 3
    assert re.findall(r"'sha256-([^']*)'", policy) == digests
    assert "default-src 'none'" in policy and "connect-src" not in policy and "unsafe-eval" not in policy


def test_nothing_in_the_page_points_outside(page):
    scripts = re.findall(r"<script>(.*?)</script>", page, re.S)
    own = page.replace(max(scripts, key=len), "")  # plotly's script names addresses in its help texts
    assert not re.search(r"""(https?:)?//[a-z0-9-]+\.[a-z]""", own.replace(embedded_text(own), ""))
    assert not re.search(r"""(src|href)=["'](?!#|data:,)""", own.replace(embedded_text(own), ""))


def embedded_text(page: str) -> str:
    return re.search(r'id="data">(.*?)</script>', page, re.S)[1]


def test_the_page_is_small_enough_and_the_same_every_time(page):
    assert len(page.encode()) < 8_000_000
    again = render([synthetic(title=HOSTILE + " {{plotly}}", group=HOSTILE)])
    assert again == page


def test_write_read_and_make_the_page_again(tmp_path):
    write_report(tmp_path, synthetic())
    assert read_report(tmp_path)["title"] == "Two posteriors, one basin"
    first = write_page(tmp_path / "report.html", [tmp_path]).read_bytes()
    assert write_page(tmp_path / "report.html", [tmp_path]).read_bytes() == first


def test_plain_values():
    value = {
        "a": np.array([1.23456789, np.inf]),
        "b": np.float32(0.1),
        "c": (True, None, "x"),
        "d": np.int32(4),
        5: [],
    }
    assert plain(value) == {"a": [1.23457, None], "b": 0.1, "c": [True, None, "x"], "d": 4, "5": []}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "not a report"),
        ({"version": 2}, "version 2"),
        ({"title": 3}, "'report.title' must be text"),
        ({"barrier": {"sets": {"test": {"naive": {"nll": "high"}}}}}, "naive.nll' must be a list"),
        ({"barrier": {"sets": {"test": {"naive": {"nll": [True]}}}}}, r"nll\[0\]' must be a number"),
        ({"walk": {"naive": [{"confusion": [[{}]]}]}}, "must be a number"),
        ({"alignment": []}, "'report.alignment' must be an object"),
        ({"files": [{"name": None}]}, "must be text"),
    ],
)
def test_a_damaged_report_is_refused(tmp_path, change, message):
    (tmp_path / "report.json").write_text(json.dumps(synthetic() | change))
    with pytest.raises(ArtifactError, match=message):
        read_report(tmp_path)
    with pytest.raises(ArtifactError, match=message):
        check_report(synthetic() | change)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (("barrier", "sets", "test", "naive", "taus"), "needs two or more taus"),
        (("barrier", "sets", "test", "naive", "nll"), "needs nll"),
        (("walk", "aligned", 3, "confusion"), "needs calibration and confusion"),
        (("walk", "naive", 0, "calibration", 2, "accuracy"), "needs confidence and accuracy"),
        (("walk", "images", "shape"), "height, width"),
        (("plane", "x"), "needs x and y"),
        (("plane", "nll"), "needs nll"),
        (("plane", "points", 1, "y"), r"points\[1\]"),
        (("alignment", "similarity", "g0", "after"), "needs before and after"),
        (("alignment", "groups", 0, "moved"), "needs name, size, moved"),
        (("alignment", "stds", "centres"), "positive"),
        (("posterior", "names"), "five quantiles"),
        (("posterior", "units", 0, "pruned"), "2 counts"),
        (("tables", 0, "columns"), "columns and rows"),
    ],
)
def test_a_section_without_what_it_needs_is_refused(where, message):
    report = synthetic()
    *parents, last = where
    node = report
    for step in parents:
        node = node[step]
    del node[last]
    with pytest.raises(ArtifactError, match=message):
        check_report(report)


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        (("barrier", "sets", "test", "naive", "ece"), [0.1], "one value for each of 25 taus"),
        (("walk", "naive"), [], "at least one step|one step|needs"),
        (("walk", "images", "labels"), [0, 1, 99], "fit labels|probabilities"),
        (("plane", "y"), [2, 1], "rising"),
        (("plane", "nll"), [[1.0]], "must be 29 by 31"),
        (("tables", 0, "rows"), [["short"]], "not as long"),
    ],
)
def test_lengths_that_disagree_are_refused(where, value, message):
    report = synthetic()
    *parents, last = where
    node = report
    for step in parents:
        node = node[step]
    node[last] = value
    if where == ("walk", "naive"):
        del report["walk"]["aligned"]
    with pytest.raises(ArtifactError, match=message):
        check_report(report)


def test_a_file_of_the_barrier_verb_becomes_a_page(tmp_path, capsys):
    curve = {"taus": [0, 0.5, 1], "nll": [1.0, 2.0, 1.2], "standard_errors": [0, 0.1, 0], "accuracy": None}
    curve |= {"value": 0.9, "standard_error": 0.1, "samples": 8, "examples": 10, "argmax": 0.5}
    sets = {"test": {"naive": curve, "mixture": curve | {"value": 0.0}}}
    file = tmp_path / "barrier.json"
    file.write_text(json.dumps({"format": "bayesin-barrier", "version": 1, "first": "a", "key": 0, "sets": sets}))
    assert main(["report", str(file), "--quiet"]) == 0
    run = embedded((tmp_path / "barrier.html").read_text())["runs"][0]
    assert run["barrier"]["sets"]["test"]["naive"]["nll_error"] == [0, 0.1, 0]
    assert [card["value"] for card in run["summary"]] == ["0.900", "0.000"]
    assert run["files"] == [
        {
            "name": "barrier.json",
            "says": "the numbers of this page",
            "bytes": file.stat().st_size,
            "href": "./barrier.json",
        }
    ]
    file.write_text(json.dumps({"format": "bayesin-barrier", "sets": {"test": [1]}}))
    assert main(["report", str(file)]) == 2
    assert "sets" in capsys.readouterr().err


def test_a_missing_or_broken_file_is_refused(tmp_path):
    with pytest.raises(ArtifactError, match=r"has no report\.json"):
        read_report(tmp_path)
    (tmp_path / "report.json").write_text('{"format": "bayesin-report", ')
    with pytest.raises(ArtifactError, match="not valid JSON"):
        read_report(tmp_path)
    with pytest.raises(ConfigError, match="at least one run"):
        write_page(tmp_path / "p.html", [])


def test_links_are_relative_and_stay_inside_the_run(tmp_path):
    run = tmp_path / "run one"
    names = ["a b#?.json", "javascript:alert(1)", "../secret", "/etc/hostname", "gone.json", "figures/barrier.pdf"]
    (tmp_path / "secret").parent.mkdir(exist_ok=True)
    (tmp_path / "secret").write_text("x")
    write_report(run, synthetic() | {"files": [{"name": name, "bytes": 7} for name in names]})
    for name in (names[0], names[1], names[5]):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text("12345")
    files = embedded(write_page(run / "report.html", [run]).read_text())["runs"][0]["files"]
    hrefs = [file["href"] for file in files]
    assert hrefs == ["./a%20b%23%3F.json", "./javascript%3Aalert%281%29", None, None, None, "./figures/barrier.pdf"]
    assert files[0]["bytes"] == 5
    files = embedded(write_page(tmp_path / "pages" / "all.html", [run]).read_text())["runs"][0]["files"]
    assert files[5]["href"] == "../run%20one/figures/barrier.pdf"


def test_several_runs_on_one_page(tmp_path):
    for name in ("a", "b"):
        write_report(tmp_path / name, synthetic(title=name))
    runs = embedded(write_page(tmp_path / "all.html", [tmp_path / "a", tmp_path / "b"]).read_text())["runs"]
    assert [run["name"] for run in runs] == ["a", "b"]


def test_the_verb(tmp_path, capsys):
    write_report(tmp_path / "a", synthetic())
    write_report(tmp_path / "b", synthetic())
    assert main(["report", str(tmp_path / "a"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["page"] == str(tmp_path / "a" / "report.html")
    assert main(["report", str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(tmp_path / "all.html")]) == 0
    assert (tmp_path / "all.html").is_file()
    capsys.readouterr()
    for arguments, message in (
        ([], "which run"),
        ([str(tmp_path / "a"), str(tmp_path / "b")], "--out"),
        ([str(tmp_path / "a"), "--out", str(tmp_path / "page.txt")], ".html"),
        ([str(tmp_path / "nowhere")], "report.json"),
    ):
        assert main(["report", *arguments]) == 2
        assert message in capsys.readouterr().err.replace("\n", "")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_can_be_read_on_both_grounds(theme):
    """WCAG 2 asks for a contrast of 4.5 for text and 3 for lines and marks."""
    blocks = re.findall(r":root(?:\[data-theme=\"dark\"\])? \{(.*?)\}", ASSETS.joinpath("page.css").read_text(), re.S)
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", blocks[0]))
    colours |= dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", blocks[1])) if theme == "dark" else {}
    for ground in ("card", "paper"):
        for text in ("ink", "muted", "text-naive", "text-aligned"):
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
        for mark in ("naive", "aligned", "third"):
            assert contrast(colours[mark], colours[ground]) >= 3, (mark, ground)


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    parts = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])
