"""Two posteriors of one run: aligned, and the loss between them before and after."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from ...errors import ArtifactError
from ...evaluation import barrier
from ...matching import align
from ...paths import geodesic
from ...posteriors import Gaussian
from ...store import load_posterior
from ...symmetry import transpositions
from ..config import RunConfig
from .task import Bench
from .training import OfRun, Train


@dataclass(frozen=True)
class Pair(OfRun):
    """Barriers between members `first` and `second` of a run, as they are and after alignment."""

    first: int = 0
    second: int = 1
    samples: int = 128  # draws of the weights at every τ
    taus: int = 25
    train_samples: int = 0  # draws on the training set; 0: not measured there
    restarts: int = 1
    cost: str = "wasserstein"

    kind = "pair"

    @property
    def title(self) -> str:
        restarts = f", {self.restarts} restarts" if self.restarts > 1 else ""
        return f"members {self.first} and {self.second}, {Train(self.config).title}{restarts}"

    def perform(self, folder: Path, bench: Bench) -> dict[str, Any]:
        data, model = bench.prepared(self.config)
        target, source = load_pair(self.config, self.first, self.second, bench)
        spec = bench.spec(self.config, target.mean)
        key = jax.random.fold_in(jax.random.key(self.config.key), 1_000 * self.first + self.second)
        bench.tell("aligning")
        began = time.perf_counter()
        found = align(
            target,
            source,
            spec,
            key=key,
            cost=self.cost,
            restarts=self.restarts,
            exclude=model.statistics,
            check=(model.apply, data.x_test[:256]),
        )
        numbers: dict[str, Any] = {
            "align_seconds": time.perf_counter() - began,
            "w2_squared": [float(found.history[0]), float(found.history[-1])],
            "sweeps": found.sweeps,
            "converged": found.converged,
            "start": found.start,
            "moved": sum(found.moved.values()),
            "transpositions": sum(transpositions(found.perms).values()),
            "units": sum(spec.sizes.values()),
        }
        sets: dict[str, Any] = {"test": ((data.x_test, data.y_test), self.samples)}
        if self.train_samples:
            sets["train"] = ((data.x_train, data.y_train), self.train_samples)
        for kind, end in (("naive", source), ("aligned", found.posterior)):
            path = geodesic(target, end)
            numbers[kind] = {}
            for name, (examples, samples) in sets.items():
                bench.tell(f"{kind}, {name} set")
                curve = barrier(path, model.apply, examples, key=key, samples=samples, taus=self.taus)
                numbers[kind][name] = curve.to_json()
        return numbers


def neighbours(config: RunConfig, **options: Any) -> list[Pair]:
    """Pairs (0, 1), (1, 2), … of the members of a run."""
    return [Pair(config, i, i + 1, **options) for i in range(config.training.members - 1)]  # pyright: ignore[reportAttributeAccessIssue]


def load_pair(config: RunConfig, first: int, second: int, bench: Bench) -> tuple[Gaussian, Gaussian]:
    """Two members of a run that is done."""
    folder = bench.runs / config.name
    found = [load_posterior(folder / f"posterior-{number}.safetensors") for number in (first, second)]
    if not all(isinstance(one, Gaussian) for one in found):
        raise ArtifactError(f"{folder} holds no Gaussian posteriors")
    return found[0], found[1]  # pyright: ignore[reportReturnType]
