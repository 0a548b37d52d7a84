"""From a name to a figure with verdicts: do the tasks, judge and draw their numbers, write everything down.

NAME.json           findings, numbers of every task, choices, provenance: the figure is drawn from this file alone
NAME.png, .svg, .pdf
report.json, report.html   the same as a page
"""

import json
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..errors import ArtifactError, BayesinError, ConfigError
from ..experiments.campaign import Event, Standing, everything, run_local, write_ledger
from ..experiments.campaign.perform import as_seconds
from ..experiments.campaign.ray import run_ray
from ..experiments.provenance import now, provenance
from ..files import read_json, write_bytes
from ..report.figures import FORMATS, save, style
from . import drawing
from .catalogue import find
from .page import write_report_of
from .reproduction import FORMAT, Finding, Record, Reproduction, check_result, record, undone
from .scales import size

ENGINES = ("local", "ray")
DAMAGE = (LookupError, TypeError, ValueError, AttributeError)  # what numbers of another shape end in


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
        on_event: called as work goes on.

    Returns:
        What was written to `NAME.json`.
    """
    chosen, out = find(name), Path(out) if out is not None else Path("reproduced") / f"{name}-{scale}"
    size(scale)
    if engine not in ENGINES:
        raise ConfigError(f"there is no engine '{engine}'; choose {' or '.join(ENGINES)}")
    tasks = everything(chosen.tasks(scale))
    runs = Path(runs)
    write_ledger(f"{name}-{scale}", tasks, runs)
    if engine == "ray":
        found = run_ray(tasks, runs, root=root, address=address, on_event=on_event)
    else:
        seconds = None if minutes is None else 60 * minutes
        found = run_local(tasks, runs, root=root, workers=workers, seconds=seconds, on_event=on_event)
    records = [record(task, found[task.name]) for task in tasks]
    result = {
        "format": FORMAT,
        "version": 1,
        "name": name,
        "scale": scale,
        **_said(chosen, scale),
        "written": now(),
        "devices": sorted({one["device"] for one in records if "device" in one}),
        "provenance": provenance(),
        "compute_seconds": _seconds(found.values()),
        "records": _short(records),
    }
    return write_reproduction(result, out)


def write_reproduction(result: Mapping[str, Any], out: Path, *, source: Path | None = None) -> dict[str, Any]:
    """Judges and draws saved numbers, and writes file, figure and page.

    Numbers come first: a figure can be drawn again. Without matplotlib there is none, and a warning says so.

    Args:
        result: what `reproduce` writes.
        out: where everything goes.
        source: the file that `result` was read from, which is left as it is.

    Raises:
        ArtifactError: `result` is not what `reproduce` writes.
    """
    found = judged(result)
    numbers = out / f"{found['name']}.json"
    if source is None or numbers.resolve() != source.resolve():
        write_bytes(numbers, as_text(found).encode())
    with _in_one_line(found):
        write_report_of(out, found, _drawn(found, out / str(found["name"])))
    return found


def judged(result: Mapping[str, Any]) -> dict[str, Any]:
    """The result with a verdict on each claim, from its records as they are now.

    Raises:
        ArtifactError: `result` is not what `reproduce` writes.
    """
    check_result(result, "this result")
    chosen = find(str(result["name"]))
    records = result["records"]
    try:
        findings = chosen.judge(records)
    except DAMAGE:
        records = _without_damage(chosen, records)
        with _in_one_line(result):
            findings = chosen.judge(records)
    if missing := undone(records):
        findings.append(_missing(missing, len(records)))
    head = {name: value for name, value in result.items() if name != "records"} | _said(chosen, str(result["scale"]))
    return head | {"findings": [one.to_json() for one in findings], "records": records}


def read_reproduction(path: Path | str) -> dict[str, Any]:
    """Reads what `reproduce` wrote.

    Raises:
        ArtifactError: it is something else, or something is missing.
    """
    found = read_json(path)
    check_result(found, str(path))
    return found


def _said(chosen: Reproduction, scale: str) -> dict[str, Any]:
    """What the catalogue says of a figure; its choices are those of the papers' sizes."""
    sizes = "" if scale == "paper" else "at the papers' sizes: "
    choices = [f"{sizes}{choice}" for choice in chosen.choices]
    return {"source": chosen.source, "claim": chosen.claim, "choices": choices}


def _without_damage(chosen: Reproduction, records: Sequence[Record]) -> Sequence[Record]:
    """The records; those whose numbers cannot be judged count as failed, so that they do not hide the others."""

    def damage(one: Record) -> str:
        try:
            chosen.judge([one])
        except DAMAGE as error:
            return f"{type(error).__name__}: {error}"
        return ""

    mend = "its numbers are damaged ({}); remove its folder '{}' from the runs to do it again"
    return [
        {**one, "state": "failed", "error": mend.format(why, one["name"])} if (why := damage(one)) else one
        for one in records
    ]


@contextmanager
def _in_one_line(result: Mapping[str, Any]) -> Iterator[None]:
    """Numbers of another shape than the figure needs are a damaged file, not a fault of the program."""
    try:
        yield
    except BayesinError:
        raise
    except DAMAGE as error:
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ArtifactError(f"the numbers of '{result['name']}' are damaged: {what}") from error


def _drawn(result: Mapping[str, Any], stem: Path) -> list[Path]:
    if find_spec("matplotlib") is None:
        warnings.warn("no figure is drawn: pip install matplotlib", stacklevel=3)
        return []
    return draw(result, stem)


@style()
def draw(result: Mapping[str, Any], stem: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Draws a figure from saved numbers."""
    from matplotlib.figure import Figure

    chosen = find(str(result["name"]))
    figure = Figure(figsize=chosen.size, layout="constrained")
    chosen.draw(figure, result["records"])
    drawing.failures(figure, result["records"])
    return save(figure, stem, formats)


def _missing(missing: Sequence[Record], count: int) -> Finding:
    first = missing[0]
    more = f"; and {len(missing) - 1} more" if len(missing) > 1 else ""
    why = f"{first['title']}: {first['error'] or first['state']}{more}"
    return Finding("every task was done", "–", f"{len(missing)} of {count} were not", "not measured", why)


def _seconds(found: Iterable[Standing]) -> float:
    """Time in which anything of it ran; what ran side by side counts once, and what is unknown not at all."""
    spans = sorted(span for one in found if one.provenance and (span := _span(one.provenance)))
    total, until = 0.0, -math.inf
    for start, end in spans:
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def _span(one: Mapping[str, Any]) -> tuple[float, float] | None:
    """When the work began and ended; a run that was stopped was started long before."""
    try:
        end = datetime.fromisoformat(one["ended"]).timestamp()
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    parts = [as_seconds(one.get(name)) or 0.0 for name in ("train_seconds", "test_seconds")]
    return end - (as_seconds(one.get("seconds")) or sum(parts)), end


def as_text(result: Mapping[str, Any]) -> str:
    """JSON with a line for each record: readable by people, a third of the size of one line for each number."""
    head = {name: value for name, value in result.items() if name != "records"}
    lines = ",\n    ".join(json.dumps(one, ensure_ascii=False, allow_nan=False) for one in result["records"])
    text = json.dumps(head, indent=2, ensure_ascii=False, allow_nan=False).removesuffix("\n}")
    return f'{text},\n  "records": [\n    {lines}\n  ]\n}}\n'


def _short(value: Any) -> Any:
    """Floats to six digits, which is more than any of them means."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _short(one) for name, one in value.items()}
    return [_short(one) for one in value] if isinstance(value, list | tuple) else value
