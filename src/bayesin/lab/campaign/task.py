"""A task: one frozen piece of work, named by the hash of what decides its result.

A campaign is a set of tasks. Each does its work once, in a folder of its own below one shared folder, and leaves
`numbers.json` there; others that need its files find them by name. What a task needs is itself a task, so that
naming the last ones names them all.
"""

import dataclasses
import hashlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np

from ...data import Dataset, stratified
from ...jaxprs import in_precision
from ...json_files import json_text, plain
from ...models import Model
from ...symmetry import Apply, PermutationSpec
from ..runs import (
    PosteriorPair,
    RunConfig,
    build_model,
    discover_and_verify,
    find_posterior,
    load_run_data,
    read_posterior,
)


@dataclass(frozen=True)
class Resources:
    """What a task asks of the machine that it is given to."""

    cpus: float = 1.0
    gpus: float = 0.0
    memory: int = 2 << 30  # bytes


class TaskContext:
    """Where tasks work: the shared folder, and data, networks and symmetries, each made once for all of them.

    They are kept because a network that is built anew is compiled anew. Threads may share a context.
    """

    def __init__(self, runs: Path | str, root: Path | str | None = None, tell: Callable[[str], Any] | None = None):
        self.runs, self.root = Path(runs), root
        self._tell = tell or (lambda note: None)
        self._data: dict[Any, Dataset] = {}
        self._models: dict[Any, Model] = {}
        self._specs: dict[Any, PermutationSpec] = {}
        self._applies: dict[Any, Apply] = {}
        self._lock = threading.RLock()

    def prepared(self, config: RunConfig) -> tuple[Dataset, Model]:
        """Data and network of a run."""
        with self._lock:
            source = config.about_data
            if source not in self._data:
                self._data[source] = load_run_data(source, self.root)
            if config.network not in self._models:
                self._models[config.network] = build_model(config, self._data[source])
            return self._data[source], self._models[config.network]

    def apply_as_trained(self, config: RunConfig) -> Apply:
        """The network of a run in the precision in which it was trained, for what takes many passes."""
        compute = getattr(config.training, "compute", "float32")
        with self._lock:
            place = (config.network, compute)
            if place not in self._applies:
                self._applies[place] = in_precision(self.prepared(config)[1].apply, compute)
            return self._applies[place]

    def held_out(self, config: RunConfig, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Training examples that a run with a limit did not see, spread evenly over those."""
        whole = self.prepared(dataclasses.replace(config, limit=None))[0]
        unseen = np.setdiff1d(np.arange(len(whole.y_train)), stratified(whole.y_train, config.limit))
        chosen = unseen[:: max(1, len(unseen) // count)][:count]
        return whole.x_train[chosen], whole.y_train[chosen]

    def spec(self, config: RunConfig) -> PermutationSpec:
        """The symmetry of the network of a run."""
        with self._lock:
            if config.network not in self._specs:
                data, model = self.prepared(config)
                self._specs[config.network] = discover_and_verify(model, model.init(jax.random.key(0)), data.x_test)
            return self._specs[config.network]

    def pair(self, config: RunConfig, first: int, second: int) -> PosteriorPair:
        """Two members of a run that is done; the second is the one to move."""
        data, model = self.prepared(config)
        names = (f"{self.runs / config.name}#{member}" for member in (first, second))
        target, source = (read_posterior(find_posterior(name), model) for name in names)
        return PosteriorPair(target, source, self.spec(config), model, data.x_test, data=data)

    def tell(self, note: str) -> None:
        """Says how far the task has come; an exception raised here stops it."""
        self._tell(note)


class Task(ABC):
    """Base of all tasks; each kind is a frozen dataclass below it."""

    kind: ClassVar[str]
    own_folder: ClassVar[bool] = False  # it keeps lock, status and numbers of its folder itself
    alone: ClassVar[bool] = False  # it measures time, and wants the machine to itself

    @property
    @abstractmethod
    def title(self) -> str:
        """What a person wants to read."""

    @abstractmethod
    def perform(self, folder: Path, context: TaskContext) -> dict[str, Any]:
        """Does the work; may keep files in the folder. Returns the numbers, which depend on the task alone."""

    @property
    def needs(self) -> tuple["Task", ...]:
        """Tasks that come first."""
        return ()

    @property
    def resources(self) -> Resources:
        """What it asks for."""
        return Resources()

    def to_json(self) -> dict[str, Any]:
        """What decides the result, as plain data."""
        fields = dataclasses.fields(self)  # pyright: ignore[reportArgumentType]
        return {"kind": self.kind} | {field.name: plain(getattr(self, field.name)) for field in fields}

    @property
    def hash(self) -> str:
        """Ten digits that name the task."""
        return hashlib.sha256(json_text(_identity(self), canonical=True).encode()).hexdigest()[:10]

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"{self.kind}-{self.hash}"

    def described(self) -> dict[str, Any]:
        """What stands in the `config.json` of its folder."""
        return {"title": self.title, "name": self.name} | self.to_json()

    def is_described_by(self, content: dict[str, Any]) -> bool:
        """Whether the `config.json` of a folder is that of this task; an early one names none."""
        return content.get("name", self.name) == self.name


def topological_order(tasks: Iterable[Task]) -> list[Task]:
    """Returns the tasks and all that they need, each once, needs first."""
    ordered: dict[str, Task] = {}

    def visit(task: Task) -> None:
        if task.name not in ordered:
            for need in task.needs:
                visit(need)
            ordered[task.name] = task

    for task in tasks:
        visit(task)
    return list(ordered.values())


def _identity(value: Any) -> Any:
    """What decides the result; runs count by their own hash, which leaves out what does not decide them."""
    if isinstance(value, RunConfig):
        return value.hash
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: _identity(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return fields | ({"kind": value.kind} if isinstance(value, Task) else {})
    return [_identity(part) for part in value] if isinstance(value, tuple) else value
