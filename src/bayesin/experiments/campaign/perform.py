"""One task in its folder: done once, taken up when it was stopped, its failure kept.

config.json       what was asked for
provenance.json   versions, device, commit, times, status: running, done, failed or interrupted
numbers.json      what came out; written before the status says done
"""

import time
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ...errors import ArtifactError, BayesinError
from ...files import read_json, remove_leftovers, write_json
from ..lock import is_locked, locked
from ..metrics import plain
from ..provenance import now, provenance
from .task import Bench, Task

State = Literal["done", "running", "failed", "interrupted", "left"]


class Standing(NamedTuple):
    """How a task stands, read from its folder."""

    state: State
    numbers: dict[str, Any] | None = None
    error: str | None = None
    seconds: float | None = None
    provenance: dict[str, Any] | None = None


def perform(task: Task, bench: Bench) -> Standing:
    """Does a task, or returns what was found where it is done; a failure of our own kind is recorded, not raised.

    A task whose needs have failed fails with them. Two processes never do the same one: the second waits.
    """
    folder = bench.runs / task.name
    for need in task.needs:
        if (found := standing(bench.runs / need.name)).state != "done":
            return _write_failure(task, folder, f"needs {need.title}, which {_reason(found)}")
    if task.own_folder:
        try:
            task.perform(folder, bench)
        except BayesinError as error:
            return Standing("failed", error=str(error))
        return standing(folder)
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
        numbers = plain(task.perform(folder, bench))
        write_json(folder / "numbers.json", numbers)
    except KeyboardInterrupt:
        write_json(folder / "provenance.json", record | {"status": "interrupted", "ended": now()})
        raise
    except BayesinError as error:
        failed = {"status": "failed", "error": str(error), "ended": now()}
        write_json(folder / "provenance.json", record | failed)
        return Standing("failed", error=str(error))
    seconds = time.perf_counter() - began
    record |= {"status": "done", "ended": now(), "seconds": round(seconds, 3)}
    write_json(folder / "provenance.json", record)
    return Standing("done", numbers, None, seconds, record)


def standing(folder: Path) -> Standing:
    """Reads how a task stands, without touching its folder; damaged files count as work not done."""
    try:
        found = read_json(folder / "provenance.json") if (folder / "provenance.json").is_file() else {}
        if found.get("status") == "done":
            numbers = read_json(_numbers_of(folder))
            seconds = found.get("seconds", found.get("train_seconds"))
            return Standing("done", numbers, None, seconds, found)
    except (ArtifactError, AttributeError):
        return Standing("left")
    if found.get("status") == "failed":
        return Standing("failed", error=found.get("error"))
    if is_locked(folder):
        return Standing("running")
    # A process that was killed leaves "running" behind.
    return Standing("interrupted" if found.get("status") in ("running", "interrupted") else "left")


def _numbers_of(folder: Path) -> Path:
    """Training runs call their numbers results."""
    results = folder / "results.json"
    return results if results.is_file() else folder / "numbers.json"


def _write_failure(task: Task, folder: Path, error: str) -> Standing:
    write_json(folder / "config.json", {"title": task.title} | task.to_json())
    write_json(folder / "provenance.json", {"status": "failed", "error": error, "ended": now()})
    return Standing("failed", error=error)


def _reason(found: Standing) -> str:
    return f"failed: {found.error}" if found.state == "failed" else "is not done"
