"""The chapters of the tutorial run as they stand, one after the other, in one folder, and print what they show."""

import contextlib
import io
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


BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", re.M | re.S)
NUMBER = re.compile(r"\d+(?:\.\d+)?")
# Another processor sums in another order, and a training goes its own way from there.
NEAR = {"rel": 0.2, "abs": 0.02}


def run(name: str, namespace: dict) -> None:
    page = TUTORIAL / f"{name}.md"
    for block in BLOCK.finditer(page.read_text()):
        line = page.read_text().count("\n", 0, block.start(1))  # so that a traceback names the line of the page
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile("\n" * line + block[1], str(page), "exec"), namespace)
        check_printed(printed.getvalue(), block[2] or "")


def check_printed(printed: str, shown: str) -> None:
    """The same words, and numbers nearly the same."""
    assert NUMBER.sub("#", printed).split() == NUMBER.sub("#", shown).split(), printed
    for one, other in zip(NUMBER.findall(printed), NUMBER.findall(shown), strict=True):
        assert float(one) == pytest.approx(float(other), **NEAR), printed


def test_other_words_and_other_numbers_are_noticed():
    check_printed("barrier 0.49 nats\n", "barrier 0.48 nats\n")
    for wrong in ("barrier 0.12 nats", "height 0.48 nats", "barrier 0.48 nats 1"):
        with pytest.raises(AssertionError):
            check_printed(wrong, "barrier 0.48 nats")


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
