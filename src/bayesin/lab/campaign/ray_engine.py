"""The Ray engine: the same tasks, each a Ray task, on the nodes of a cluster.

Every task says what it needs of a machine and writes its results into the shared folder itself; what travels is its
settings and, back, one word. A lost worker is replaced by Ray, and its task goes on from its checkpoint. Only the
folder must be the same on all nodes, as on the file system of a cluster.
"""

import logging
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ...errors import ConfigError, first_line
from .local_engine import Event
from .perform import TaskStatus, perform, status_of
from .task import Task, TaskContext, topological_order

RETRIES = 5  # of lost workers, for each task
PATIENCE = 5.0  # seconds for a cluster to answer


def run_ray(
    tasks: Iterable[Task],
    runs: Path | str,
    *,
    root: Path | str | None = None,
    address: str | None = None,
    on_event: Callable[[Event], Any] | None = None,
) -> dict[str, TaskStatus]:
    """Does every task and what it needs on a Ray cluster; returns how each stands, by name, in order.

    Args:
        tasks: what is wanted; needs are added.
        runs: the shared folder, the same path on every node.
        root: where to look for data first, likewise.
        address: of a running cluster ("auto" finds it); None starts Ray on this machine, or uses one that is up.
        on_event: called as tasks end; raising KeyboardInterrupt there cancels what is left.

    Raises:
        ConfigError: Ray is not installed, or there is no cluster at the address.
    """
    todo = topological_order(tasks)
    runs = Path(runs).resolve()
    left = [task for task in todo if status_of(task, runs, thorough=True).state != "done"]
    if left:
        _run(left, len(todo), runs, _connected(address), _text(root), on_event)
    return {task.name: status_of(task, runs) for task in todo}


def _run(
    left: list[Task], tasks: int, runs: Path, ray: Any, root: str | None, on_event: Callable[[Event], Any] | None
) -> None:
    runs.mkdir(parents=True, exist_ok=True)
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    work = ray.remote(_work)
    places: dict[str, Any] = {}
    done = tasks - len(left)
    for phase in _phases(left):
        for task in phase:
            needs = [places[need.name] for need in task.needs if need.name in places]
            options = _options(task, nodes)
            places[task.name] = work.options(name=task.name, **options).remote(task, str(runs), root, *needs)
        _wait(ray, {places[task.name]: task.title for task in phase}, done, tasks, on_event)
        done += len(phase)


def _phases(tasks: list[Task]) -> list[list[Task]]:
    """What may run side by side; then, one by one, what wants the machine to itself, and what needs that."""
    late: set[str] = set()
    for task in tasks:
        if task.alone or any(need.name in late for need in task.needs):
            late.add(task.name)
    together = [task for task in tasks if task.name not in late]
    return [phase for phase in (together, *([task] for task in tasks if task.name in late)) if phase]


def _work(task: Task, runs: str, root: str | None, *needs: str) -> str:
    """Runs on a node; `needs` is there so that Ray waits for them."""
    return perform(task, TaskContext(runs, root)).state


def _wait(ray: Any, titles: dict[Any, str], done: int, tasks: int, on_event: Callable[[Event], Any] | None) -> None:
    waiting = list(titles)
    try:
        while waiting:
            ended, waiting = ray.wait(waiting, num_returns=1, timeout=0.5)
            for place in ended:
                done += 1
                note = _outcome(ray, place)
                if on_event is not None:
                    on_event(Event(titles[place], done, tasks, note))
            if not ended and on_event is not None:
                on_event(Event("", done, tasks, f"{len(waiting)} waiting or running"))
    except BaseException:
        for place in waiting:
            ray.cancel(place)
        raise


def _outcome(ray: Any, place: Any) -> str:
    try:
        return ray.get(place)
    except ray.exceptions.RayError as error:
        return f"lost: {first_line(error)}"


def _options(task: Task, nodes: list[dict[str, float]]) -> dict[str, Any]:
    """What Ray is told. A task runs on one node: asked for more than the largest has, it would wait for ever. A task
    that wants the machine to itself asks for all processors, which also gives it as many threads."""
    most = {name: max((node.get(name, 0.0) for node in nodes), default=0.0) for name in ("CPU", "GPU", "memory")}
    asked = task.resources
    return {
        "num_cpus": most["CPU"] if task.alone else min(asked.cpus, most["CPU"]),
        "num_gpus": min(asked.gpus, most["GPU"]),
        "memory": int(min(asked.memory, most["memory"])),
        "max_retries": RETRIES,
    }


def _connected(address: str | None) -> Any:
    try:
        import ray
    except ImportError:
        raise ConfigError("--engine ray needs Ray: pip install 'bayesin[ray]'") from None
    if not ray.is_initialized():
        if address is not None:
            _knock(address)
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING, include_dashboard=False)
        except (ConnectionError, ValueError) as error:
            where = f"at {address}" if address else "on this machine"
            raise ConfigError(f"no Ray cluster {where}: {first_line(error)}") from None
    return ray


def _knock(address: str) -> None:
    """Ray itself would try for minutes where nobody answers."""
    try:
        place = urlsplit(address if "://" in address else f"//{address}")
        if place.hostname is not None and place.port is not None:  # not a word such as "auto"
            socket.create_connection((place.hostname, place.port), PATIENCE).close()
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"no Ray cluster at {address}: {said}; start one there with 'ray start --head', or leave out --address"
        ) from None


def _text(path: Path | str | None) -> str | None:
    return None if path is None else str(Path(path).resolve())
