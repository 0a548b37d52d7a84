"""The file of a reproduction: read and checked, judged, drawn, and written with its figure and page.

NAME.json                  findings, numbers of every task, choices, provenance: all else is made from this file alone
NAME.png, .svg, .pdf       the figure
report.json, report.html   both as a page
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...errors import ArtifactError, BayesinError, ConfigError
from ...file_sets import replaced_together
from ...files import write_bytes
from ...json_files import expect, json_text, read_json
from ..report import FORMATS, panels_of, save, style
from . import drawing
from .catalogue import find
from .reproduction import SCALES, Finding, Record, Reproduction
from .reproduction_page import write_page_of

FORMAT = "bayesin-reproduction"
SCHEMA: Any = {
    "format": FORMAT,
    "version": 1,
    "name": str,
    "scale": str,
    "devices": [str],
    "provenance": dict,
    "compute_seconds": float,
    "remarks?": list,
    "records": [
        {"name": str, "title": str, "settings": {"kind": str}, "state": str, "error": str | None, "numbers": object}
    ],
}
DAMAGE = (LookupError, TypeError, ValueError, AttributeError)  # what numbers of another shape end in


def read_reproduction(path: Path | str) -> dict[str, Any]:
    """Reads what `reproduce` wrote.

    Raises:
        ArtifactError: it is something else, or something is missing.
    """
    result: Any = read_json(path)
    check_result(result, str(path))
    return result


def judged(result: Mapping[str, Any]) -> dict[str, Any]:
    """The result with a verdict on each claim, from its records as they are now.

    Raises:
        ArtifactError: `result` is not what `reproduce` writes.
    """
    check_result(result, "this result")
    reproduction = find(str(result["name"]))
    records = result["records"]
    try:
        findings = reproduction.judge(records)
    except DAMAGE:
        records = _without_damage(reproduction, records)
        with _damage_in_one_line(result):
            findings = reproduction.judge(records)
    if result["scale"] == "smoke":
        findings = [_unjudged(finding) for finding in findings]
    if missing := [record for record in records if record["state"] != "done"]:
        findings.append(_missing(missing, len(records)))
    head = {name: value for name, value in result.items() if name != "records"}
    head |= description(reproduction, str(result["scale"]))
    return head | {"findings": [finding.to_json() for finding in findings], "records": records}


@style()
def draw(result: Mapping[str, Any], stem: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Draws a figure from saved numbers."""
    return save(_figure(result), stem, formats)


def _figure(result: Mapping[str, Any]) -> Any:
    from matplotlib.figure import Figure

    reproduction = find(str(result["name"]))
    figure = Figure(figsize=reproduction.size, layout="constrained")
    reproduction.draw(figure, result["records"])
    drawing.failures(figure, result["records"])
    return figure


@style()
def _drawn(result: Mapping[str, Any], stem: Path) -> tuple[list[Path], list[dict[str, Any]] | None]:
    """The files of a figure, and its panels for the page, from one drawing."""
    figure = _figure(result)
    return save(figure, stem), panels_of(figure)


def write_reproduction(result: Mapping[str, Any], out: Path, *, source: Path | None = None) -> dict[str, Any]:
    """Judges and draws saved numbers, and writes file, figure and page.

    Numbers come first: a figure can be drawn again. Without matplotlib there is none, and a warning says so.

    Args:
        result: what `reproduce` writes.
        out: where everything goes.
        source: the file that `result` was read from, which is left as it is.

    Raises:
        ArtifactError: `result` is not what `reproduce` writes.
    """
    result = judged(result)
    name = str(result["name"])
    is_source = source is not None and (out / f"{name}.json").resolve() == source.resolve()
    gone = ("report.json", "report.html", *(f"{name}.{ending}" for ending in FORMATS))
    with replaced_together(out, gone=gone) as place, _damage_in_one_line(result):
        numbers = write_bytes(place / f"{name}.json", as_text(result).encode())
        figures: list[Path] = []
        panels = None
        if find_spec("matplotlib") is None:
            warnings.warn("no figure is drawn: pip install matplotlib", stacklevel=2)
        else:
            figures, panels = _drawn(result, place / name)
        write_page_of(place, result, figures, panels)
        if is_source:
            numbers.unlink()
    return result


def as_text(result: Mapping[str, Any]) -> str:
    """JSON with a line for each record: readable by people, a third of the size of one line for each number."""
    head = {name: value for name, value in result.items() if name != "records"}
    lines = ",\n    ".join(json_text(record) for record in result["records"])
    text = json_text(head, indent=2).removesuffix("\n}")
    return f'{text},\n  "records": [\n    {lines}\n  ]\n}}\n'


def description(reproduction: Reproduction, scale: str) -> dict[str, Any]:
    """What the catalogue says of a figure; its choices are those of the papers' sizes."""
    sizes = "" if scale == "paper" else "at the papers' sizes: "
    choices = [f"{sizes}{choice}" for choice in reproduction.choices]
    return {"source": reproduction.source, "claim": reproduction.claim, "choices": choices}


def check_result(result: Any, where: str) -> None:
    """Raises `ArtifactError` unless the value is what `reproduce` writes, but for the numbers of its tasks."""
    expect(result, SCHEMA, where)
    try:
        find(result["name"])
    except ConfigError as error:
        raise ArtifactError(f"{where}: {error}") from None
    if result["scale"] not in SCALES:
        raise ArtifactError(f"{where}: 'scale' must be one of {', '.join(SCALES)}")
    if not result["records"]:
        raise ArtifactError(f"{where} holds no record of a task; 'bayesin reproduce {result['name']}' makes them")


def _unjudged(finding: Finding) -> Finding:
    """The smallest scale shows the steps: its networks are too small to say anything of a claim."""
    if finding.verdict == "not measured":
        return finding
    return replace(finding, verdict="not judged", reason="not judged at this scale")


def _missing(missing: Sequence[Record], count: int) -> Finding:
    first = missing[0]
    more = f"; and {len(missing) - 1} more" if len(missing) > 1 else ""
    why = f"{first['title']}: {first['error'] or first['state']}{more}"
    return Finding("every task was done", "–", f"{len(missing)} of {count} were not", "not measured", why)


def _without_damage(reproduction: Reproduction, records: Sequence[Record]) -> Sequence[Record]:
    """The records; those whose numbers cannot be judged count as failed, so that they do not hide the others."""

    def checked(record: Record) -> Record:
        try:
            reproduction.judge([record])
        except DAMAGE as error:
            mend = f"remove its folder '{record['name']}' from the runs to do it again"
            why = f"its numbers are damaged ({type(error).__name__}: {error}); {mend}"
            return {**record, "state": "failed", "error": why}
        return record

    return [checked(record) for record in records]


@contextmanager
def _damage_in_one_line(result: Mapping[str, Any]) -> Iterator[None]:
    """Numbers of another shape than the figure needs are a damaged file, not a fault of the program."""
    try:
        yield
    except BayesinError:
        raise
    except DAMAGE as error:
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ArtifactError(f"the numbers of '{result['name']}' are damaged: {what}") from error
