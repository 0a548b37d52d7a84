"""HMC, ensemble and mean-field posteriors of the one-hidden-layer network, as tasks. Xiao et al. 2023.

The full chain of the paper, 10,000 iterations of 500 leapfrog steps, is hours of a GPU. Ours is shorter and declared:
four chains side by side, gradients in three bfloat16 passes with energies in float32, and trajectories three times
as long, which under an N(0, 1) prior decorrelates draws: for a weight that the data leave free the correlation of
neighbours is cos 1.5 = 0.07, not cos 0.5 = 0.88.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from ..experiments import RunConfig
from ..experiments.campaign import Bench, Resources, Task, Train, seeded
from ..experiments.spread import spread_study
from ..experiments.table1 import FOLDINGS, PAPER, PAPER_ENSEMBLE, PAPER_VI, table1
from ..inference import HMC, Draws
from ..posteriors import Gaussian, Samples
from ..store import load_posterior

CHAINS = {
    "smoke": HMC(samples=20, chains=2, burn_in=20, step_size=5e-3, steps=60, chunk=2_000),
    "cpu": HMC(samples=40, chains=2, burn_in=20, step_size=2e-3, steps=750, chunk=2_000),
    "paper": HMC(samples=30, chains=4, burn_in=8, step_size=1e-3, steps=1_500, precision="bf16x3", draws_per_file=10),
}
SHAPES: dict[str, dict[str, Any]] = {
    "smoke": {"data": "digits", "width": 24},
    "cpu": {"data": "mnist", "width": 64, "limit": 2_000},
    "paper": {"data": "mnist", "width": 512},
}
EPOCHS = {"smoke": 10, "cpu": 50, "paper": 50}
SEEDS = {"smoke": 1, "cpu": 3, "paper": 3}
NAMES = {"hmc": "HMC", "ensemble": "ensemble", "vi": "VI"}


@dataclass(frozen=True)
class Three:
    """One posterior by three methods."""

    hmc: RunConfig
    ensemble: RunConfig
    vi: RunConfig

    @property
    def tasks(self) -> tuple[Task, ...]:
        return Train(self.hmc), Train(self.ensemble), Train(self.vi)


def three(scale: str, seed: int = 0) -> Three:
    """The three runs at a scale; a seed decides all of them."""
    shape = SHAPES[scale] | {"model": "mlp", "depth": 1, "normalise": "unit"}
    ensemble = dataclasses.replace(PAPER_ENSEMBLE, epochs=EPOCHS[scale])
    vi = dataclasses.replace(PAPER_VI, epochs=EPOCHS[scale])
    return Three(*(RunConfig(training=training, key=seed, **shape) for training in (CHAINS[scale], ensemble, vi)))


@dataclass(frozen=True)
class OfThree(Task):
    """Base of tasks on the three posteriors."""

    runs: Three

    @property
    def needs(self) -> tuple[Task, ...]:
        return self.runs.tasks

    @property
    def resources(self) -> Resources:
        return Resources(cpus=2, gpus=1, memory=12 << 30)


@dataclass(frozen=True)
class Table(OfThree):
    """Table 1, with columns past the paper."""

    draws: int = 200
    key: int = 0

    kind = "table1"

    @property
    def title(self) -> str:
        return f"table of HMC, ensemble and VI on {self.runs.hmc.data}{seeded(self.key)}"

    def perform(self, folder: Path, bench: Bench) -> dict[str, Any]:
        data, model = bench.prepared(self.runs.hmc)
        hmc, ensemble, vi = loaded(self.runs, bench)
        spec = bench.spec(self.runs.hmc, vi.mean)
        key = jax.random.key(self.key)
        options: dict[str, Any] = {
            "key": key,
            "draws": self.draws,
            "on_column": lambda name, column: bench.tell(name),
        }
        found = {"columns": table1(hmc, ensemble, vi, model, data, spec, foldings=FOLDINGS, **options)}
        chains = self.runs.hmc.training.chains  # pyright: ignore[reportAttributeAccessIssue]
        if chains > 1:  # the paper has one chain, whose draws share most of their order
            alone = Samples(hmc[: len(hmc) // chains])
            found["one chain"] = table1(alone, ensemble, vi, model, data, spec, foldings=(PAPER,), **options)
        return found


@dataclass(frozen=True)
class Spread(OfThree):
    """Stds before and after rebasin, and pruning by them."""

    match: str = "activations"
    reference: str = "first"
    key: int = 0

    kind = "spread"

    @property
    def title(self) -> str:
        matched = f"matched by {self.match} to the {self.reference}"
        return f"stds and pruning on {self.runs.hmc.data}, {matched}{seeded(self.key)}"

    def perform(self, folder: Path, bench: Bench) -> dict[str, Any]:
        data, model = bench.prepared(self.runs.hmc)
        hmc, ensemble, vi = loaded(self.runs, bench)
        spec = bench.spec(self.runs.hmc, vi.mean)
        options: dict[str, Any] = {"match": self.match, "reference": self.reference}
        return spread_study(hmc, ensemble, vi, model, data, spec, key=jax.random.key(self.key), **options)


def loaded(runs: Three, bench: Bench) -> tuple[Samples, Samples, Gaussian]:
    """What the three runs left: draws of all chains, one after the other, members, and a Gaussian."""
    folders = [bench.runs / config.name for config in (runs.hmc, runs.ensemble, runs.vi)]
    hmc = Draws(folders[0] / "draws").load() if (folders[0] / "draws").is_dir() else _posterior(folders[0])
    return hmc, _posterior(folders[1]), _posterior(folders[2])


def _posterior(folder: Path) -> Any:
    return load_posterior(folder / "posterior-0.safetensors")
