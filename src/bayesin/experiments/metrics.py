"""`metrics.jsonl`: one line for each logging interval, readable while the run goes on."""

import json
import math
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ArtifactError
from ..files import parse_json, read_bytes, write_bytes

NAME = "metrics.jsonl"
LARGEST = 1 << 30  # bytes that are read


def write_metrics(folder: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Writes all rows anew, atomically."""
    write_bytes(folder / NAME, "".join(_line(row) for row in rows).encode())


def append_metrics(folder: Path, row: dict[str, Any]) -> None:
    """Adds one row; a process that is killed here leaves at most one cut line, which the next start drops."""
    try:
        with open(folder / NAME, "a") as file:
            file.write(_line(row))
    except OSError as error:
        raise ArtifactError(f"cannot write {folder / NAME}: {error.strerror or error}") from error


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Reads the rows; a cut last line is left out, any other line that is no row is refused."""
    *lines, last = read_bytes(folder / NAME, LARGEST).split(b"\n")
    rows = [parse_json(line, f"{folder / NAME}, line {number}") for number, line in enumerate(lines, 1)]
    with suppress(ArtifactError):
        rows += [parse_json(last, "the last line")] if last else []
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise ArtifactError(f"{folder / NAME}, line {number} is not an object")
    return rows


def rows_of(trace: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """A trace as rows."""
    count = len(next(iter(trace.values()))) if trace else 0
    return [{name: column[i] for name, column in trace.items()} for i in range(count)]


def _line(row: dict[str, Any]) -> str:
    return json.dumps(plain(row), allow_nan=False) + "\n"


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row as JSON can hold it."""
    return {name: _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    """Numbers as JSON has them; NaN and infinities, of which it has none, become null."""
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, np.ndarray):
        return [_plain(one) for one in value.tolist()] if value.ndim else _plain(value.item())
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value.item() if isinstance(value, np.generic) else value
