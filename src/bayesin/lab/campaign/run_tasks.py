"""Tasks on training runs: the run itself, barriers between its members, and runs of one shape trained together.

Runs that differ in prior variance, temperature, learning rate or noise alone fit into one compiled program
(`fit_vi_grid`). Each still has its own folder, so that nobody need know they were trained together.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np

from ...errors import ModelError
from ...inference import HMC, VI, Progress, Training
from ...randomness import seed_key
from ...symmetry import transpositions
from ..runs import CostName, Measured, RunConfig, align_pair, measure_barriers, rescaled_path, run, run_together
from .task import Resources, Task, TaskContext

UNSEEN = 1_000  # training examples at most to fit a temperature on
VARYING = ("prior_variance", "temperature", "learning_rate", "noise")  # what may differ within one program


@dataclass(frozen=True)
class TrainTask(Task):
    """One training run; its folder is the one that `bayesin train` makes."""

    config: RunConfig

    kind = "train"
    own_folder = True  # `run` locks it and keeps its record

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def title(self) -> str:
        config, training = self.config, self.config.training
        what = f"{config.model}{'' if config.width is None else f' {config.width}'} on {config.data}"
        if isinstance(training, HMC):
            return f"HMC of {what}, {training.chains} × {training.samples} draws{seeded(config.key)}"
        how = f"{training.optimiser} {training.learning_rate:g}, prior variance {training.prior_variance:g}"
        said = "".join(f", {words}" for words in _unusual(config, training)) + seeded(config.key)
        return f"{training.members} × {config.method} of {what}, {training.epochs} epochs of {how}{said}"

    @property
    def resources(self) -> Resources:
        return Resources(cpus=2, gpus=1, memory=8 << 30)

    def is_described_by(self, content: dict[str, Any]) -> bool:
        found, mine = RunConfig.from_json(content, "config.json"), self.config
        if mine.data_content is None:  # not looked at yet; the run itself compares it
            found = dataclasses.replace(found, data_content=None)
        if mine.model_content is None:
            found = dataclasses.replace(found, model_content=None)
        return found.hash == mine.hash

    def perform(self, folder: Path, context: TaskContext) -> dict[str, Any]:
        prepared = context.prepared(self.config)
        return run(self.config, folder, prepared=prepared, wait=True, on_progress=_teller(context)).results


@dataclass(frozen=True)
class RunTask(Task):
    """Base of tasks on what one training run left behind."""

    config: RunConfig

    memory: ClassVar[int] = 4 << 30  # bytes

    @property
    def needs(self) -> tuple[Task, ...]:
        return (TrainTask(self.config),)

    @property
    def resources(self) -> Resources:
        return Resources(cpus=2, gpus=0.25, memory=self.memory)


@dataclass(frozen=True)
class PairTask(RunTask):
    """Barriers between members `first` and `second` of a run, as they are, after alignment, and rescaled as well.

    On the test set each stands beside the barrier that is left after a temperature was fitted at every τ: on training
    examples that the run left unseen, or where it saw all of them, on each half of the test set for the other.
    """

    first: int = 0
    second: int = 1
    samples: int = 128  # draws of the weights at every τ
    taus: int = 25
    train_samples: int = 0  # draws on the training set; 0: not measured there
    restarts: int = 1
    cost: CostName = "wasserstein"

    kind = "pair"

    @property
    def title(self) -> str:
        restarts = f", {self.restarts} restarts" if self.restarts > 1 else ""
        cost = f", matched by {self.cost}" if self.cost != "wasserstein" else ""
        return f"members {self.first} and {self.second}, {TrainTask(self.config).title}{restarts}{cost}"

    def perform(self, folder: Path, context: TaskContext) -> dict[str, Any]:
        data, model = context.prepared(self.config)
        key = jax.random.fold_in(seed_key(self.config.key), 1_000 * self.first + self.second)
        context.tell("aligning")
        pair = context.pair(self.config, self.first, self.second)
        aligned = align_pair(pair, key=key, cost=self.cost, restarts=self.restarts)
        alignment = aligned.alignment
        numbers: dict[str, Any] = {
            "align_seconds": alignment.seconds["total"],
            "w2_squared": [float(alignment.history[0]), float(alignment.history[-1])],
            "sweeps": alignment.sweeps,
            "converged": alignment.converged,
            "start": alignment.start,
            "moved": sum(alignment.moved.values()),
            "transpositions": sum(transpositions(alignment.perms).values()),
            "units": sum(pair.spec.sizes.values()),
        }
        options: dict[str, Any] = {"key": key, "taus": self.taus}
        options["on_point"] = lambda done, points, note: context.tell(note)
        paths: dict[str, Any] = dict(aligned.paths)
        with suppress(ModelError):  # the units of a recurrent network are inside a loop, where none can be rescaled
            paths["rescaled"] = rescaled_path(aligned.paths["aligned"], pair, key=key)
        unseen = context.held_out(self.config, UNSEEN)
        sets = {"test": Measured(data.x_test, data.y_test, self.samples)}
        barriers = measure_barriers(
            paths, model.apply, sets, calibrate=unseen if len(unseen[1]) else "halves", **options
        )
        if self.train_samples:
            sets = {"train": Measured(data.x_train, data.y_train, self.train_samples)}
            barriers |= measure_barriers(aligned.paths, model.apply, sets, **options)
        for kind in paths:
            numbers[kind] = {name: curves[kind].to_json() for name, curves in barriers.items() if kind in curves}
        return numbers


def neighbours(config: RunConfig, **options: Any) -> list[PairTask]:
    """Pairs (0, 1), (1, 2), … of the members of a run."""
    return [PairTask(config, i, i + 1, **options) for i in range(config.training.members - 1)]  # pyright: ignore[reportAttributeAccessIssue]


def packs(tasks: Iterable[TrainTask]) -> list[list[TrainTask]]:
    """Groups the runs that fit into one program, in the order of their first."""
    groups: dict[RunConfig, list[TrainTask]] = defaultdict(list)
    for task in tasks:
        groups[_shape(task.config)].append(task)
    return list(groups.values())


def train_together(tasks: list[TrainTask], context: TaskContext) -> None:
    """Trains runs of one shape in one program; where that fails nothing is recorded, and each can be run alone."""
    configs = [task.config for task in tasks]
    folders = [context.runs / task.name for task in tasks]
    run_together(configs, folders, prepared=context.prepared(configs[0]), on_progress=_teller(context))


def seeded(key: int) -> str:
    """The seed of a task in its title; the first goes without saying."""
    return f", seed {key}" if key else ""


def _unusual(config: RunConfig, training: Training) -> list[str]:
    """What else tells the runs of one figure apart, in words; defaults go without saying."""
    words = [config.norm] if config.model != "mlp" and config.norm != RunConfig.norm else []
    if training.prior_centre != Training.prior_centre:
        words.append(f"prior at {training.prior_centre}")
    if training.optimiser == "sgd" and training.momentum != Training.momentum:
        words.append(f"momentum {training.momentum:g}")
    if training.optimiser == "sgd" and training.schedule != Training.schedule:
        words.append(f"{training.schedule} rate")
    if training.compute != Training.compute:
        words.append(training.compute)
    if isinstance(training, VI) and training.temperature_meaning != VI.temperature_meaning:
        words.append(f"{training.temperature_meaning} at T {training.temperature:g}")
    elif isinstance(training, VI) and training.temperature != VI.temperature:
        words.append(f"T {training.temperature:g}")
    return words


def _shape(config: RunConfig) -> RunConfig:
    """The run with what may vary within one program set to its default: equal shapes are trained together."""
    if not isinstance(config.training, VI):
        return config
    neutral = {name: getattr(VI(), name) for name in VARYING}
    return dataclasses.replace(config, training=dataclasses.replace(config.training, **neutral))


def _teller(context: TaskContext) -> Callable[[Progress], None]:
    def told(progress: Progress) -> None:
        loss = f", loss {float(np.mean(progress.row['loss'])):.3f}" if "loss" in progress.row else ""
        context.tell(f"{progress.step:,} of {progress.steps:,} steps{loss}")

    return told
