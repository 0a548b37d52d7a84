"""From a name to a figure with verdicts: do the tasks, judge and draw their numbers, write everything down.

NAME.json           findings, numbers of every task, choices, provenance: the figure is drawn from this file alone
NAME.png, .svg, .pdf
report.json, report.html   the same as a page
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from ..errors import ArtifactError, ConfigError
from ..experiments.campaign import Event, Standing, everything, run_local, write_ledger
from ..experiments.campaign.ray import run_ray
from ..experiments.provenance import now, provenance
from ..files import read_json, write_bytes
from ..report.figures import FORMATS, save, style
from . import drawing
from .catalogue import find
from .page import write_report_of
from .reproduction import Finding, Record, record, undone
from .scales import size

FORMAT = "bayesin-reproduction"
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
    devices = sorted({str((one.provenance or {}).get("device")) for one in found.values() if one.provenance})
    result = {
        "format": FORMAT,
        "version": 1,
        "name": name,
        "scale": scale,
        "source": chosen.source,
        "claim": chosen.claim,
        "choices": list(chosen.choices),
        "written": now(),
        "devices": devices,
        "provenance": provenance(),
        "compute_seconds": _seconds(found.values()),
        "records": _short(records),
    }
    return write_reproduction(result, out)


def write_reproduction(result: Mapping[str, Any], out: Path) -> dict[str, Any]:
    """Judges and draws saved numbers, and writes file, figure and page.

    Raises:
        ArtifactError: `result` is not what `reproduce` writes.
    """
    found = judged(result)
    draw(found, out / str(found["name"]))
    write_bytes(out / f"{found['name']}.json", as_text(found).encode())
    write_report_of(out, found)
    return found


def judged(result: Mapping[str, Any]) -> dict[str, Any]:
    """The result with a verdict on each claim, from its records as they are now.

    Raises:
        ArtifactError: `result` is not what `reproduce` writes.
    """
    if result.get("format") != FORMAT or result.get("version") != 1:
        raise ArtifactError(f"this is not a file of 'bayesin reproduce', which says format {FORMAT} and version 1")
    chosen, records = find(str(result["name"])), result["records"]
    findings = chosen.judge(records)
    if missing := undone(records):
        findings.append(_missing(missing, len(records)))
    said = {"source": chosen.source, "claim": chosen.claim, "choices": list(chosen.choices)}
    head = {name: value for name, value in result.items() if name != "records"} | said
    return head | {"findings": [one.to_json() for one in findings], "records": records}


def read_reproduction(path: Path | str) -> dict[str, Any]:
    """Reads what `reproduce` wrote."""
    found = read_json(path)
    if not isinstance(found, dict) or found.get("format") != FORMAT or not isinstance(found.get("records"), list):
        raise ArtifactError(f"{path} is not a file of 'bayesin reproduce'")
    return found


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
    why = f"{first['title']}: {first['error'] or first['state']}"
    return Finding("every task was done", "–", f"{len(missing)} of {count} were not", "not measured", why)


def _seconds(found: Iterable[Standing]) -> float:
    """Time in which anything of it ran; what ran side by side counts once."""
    records = [one.provenance for one in found if one.provenance and one.provenance.get("ended")]
    spans = sorted((_moment(one["ended"]) - _lasted(one), _moment(one["ended"])) for one in records)
    total, until = 0.0, -math.inf
    for start, end in spans:
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def _lasted(one: Mapping[str, Any]) -> float:
    """Seconds of work; a run that was stopped began long before."""
    return one.get("seconds") or one.get("train_seconds", 0.0) + one.get("test_seconds", 0.0)


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


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
