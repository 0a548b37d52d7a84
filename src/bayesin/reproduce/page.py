"""The page of a reproduction: verdicts first, then the figure, then what was run."""

import base64
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..files import read_bytes
from ..report.figures import FORMATS
from ..report.page import publish
from ..report.words import card
from .catalogue import find

VERDICTS = ("confirmed", "partly", "not confirmed", "not measured")


def write_report_of(out: Path, result: Mapping[str, Any]) -> Path:
    """Writes `report.json` and `report.html` beside figure and numbers."""
    name = str(result["name"])
    files = {f"{name}.json": "all numbers"} | {f"{name}.{kind}": "the figure" for kind in FORMATS}
    return publish(out, report_of(result, read_bytes(out / f"{name}.svg")), files)


def report_of(result: Mapping[str, Any], svg: bytes) -> dict[str, Any]:
    """The report of a reproduction."""
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
        "pictures": [
            {
                "title": str(result["source"]),
                "image": "data:image/svg+xml;base64," + base64.b64encode(svg).decode(),
                "label": str(result["claim"]),
                "says": "Drawn from the numbers in the file below.",
            }
        ],
        "tables": tables,
        "run": {
            "config": {"name": name, "scale": result["scale"], "tasks": len(result["records"])}
            | {"compute": f"{result['compute_seconds'] / 60:.1f} minutes"},
            "provenance": dict(result["provenance"]),
        },
    }


def _summary(findings: list[Mapping[str, str]]) -> list[dict[str, str]]:
    counts = Counter(one["verdict"] for one in findings)
    return [
        card(verdict.capitalize(), str(counts[verdict]), "claim" if counts[verdict] == 1 else "claims")
        for verdict in VERDICTS
        if counts[verdict]
    ]
