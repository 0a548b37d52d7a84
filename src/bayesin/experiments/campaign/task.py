"""A task: one frozen piece of work, named by the hash of what decides its result.

A campaign is a set of tasks. Each does its work once, in a folder of its own below one shared folder, and leaves
`numbers.json` there; others that need its files find them by name. What a task needs is itself a task, so that
naming the last ones names them all.
"""

import dataclasses
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ...data import Dataset
from ...models import Model
from ...symmetry import PermutationSpec
from ...trees import Tree
from ..config import RunConfig


@dataclass(frozen=True)
class Resources:
    """What a task asks of the machine that it is given to."""

    cpus: float = 1.0
    gpus: float = 0.0
    memory: int = 2 << 30  # bytes


class Bench(ABC):
    """Where a task works: the shared folder, and data and networks, each made once."""

    runs: Path

    @abstractmethod
    def prepared(self, config: RunConfig) -> tuple[Dataset, Model]:
        """Data and network of a run."""

    @abstractmethod
    def spec(self, config: RunConfig, params: Tree) -> PermutationSpec:
        """The symmetry of that network."""

    @abstractmethod
    def tell(self, note: str) -> None:
        """Says how far the task has come; an exception raised here stops it."""


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
    def perform(self, folder: Path, bench: Bench) -> dict[str, Any]:
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
        return {"kind": self.kind} | {field.name: _plain(getattr(self, field.name)) for field in fields}

    @property
    def hash(self) -> str:
        """Ten digits that name the task."""
        text = json.dumps(_hashed(self), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"{self.kind}-{self.hash}"


def everything(tasks: Iterable[Task]) -> list[Task]:
    """Returns the tasks and all that they need, each once, needs first."""
    found: dict[str, Task] = {}

    def visit(task: Task) -> None:
        if task.name not in found:
            for need in task.needs:
                visit(need)
            found[task.name] = task

    for task in tasks:
        visit(task)
    return list(found.values())


def _plain(value: Any) -> Any:
    if isinstance(value, RunConfig):
        return value.to_json()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


def _hashed(value: Any) -> Any:
    """As `_plain`, with runs by their hash, which leaves out what does not decide them."""
    if isinstance(value, RunConfig):
        return value.hash
    if isinstance(value, Task) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        named = {field.name: _hashed(getattr(value, field.name)) for field in dataclasses.fields(value)}  # pyright: ignore[reportArgumentType]
        return named | ({"kind": value.kind} if isinstance(value, Task) else {})
    return [_hashed(one) for one in value] if isinstance(value, tuple) else value
