"""Imports go one way through the folders, and heavy libraries wait until they are used."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "bayesin"

# The pipeline. A part may import from itself and from what stands before it.
ORDER = (
    "errors",
    "trees",
    "randomness",
    "inputs",
    "jaxprs",
    "locks",
    "files",
    "file_arrays",
    "json_files",
    "file_sets",
    "likelihoods",
    "data",
    "models",
    "symmetry",
    "posteriors",
    "matching",
    "store",
    "inference",
    "paths",
    "rescaling",
    "merging",
    "evaluation",
    "compact",
    "lab",
    "cli",
)
LAZY = ("tyro", "lap", "lapx", "blackjax", "plotly", "matplotlib", "ray", "sklearn", "requests", "huggingface_hub")


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> list[tuple[int, tuple[str, ...], str]]:
    """(line, module below the package, name or "") of every import of the package's own, at the top or inside."""
    inside = path.relative_to(PACKAGE).parts
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules = [(alias.name.split("."), "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = ["bayesin", *inside[: len(inside) - node.level]] if node.level else []  # the folder the dots mean
            module = [*above, *(node.module.split(".") if node.module else [])]
            modules = [(module, alias.name) for alias in node.names]
        else:
            continue
        for module, name in modules:
            if module[0] == "bayesin":
                found.append((node.lineno, tuple(module[1:]), name))
    return found


def imported_parts(path: Path) -> list[tuple[int, str]]:
    """(line, part) of every import of the package's own."""
    return sorted({(line, (*module, name)[0]) for line, module, name in imports(path) if (*module, name)[0]})


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


def room_of(module: tuple[str, ...]) -> tuple[str, ...]:
    """The folder or file of the package that a module belongs to; the laboratory is a house of several rooms."""
    return module[: 2 if module[0] == "lab" else 1]


def test_no_folder_reaches_into_the_inner_modules_of_another():
    """What others need is exported by the folder, so that its files can be rearranged behind it."""
    reaching = set()
    for path in modules():
        here = path.relative_to(PACKAGE)
        for _, module, name in imports(path):
            if (PACKAGE / Path(*module, f"{name}.py")).is_file() or (PACKAGE / Path(*module, name)).is_dir():
                module = (*module, name)  # `from ..evaluation import metrics` names a module
            room = room_of(module) if module else ()
            if len(module) <= len(room) or room == room_of(here.with_suffix("").parts):
                continue
            exported = (PACKAGE / Path(*room) / "__init__.py").read_text()
            if f"import {module[len(room)]} as {module[len(room)]}" not in exported:
                reaching.add((here.as_posix(), ".".join(module)))
    assert not reaching, "\n".join(f"{file} reaches into {module}" for file, module in reaching)


def test_every_file_that_the_architecture_names_is_there():
    page = (PACKAGE.parents[1] / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"`([\w/]+\.py)`", page))
    files = [f"/{path.relative_to(PACKAGE.parents[1])}" for path in (*modules(), Path(__file__))]
    assert len(named) > 50
    assert [name for name in named if not any(file.endswith(f"/{name}") for file in files)] == []


def test_the_library_knows_neither_the_laboratory_nor_the_command_line():
    code = "import bayesin, sys; print([m for m in sys.modules if m.startswith(('bayesin.lab', 'bayesin.cli'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stderr


def test_the_walk_sees_every_form_of_import(tmp_path, monkeypatch):
    """The test tests itself: relative and absolute, at the top and inside a function."""
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)
    file = tmp_path / "data" / "deep" / "module.py"
    file.parent.mkdir(parents=True)
    file.write_text(
        "from ...cli.main import main\nfrom ..npz import read\nfrom . import sibling\nimport bayesin.lab.page\n"
        "from bayesin import store\nfrom bayesin.models import Model\nimport numpy\n"
        "def later():\n    from ... import compact\n    from ...errors import DataError\n"
    )
    parts = [part for _, part in imported_parts(file)]
    assert sorted(parts) == sorted(["cli", "data", "data", "lab", "store", "models", "compact", "errors"])


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
