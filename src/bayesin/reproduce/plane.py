"""The log-posterior on the plane through two posteriors and the aligned copy. Slides of Rossi et al. 2023."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..evaluation import plane
from ..experiments.campaign import Bench, OfRun, Task, Train
from ..experiments.campaign.pair import load_pair
from ..matching import align
from .reproduction import Finding, Record, Reproduction, of_kind
from .scales import posteriors
from .words import spread


@dataclass(frozen=True)
class Landscape(OfRun):
    """Log-likelihood and log-posterior on a grid through two members of a run, and the second after alignment."""

    first: int = 0
    second: int = 1
    resolution: int = 21
    samples: int = 8

    kind = "plane"

    @property
    def title(self) -> str:
        return f"plane through members {self.first} and {self.second}, {Train(self.config).title}"

    def perform(self, folder: Path, bench: Bench) -> dict[str, Any]:
        data, model = bench.prepared(self.config)
        target, source = load_pair(self.config, self.first, self.second, bench)
        key = jax.random.key(self.config.key)
        moved = align(
            target, source, bench.spec(self.config, target.mean), key=key, exclude=model.statistics
        ).posterior
        found = plane(
            [target, source, moved],
            model.apply,
            (data.x_test, data.y_test),
            key=key,
            prior_variance=self.config.training.prior_variance,
            resolution=self.resolution,
            samples=self.samples,
            exclude=model.statistics,
            on_point=lambda done, points: bench.tell(f"{done} of {points} points"),
        )
        return found.to_json() | {"examples": len(data.x_test), "training_examples": len(data.x_train)}


def tasks(scale: str) -> list[Task]:
    resolution, samples = {"smoke": (7, 4), "cpu": (11, 4), "paper": (31, 16)}[scale]
    pairs = {"smoke": 1, "cpu": 3, "paper": 5}[scale]
    return [Landscape(posteriors(scale, "cifar10"), i, i + 1, resolution, samples) for i in range(pairs)]


def judge(records: Sequence[Record]) -> list[Finding]:
    falls: dict[str, list[tuple[float, float]]] = {}
    for one in of_kind(records, "plane"):
        for name, values in _per_example(one["numbers"]).items():
            falls.setdefault(name, []).append(_falls(one["numbers"], values))
    findings = []
    for name, pairs in falls.items():
        naive, aligned = zip(*pairs, strict=True)
        valleys, ridges = min(naive) > 0, all(copy < 0.25 * other for other, copy in pairs)
        findings.append(
            Finding(
                f"{name}: a ridge joins the posterior and the aligned copy, a valley lies before the other",
                "shown as motivation; network and plane unknown",
                f"half-way to the second it changes by {spread(-fall for fall in naive)} nats per example, "
                f"half-way to its copy by {spread(-fall for fall in aligned)}",
                "not confirmed" if not valleys else "confirmed" if ridges else "partly",
                "in every pair; read off the grid, at its points nearest to the middles",
            )
        )
    return findings


def _falls(found: dict[str, Any], values: np.ndarray) -> tuple[float, float]:
    """From the first posterior half-way to the second, and to its aligned copy."""
    first, second, moved = (np.array(corner) for corner in found["corners"])
    top = _at(found, values, first)
    return top - _at(found, values, (first + second) / 2), top - _at(found, values, (first + moved) / 2)


def draw(figure: Any, records: Sequence[Record]) -> None:
    from matplotlib.patheffects import withStroke
    from matplotlib.ticker import MaxNLocator

    outline = [withStroke(linewidth=2, foreground="black")]
    axes = figure.subplots(1, 2)
    for one in of_kind(records, "plane")[:1]:
        found = one["numbers"]
        for axis, (title, values) in zip(axes, _per_example(found).items(), strict=True):
            values = values - values.max()
            drawn = axis.contourf(found["u"], found["v"], values, levels=_levels(values), extend="min")
            bar = figure.colorbar(
                drawn, ax=axis, location="bottom", format="%.2f", label="nats per example below the top"
            )
            bar.locator = MaxNLocator(4, prune="lower")
            bar.update_ticks()
            for corner, label in zip(found["corners"], ("first", "second", "second, aligned"), strict=True):
                axis.plot(*corner, marker="o", color="white", markeredgecolor="black", markersize=5)
                text = axis.annotate(
                    label, corner, textcoords="offset points", xytext=(0, 6), ha="center", fontsize=7
                )
                text.set(color="white", path_effects=outline)
            axis.set(title=title, xlabel="distance in weight space", aspect="equal")
            axis.grid(visible=False)


def _levels(values: np.ndarray) -> np.ndarray:
    """The upper part of the range; far corners would use up all colours."""
    return np.linspace(np.quantile(values, 0.2), values.max(), 24)


def _per_example(found: dict[str, Any]) -> dict[str, np.ndarray]:
    """Likelihood of the test set, and the posterior of a training set whose examples are as likely."""
    likelihood = np.array(found["log_likelihood"]) / found["examples"]
    prior = np.array(found["log_prior"]) / found["training_examples"]
    return {"log-likelihood": likelihood, "log-posterior": likelihood + prior}


def _at(found: dict[str, Any], values: np.ndarray, place: np.ndarray) -> float:
    column, row = (int(np.abs(np.array(found[axis]) - place[i]).argmin()) for i, axis in enumerate(("u", "v")))
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
