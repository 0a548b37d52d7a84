"""One task in its folder: done once, taken up when it was stopped, its failure kept.

config.json       what was asked for
provenance.json   versions, device, commit, times, status: running, done, failed or interrupted
numbers.json      what came out; written before the status says done
"""

import math
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ...errors import ArtifactError, BayesinError
from ...files import read_json, remove_leftovers, write_json
from ..lock import is_locked, locked
from ..metrics import plain
from ..provenance import now, provenance
from ..run import finished, reason
from .task import Bench, Task

State = Literal["done", "running", "failed", "interrupted", "left"]


class UnmetNeed(BayesinError):
    """A task that needs another, which is not done."""


class Standing(NamedTuple):
    """How a task stands, read from its folder."""

    state: State
    numbers: dict[str, Any] | None = None
    error: str | None = None
    seconds: float | None = None
    provenance: dict[str, Any] | None = None


def perform(task: Task, bench: Bench) -> Standing:
    """Does a task, or returns what was found where it is done; a failure is recorded, not raised.

    A task whose needs have failed fails with them. Two processes never do the same one: the second waits.
    """
    folder = bench.runs / task.name
    if (found := standing(folder)).state == "done":  # whatever became of its needs
        return found
    if task.own_folder:
        return _do_there(task, folder, bench)
    with locked(folder, wait=True):
        remove_leftovers(folder)
        found = standing(folder)
        if found.state == "done":
            return found
        return _do(task, folder, bench)


def _do(task: Task, folder: Path, bench: Bench) -> Standing:
    began = time.perf_counter()
    record = {"status": "running", "started": now()} | provenance()
    write_json(folder / "config.json", {"title": task.title} | task.to_json())
    write_json(folder / "provenance.json", record)
    try:
        _check_needs(task, bench)
        numbers = plain(task.perform(folder, bench))
        write_json(folder / "numbers.json", numbers)
    except KeyboardInterrupt:
        write_json(folder / "provenance.json", record | {"status": "interrupted", "ended": now()})
        raise
    except Exception as error:
        return _write_failure(folder, record, error)
    seconds = time.perf_counter() - began
    record |= {"status": "done", "ended": now(), "seconds": round(seconds, 3)}
    write_json(folder / "provenance.json", record)
    return Standing("done", numbers, None, seconds, record)


def _do_there(task: Task, folder: Path, bench: Bench) -> Standing:
    """Does a task that keeps its folder itself; a failure before it wrote anything is written for it."""
    try:
        _check_needs(task, bench)
        task.perform(folder, bench)
    except Exception as error:
        with locked(folder, wait=True):
            found = standing(folder)  # another process may have done it
            return found if found.state == "done" else _write_failure(folder, _record(folder), error)
    return standing(folder)


def standing(folder: Path) -> Standing:
    """Reads how a task stands, without touching its folder; damaged files count as work not done."""
    found = _record(folder)
    if found.get("status") == "done":
        try:
            numbers = _numbers(folder)
        except ArtifactError:
            return Standing("left")
        times = (found[name] for name in ("seconds", "share_seconds", "train_seconds") if name in found)
        return Standing("done", numbers, None, as_seconds(next(times, None)), found)
    if found.get("status") == "failed":
        return Standing("failed", error=found.get("error"))
    if is_locked(folder):
        return Standing("running")
    # A process that was killed leaves "running" behind.
    return Standing("interrupted" if found.get("status") in ("running", "interrupted") else "left")


def as_seconds(value: Any) -> float | None:
    """A duration that was read from a file; None where it is none."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
    return float(value) if good else None


def _record(folder: Path) -> dict[str, Any]:
    """What provenance.json says; nothing where it is missing or damaged."""
    with suppress(ArtifactError):
        found = read_json(folder / "provenance.json")
        return found if isinstance(found, dict) else {}
    return {}


def _numbers(folder: Path) -> dict[str, Any]:
    """Training runs call their numbers results, and are done only where others find their posteriors."""
    if (folder / "results.json").is_file():
        return finished(folder).results
    return read_json(folder / "numbers.json")


def _check_needs(task: Task, bench: Bench) -> None:
    for need in task.needs:
        found = standing(bench.runs / need.name)
        if found.state != "done":
            why = f"failed: {found.error}" if found.state == "failed" else "is not done"
            raise UnmetNeed(f"needs {need.title}, which {why}")


def _write_failure(folder: Path, record: dict[str, Any], error: Exception) -> Standing:
    failed = {"status": "failed", "error": reason(error), "ended": now()}
    write_json(folder / "provenance.json", record | failed)
    return Standing("failed", error=failed["error"])
