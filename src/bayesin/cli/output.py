"""What a verb may say: tables and lines for people, one JSON object for machines, progress bars for a terminal.

Names come from files, and what is no printable character could drive the terminal. All that is printed passes
through `printable` here, and is text: nothing in it is taken for markup.

Whatever becomes of the streams, the work goes on: characters that their encoding does not have are written in ASCII,
and where standard output is closed or full the rest is left unsaid, and the end says why.
"""

import codecs
import io
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from importlib.util import find_spec
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column, Table
from rich.text import Text

from ..json_files import json_text

LONG_UNITS, SHORT_UNITS = ("seconds", "minutes", "hours"), ("s", "min", "h")
DRAWN_WITH = ("plotly", "matplotlib")
SILENCE = 60.0  # seconds between two lines about a bar that nobody sees
IN_ASCII = {
    "τ": "tau",
    "±": "+/-",
    "×": "x",
    "–": "-",
    "−": "-",
    "…": "...",
    "→": "->",
    "²": "^2",
    "¹": "^1",
    "½": "1/2",
}


class Output:
    """People read standard output, machines too (`--json`); bars, warnings and errors go to standard error."""

    def __init__(self, *, as_json: bool = False, quiet: bool = False):
        self.as_json, self.quiet = as_json, quiet
        self.trouble: OSError | None = None  # the first with standard output, which nothing is written to any more
        take_any_text()
        self.console = Console(quiet=as_json or quiet, highlight=False)
        self.errors = Console(stderr=True, highlight=False, soft_wrap=True)

    def line(self, text: str) -> None:
        """Prints one line, unless quiet or in JSON."""
        self._print(Text(printable(text)), soft_wrap=True)

    def warn(self, text: str) -> None:
        """Prints one line to standard error, always."""
        self._print_error(Text.assemble(("warning: ", "yellow"), printable(text)))

    def log(self, text: str) -> None:
        """Prints one line with the time to standard error where no terminal shows a bar, as in a job on a cluster."""
        if not self.quiet and not self.as_json and not self.errors.is_terminal:
            self._print_error(Text(f"{datetime.now():%H:%M:%S} {printable(text)}"))

    def fail(self, text: str) -> None:
        """Prints the one line with which a verb that failed ends."""
        self._print_error(Text.assemble(("bayesin: ", "bold red"), printable(text)))

    def table(
        self, title: str, columns: list[str], rows: list[list[Any]], styles: dict[str, str] | None = None
    ) -> None:
        """Prints a table; words that are in `styles` are coloured, and columns of numbers stand to the right."""
        table = Table(
            title=Text(printable(title)) if title else None,
            title_justify="left",
            title_style="bold",
            header_style="bold",
        )
        for index, column in enumerate(columns):
            numeric = index > 0 and all(_is_number(row[index]) for row in rows)
            table.add_column(column, justify="right" if numeric else "left", overflow="fold")
        for row in rows:
            table.add_row(*[Text(printable(str(cell)), (styles or {}).get(str(cell), "")) for cell in row])
        self._print(table)

    @contextmanager
    def progress(self, label: str, total: float | None) -> Iterator["Bar"]:
        """A bar with time left on standard error; where that is no terminal a line a minute; nothing when quiet."""
        shown = not self.quiet and self.errors.is_terminal
        columns = (
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
            BarColumn(bar_width=16),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TimeElapsedColumn(table_column=Column(no_wrap=True)),
            TextColumn("left", table_column=Column(no_wrap=True)),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            # In a narrow terminal the note is cut, never the time.
            TextColumn(
                "{task.fields[note]}",
                markup=False,
                table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1),
            ),
        )
        with Progress(*columns, console=self.errors, disable=not shown, transient=True, expand=True) as progress:
            yield Bar(progress, progress.add_task(printable(label), total=total, note=""), self.log)

    def result(self, value: Any) -> None:
        """Prints the verb's result as JSON when asked for."""
        if self.as_json:
            self._to_stdout(lambda: sys.stdout.write(json_text(value, indent=2, ascii=True) + "\n"))

    def finish(self) -> OSError | None:
        """Brings everything out that was printed; returns the trouble there was with standard output, if any."""
        self._to_stdout(lambda: sys.stdout.flush())
        return self.trouble

    def _print(self, *what: Any, **how: Any) -> None:
        self._to_stdout(lambda: self.console.print(*what, **how))

    def _print_error(self, text: Text) -> None:
        with suppress(OSError, ValueError):  # there is nobody left to tell
            self.errors.print(text)

    def _to_stdout(self, write: Callable[[], Any]) -> None:
        if self.trouble is not None or sys.stdout is None:  # a stream that was closed from the start is not missed
            return
        try:
            write()
        except OSError as error:
            self.trouble = error
            with suppress(OSError, ValueError):  # what is left in buffers goes nowhere, instead of failing once more
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def can_draw(self) -> bool:
        """Whether a page can be drawn on this machine; says what to install where not. Numbers never wait for it."""
        missing = [name for name in DRAWN_WITH if find_spec(name) is None]
        if missing:
            self.warn(f"no page is written: pip install {' '.join(missing)}; --no-page says that none is wanted")
        return not missing


class Bar:
    """One running bar: where it stands, and a short note beside it."""

    def __init__(self, progress: Progress, task: TaskID, log: Callable[[str], None]):
        self._progress, self._task, self._log, self._said = progress, task, log, time.monotonic()

    def update(self, completed: float, note: str = "", total: float | None = None) -> None:
        """Moves the bar. In a job on a cluster, whose log is all that one sees of hours of work, a line says so."""
        self._progress.update(self._task, completed=completed, note=printable(note), total=total)
        if time.monotonic() - self._said >= SILENCE:
            task, self._said = self._progress.tasks[self._task], time.monotonic()
            of_how_many = "" if task.total is None else f" of {task.total:,.0f}"
            self._log(f"{task.description}: {completed:,.0f}{of_how_many} {note}".rstrip())


def take_any_text() -> None:
    """Lets both streams write what their encoding does not have: in ASCII, τ as tau."""
    codecs.register_error("bayesin", _in_ascii)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="bayesin")


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    """What stands for characters that cannot be encoded: a word for ours, an escape for others."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end]
    return "".join(IN_ASCII.get(one, one.encode("ascii", "backslashreplace").decode()) for one in lost), error.end


def printable(text: str) -> str:
    """The text with control characters, line ends and the like written out as escapes.

    Example:
        >>> printable("a name\\x1b[2J\\n")
        'a name\\\\x1b[2J\\\\n'
    """
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def duration(seconds: float, units: tuple[str, str, str] = LONG_UNITS) -> str:
    """Seconds, minutes or hours, whichever is short.

    Example:
        >>> duration(42), duration(600), duration(9000, SHORT_UNITS)
        ('42 seconds', '10 minutes', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} {units[0]}"
    return f"{seconds / 60:.0f} {units[1]}" if seconds < 5400 else f"{seconds / 3600:.1f} {units[2]}"


def _is_number(cell: Any) -> bool:
    text = str(cell).strip().split(" ")[0].replace(",", "").rstrip("%×s")
    try:
        float(text)
    except ValueError:
        return text in {"", "–", "-"}
    return True


@contextmanager
def warnings_in_one_line(out: Output) -> Iterator[None]:
    """A warning of Python as one of ours, without the line of code that gave it."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: out.warn(str(message))
        yield
