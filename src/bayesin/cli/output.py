"""What a verb may say: tables and lines for people, one JSON object for machines, bars for both to ignore."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column, Table


class Output:
    """People read standard output, machines too (`--json`); bars and warnings go to standard error."""

    def __init__(self, *, as_json: bool = False, quiet: bool = False):
        self.as_json, self.quiet = as_json, quiet
        self.console = Console(quiet=as_json or quiet, highlight=False)
        self.errors = Console(stderr=True, highlight=False, soft_wrap=True)

    def line(self, text: str = "") -> None:
        """Prints one line, unless quiet or in JSON."""
        self.console.print(text, soft_wrap=True)

    def warn(self, text: str) -> None:
        """Prints one line to standard error, always."""
        self.errors.print(f"[yellow]warning:[/] {text}")

    def table(self, title: str, columns: list[str], rows: list[list[Any]]) -> None:
        """Prints a table; the first column is left-aligned, numbers in the others to the right."""
        table = Table(title=title or None, title_justify="left", title_style="bold", header_style="bold")
        for index, column in enumerate(columns):
            numeric = index > 0 and all(_is_number(row[index]) for row in rows)
            table.add_column(column, justify="right" if numeric else "left", overflow="fold")
        for row in rows:
            table.add_row(*[str(cell) for cell in row])
        self.console.print(table)

    @contextmanager
    def progress(self, label: str, total: float | None) -> Iterator["Bar"]:
        """A bar with time left on standard error; silent where that is no terminal, or when quiet."""
        shown = not self.quiet and self.errors.is_terminal
        columns = (
            TextColumn("{task.description}", table_column=Column(no_wrap=True)),
            BarColumn(bar_width=16),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TimeElapsedColumn(table_column=Column(no_wrap=True)),
            TextColumn("left", table_column=Column(no_wrap=True)),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            # In a narrow terminal the note is cut, never the time.
            TextColumn("{task.fields[note]}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
        )
        with Progress(*columns, console=self.errors, disable=not shown, transient=True, expand=True) as progress:
            yield Bar(progress, progress.add_task(label, total=total, note=""))

    def result(self, value: Any) -> None:
        """Prints the verb's result as JSON when asked for."""
        if self.as_json:
            import json

            sys.stdout.write(json.dumps(value, indent=2, default=_plain) + "\n")


class Bar:
    """One running bar: where it stands, and a short note beside it."""

    def __init__(self, progress: Progress, task: Any):
        self._progress, self._task = progress, task

    def update(self, completed: float, note: str = "", total: float | None = None) -> None:
        self._progress.update(self._task, completed=completed, note=note, total=total)


def _is_number(cell: Any) -> bool:
    text = str(cell).strip().split(" ")[0].replace(",", "").rstrip("%×s")
    try:
        float(text)
    except ValueError:
        return text in {"", "–", "-"}
    return True


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    return str(value)
