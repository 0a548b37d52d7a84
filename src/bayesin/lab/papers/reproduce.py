"""From a name to a figure with verdicts: do the tasks, collect what they left, judge, draw and write it down."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ...json_files import plain
from ..campaign import (
    Event,
    Task,
    TaskStatus,
    as_seconds,
    run_local,
    run_ray,
    status_of,
    topological_order,
    write_ledger,
)
from ..runs import now, provenance
from .catalogue import find
from .reproduction import SCALES
from .result_file import FORMAT, description, write_reproduction

ENGINES = ("local", "ray")


def reproduce(
    name: str,
    *,
    scale: str = "smoke",
    runs: Path | str = "runs",
    out: Path | str | None = None,
    root: Path | str | None = None,
    engine: str = "local",
    address: str | None = None,
    workers: int = 0,
    minutes: float | None = None,
    only: Sequence[str] = (),
    on_event: Callable[[Event], Any] | None = None,
) -> dict[str, Any]:
    """Regenerates a figure or table of the papers; what was done before is not done again.

    Args:
        name: one of the catalogue.
        scale: smoke, cpu or paper.
        runs: folder of all runs; shared by all figures, and by all nodes of a cluster.
        out: where the figure goes; `reproduced/NAME-SCALE` where not given.
        root: where to look for data first.
        engine: local, or ray.
        address: of a Ray cluster.
        workers: threads of the local engine beside training.
        minutes: the local engine begins no task after so long; the figure is drawn from what is done.
        only: words; tasks whose title holds none of them are left for another call, unless one with them needs them.
        on_event: called as work goes on.

    Returns:
        What was written to `NAME.json`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found = reproduce("width", runs=f"{folder}/runs", out=f"{folder}/out", minutes=0)  # begins nothing
        >>> found["scale"], {record["state"] for record in found["records"]}
        ('smoke', {'left'})
    """
    reproduction, runs = find(name), Path(runs)
    out = Path(out) if out is not None else Path("reproduced") / f"{name}-{scale}"
    if engine not in ENGINES:
        raise ConfigError(f"there is no engine '{engine}'; choose {' or '.join(ENGINES)}")
    tasks, chosen = choose_tasks(name, scale), choose_tasks(name, scale, only)
    write_ledger(f"{name}-{scale}", tasks, runs)
    if engine == "ray":
        run_ray(chosen, runs, root=root, address=address, on_event=on_event)
    else:
        seconds = None if minutes is None else 60 * minutes
        run_local(chosen, runs, root=root, workers=workers, seconds=seconds, on_event=on_event)
    status = {task.name: status_of(task, Path(runs)) for task in tasks}
    records = [_record(task, status[task.name]) for task in tasks]
    result = {
        "format": FORMAT,
        "version": 1,
        "name": name,
        "scale": scale,
        **description(reproduction, scale),
        "written": now(),
        "devices": sorted({record["device"] for record in records if "device" in record}),
        "provenance": provenance(),
        "compute_seconds": _seconds(status.values()),
        "records": plain(records, digits=6),  # which is more than any number means
    }
    return write_reproduction(result, out)


def choose_tasks(name: str, scale: str, only: Sequence[str] = ()) -> list[Task]:
    """The tasks of a figure that have one of the words in their title, and what they need, each after what it needs.

    Raises:
        ConfigError: there is no such figure or scale, or no task has any of the words.
    """
    if scale not in SCALES:
        raise ConfigError(f"there is no scale '{scale}'; choose {', '.join(SCALES)}")
    tasks = topological_order(find(name).tasks(scale))
    chosen = [task for task in tasks if not only or any(word in task.title for word in only)]
    if not chosen:
        raise ConfigError(f"no task of '{name}' has {' or '.join(map(repr, only))} in its title")
    return topological_order(chosen)


def _record(task: Task, status: TaskStatus) -> dict[str, Any]:
    """A task and how it stands, as plain data."""
    return {
        "name": task.name,
        "title": task.title,
        "settings": task.to_json(),
        "state": status.state,
        "error": None if status.error is None else str(status.error),
        "seconds": status.seconds,
        "numbers": status.numbers,
    } | _origin(status.provenance or {})


def _origin(provenance: Mapping[str, Any]) -> dict[str, str]:
    """Commit and device of one task: those of a figure may come from several machines."""
    origin = {name: provenance.get(name) for name in ("commit", "device")}
    if isinstance(commit := origin["commit"], str):  # ten digits, and the + of changed sources
        origin["commit"] = commit.rstrip("+")[:10] + ("+" if commit.endswith("+") else "")
    return {name: value for name, value in origin.items() if isinstance(value, str)}


def _seconds(statuses: Iterable[TaskStatus]) -> float:
    """Time in which anything of it ran; what ran side by side counts once, and what is unknown not at all."""
    spans = sorted(span for status in statuses if status.provenance and (span := _span(status.provenance)))
    total, until = 0.0, -math.inf
    for start, end in spans:
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def _span(provenance: Mapping[str, Any]) -> tuple[float, float] | None:
    """When the work began and ended, by its duration: a run that was stopped was started long before."""
    try:
        end = datetime.fromisoformat(provenance["ended"]).timestamp()
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    parts = [as_seconds(provenance.get(name)) or 0.0 for name in ("train_seconds", "test_seconds")]
    return end - (as_seconds(provenance.get("seconds")) or sum(parts)), end
