"""Imports go one way through the folders, and heavy libraries wait until they are used."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "bayesin"

# The pipeline. A part may import from itself and from what stands before it.
ORDER = (
    "errors",
    "keys",
    "trees",
    "convolutions",
    "files",
    "tensors",
    "data",
    "models",
    "symmetry",
    "posteriors",
    "inference",
    "matching",
    "paths",
    "evaluation",
    "compact",
    "store",
    "experiments",
    "report",
    "reproduce",
    "cli",
)
LAZY = ("tyro", "lap", "lapx", "blackjax", "pooch", "plotly", "matplotlib", "ray", "sklearn", "requests")


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_parts(path: Path) -> list[tuple[int, str]]:
    """(line, part) of every import of the package's own, at the top or inside a function."""
    depth = len(path.relative_to(PACKAGE).parts)  # 1 for a file directly in the package
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [(node.module or "").split(".")]
            if names == [["bayesin"]]:
                names = [["bayesin", alias.name] for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = path.relative_to(PACKAGE).parts[: depth - node.level]  # the folder that the dots mean
            below = [*above, *((node.module or "").split(".") if node.module else [])]
            names = [["bayesin", *below]] if below else [["bayesin", alias.name] for alias in node.names]
        else:
            continue
        found += [(node.lineno, name[1]) for name in names if name[0] == "bayesin" and len(name) > 1]
    return found


def modules() -> list[Path]:
    return [p for p in sorted(PACKAGE.rglob("*.py")) if p.parent != PACKAGE or p.stem not in ("__init__", "__main__")]


def test_every_part_has_its_place_in_the_order():
    parts = {part_of(path) for path in modules()}
    assert parts <= set(ORDER), f"give {sorted(parts - set(ORDER))} a place in ORDER"


@pytest.mark.parametrize("part", ORDER)
def test_imports_go_one_way(part):
    wrong = []
    for path in modules():
        if part_of(path) != part:
            continue
        for line, other in imported_parts(path):
            if other in ORDER and ORDER.index(other) > ORDER.index(part):
                wrong.append(f"{path.relative_to(PACKAGE)}:{line} imports {other}, which comes after {part}")
    assert not wrong, "\n".join(wrong)


def test_the_walk_sees_every_form_of_import(tmp_path, monkeypatch):
    """The test tests itself: relative and absolute, at the top and inside a function."""
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)
    file = tmp_path / "data" / "deep" / "module.py"
    file.parent.mkdir(parents=True)
    file.write_text(
        "from ...cli.main import main\nfrom ..npz import read\nfrom . import sibling\nimport bayesin.report.page\n"
        "from bayesin import store\nfrom bayesin.models import Model\nimport numpy\n"
        "def later():\n    from ... import experiments\n    from ...errors import DataError\n"
    )
    parts = [part for _, part in imported_parts(file)]
    assert sorted(parts) == sorted(["cli", "data", "data", "report", "store", "models", "experiments", "errors"])


def test_importing_the_package_imports_no_library_that_a_verb_may_never_need():
    code = f"import bayesin, sys; print([m for m in {LAZY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_the_list_of_verbs_needs_neither_a_parser_nor_the_numerics_of_a_verb():
    code = (
        f"from bayesin.cli.main import main; main([]); import sys; print([m for m in {LAZY!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("[]")
