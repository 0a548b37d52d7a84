"""The log-posterior on the plane through two posteriors and the aligned copy. Slides of Rossi et al. 2023."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ....evaluation import plane
from ....randomness import seed_key
from ...campaign import RunTask, Task, TaskContext, TrainTask
from ...runs import align_pair
from ..reproduction import Finding, Record, Reproduction, of_kind
from ..verdicts import format_mean_std
from .variational_pairs import posteriors


@dataclass(frozen=True)
class Landscape(RunTask):
    """Log-likelihood and log-posterior on a grid through two members of a run, and the second after alignment."""

    first: int = 0
    second: int = 1
    resolution: int = 21
    samples: int = 8

    kind = "plane"

    @property
    def title(self) -> str:
        return f"plane through members {self.first} and {self.second}, {TrainTask(self.config).title}"

    def perform(self, folder: Path, context: TaskContext) -> dict[str, Any]:
        data, model = context.prepared(self.config)
        pair = context.pair(self.config, self.first, self.second)
        key = seed_key(self.config.key)
        moved = align_pair(pair, key=key).alignment.posterior
        section = plane(
            [pair.target, pair.source, moved],
            model.apply,
            (data.x_test, data.y_test),
            key=key,
            prior_variance=self.config.training.prior_variance,
            resolution=self.resolution,
            samples=self.samples,
            exclude=model.statistics,
            on_point=lambda done, points: context.tell(f"{done} of {points} points"),
        )
        return section.to_json() | {"examples": len(data.x_test), "training_examples": len(data.x_train)}


def tasks(scale: str) -> list[Task]:
    resolution, samples = {"smoke": (7, 4), "cpu": (11, 4), "paper": (31, 16)}[scale]
    pairs = {"smoke": 1, "cpu": 3, "paper": 5}[scale]
    return [Landscape(posteriors(scale, "cifar10"), i, i + 1, resolution, samples) for i in range(pairs)]


def judge(records: Sequence[Record]) -> list[Finding]:
    falls: dict[str, list[tuple[float, float]]] = {}
    for record in of_kind(records, "plane"):
        for name, values in _per_example(record["numbers"]).items():
            falls.setdefault(name, []).append(_falls(record["numbers"], values))
    findings = []
    for name, pairs in falls.items():
        naive, aligned = zip(*pairs, strict=True)
        valleys, ridges = min(naive) > 0, all(to_copy < 0.25 * to_second for to_second, to_copy in pairs)
        findings.append(
            Finding(
                f"{name}: a ridge joins the posterior and the aligned copy, a valley lies before the other",
                "shown as motivation; network and plane unknown",
                f"half-way to the second it changes by {format_mean_std(-fall for fall in naive)} nats per example, "
                f"half-way to its copy by {format_mean_std(-fall for fall in aligned)}",
                "not confirmed" if not valleys else "confirmed" if ridges else "partly",
                "in every pair; read off the grid, at its points nearest to the middles",
            )
        )
    return findings


def draw(figure: Any, records: Sequence[Record]) -> None:
    from matplotlib.patheffects import withStroke
    from matplotlib.ticker import MaxNLocator

    outline = [withStroke(linewidth=2, foreground="black")]
    axes = figure.subplots(1, 2)
    for record in of_kind(records, "plane")[:1]:
        grid = record["numbers"]
        for axis, (title, values) in zip(axes, _per_example(grid).items(), strict=True):
            below = values - values.max()
            # The upper part of the range: far corners would use up all colours.
            levels = np.linspace(np.quantile(below, 0.2), below.max(), 24)
            drawn = axis.contourf(grid["u"], grid["v"], below, levels=levels, extend="min")
            label = "nats per example below the top"
            bar = figure.colorbar(drawn, ax=axis, location="bottom", format="%.2f", label=label)
            bar.locator = MaxNLocator(4, prune="lower")
            bar.update_ticks()
            for corner, name in zip(grid["corners"], ("first", "second", "second, aligned"), strict=True):
                axis.plot(*corner, marker="o", color="white", markeredgecolor="black", markersize=5)
                text = axis.annotate(name, corner, textcoords="offset points", xytext=(0, 6), ha="center", fontsize=7)
                text.set(color="white", path_effects=outline)
            axis.set(title=title, xlabel="distance in weight space", aspect="equal")
            axis.grid(visible=False)


def _per_example(grid: dict[str, Any]) -> dict[str, np.ndarray]:
    """Likelihood of the test set, and the posterior of a training set whose examples are as likely."""
    likelihood = np.array(grid["log_likelihood"]) / grid["examples"]
    prior = np.array(grid["log_prior"]) / grid["training_examples"]
    return {"log-likelihood": likelihood, "log-posterior": likelihood + prior}


def _falls(grid: dict[str, Any], values: np.ndarray) -> tuple[float, float]:
    """From the first posterior half-way to the second, and to its aligned copy."""
    first, second, moved = (np.array(corner) for corner in grid["corners"])
    top = _at(grid, values, first)
    return top - _at(grid, values, (first + second) / 2), top - _at(grid, values, (first + moved) / 2)


def _at(grid: dict[str, Any], values: np.ndarray, place: np.ndarray) -> float:
    column, row = (int(np.abs(np.array(grid[axis]) - place[i]).argmin()) for i, axis in enumerate(("u", "v")))
    return float(values[row, column])


PLANE = Reproduction(
    name="plane",
    source="Rossi et al. 2023, slides",
    claim="the posterior and the aligned copy of another lie on one ridge",
    tasks=tasks,
    judge=judge,
    draw=draw,
    minutes={"smoke": 0.3, "cpu": 7, "paper": 2.7},
    choices=(
        "MLP on CIFAR-10, the plane through both means and the aligned mean; the figure shows the first pair",
        "the log-posterior takes the likelihood of each training example to be that of a test example",
    ),
    size=(7.6, 3.2),
)
