"""The page of a reproduction: verdicts first, then the figure, then what was run."""

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...files import read_bytes
from ..report import card, publish
from .catalogue import find

VERDICTS = ("confirmed", "partly", "not confirmed", "not decided", "not measured")


def write_page_of(out: Path, result: Mapping[str, Any], figures: Sequence[Path]) -> Path:
    """Writes `report.json` and `report.html` beside the numbers and the figure, where one was drawn."""
    files = {f"{result['name']}.json": "all numbers"} | {path.name: "the figure" for path in figures}
    svg = next((read_bytes(path) for path in figures if path.suffix == ".svg"), None)
    return publish(out, report_of(result, svg), files)


def report_of(result: Mapping[str, Any], svg: bytes | None) -> dict[str, Any]:
    """The report of a reproduction, with its figure where there is one."""
    name, devices = str(result["name"]), ", ".join(result["devices"]) or "this machine"
    return {
        "title": f"{name}: {result['claim']}",
        "name": f"{name}, {result['scale']}",
        "lead": [f"{result['source']}. Scale: {result['scale']}, on {devices}."],
        "summary": _summary(result["findings"]),
        "claims": [dict(finding) for finding in result["findings"]],
        "pictures": [] if svg is None else [_picture(result, svg)],
        "tables": _tables(result),
        "run": {
            "config": {"name": name, "scale": result["scale"], "tasks": len(result["records"])}
            | {"compute": f"{result['compute_seconds'] / 60:.1f} minutes"},
            "provenance": dict(result["provenance"]),
        },
    }


def _summary(findings: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    counts = Counter(finding["verdict"] for finding in findings)
    return [
        card(verdict.capitalize(), str(counts[verdict]), "claim" if counts[verdict] == 1 else "claims")
        for verdict in VERDICTS
        if counts[verdict]
    ]


def _picture(result: Mapping[str, Any], svg: bytes) -> dict[str, str]:
    return {
        "title": str(result["source"]),
        "image": "data:image/svg+xml;base64," + base64.b64encode(svg).decode(),
        "label": str(result["claim"]),
        "says": "Drawn from the numbers in the file below.",
    }


def _tables(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What is not done, all numbers where the figure is a table, choices and remarks; empty ones are left out."""
    records, tables = result["records"], []
    undone = [record for record in records if record["state"] != "done"]
    left = [[record["title"], record["state"], record["error"] or ""] for record in undone]
    if left:
        tables.append({"title": "Not done", "columns": ["task", "state", "error"], "rows": left})
    table = find(str(result["name"])).table
    if table is not None and (rows := table(records)):
        says = "The paper's number, where it has one, is in brackets."
        tables.append({"title": "All numbers", "columns": rows[0], "rows": rows[1:], "says": says})
    for title, column, texts in (
        ("Our choices", "where the papers are silent", result["choices"]),
        ("Remarks", "how it was measured", result.get("remarks")),
    ):
        if texts:
            tables.append({"title": title, "columns": [column], "rows": [[text] for text in texts]})
    return tables
