"""One self-contained HTML page from saved numbers.

The page holds plotly's script, its own style and script, and the numbers as JSON; it works from a file,
without network. Names in the numbers may come from anywhere, so they are treated as text throughout: JSON
is escaped so that it cannot leave its element, the script builds elements without parsing HTML, and a
content security policy allows exactly the three scripts below and no connection at all.
"""

import base64
import hashlib
import html
import importlib.util
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ...errors import ArtifactError, ConfigError, first_line
from ...files import write_bytes
from ...json_files import json_text
from .document import check_report, read_report, write_report

SCRIPTS = (
    "core",
    "summary",
    "barrier",
    "walk",
    "plane",
    "alignment",
    "graph",
    "compact",
    "evaluation",
    "posterior",
    "claims",
    "panels",
    "pictures",
    "run",
    "main",
)


def write_page(path: Path | str, folders: Sequence[Path | str]) -> Path:
    """Writes the page of one or several runs: folders that hold a `report.json`, or files of `bayesin barrier`.

    Args:
        path: where the page goes; links to the files of the runs are relative to it.
        folders: the runs; with several, the page has a chooser and a comparison.

    Raises:
        ArtifactError: a `report.json` is missing, damaged or not a report.
    """
    if not folders:
        raise ConfigError("a page needs at least one run folder")
    runs = []
    for folder in map(Path, folders):
        report = dict(read_report(folder))
        files = report.get("files") or []
        if folder.is_file():
            folder, files = folder.parent, [{"name": folder.name, "says": "the numbers of this page"}]
        report["files"] = [_link(entry, folder, Path(path)) for entry in files]
        report.setdefault("name", folder.resolve().name)
        runs.append(report)
    return write_bytes(path, render(runs).encode())


def publish(folder: Path | str, report: Mapping[str, Any], files: Mapping[str, str]) -> Path:
    """Writes `report.json` and `report.html` into a folder; returns the page, or the first where plotly is missing.

    Args:
        folder: where they go.
        report: the sections.
        files: files of the folder that the page links to, with a word on each.
    """
    write_numbers(folder, report, files)
    return page_of(folder)


def write_numbers(folder: Path | str, report: Mapping[str, Any], files: Mapping[str, str]) -> Path:
    """Writes `report.json` alone, from which `page_of` makes the page whenever it is wanted."""
    linked = [{"name": name, "bytes": 0, "says": says} for name, says in files.items()]
    return write_report(Path(folder), {**report, "files": linked})


def page_of(folder: Path | str) -> Path:
    """Writes `report.html` from the `report.json` beside it; returns the latter where plotly is missing."""
    folder = Path(folder)
    if importlib.util.find_spec("plotly") is None:
        return folder / "report.json"
    return write_page(folder / "report.html", [folder])


def render(reports: Sequence[Mapping[str, Any]]) -> str:
    """Returns the page of these reports as text; it depends on nothing but them and the assets."""
    from plotly.offline import get_plotlyjs

    from ... import __version__

    for report in reports:
        check_report(report)
    theme = _asset("theme.js")
    script = "(function () {\n'use strict';\n" + "\n".join(_asset(f"{name}.js") for name in SCRIPTS) + "\n})();"
    with _whole_installation("plotly"):
        plotly = get_plotlyjs().replace("\r\n", "\n").replace("</script", "<\\/script")
    parts = {
        "title": html.escape(str(reports[0].get("title", "bayesin report"))),
        "version": html.escape(__version__),
        "policy": html.escape(_policy([theme, plotly, script])),
        "style": _asset("page.css"),
        "theme": theme,
        "data": _embed({"runs": [{name: part for name, part in report.items() if part} for report in reports]}),
        "plotly": plotly,
        "script": script,
    }
    # One pass: braces inside a value are not looked at again.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _asset("page.html"))


def _asset(name: str) -> str:
    with _whole_installation("bayesin"):
        return resources.files("bayesin.lab.report").joinpath("assets", name).read_text(encoding="utf-8")


@contextmanager
def _whole_installation(package: str) -> Iterator[None]:
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        raise ArtifactError(
            f"no page can be made: the installation of {package} is not whole ({first_line(error)}); install it again"
        ) from error


def _embed(value: Any) -> str:
    """JSON that stays JSON inside a script element: no `<`, `>` or `&` survives."""
    text = json_text(value, compact=True)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _policy(scripts: list[str]) -> str:
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    # Plotly adds a style element, and its drawings are data and blob images.
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _is_file_inside(file: Path, folder: Path) -> bool:
    try:
        return file.resolve().is_relative_to(folder.resolve()) and file.is_file()
    except (OSError, ValueError, RuntimeError):  # a name that no file has: too long, with a NUL, a link to itself
        return False


def _link(entry: Mapping[str, Any], folder: Path, page: Path) -> dict[str, Any]:
    """The file's entry with a relative address, or none where it lies outside the run folder or is gone."""
    name = str(entry.get("name", ""))
    file = folder / name
    if not name or not _is_file_inside(file, folder):
        return {**entry, "name": name, "bytes": int(entry.get("bytes") or 0), "href": None}
    relative = os.path.relpath(file.resolve(), page.resolve().parent)
    prefix = "" if relative.startswith("..") else "./"
    return {**entry, "name": name, "bytes": file.stat().st_size, "href": prefix + quote(Path(relative).as_posix())}
