"""What a screen reader and a keyboard find on the page, judged by axe-core; skipped where npm has not brought it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from bayesin.lab.papers import read_reproduction, write_reproduction
from bayesin.lab.report import write_page, write_report
from report_data import synthetic

REPOSITORY = Path(__file__).resolve().parents[2]
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]


@pytest.fixture(scope="module")
def axe() -> str:
    """The script of axe-core: where BAYESIN_AXE points, in node_modules/, or among npm's global packages."""
    folders = [REPOSITORY / "node_modules"]
    if shutil.which("npm"):
        asked = subprocess.run(["npm", "root", "--global"], capture_output=True, text=True)
        folders += [Path(asked.stdout.strip())] if asked.returncode == 0 else []
    places = [folder / "axe-core" / "axe.min.js" for folder in folders]
    if os.environ.get("BAYESIN_AXE"):
        places.insert(0, Path(os.environ["BAYESIN_AXE"]))
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        pytest.skip("axe-core is not here (npm install --no-save axe-core)")
    return found.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def pages(tmp_path_factory, request):
    request.getfixturevalue("browser")
    folder = tmp_path_factory.mktemp("pages")
    write_report(folder / "whole", synthetic())
    write_reproduction(read_reproduction(REPOSITORY / "results" / "numbers" / "width.json"), folder / "width")
    both = [folder / "whole", folder / "width"]
    return {
        "whole": write_page(folder / "whole.html", both[:1]),
        "several": write_page(folder / "several.html", both),
        "reproduction": write_page(folder / "width.html", both[1:]),
    }


@pytest.mark.parametrize(
    ("name", "width", "theme"),
    [("whole", 1280, "light"), ("whole", 390, "dark"), ("several", 390, "light"), ("reproduction", 1280, "dark")],
)
def test_axe_finds_nothing(browser, axe, pages, name, width, theme):
    page = browser.open(pages[name], width=width, theme=theme)
    page.evaluate(axe)
    found = page.evaluate("rules => axe.run(document, { runOnly: rules })", RULES)
    assert [
        (one["id"], one["impact"], [node["html"][:120] for node in one["nodes"][:3]]) for one in found["violations"]
    ] == []
