"""The chapters of the tutorial run as they stand, one after the other, in one folder."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

TUTORIAL = Path(__file__).parents[1] / "docs" / "tutorial"
CHAPTERS = re.findall(r"^([a-z-]+)$", (TUTORIAL / "index.md").read_text(), re.M)
NEEDS = {"pytorch-checkpoint": ("torch", "torchax")}
pytestmark = [pytest.mark.slow, pytest.mark.promotes]  # networks as users write them


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tutorial")


def run(name: str, namespace: dict) -> None:
    page = TUTORIAL / f"{name}.md"
    for block in re.finditer(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S):
        line = page.read_text().count("\n", 0, block.start(1))  # so that a traceback names the line of the page
        exec(compile("\n" * line + block[1], str(page), "exec"), namespace)


def test_every_chapter_is_in_the_index():
    assert set(CHAPTERS) == {page.stem for page in TUTORIAL.glob("*.md")} - {"index"}


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_runs_as_it_stands(name, folder, monkeypatch):
    for package in NEEDS.get(name, ()):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed (pip install 'bayesin[torch]')")
    monkeypatch.chdir(folder)
    if name in ("in-and-out", "barriers-gone") and not (folder / "first.safetensors").is_file():
        run("two-networks", {})  # the chapters that came before wrote its files; this test runs alone
    run(name, {})
