"""Training runs as tasks, and runs of one shape trained together.

Runs that differ in prior variance, temperature, learning rate or noise alone fit into one compiled program
(`fit_vi` with several settings). Each still has its own folder, so that nobody need know they were trained together.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ...inference import HMC, VI, Progress, Training
from ..config import RunConfig
from ..run import run, run_together
from .task import Bench, Resources, Task

VARYING = ("prior_variance", "temperature", "learning_rate", "noise")


@dataclass(frozen=True)
class Train(Task):
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
        said = "".join(f", {one}" for one in _unusual(config, training)) + seeded(config.key)
        return f"{training.members} × {config.method} of {what}, {training.epochs} epochs of {how}{said}"

    @property
    def resources(self) -> Resources:
        return Resources(cpus=2, gpus=1, memory=8 << 30)

    def perform(self, folder: Path, bench: Bench) -> dict[str, Any]:
        return run(
            self.config, folder, prepared=bench.prepared(self.config), wait=True, on_progress=_teller(bench)
        ).results


@dataclass(frozen=True)
class OfRun(Task):
    """Base of tasks on what one training run left behind."""

    config: RunConfig

    memory: ClassVar[int] = 4 << 30  # bytes

    @property
    def needs(self) -> tuple[Task, ...]:
        return (Train(self.config),)

    @property
    def resources(self) -> Resources:
        return Resources(cpus=2, gpus=0.25, memory=self.memory)


def packs(tasks: Iterable[Train]) -> list[list[Train]]:
    """Groups the runs that fit into one program, in the order of their first."""
    groups: dict[Any, list[Train]] = defaultdict(list)
    for task in tasks:
        groups[_shape(task.config)].append(task)
    return list(groups.values())


def train_together(tasks: list[Train], bench: Bench) -> None:
    """Trains runs of one shape in one program; where that fails nothing is recorded, and each can be run alone."""
    configs = [task.config for task in tasks]
    folders = [bench.runs / task.name for task in tasks]
    run_together(configs, folders, prepared=bench.prepared(configs[0]), on_progress=_teller(bench))


def seeded(key: int) -> str:
    """The seed of a task in its title; the first goes without saying."""
    return f", seed {key}" if key else ""


def _unusual(config: RunConfig, training: Training) -> list[str]:
    """What else tells the runs of one figure apart, in words; defaults go without saying."""
    found = [config.norm] if config.model != "mlp" and config.norm != RunConfig.norm else []
    if training.prior_centre != Training.prior_centre:
        found.append(f"prior at {training.prior_centre}")
    if training.compute != Training.compute:
        found.append(training.compute)
    if isinstance(training, VI) and training.temperature_meaning != VI.temperature_meaning:
        found.append(f"{training.temperature_meaning} at T {training.temperature:g}")
    elif isinstance(training, VI) and training.temperature != VI.temperature:
        found.append(f"T {training.temperature:g}")
    return found


def _shape(config: RunConfig) -> Any:
    if not isinstance(config.training, VI):
        return config
    return dataclasses.replace(config, training=dataclasses.replace(config.training, **_neutral()))


def _neutral() -> dict[str, float]:
    return {name: getattr(VI(), name) for name in VARYING}


def _teller(bench: Bench) -> Any:
    def told(progress: Progress) -> None:
        row = progress.row
        what = f"loss {float(row['loss'].mean()):.3f}" if "loss" in row else ""
        bench.tell(f"{progress.step:,} of {progress.steps:,} steps{', ' if what else ''}{what}")

    return told
