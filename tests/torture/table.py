"""Keeps what was tried, and writes it into `docs/reliability.md`: `python -m torture.table torture.json soak.json`.

`tried.json` has one row for each fault: that of the newest run given here, with its commit and its day. The tables of
the page are made of these rows and of nothing else.
"""

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .common import dump
from .verbs import INJECTED

KEPT = Path(__file__).with_name("tried.json")
PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
CALL, HOUR = "a failing call of ", "soak: "
# Rows that begin so, of one commit, are one row of the page, which says how many they are.
TOGETHER = {
    "SIGKILL of ": "SIGKILL, of {} verbs",
    "SIGTERM of ": "SIGTERM, of {} verbs",
    "Ctrl-C of ": "Ctrl-C, of {} verbs",
    "bad file: ": "bad files, {} kinds",
    "bad file, guided: ": "bad files that follow the branches of {} readers",
    "edited JSON: ": "JSON edited by type, {} kinds of files",
    "flipped bit: ": "flipped bits, {} kinds of files with a checksum",
    "red team ": "red team: {} attacks by fresh commands",
    "load: ": "load: {} large jobs",
}

Row = dict[str, Any]


def keep(paths: Iterable[Path], kept: Path = KEPT) -> list[Row]:
    """Puts the rows of these runs in place of earlier ones of the same faults."""
    rows = {row["fault"]: row for row in json.loads(kept.read_text())}
    for run in (json.loads(path.read_text()) for path in paths):
        about = {"commit": run["commit"], "day": run["began"][:10]}
        rows |= {row["fault"]: row | about for row in run["rows"]}
    dump(kept, [*rows.values()])
    return [*rows.values()]


def write(rows: list[Row], page: Path = PAGE) -> None:
    """Puts the tables where the marks of the page say."""
    text = page.read_text()
    for name, lines in {"tried": tried(rows), "calls": calls(rows), "hour": hour(rows)}.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
        whole = begin + "\n".join(lines) + "\n" + end
        text, times = pattern.subn(lambda _, whole=whole: whole, text)
        if times != 1:
            raise SystemExit(f"{page} has {times} places for '{name}'")
    page.write_text(text)


def tried(rows: list[Row]) -> list[str]:
    """Faults, tries and losses; the calls and the hour have places of their own."""
    rows = [row for row in rows if not row["fault"].startswith((CALL, HOUR))]
    lines = ["| fault | tries | survived | lost | commit | day |", "|---|---:|---:|---:|---|---|"]
    together: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        name = next((words for begin, words in TOGETHER.items() if row["fault"].startswith(begin)), row["fault"])
        together.setdefault((name, row["commit"], row["day"]), []).append(row)
    for (name, commit, day), found in together.items():
        skipped = f" (skipped: {found[0]['skipped']})" if found[0]["skipped"] else ""
        name = name.format(len(found)) if len(found) > 1 else found[0]["fault"]
        lines.append(_line([name + skipped, *_counts(found), commit, day]))
    return [*lines, _line(["**together**", *_counts(rows), "", ""])]


def calls(rows: list[Row]) -> list[str]:
    """The calls of every verb, and what came of their failing."""
    found = {row["fault"].removeprefix(CALL): row for row in rows if row["fault"].startswith(CALL)}
    lines = ["| a failing call of | calls | of them | tries | survived | lost | commit | day |"]
    lines += ["|---|---:|---|---:|---:|---:|---|---|"]
    total = 0
    for name in [name for name in INJECTED if name in found]:
        row = found[name]
        number, _, rest = row["note"].partition(" calls; ")
        share = re.match(r"one in \d+", rest)
        total += int(number or 0)
        cells = [f"`{name}`", number or "0", share[0] if share else "every", *_counts([row])]
        lines.append(_line([*cells, row["commit"], row["day"]]))
    return [*lines, _line(["**together**", f"{total:,}", "", *_counts([*found.values()]), "", ""])]


def hour(rows: list[Row]) -> list[str]:
    """What the soak said of itself."""
    return [
        f"{row['day']}, commit {row['commit']}: {row['tries']:,} rounds, {row['lost']:,} lost; {row['note']}."
        for row in rows
        if row["fault"].startswith(HOUR)
    ]


def _counts(rows: list[Row]) -> list[str]:
    return [f"{sum(row[name] for row in rows):,}" for name in ("tries", "survived", "lost")]


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


if __name__ == "__main__":
    write(keep(map(Path, sys.argv[1:])))
