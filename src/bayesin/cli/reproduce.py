"""`bayesin reproduce`: a figure or table of the papers, with a verdict on each claim."""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from ..errors import ConfigError
from ..lab.campaign import Event, Task, status_of, topological_order
from ..lab.papers import CATALOGUE, SCALES, choose_tasks, find, read_reproduction, reproduce, write_reproduction
from .main import Common
from .output import Output
from .signals import stoppable

COLOURS = {
    "confirmed": "green",
    "partly": "yellow",
    "not confirmed": "red",
    "not decided": "yellow",
    "not judged": "dim",
    "not measured": "dim",
}


@dataclass(frozen=True)
class Reproduce(Common):
    """Regenerate a figure or table of the two papers from nothing: train, align, measure, draw, judge.

    Every task is a folder under --runs and is done once; figures share them, and the same command goes on where it
    was stopped. Scales: smoke (digits, under a minute), cpu (real data, small), paper (the papers' sizes, for a GPU).
    """

    name: Annotated[str, tyro.conf.Positional] = ""
    """What to reproduce; --list shows the names. `all` takes every one in turn."""
    list: bool = False
    """Show everything that can be reproduced, with the claim, the cost and what is done."""
    scale: Literal["smoke", "cpu", "paper"] = "smoke"
    """How large."""
    runs: Path = Path("runs")
    """Folder of all runs."""
    out: Path | None = None
    """Folder for figure, numbers and page; by default reproduced/NAME-SCALE."""
    root: Path | None = None
    """Folder to look for data in first."""
    engine: Literal["local", "ray"] = "local"
    """This process, or a Ray cluster."""
    address: str | None = None
    """Address of a running Ray cluster; auto finds the one of this machine."""
    workers: int = 0
    """Threads for alignment and measurement beside the training (local engine)."""
    minutes: float | None = None
    """Begin no task after so many minutes, and draw what is done (local engine); 0 begins nothing."""
    only: tuple[str, ...] = ()
    """Do only tasks with one of these words in their title, and what they need; several calls can share the work."""
    redraw: Path | None = None
    """Judge and draw a NAME.json again, without any run; figure and page go beside it, and the file itself is left as
    it is. With --out they go there, with a copy of the numbers and the new verdicts."""

    def run(self, out: Output) -> dict[str, Any]:
        if self.list:
            return _show_list(out, self.runs)
        if self.redraw is not None:
            folder = self.out or self.redraw.parent
            result = write_reproduction(read_reproduction(self.redraw), folder, source=self.redraw)
            return _show(out, result, folder)
        if not self.name:
            raise ConfigError("needs a name: bayesin reproduce kl; --list shows them all")
        self._check_engine()
        chosen = self._choose()
        shown = {name: self._one(name, tasks, out) for name, tasks in chosen.items()}
        if self.name != "all":
            return shown[self.name]
        return {"reproductions": shown, "exit_code": max(result["exit_code"] for result in shown.values())}

    def _check_engine(self) -> None:
        """Refuses what would have no effect."""
        if self.minutes is not None and not 0 <= self.minutes < math.inf:
            raise ConfigError(f"--minutes needs a number of minutes, 0 or more, not {self.minutes:g}")
        if self.workers < 0:
            raise ConfigError(f"--workers needs a number of threads, 0 or more, not {self.workers}")
        if self.engine == "local" and self.address is not None:
            raise ConfigError("--address is that of a Ray cluster; add --engine ray, or leave it out")
        if self.engine == "ray" and (self.minutes is not None or self.workers):
            raise ConfigError("--minutes and --workers are for the local engine; leave them out with --engine ray")

    def _choose(self) -> dict[str, Sequence[Task]]:
        """Figures and their tasks, before anything is said or begun; of `all` those in which --only finds a task."""
        if self.name != "all":
            return {find(self.name).name: choose_tasks(self.name, self.scale, self.only)}
        chosen = {}
        for name in CATALOGUE:
            with suppress(ConfigError):
                chosen[name] = choose_tasks(name, self.scale, self.only)
        if not chosen:
            raise ConfigError(f"no task of any figure has {' or '.join(map(repr, self.only))} in its title")
        return chosen

    def _one(self, name: str, tasks: Sequence[Task], out: Output) -> dict[str, Any]:
        figure = CATALOGUE[name]
        left = sum(status_of(task, self.runs).state != "done" for task in tasks)
        where = "one H200" if self.scale == "paper" else "two cores"
        whole = f"about {figure.minutes[self.scale]:g} minutes for the whole figure on {where}"
        out.line(f"{name} ({self.scale}): {figure.claim}; {left} of {len(tasks)} tasks to do, {whole}")
        if self.minutes == 0:
            out.line("--minutes 0: nothing new is begun; the figure shows what was done before")
        with stoppable() as stop, out.progress(name, len(tasks)) as bar:

            def told(event: Event) -> None:
                bar.update(event.done, f"{event.title[:60]} {event.note}", event.tasks)
                if not event.note:
                    out.log(f"{event.done} of {event.tasks} tasks done; {event.title}")
                stop.check()

            result = reproduce(
                name,
                scale=self.scale,
                runs=self.runs,
                out=self._folder(name),
                root=self.root,
                engine=self.engine,
                address=self.address,
                workers=self.workers,
                minutes=self.minutes,
                only=self.only,
                on_event=told,
            )
        return _show(out, result, self._folder(name))

    def _folder(self, name: str) -> Path:
        if self.out is None:
            return Path("reproduced") / f"{name}-{self.scale}"
        return self.out / name if self.name == "all" else self.out


def _show(out: Output, result: dict[str, Any], folder: Path) -> dict[str, Any]:
    rows = [[finding["claim"], finding["ours"], finding["verdict"]] for finding in result["findings"]]
    out.table(f"{result['name']}: {result['source']}", ["claim", "measured", "verdict"], rows, COLOURS)
    failed = [task for task in result["records"] if task["state"] == "failed"]
    for task in failed[:5]:
        out.warn(f"{task['title']}: {task['error']}")
    page = folder / "report.html"
    out.line(f"Wrote {page if page.is_file() else folder}, with the numbers behind it")
    shown = {name: result[name] for name in ("name", "scale", "findings", "compute_seconds")}
    return shown | {"folder": str(folder), "failed": len(failed), "exit_code": 1 if failed else 0}


def _show_list(out: Output, runs: Path) -> dict[str, Any]:
    listed, rows = [], []
    for name, entry in CATALOGUE.items():
        done = {}
        for scale in SCALES:
            tasks = topological_order(entry.tasks(scale))
            done[scale] = (sum(status_of(task, runs).state == "done" for task in tasks), len(tasks))
        costs = " / ".join(f"{entry.minutes[scale]:g}" for scale in SCALES)
        rows.append([name, entry.claim, costs, "  ".join(f"{made}/{count}" for made, count in done.values())])
        listed.append(
            {"name": name, "source": entry.source, "claim": entry.claim, "minutes": dict(entry.minutes), "done": done}
        )
    out.table("What can be reproduced", ["name", "claim", "minutes", "tasks done"], rows)
    out.line("Minutes (about) and tasks are for the scales smoke, cpu (two cores) and paper (one H200).")
    return {"reproductions": listed}
