"""The local engine: all tasks of a campaign in this process, needs first.

Training runs of one shape are packed into one compiled program. The other tasks follow as soon as what they need is
there; with `workers` they run on threads beside the training, so that alignment on the processor and training on
an accelerator go on at the same time. What measures time comes last, with nothing beside it.
"""

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from .perform import TaskStatus, perform, status_of
from .run_tasks import TrainTask, packs, train_together
from .task import Task, TaskContext, topological_order


class Event(NamedTuple):
    """A task that began, went on or ended."""

    title: str
    done: int  # tasks done so far
    tasks: int
    note: str = ""


def run_local(
    tasks: Iterable[Task],
    runs: Path | str,
    *,
    root: Path | str | None = None,
    workers: int = 0,
    seconds: float | None = None,
    on_event: Callable[[Event], Any] | None = None,
) -> dict[str, TaskStatus]:
    """Does every task and what it needs; returns how each stands, by name, in order.

    A failure is recorded in its folder and does not stop the others.

    Args:
        tasks: what is wanted; needs are added.
        runs: the shared folder.
        root: where to look for data first.
        workers: threads for tasks that are no training and need not be alone; 0 does one after the other.
        seconds: begin nothing after so long; what is left can be done by another call.
        on_event: called as work goes on; raising KeyboardInterrupt there stops at the next safe moment.
    """
    todo = topological_order(tasks)
    progress = _Progress(todo, on_event, None if seconds is None else time.monotonic() + seconds)
    context = TaskContext(runs, root, progress.note)
    training = [task for task in todo if isinstance(task, TrainTask)]
    others = [task for task in todo if not isinstance(task, TrainTask)]
    with ThreadPoolExecutor(max(1, workers)) as pool:
        futures: list[Future[Any]] = []
        trained: set[str] = set()
        try:
            for pack in packs(training):
                _train(pack, context, progress)
                trained.update(task.name for task in pack)
                ready = [
                    task for task in others if not task.alone and all(need.name in trained for need in task.needs)
                ]
                others = [task for task in others if task not in ready]
                futures += _start(ready, context, progress, pool if workers else None)
            for future in as_completed(futures):
                future.result()
            # One after the other: what needs more than training, and what wants the machine to itself.
            _start(others, context, progress, None)
        except BaseException:
            progress.stopped = True
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return {task.name: status_of(task, context.runs) for task in todo}


class _Progress:
    """Counts tasks, and passes on what they tell."""

    def __init__(self, tasks: list[Task], on_event: Callable[[Event], Any] | None, until: float | None):
        self.tasks, self.done, self.stopped = len(tasks), 0, False
        self._title, self._on_event, self._until = "", on_event, until
        self._lock = threading.Lock()

    @property
    def late(self) -> bool:
        return self._until is not None and time.monotonic() > self._until

    def begin(self, title: str) -> None:
        self._title = title
        self.note("")

    def end(self, count: int = 1) -> None:
        with self._lock:
            self.done += count
        self.note("")

    def note(self, note: str) -> None:
        if self.stopped:
            raise KeyboardInterrupt
        if self._on_event is not None:
            self._on_event(Event(self._title, self.done, self.tasks, note))


def _train(pack: list[TrainTask], context: TaskContext, progress: _Progress) -> None:
    if progress.late:
        return
    waiting = [task for task in pack if status_of(task, context.runs, thorough=True).state != "done"]
    progress.begin(waiting[0].title if waiting else pack[0].title)
    if len(waiting) > 1:
        # What stops one stops all; then each is run alone below, and the failure finds its owner.
        with suppress(Exception):
            train_together(waiting, context)
    for task in waiting:
        perform(task, context)
    progress.end(len(pack))


def _start(
    tasks: list[Task], context: TaskContext, progress: _Progress, pool: ThreadPoolExecutor | None
) -> list[Future[Any]]:
    def work(task: Task) -> None:
        if progress.late:
            return
        progress.begin(task.title)
        perform(task, context)
        progress.end()

    if pool is not None:
        return [pool.submit(work, task) for task in tasks]
    for task in tasks:
        work(task)
    return []
