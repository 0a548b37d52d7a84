"""The documentation builds without a warning or a network, holds every page, and every link leads somewhere."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[1]


class Links(HTMLParser):
    """What a page links to, what it loads, and the anchors it has."""

    def __init__(self, page: Path):
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag in ("script", "img", "link", "iframe"):
            self.loaded += [found[name] for name in ("src", "href") if name in found]


def broken(site: Path) -> list[str]:
    """Links between pages, and files that pages load, that lead nowhere."""
    pages = {page.resolve(): Links(page) for page in site.rglob("*.html")}
    missing = []
    for page, found in pages.items():
        for link in [*found.links, *found.loaded]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            gone = not target.exists()
            if gone or (parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors):
                missing.append(f"{page.relative_to(site.resolve())}: {link}")
    return missing


def test_broken_links_are_found(tmp_path):
    (tmp_path / "a.html").write_text('<a href="b.html#here">x</a><a href="b.html#gone">y</a><img src="no.png">')
    (tmp_path / "b.html").write_text('<p id="here"></p><a href="https://elsewhere.org">z</a>')
    assert broken(tmp_path) == ["a.html: b.html#gone", "a.html: no.png"]


@pytest.mark.slow
def test_the_documentation_builds_without_a_warning(tmp_path):
    for package in ("sphinx", "myst_parser", "furo", "sphinx_design"):
        pytest.importorskip(package)
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", "-d", str(tmp_path / "trees")]
    done = subprocess.run([*command, "docs", str(tmp_path / "html")], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    site = tmp_path / "html"
    for source in (ROOT / "docs").rglob("*.md"):
        assert (site / source.relative_to(ROOT / "docs")).with_suffix(".html").is_file(), source
    assert broken(site) == []
    for page in site.rglob("*.html"):
        fetched = [link for link in Links(page).loaded if urlsplit(link).scheme in ("http", "https")]
        assert fetched == [], page


PAGES = sorted({*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "tutorial").glob("*.md")})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_fits_the_width_of_a_page(page):
    """What is cut at the edge of a page has to be scrolled to; the width is that of docs/_static/bayesin.css."""
    blocks = re.findall(r"^```(.*?)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    lines = [line for what, block in blocks if not what.startswith("{") for line in block.splitlines()]
    assert [line for line in lines if len(line) > 96] == []


def test_every_verb_has_a_row_on_the_command_line_page():
    from bayesin.cli.main import VERBS

    page = (ROOT / "docs" / "command-line.md").read_text()
    assert all(re.search(rf"`{verb}`", page) for verb in VERBS)
