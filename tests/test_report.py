"""The report: plain data in, one page out that holds everything and believes nothing."""

import base64
import hashlib
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from bayesin.cli.main import main
from bayesin.errors import ArtifactError, ConfigError
from bayesin.lab.report import page as page_writer
from bayesin.lab.report import read_report, render, write_page, write_report
from report_data import HOSTILE, synthetic

ASSETS = Path(__file__).parents[1] / "src" / "bayesin" / "lab" / "report" / "assets"


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


DELETED = object()


@pytest.mark.parametrize(
    ("where", "value"),
    [
        # kinds of values
        (("format",), "other"),
        (("version",), 2),
        (("title",), 3),
        (("barrier", "sets", "test", "naive", "nll"), "high"),
        (("barrier", "sets", "test", "naive", "nll", 3), True),
        (("walk", "naive", 0, "confusion", 1, 1), {}),
        (("alignment",), ["no object"]),
        (("files", 0, "name"), None),
        # what a section cannot do without
        (("barrier", "sets", "test", "naive", "taus"), DELETED),
        (("barrier", "sets", "test", "naive", "nll"), DELETED),
        (("walk", "aligned", 3, "confusion"), DELETED),
        (("walk", "naive", 0, "calibration", 2, "accuracy"), DELETED),
        (("walk", "images", "shape"), DELETED),
        (("plane", "x"), DELETED),
        (("plane", "nll"), DELETED),
        (("plane", "points", 1, "y"), DELETED),
        (("alignment", "similarity", "g0", "after"), DELETED),
        (("alignment", "groups", 0, "moved"), DELETED),
        (("alignment", "stds", "centres"), DELETED),
        (("compact", "groups", 0, "size"), DELETED),
        (("compact", "scores", 0, "name"), DELETED),
        (("posterior", "names"), DELETED),
        (("posterior", "units", 0, "pruned"), DELETED),
        (("tables", 0, "columns"), DELETED),
        # lengths and orders that must agree
        (("barrier", "sets", "test", "naive", "ece"), [0.1]),
        (("walk", "naive"), [{}]),
        (("walk", "images", "labels"), [0, 1, 99]),
        (("plane", "y"), [2, 1]),
        (("plane", "nll"), [[1.0]]),
        (("compact", "groups", 0, "transpositions"), [1]),
        (("evaluation", "rows", 0, "values"), ["1"]),
        (("evaluation", "selective", 0, "x"), [0.1]),
        (("posterior", "layers", 0, "std", 0), [5, 4, 3, 2, 1]),
        (("tables", 0, "rows"), [["short"]]),
    ],
)
def test_a_damaged_report_is_refused_and_the_place_is_named(tmp_path, where, value):
    report = synthetic()
    *parents, last = where
    node = report
    for step in parents:
        node = node[step]
    if value is DELETED:
        del node[last]
    else:
        node[last] = value
    (tmp_path / "report.json").write_text(json.dumps(report))
    with pytest.raises(ArtifactError) as refused:
        read_report(tmp_path)
    assert str(tmp_path / "report.json") in str(refused.value) and where[0] in str(refused.value)
    with pytest.raises(ArtifactError):
        render([report])


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
    for content in (None, '{"format": "bayesin-report", ', "[]"):
        if content is not None:
            (tmp_path / "report.json").write_text(content)
        with pytest.raises(ArtifactError, match=r"report\.json"):
            read_report(tmp_path)
    with pytest.raises(ConfigError):
        write_page(tmp_path / "p.html", [])


def test_links_are_relative_and_stay_inside_the_run(tmp_path):
    run = tmp_path / "run one"
    names = ["a b#?.json", "javascript:alert(1)", "../secret", "/etc/hostname", "gone.json", "figures/barrier.pdf"]
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


@pytest.mark.parametrize("harm", ["gone", "a folder", "no text"])
@pytest.mark.parametrize("name", ["page.html", "page.css", "theme.js", "core.js"])
def test_an_installation_that_lacks_a_part_of_the_page_is_said_and_leaves_no_page(tmp_path, monkeypatch, name, harm):
    package = tmp_path / "package"
    shutil.copytree(Path(page_writer.__file__).parent / "assets", package / "assets")
    part = package / "assets" / name
    part.unlink()
    if harm == "a folder":
        part.mkdir()
    elif harm == "no text":
        part.write_bytes(b"\xff\xfe\x80")
    monkeypatch.setattr(page_writer.resources, "files", lambda _: package)
    write_report(tmp_path / "run", synthetic())
    with pytest.raises(ArtifactError, match="the installation of bayesin is not whole"):
        write_page(tmp_path / "page.html", [tmp_path / "run"])
    assert not (tmp_path / "page.html").exists()


def test_a_plotly_without_its_script_is_said(tmp_path, monkeypatch):
    def gone() -> str:
        raise FileNotFoundError("plotly.min.js")

    monkeypatch.setattr("plotly.offline.get_plotlyjs", gone)
    write_report(tmp_path / "run", synthetic())
    with pytest.raises(ArtifactError, match="the installation of plotly is not whole"):
        write_page(tmp_path / "page.html", [tmp_path / "run"])
