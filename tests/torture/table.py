"""Writes the tables of `docs/reliability.md` from what a run found: `python -m torture.table torture.json soak.json`.

So the page says of one commit what was tried on it, in the numbers of that run.
"""

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
CALL = "a failing call of "
# Rows of these beginnings are one row of the page, which says how many kinds they are of.
TOGETHER = {
    CALL: "calls that fail, one by one, of {} verbs",
    "bad file: ": "bad files, {} kinds",
    "bad file, guided: ": "bad files that follow the branches of {} readers",
    "edited JSON: ": "JSON edited by type, {} kinds of files",
    "flipped bit: ": "flipped bits, {} kinds of files with a checksum",
    "red team ": "red team: {} attacks by fresh commands",
}


def write(paths: Iterable[Path], page: Path = PAGE) -> None:
    """Puts the tables of these runs where the marks of the page say."""
    text = page.read_text()
    runs = [json.loads(path.read_text()) for path in paths]
    for name, lines in {"tried": tried(runs), "calls": calls(runs)}.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
        if len(pattern.findall(text)) != 1:
            raise SystemExit(f"{page} has no place for '{name}', or more than one")
        text = pattern.sub(lambda _, lines=lines, b=begin, e=end: b + "\n".join(lines) + "\n" + e, text)
    page.write_text(text)


def tried(runs: list[dict[str, Any]]) -> list[str]:
    """Faults, tries and losses, with what each took; the calls are one row."""
    lines = [f"- {_about(run)}" for run in runs]
    lines += ["", "| fault | tries | survived | lost | what else was seen |", "|---|---:|---:|---:|---|"]
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in (row for run in runs for row in run["rows"]):
        name = next((words for begin, words in TOGETHER.items() if row["fault"].startswith(begin)), row["fault"])
        rows.setdefault(name, []).append(row)
    for name, found in rows.items():
        skipped = f"skipped: {found[0]['skipped']}" if found[0]["skipped"] else ""
        note = (found[0]["note"] or skipped) if len(found) == 1 else skipped
        lines.append(_line([name.format(len(found)), *_counts(found), note]))
    return [*lines, _line(["**together**", *_counts([row for run in runs for row in run["rows"]]), ""])]


def calls(runs: list[dict[str, Any]]) -> list[str]:
    """The calls of every verb, and what came of their failing."""
    lines = ["| a failing call of | calls | of them | tries | survived | lost |", "|---|---:|---|---:|---:|---:|"]
    found = [row for run in runs for row in run["rows"] if row["fault"].startswith(CALL)]
    total = 0
    for row in found:
        number, _, rest = row["note"].partition(" calls; ")
        share = re.match(r"one in \d+", rest)
        total += int(number or 0)
        lines.append(
            _line(
                [
                    f"`{row['fault'].removeprefix(CALL)}`",
                    number or "0",
                    share[0] if share else "every",
                    *_counts([row]),
                ]
            )
        )
    return [*lines, _line(["**together**", f"{total:,}", "", *_counts(found)])]


def _about(run: dict[str, Any]) -> str:
    spent = {row["group"]: row["cpu"] for row in run["rows"]}  # the rows of one fault have one clock
    what = ", ".join(dict.fromkeys(group.partition(" ")[0] for group in spent))
    share = "" if run["count"] == 100 else f", {run['count']} per cent of the usual tries"
    when = run["began"].replace("T", " ").removesuffix("+00:00")
    return (
        f"commit {run['commit']}, {when} UTC{share}: {run['minutes']} minutes on {run['cores']} cores at load "
        f"{run['load']}, {run['jobs']} faults at once, {sum(spent.values()) / 60:.0f} minutes of computing ({what})"
    )


def _counts(rows: list[dict[str, Any]]) -> list[str]:
    return [f"{sum(row[name] for row in rows):,}" for name in ("tries", "survived", "lost")]


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


if __name__ == "__main__":
    write(map(Path, sys.argv[1:]))
