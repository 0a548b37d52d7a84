"""Figure A2: how long alignment takes, against width, for points and for Gaussians. Rossi et al. 2023, appendix C."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ....matching import align
from ...campaign import RunTask, Task, TaskContext, TrainTask, neighbours
from .. import drawing
from ..reproduction import Finding, Record, Reproduction, grouped, of_kind
from ..verdicts import format_mean_std
from .variational_pairs import (
    MLP_WIDTHS,
    RESNET_WIDTHS,
    network_of,
    posteriors,
    resnet_pairs,
    resnet_pairs_by_width,
    width_of,
)

LONGER = 1.1  # times; less is noise
LOOKS = {
    "points": {"color": drawing.OCHRE, "marker": "D"},
    "Gaussians": {"color": drawing.PURPLE, "marker": "o"},
}


@dataclass(frozen=True)
class Timing(RunTask):
    """Seconds of one alignment of two trained posteriors, and of their means alone; the fastest of `repeats`."""

    first: int = 0
    second: int = 1
    repeats: int = 2

    kind = "timing"
    memory = 6 << 30
    alone = True

    @property
    def title(self) -> str:
        return f"alignment of {self.first} and {self.second}, {TrainTask(self.config).title}"

    def perform(self, folder: Path, context: TaskContext) -> dict[str, Any]:
        pair = context.pair(self.config, self.first, self.second)
        target, source = pair.target, pair.source
        numbers: dict[str, Any] = {"weights": sum(int(np.size(leaf)) for leaf in jax.tree.leaves(target.mean))}
        for name, ends in (("points", (target.mean, source.mean)), ("Gaussians", (target, source))):
            seconds = []
            for _ in range(self.repeats):
                context.tell(name)
                began = time.perf_counter()
                alignment = align(*ends, pair.spec, key=jax.random.key(0))
                seconds.append(time.perf_counter() - began)
            numbers[name] = {"seconds": min(seconds), "sweeps": alignment.sweeps}
        return numbers


def tasks(scale: str) -> list[Task]:
    mlps = [neighbours(posteriors(scale, "mnist", width=width)) for width in MLP_WIDTHS[scale]]  # those of `width`
    if scale == "paper":
        # Five epochs: how long alignment takes hardly depends on the training, which takes minutes.
        short = {"run": {"test_samples": 16}, "epochs": 5, "warmup": 100}
        resnets = [resnet_pairs(scale, width=width, **short) for width in RESNET_WIDTHS[scale]]
    else:
        resnets = resnet_pairs_by_width(scale)
    return [Timing(pair.config, pair.first, pair.second) for of_run in (*mlps, *resnets) for pair in of_run]


def judge(records: Sequence[Record]) -> list[Finding]:
    timed = of_kind(records, "timing")
    if not timed:
        return []
    seconds = [record["numbers"][name]["seconds"] for record in timed for name in LOOKS]
    within = float(np.mean(np.array(seconds) < 60))
    slower = {network: _ratios_of_widest(of_network) for network, of_network in grouped(timed, network_of).items()}
    longer = [min(ratios) > LONGER for ratios in slower.values()]
    ratios = ", ".join(f"{name} {format_mean_std(ratios, 2)} times" for name, ratios in slower.items())
    return [
        Finding(
            "most alignments finish within a minute",
            "most finish within a minute",
            f"{within:.0%} of {len(seconds)}; the longest took {max(seconds):.1f} s",
            "confirmed" if within > 0.5 else "not confirmed",
        ),
        Finding(
            "posteriors take longer to align than points for wide networks",
            "VI costs more than weight matching of SGD solutions for wide networks",
            f"{ratios} at the largest width",
            "confirmed" if all(longer) else "partly" if any(longer) else "not confirmed",
            f"rule: every pair at least {LONGER} times",
        ),
    ]


def draw(figure: Any, records: Sequence[Record]) -> None:
    cases = grouped(of_kind(records, "timing"), network_of)
    for axis, of_network in drawing.panels(figure, cases):
        by_width = grouped(sorted(of_network, key=width_of), width_of)
        for name, look in LOOKS.items():
            seconds = [[record["numbers"][name]["seconds"] for record in same] for same in by_width.values()]
            axis.plot(list(by_width), [np.mean(values) for values in seconds], label=name, **look)
            drawing.points(axis, list(by_width), seconds, look["color"])
        axis.axhline(60, color=drawing.GREY, linestyle=":", lw=1)
        axis.set(xscale="log", yscale="log", xlabel="width")
        axis.set_xticks(list(by_width), [f"{width:g}" for width in by_width])
        axis.minorticks_off()
    figure.axes[0].set_ylabel("alignment (s); dotted: one minute")
    drawing.legend_inside(figure.axes[0])


def _ratios_of_widest(records: Sequence[Record]) -> list[float]:
    """How many times longer Gaussians took, for every pair of the largest width."""
    widest = max(map(width_of, records))
    numbers = [record["numbers"] for record in records if width_of(record) == widest]
    return [pair["Gaussians"]["seconds"] / pair["points"]["seconds"] for pair in numbers]


TIMINGS = Reproduction(
    name="timings",
    source="Rossi et al. 2023, figure A2",
    claim="most alignments take less than a minute; posteriors take longer than points",
    tasks=tasks,
    judge=judge,
    draw=draw,
    minutes={"smoke": 0.3, "cpu": 10, "paper": 15},
    choices=(
        "points are the means of the same posteriors; the faster of two runs counts",
        "the MLPs are those of `width`; at scale `paper` ResNet20 is trained for five epochs instead of forty, on "
        "which the seconds hardly depend",
    ),
    size=(6.0, 2.8),
)
