"""The page of a reproduction: verdicts first, then the figure, then what was run."""

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..files import read_bytes
from ..report.page import publish
from ..report.words import card
from .catalogue import find

VERDICTS = ("confirmed", "partly", "not confirmed", "not measured")


def write_report_of(out: Path, result: Mapping[str, Any], figures: Sequence[Path]) -> Path:
    """Writes `report.json` and `report.html` beside the numbers and the figure, where one was drawn."""
    files = {f"{result['name']}.json": "all numbers"} | {path.name: "the figure" for path in figures}
    svg = next((read_bytes(path) for path in figures if path.suffix == ".svg"), None)
    return publish(out, report_of(result, svg), files)


def report_of(result: Mapping[str, Any], svg: bytes | None) -> dict[str, Any]:
    """The report of a reproduction, with its figure where there is one."""
    name, findings = str(result["name"]), result["findings"]
    tables = []
    open_ones = [one for one in result["records"] if one["state"] != "done"]
    if open_ones:
        listed = [[one["title"], one["state"], one["error"] or ""] for one in open_ones]
        tables.append({"title": "Not done", "columns": ["task", "state", "error"], "rows": listed})
    shown = find(name).table
    if shown is not None and (found := shown(result["records"])):
        says = "The paper's number, where it has one, is in brackets."
        tables.append({"title": "All numbers", "columns": found[0], "rows": found[1:], "says": says})
    if result["choices"]:
        chosen = [[choice] for choice in result["choices"]]
        tables.append({"title": "Our choices", "columns": ["where the papers are silent"], "rows": chosen})
    if result.get("remarks"):
        said = [[remark] for remark in result["remarks"]]
        tables.append({"title": "Remarks", "columns": ["how it was measured"], "rows": said})
    return {
        "title": f"{name}: {result['claim']}",
        "name": f"{name}, {result['scale']}",
        "lead": [
            f"{result['source']}. Scale: {result['scale']}, on {', '.join(result['devices']) or 'this machine'}."
        ],
        "summary": _summary(findings),
        "claims": [dict(one) for one in findings],
        "pictures": [] if svg is None else [_picture(result, svg)],
        "tables": tables,
        "run": {
            "config": {"name": name, "scale": result["scale"], "tasks": len(result["records"])}
            | {"compute": f"{result['compute_seconds'] / 60:.1f} minutes"},
            "provenance": dict(result["provenance"]),
        },
    }


def _picture(result: Mapping[str, Any], svg: bytes) -> dict[str, str]:
    return {
        "title": str(result["source"]),
        "image": "data:image/svg+xml;base64," + base64.b64encode(svg).decode(),
        "label": str(result["claim"]),
        "says": "Drawn from the numbers in the file below.",
    }


def _summary(findings: list[Mapping[str, str]]) -> list[dict[str, str]]:
    counts = Counter(one["verdict"] for one in findings)
    return [
        card(verdict.capitalize(), str(counts[verdict]), "claim" if counts[verdict] == 1 else "claims")
        for verdict in VERDICTS
        if counts[verdict]
    ]
