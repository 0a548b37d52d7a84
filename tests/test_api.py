"""The pages of the API list every public name, and what is shown to readers imports nothing that it does not list."""

import ast
import doctest
import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

import bayesin

REPOSITORY = Path(__file__).resolve().parents[1]
PAGES = [page.read_text() for page in (REPOSITORY / "docs" / "api").glob("*.md")]
LISTED = set(re.findall(r"auto(?:function|class|module):: ([\w.]+)", "".join(PAGES)))
PROSE = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]


def code_of(path: Path) -> list[str]:
    if path.suffix == ".py":
        return [path.read_text()]
    return re.findall(r"^```python\n(.*?)^```", path.read_text(), re.M | re.S)


def imported(source: str) -> set[str]:
    """Every dotted name of bayesin that code imports from one of its modules."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "bayesin":
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def test_the_page_lists_every_name_of_the_package():
    public = {
        f"bayesin.{name}"
        for name in dir(bayesin)
        if not name.startswith("_") and not isinstance(getattr(bayesin, name), ModuleType)
    }
    assert public <= LISTED, f"docs/api/ does not list {sorted(public - LISTED)}"


def test_type_checkers_see_the_names_that_there_are():
    tree = ast.parse(Path(bayesin.__file__).read_text())
    shown = {
        alias.asname: (node.module or "")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level
        for alias in node.names
    }
    assert shown == bayesin._HOME_OF  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("name", sorted(LISTED))
def test_every_listed_name_exists_says_what_it_is_and_has_an_example(name):
    module, _, attribute = name.rpartition(".")
    try:
        value = getattr(importlib.import_module(module), attribute, None) or importlib.import_module(name)
    except ModuleNotFoundError:  # bayesin.costs is a name of the package, and a module of its own
        value = getattr(getattr(bayesin, module.rpartition(".")[2]), attribute)
    assert value.__doc__ and value.__doc__.strip()
    examples = doctest.DocTestParser().get_examples(value.__doc__)  # which run as tests: see pyproject.toml
    assert examples and not any(doctest.SKIP in one.options for one in examples), "its docstring needs an example"


@pytest.mark.parametrize(
    "path", [*sorted((REPOSITORY / "examples").glob("*.py")), *PROSE], ids=lambda path: path.name
)
def test_nothing_that_is_shown_imports_what_is_not_listed(path):
    modules = {"bayesin.data", "bayesin.models", "bayesin.costs", "bayesin.evaluation.metrics"}
    unlisted = set().union(*map(imported, code_of(path))) - modules - LISTED
    assert not unlisted, f"{path.name} imports {sorted(unlisted)}"
