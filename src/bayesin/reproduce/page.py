"""The page of a reproduction: verdicts first, then the figure, then what was run."""

import base64
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..files import read_bytes, write_json
from ..report.page import write_page
from .catalogue import find

TONES = {"confirmed": "good", "partly": "neutral", "not confirmed": "bad", "not measured": "neutral"}


def write_report(out: Path, result: Mapping[str, Any]) -> Path:
    """Writes `report.json` and `report.html` beside figure and numbers; where plotly is missing, the first alone."""
    written = write_json(out / "report.json", report_of(result, read_bytes(out / f"{result['name']}.svg")))
    if importlib.util.find_spec("plotly") is None:
        return written
    return write_page(out / "report.html", [out])


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
    files = [(f"{name}.json", "all numbers"), *((f"{name}.{kind}", "the figure") for kind in ("svg", "pdf", "png"))]
    return {
        "format": "bayesin-report",
        "version": 1,
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
        "files": [{"name": file, "says": says} for file, says in files],
    }


def _summary(findings: list[Mapping[str, str]]) -> list[dict[str, str]]:
    counts: dict[str, int] = {}
    for one in findings:
        counts[one["verdict"]] = counts.get(one["verdict"], 0) + 1
    return [
        {
            "label": verdict.capitalize(),
            "value": str(counts[verdict]),
            "unit": "claim" if counts[verdict] == 1 else "claims",
            "tone": tone,
        }
        for verdict, tone in TONES.items()
        if verdict in counts
    ]
