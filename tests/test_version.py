"""One version, in all places that say it; and a citation file that can be read."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import bayesin

ROOT = Path(__file__).parents[1]


def test_the_version_is_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.M)
    assert cited is not None
    assert {project["version"], cited[1], bayesin.__version__, metadata.version("bayesin")} == {bayesin.__version__}
    assert re.fullmatch(r"\d+\.\d+\.\d+", bayesin.__version__)
    assert project["license"] in (ROOT / "CITATION.cff").read_text()


def test_the_citation_is_whole():
    yaml = pytest.importorskip("yaml")
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors", "version", "license", "references"} <= cited.keys()
    for work in cited["references"]:
        assert {"type", "title", "authors", "year"} <= work.keys(), work["title"]
