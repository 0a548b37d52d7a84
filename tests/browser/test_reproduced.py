"""The page of a reproduction, in a real browser, from the numbers of the repository."""

from pathlib import Path

import pytest

from bayesin.lab.papers import read_reproduction, write_reproduction

NUMBERS = Path(__file__).resolve().parents[2] / "results" / "numbers" / "table1.json"


@pytest.fixture(scope="module")
def written(tmp_path_factory, request):
    request.getfixturevalue("browser")  # nothing is drawn where there is none
    folder = tmp_path_factory.mktemp("reproduced")
    return folder / "report.html", write_reproduction(read_reproduction(NUMBERS), folder)


@pytest.mark.parametrize(("width", "theme"), [(1366, "light"), (390, "dark")])
def test_claims_and_figure_are_shown(browser, written, width, theme):
    path, result = written
    page = browser.open(path, width=width, theme=theme)
    sections = page.locator("main > section").evaluate_all("nodes => nodes.map((node) => node.id)")
    assert sections == ["top", "panels", "claims", "tables", "run"]
    verdicts = page.locator("#claims .verdict").all_inner_texts()
    assert [text.split(" ", 1)[1] for text in verdicts] == [one["verdict"] for one in result["findings"]]
    bars = page.locator("[data-plot=panel-0]").evaluate("node => node.querySelectorAll('.bars path').length")
    assert bars == 29
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.problems == [] and {url.split(":")[0] for url in browser.requests} <= {"file", "data", "blob"}
