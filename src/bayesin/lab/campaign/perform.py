"""One task in its folder: done once, taken up when it was stopped, its failure kept.

    config.json       what was asked for
    provenance.json   versions, device, commit, times, status: running, done, failed or interrupted
    numbers.json      what came out; written before the status says done

A training run keeps its folder itself (`lab/runs/run.py`) and calls its numbers `results.json`.
"""

import math
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ...errors import ArtifactError, BayesinError
from ...files import file_hash, remove_leftovers
from ...json_files import expect, plain, read_json, write_json
from ...locks import is_locked, locked
from ..runs import LOCK, finished, now, provenance, reason
from .task import Task, TaskContext

State = Literal["done", "running", "failed", "interrupted", "left"]


class UnmetNeed(BayesinError):
    """A task that needs another, which is not done."""


class TaskStatus(NamedTuple):
    """How a task stands, read from its folder."""

    state: State
    numbers: dict[str, Any] | None = None
    error: str | None = None
    seconds: float | None = None
    provenance: dict[str, Any] | None = None


def perform(task: Task, context: TaskContext) -> TaskStatus:
    """Does a task, or returns what it left where it is done; a failure is recorded, not raised.

    A task whose needs have failed fails with them. Two processes never do the same one: the second waits.
    """
    folder = context.runs / task.name
    if foreign := _foreign(task, folder):
        return foreign
    if (status := task_status(folder, thorough=True)).state == "done":  # whatever became of its needs
        _remove_stale_lock(folder / LOCK)
        return status
    if task.own_folder:
        return _perform_in_own_folder(task, folder, context)
    with locked(folder / LOCK, wait=True):
        remove_leftovers(folder)
        if (
            status := task_status(folder, thorough=True)
        ).state == "done":  # by another process, while this one waited
            return status
        return _perform_and_record(task, folder, context)


def _remove_stale_lock(lock: Path) -> None:
    """Removes the lock of a process that was killed when its task was done; one that is held, or none, stays."""
    if lock.is_file() and not is_locked(lock):
        with suppress(BayesinError), locked(lock):
            pass  # it goes on leaving


def status_of(task: Task, runs: Path, *, thorough: bool = False) -> TaskStatus:
    """How a task stands; one whose folder holds what came of another has failed."""
    return _foreign(task, runs / task.name) or task_status(runs / task.name, thorough=thorough)


def _foreign(task: Task, folder: Path) -> TaskStatus | None:
    """The failure of a task in whose folder another's results are: copied or renamed, they are not its own."""
    with suppress(BayesinError):  # nothing there, or damaged, which others say
        content = read_json(folder / "config.json", dict)
        if not task.is_described_by(content):
            what = content.get("title", "a run with other settings")
            return TaskStatus("failed", error=f"{folder} holds another task's results ({what}); move them away")
    return None


def task_status(folder: Path, *, thorough: bool = False) -> TaskStatus:
    """Reads how a task stands, without touching its folder; damaged files count as work not done.

    With `thorough`, files are compared with their checksums; without, it is quick whatever their size.
    """
    record = _record(folder)
    status = record.get("status")
    if status == "done":
        try:
            numbers = _numbers(folder, record, thorough)
        except ArtifactError:
            return TaskStatus("left")
        times = (record[name] for name in ("seconds", "share_seconds", "train_seconds") if name in record)
        return TaskStatus("done", numbers, None, as_seconds(next(times, None)), record)
    if status == "failed":
        return TaskStatus("failed", error=record.get("error"))
    if is_locked(folder / LOCK):
        return TaskStatus("running")
    # A process that was killed leaves "running" behind.
    return TaskStatus("interrupted" if status in ("running", "interrupted") else "left")


def as_seconds(value: Any) -> float | None:
    """A duration that was read from a file; None where it is none."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
    return float(value) if good else None


def _perform_and_record(task: Task, folder: Path, context: TaskContext) -> TaskStatus:
    began = time.perf_counter()
    record = {"status": "running", "started": now()} | provenance()
    write_json(folder / "config.json", task.described())
    write_json(folder / "provenance.json", record)
    try:
        _check_needs(task, context)
        numbers = plain(task.perform(folder, context))
        write_json(folder / "numbers.json", numbers)
    except KeyboardInterrupt:
        write_json(folder / "provenance.json", record | {"status": "interrupted", "ended": now()})
        raise
    except Exception as error:
        return _write_failure(folder, record, error)
    seconds = time.perf_counter() - began
    kept = [
        path for path in sorted(folder.iterdir()) if path.is_file() and path.name not in (LOCK, "provenance.json")
    ]
    record |= {"status": "done", "ended": now(), "seconds": round(seconds, 3)}
    record["files"] = {path.name: file_hash(path) for path in kept}
    write_json(folder / "provenance.json", record)
    return TaskStatus("done", numbers, None, seconds, record)


def _perform_in_own_folder(task: Task, folder: Path, context: TaskContext) -> TaskStatus:
    """Does a task that keeps its folder itself; a failure before it wrote anything is written for it."""
    try:
        _check_needs(task, context)
        task.perform(folder, context)
    except Exception as error:
        with locked(folder / LOCK, wait=True):
            status = task_status(folder)  # another process may have done it
            return status if status.state == "done" else _write_failure(folder, _record(folder), error)
    return task_status(folder)


def _record(folder: Path) -> dict[str, Any]:
    """What provenance.json says; nothing where it is missing or damaged."""
    with suppress(ArtifactError):
        return read_json(folder / "provenance.json", dict)
    return {}


def _numbers(folder: Path, record: dict[str, Any], thorough: bool) -> dict[str, Any]:
    """Training runs call their numbers results, and are done only where others find their posteriors."""
    if (folder / "results.json").is_file():
        return finished(folder, thorough=thorough).results
    sums = expect(record, {"files?": {str: str}}, str(folder / "provenance.json")).get("files", {})
    for name, digest in sums.items() if thorough else ():
        if Path(name).name != name or file_hash(folder / name) != digest:
            raise ArtifactError(f"{folder / name} was changed or damaged")
    return read_json(folder / "numbers.json", dict)


def _check_needs(task: Task, context: TaskContext) -> None:
    for need in task.needs:
        status = status_of(need, context.runs)
        if status.state != "done":
            why = f"failed: {status.error}" if status.state == "failed" else "is not done"
            raise UnmetNeed(f"needs {need.title}, which {why}")


def _write_failure(folder: Path, record: dict[str, Any], error: Exception) -> TaskStatus:
    failed = {"status": "failed", "error": reason(error), "ended": now()}
    write_json(folder / "provenance.json", record | failed)
    return TaskStatus("failed", error=failed["error"])
