"""The page of a reproduction: what was found in a line, the figure, the verdicts, then what was run."""

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...files import read_bytes
from ..report import publish
from .catalogue import find

DRAWN = "Drawn from the numbers in the file below."
VERDICTS = ("confirmed", "partly", "not confirmed", "not decided", "not judged", "not measured")


Panels = Sequence[Mapping[str, Any]]


def write_page_of(
    out: Path, result: Mapping[str, Any], figures: Sequence[Path], panels: Panels | None = None
) -> Path:
    """Writes `report.json` and `report.html` beside the numbers and the figure, where one was drawn."""
    files = {f"{result['name']}.json": "all numbers"} | {path.name: "the figure" for path in figures}
    svg = next((read_bytes(path) for path in figures if path.suffix == ".svg"), None)
    return publish(out, report_of(result, svg, panels), files)


def report_of(result: Mapping[str, Any], svg: bytes | None, panels: Panels | None = None) -> dict[str, Any]:
    """The report of a reproduction, with its figure where there is one: as panels, or else as a picture."""
    name, devices = str(result["name"]), ", ".join(result["devices"]) or "this machine"
    return {
        "title": f"{name}: {found_in_words(result['findings'])}",
        "name": f"{name}, {result['scale']}",
        "lead": [
            f"The claim: {result['claim']}.",
            f"{result['source']}. Scale: {result['scale']}, on {devices}.",
        ],
        "summary": [],  # the title has counted the verdicts
        "claims": [dict(finding) for finding in result["findings"]],
        "panels": {"says": DRAWN, "panels": panels} if panels else {},
        "pictures": [] if svg is None or panels else [_picture(result, svg)],
        "tables": _tables(result),
        "run": {
            "config": {"name": name, "scale": result["scale"], "tasks": len(result["records"])}
            | {"compute": f"{result['compute_seconds'] / 60:.1f} minutes"},
            "provenance": dict(result["provenance"]),
        },
    }


def found_in_words(findings: Sequence[Mapping[str, str]]) -> str:
    """What became of the claims, in a few words.

    Example:
        >>> found_in_words([{"verdict": "confirmed"}, {"verdict": "partly"}, {"verdict": "confirmed"}])
        '2 of 3 claims confirmed, 1 partly'
        >>> found_in_words([{"verdict": "not judged"}, {"verdict": "not judged"}])
        '2 claims, none judged'
        >>> found_in_words([{"verdict": "not confirmed"}])
        'the claim is not confirmed'
    """
    counts = Counter(finding["verdict"] for finding in findings)
    if len(findings) == 1:
        return f"the claim is {findings[0]['verdict']}" + (" confirmed" if counts["partly"] else "")
    if len(counts) == 1 and not counts["confirmed"]:
        (verdict,) = counts
        return f"{len(findings)} claims, " + verdict.replace("not", "none", 1).replace(
            "partly", "all partly confirmed"
        )
    others = [f"{counts[verdict]} {verdict}" for verdict in VERDICTS[1:] if counts[verdict]]
    return ", ".join([f"{counts['confirmed'] or 'none'} of {len(findings)} claims confirmed", *others])


def _picture(result: Mapping[str, Any], svg: bytes) -> dict[str, str]:
    return {
        "title": str(result["source"]),
        "image": "data:image/svg+xml;base64," + base64.b64encode(svg).decode(),
        "label": str(result["claim"]),
        "says": DRAWN,
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
