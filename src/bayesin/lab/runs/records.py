"""What a run writes beside its posteriors: the trace as it goes on, where its numbers come from, where the time went.

metrics.jsonl     one line for each logging interval, readable while the run goes on
provenance.json   versions, device, commit, times and status
"""

import importlib.metadata
import platform
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ...errors import ArtifactError, BayesinError, first_line
from ...files import read_bytes, write_bytes
from ...json_files import json_text, parse_json

METRICS = "metrics.jsonl"
LARGEST_METRICS = 1 << 30  # bytes that are read
PACKAGES = ("jax", "jaxlib", "flax", "optax", "equinox", "orbax-checkpoint", "numpy", "scipy")


class Clock:
    """Adds up the seconds that blocks of each name took.

    Example:
        >>> clock = Clock()
        >>> with clock("align"):
        ...     pass
        >>> list(clock.seconds)
        ['align']
    """

    def __init__(self):
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


def write_metrics(folder: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Writes all rows anew, atomically."""
    write_bytes(folder / METRICS, "".join(_line(row) for row in rows).encode())


def append_metrics(folder: Path, row: dict[str, Any]) -> None:
    """Adds one row; a process that is killed here leaves at most one cut line, which the next start drops."""
    try:
        with open(folder / METRICS, "ab") as file:  # bytes: the locale may know nothing but ASCII
            file.write(_line(row).encode())
    except OSError as error:
        raise ArtifactError(f"cannot write {folder / METRICS}: {error.strerror or error}") from error


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Reads the rows; a cut last line is left out, any other line that is no row is refused."""
    *lines, last = read_bytes(folder / METRICS, LARGEST_METRICS).split(b"\n")
    rows = [parse_json(line, f"{folder / METRICS}, line {number}", dict) for number, line in enumerate(lines, 1)]
    with suppress(ArtifactError):
        rows += [parse_json(last, "the last line", dict)] if last else []
    return rows


def trace_rows(trace: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """A trace, which has a column for each quantity, as rows."""
    count = len(next(iter(trace.values()))) if trace else 0
    return [{name: column[i] for name, column in trace.items()} for i in range(count)]


def provenance() -> dict[str, Any]:
    """Returns versions, device and commit of this process."""
    from ... import __version__

    devices = jax.devices()
    return {
        "bayesin": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "machine": f"{platform.system()} {platform.machine()}",
        "device": devices[0].device_kind,
        "devices": len(devices),
        "backend": jax.default_backend(),
    }


def now() -> str:
    """The time, in UTC to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def reason(error: BaseException) -> str:
    """What a record says of an exception, in a line: ours speak for themselves, others are called by their kind."""
    if isinstance(error, BayesinError):
        return str(error)
    kind, message = type(error).__name__, first_line(error)
    return f"{kind}: {message}" if message != kind else kind


def _line(row: dict[str, Any]) -> str:
    return json_text(row) + "\n"


@cache  # a folder of packages is searched for each
def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of the sources, with a + where they were changed; None where there is no repository."""
    folder = Path(__file__).resolve().parents[4]
    if not (folder / ".git").exists():
        return None
    try:
        run = lambda *words: subprocess.run(  # noqa: E731
            ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()
        return run("rev-parse", "HEAD") + ("+" if run("status", "--porcelain", "--", "src") else "")
    except (OSError, subprocess.SubprocessError):
        return None
