"""The documentation builds without a warning and without network, and holds every page it should."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = (
    "quickstart", "guides", "bridges", "command-line", "concepts", "conventions", "choosing", "symmetry", "training",
    "matching", "extending", "results", "api", "changelog",
)  # fmt: skip


@pytest.mark.slow
def test_the_documentation_builds_without_a_warning(tmp_path):
    pytest.importorskip("sphinx")
    pytest.importorskip("myst_parser")
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", "-d", str(tmp_path / "trees")]
    done = subprocess.run([*command, "docs", str(tmp_path / "html")], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name in PAGES:
        page = (tmp_path / "html" / f"{name}.html").read_text()
        fetched = re.findall(r'<(?:script|img|link)[^>]*(?:src|href)="(https?:[^"]*)"', page)
        assert fetched == [], name


def test_links_between_pages_lead_somewhere():
    for path in (ROOT / "docs").glob("*.md"):
        for target in re.findall(r"\]\(([^)#:]+?\.(?:md|svg|png))\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name}: {target}"


def test_every_verb_has_a_row_on_the_command_line_page():
    from bayesin.cli.main import VERBS

    page = (ROOT / "docs" / "command-line.md").read_text()
    assert all(f"`{verb}`" in page for verb in VERBS)
