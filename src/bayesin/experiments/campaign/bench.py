"""Where tasks work: one folder, and data, networks and symmetries that are made once for all of them."""

import dataclasses
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...data import Dataset, load
from ...models import Model
from ...symmetry import PermutationSpec, discover
from ...trees import Tree
from ..config import RunConfig, build_model
from .task import Bench


class Desk(Bench):
    """Keeps what it has made: a network that is built anew is compiled anew."""

    def __init__(self, runs: Path | str, root: Path | str | None = None, tell: Callable[[str], Any] | None = None):
        self.runs, self.root = Path(runs), root
        self._tell = tell or (lambda note: None)
        self._data: dict[Any, Dataset] = {}
        self._models: dict[Any, Model] = {}
        self._specs: dict[Any, PermutationSpec] = {}
        self._lock = threading.RLock()

    def prepared(self, config: RunConfig) -> tuple[Dataset, Model]:
        with self._lock:
            source = (config.data, config.limit, config.normalise)
            if source not in self._data:
                self._data[source] = load(config.data, self.root, config.limit, normalise=config.normalise)
            network = _network(config)
            if network not in self._models:
                self._models[network] = build_model(config, self._data[source])
            return self._data[source], self._models[network]

    def spec(self, config: RunConfig, params: Tree) -> PermutationSpec:
        with self._lock:
            network = _network(config)
            if network not in self._specs:
                data, model = self.prepared(config)
                self._specs[network] = discover(model.apply, params, data.x_test[:2])
            return self._specs[network]

    def tell(self, note: str) -> None:
        self._tell(note)


def _network(config: RunConfig) -> Any:
    """What decides the network: everything but how it is trained."""
    fields = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    return tuple(value for name, value in fields.items() if name not in ("training", "key", "test_samples"))
