"""Long chains in parts: each goes on from the last draws of the one before, whatever became of the others.

An iteration of HMC needs of the past its position alone, as every trajectory draws a new momentum. So a part begins
where its predecessor ended, with random numbers of its own, and nothing else is handed on: a folder without its
draws (`last.safetensors`, four networks, is what counts) is enough to go on from, on another machine too. What
is measured on long chains can be measured on as many parts as there are.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ....errors import ArtifactError
from ....inference import HMC, Draws, Progress, fit_hmc
from ....posteriors import Samples
from ....randomness import seed_key
from ....store import load_posterior, save_posterior
from ....trees import Tree, flatten
from ...campaign import Resources, Task, TaskContext, TrainTask, seeded
from ...runs import RunConfig
from .method_trio import MethodTrio, TrioTask, method_trio

CHAINS = {  # of one part
    "smoke": HMC(samples=5, chains=4, burn_in=10, step_size=5e-3, steps=40, chunk=2_000),
    "cpu": HMC(samples=20, chains=4, burn_in=20, step_size=2e-3, steps=500, chunk=2_000),
    # Free weights of neighbouring draws correlate by cos 1 = 0.54; twenty iterations forget the start to 5e-6.
    "paper": HMC(
        samples=50,
        chains=4,
        burn_in=20,
        step_size=1e-3,
        steps=1_000,
        precision="bf16x3",
        chunk=60_000,
        draws_per_file=10,
    ),
}
PARTS = {"smoke": (2,), "cpu": (2,), "paper": (1, 2, 3, 4, 5)}  # after how many parts the chains are measured
LAST = "last.safetensors"


@dataclass(frozen=True)
class ChainPart(Task):
    """`run.training.samples` further draws of each chain; only the first part has a burn-in."""

    run: RunConfig
    number: int = 0  # from 0

    kind = "chain-part"

    @property
    def title(self) -> str:
        hmc: Any = self.run.training
        drawn = f"{hmc.chains} × {hmc.samples} draws of {self.run.data} by HMC"
        return f"{drawn}, part {self.number + 1}{seeded(self.run.key)}"

    @property
    def needs(self) -> tuple[Task, ...]:
        return (ChainPart(self.run, self.number - 1),) if self.number else ()

    @property
    def resources(self) -> Resources:
        return Resources(cpus=2, gpus=1, memory=8 << 30)

    def perform(self, folder: Path, context: TaskContext) -> dict[str, Any]:
        data, model = context.prepared(self.run)
        hmc: Any = self.run.training
        start = None
        if self.number:
            start = last_draws(ChainPart(self.run, self.number - 1), context)
            hmc = dataclasses.replace(hmc, burn_in=0)

        def told(progress: Progress) -> None:
            rate = float(np.mean(progress.row["acceptance"]))
            context.tell(f"iteration {progress.step:,} of {progress.steps:,}, acceptance {rate:.2f}")

        key = jax.random.fold_in(seed_key(self.run.key), self.number)
        options: dict[str, Any] = {"checkpoint": draws_folder(self, context), "on_progress": told, "start": start}
        trace = fit_hmc(key, model, data, hmc, **options).trace
        draws = Draws(draws_folder(self, context))
        save_posterior(folder / LAST, Samples(_ends(draws)))
        kept = slice(hmc.burn_in, None)
        return {
            "chains": draws.chains,
            "draws": len(draws),
            "acceptance": trace["acceptance"][kept].mean(0),
            "energy_error": np.abs(trace["energy_error"][kept]).mean(0),
            "log_posterior": trace["log_posterior"],
            "seconds": float(trace["seconds"][-1]),
        }


def draws_folder(part: ChainPart, context: TaskContext) -> Path:
    """Where the draws of a part lie, and its checkpoint while it is not done."""
    return context.runs / part.name / "draws"


def last_draws(part: ChainPart, context: TaskContext) -> Tree:
    """The last draw of every chain of a part, from which the next one goes on.

    Raises:
        ArtifactError: the file holds something else.
    """
    path, chains = context.runs / part.name / LAST, part.run.training.chains  # pyright: ignore
    found = load_posterior(path)
    if not isinstance(found, Samples) or len(found) != chains:
        raise ArtifactError(f"{path} does not hold the last draws of {chains} chains; remove it")
    return found.params


def _ends(draws: Draws) -> Tree:
    return draws.take(draws.per_chain * np.arange(1, draws.chains + 1) - 1)


def chain_parts(run: RunConfig, count: int) -> tuple[ChainPart, ...]:
    """The first parts of long chains."""
    return tuple(ChainPart(run, number) for number in range(count))


def joined_draws(parts: tuple[ChainPart, ...], context: TaskContext) -> Samples:
    """All draws of the parts, chain by chain, each in the order in which it was drawn.

    Raises:
        ArtifactError: the draws of a part are not here; its last ones, from which the next went on, do not help. Or
            they are not that part's: they end elsewhere.
    """
    found = []
    for part in parts:
        folder = draws_folder(part, context)
        if not folder.is_dir():
            raise ArtifactError(f"the draws of '{part.title}' are not in {folder}; they are needed, or made again")
        draws = Draws(folder)
        ends, wanted = flatten(_ends(draws)), flatten(last_draws(part, context))
        if ends.keys() != wanted.keys() or any(not np.array_equal(ends[path], wanted[path]) for path in ends):
            raise ArtifactError(f"{folder} does not end where '{part.title}' did: a file is missing or another's")
        found.append(jax.tree.map(lambda leaf, n=draws.chains: leaf.reshape(n, -1, *leaf.shape[1:]), draws.params))
    whole = jax.tree.map(lambda *leaves: np.concatenate(leaves, 1), *found)
    return Samples(jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), whole))


@dataclass(frozen=True)
class LongTrioTask(TrioTask):
    """Base of tasks on long chains and the two other methods."""

    parts: int = 1

    @property
    def needs(self) -> tuple[Task, ...]:
        trained = TrainTask(self.runs.ensemble), TrainTask(self.runs.vi)
        return *trained, *chain_parts(self.runs.hmc, self.parts)

    @property
    def drawn(self) -> str:
        """How many draws there are, in words."""
        hmc: Any = self.runs.hmc.training
        return f"{hmc.chains} × {hmc.samples * self.parts} draws"

    def hmc_draws(self, context: TaskContext) -> Samples:
        """Those of all parts."""
        return joined_draws(chain_parts(self.runs.hmc, self.parts), context)


def long_trio(scale: str, seed: int = 0) -> MethodTrio:
    """The three runs at a scale, with long chains: always the same ones, a seed decides the two other methods."""
    long = dataclasses.replace(method_trio(scale).hmc, training=CHAINS[scale])
    return dataclasses.replace(method_trio(scale, seed), hmc=long)
