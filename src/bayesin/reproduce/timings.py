"""Figure A2: how long alignment takes, against width, for points and for Gaussians. Rossi et al. 2023, appendix C."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..experiments.campaign import Bench, OfRun, Pair, Task, Train, neighbours
from ..experiments.campaign.pair import load_pair
from ..matching import align
from . import drawing
from .barriers import NETWORKS, resnet
from .grids import MLP_WIDTHS, RESNET_WIDTHS, resnets
from .reproduction import Finding, Record, Reproduction, of_kind
from .scales import posteriors
from .words import spread

LONGER = 1.1  # times; less is noise
LOOKS = {"points": {"color": "#D55E00", "marker": "D"}, "Gaussians": {"color": "#0072B2", "marker": "o"}}


@dataclass(frozen=True)
class Timing(OfRun):
    """Seconds of one alignment of two trained posteriors, and of their means alone; the fastest of `repeats`."""

    first: int = 0
    second: int = 1
    repeats: int = 2

    kind = "timing"
    memory = 6 << 30
    alone = True

    @property
    def title(self) -> str:
        return f"alignment of {self.first} and {self.second}, {Train(self.config).title}"

    def perform(self, folder: Path, bench: Bench) -> dict[str, Any]:
        target, source = load_pair(self.config, self.first, self.second, bench)
        spec = bench.spec(self.config, target.mean)
        weights = sum(int(np.size(leaf)) for leaf in jax.tree.leaves(target.mean))
        found: dict[str, Any] = {"weights": weights}
        for name, ends in (("points", (target.mean, source.mean)), ("Gaussians", (target, source))):
            seconds = []
            for _ in range(self.repeats):
                bench.tell(name)
                began = time.perf_counter()
                alignment = align(*ends, spec, key=jax.random.key(0))
                seconds.append(time.perf_counter() - began)
            found[name] = {"seconds": min(seconds), "sweeps": alignment.sweeps}
        return found


def tasks(scale: str) -> list[Task]:
    configs = [posteriors(scale, "mnist", width=width) for width in MLP_WIDTHS[scale]]  # those of `width`
    pairs = [neighbours(config) for config in configs]
    pairs += [_briefly(scale, width) for width in RESNET_WIDTHS[scale]] if scale == "paper" else resnets(scale)
    return [Timing(pair.config, pair.first, pair.second) for of_run in pairs for pair in of_run]


def _briefly(scale: str, width: float) -> list[Pair]:
    """ResNet20 after five epochs: how long alignment takes hardly depends on the training, which takes minutes."""
    return resnet(scale, width=width, run={"test_samples": 16}, epochs=5, warmup=100)


def judge(records: Sequence[Record]) -> list[Finding]:
    found = of_kind(records, "timing")
    if not found:
        return []
    seconds = [one["numbers"][name]["seconds"] for one in found for name in LOOKS]
    within = float(np.mean(np.array(seconds) < 60))
    slower = {network: [_slower(one) for one in _widest(cases)] for network, cases in _by_network(found).items()}
    longer = [min(ratios) > LONGER for ratios in slower.values()]
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
            ", ".join(f"{name} {spread(ratios, 2)} times" for name, ratios in slower.items())
            + " at the largest width",
            "confirmed" if all(longer) else "partly" if any(longer) else "not confirmed",
            f"rule: every pair at least {LONGER} times",
        ),
    ]


def draw(figure: Any, records: Sequence[Record]) -> None:
    cases = _by_network(of_kind(records, "timing"))
    axes = figure.subplots(1, max(1, len(cases)), squeeze=False)[0]
    for axis, (title, found) in zip(axes, cases.items(), strict=False):
        widths = sorted({_width(one) for one in found})
        for name, look in LOOKS.items():
            seconds = [[one["numbers"][name]["seconds"] for one in found if _width(one) == width] for width in widths]
            axis.plot(widths, [np.mean(every) for every in seconds], label=name, **look)
            for width, every in zip(widths, seconds, strict=True):
                axis.plot([width] * len(every), every, linestyle="", marker=".", color=look["color"], alpha=0.35)
        axis.axhline(60, color="#7a7a7a", linestyle=":", lw=1)
        axis.set(xscale="log", yscale="log", xlabel="width", title=title)
        axis.set_xticks(widths, [f"{width:g}" for width in widths])
        axis.minorticks_off()
    axes[0].set_ylabel("alignment (s); dotted: one minute")
    drawing.inside(axes[0])


def _by_network(found: Sequence[Record]) -> dict[str, list[Record]]:
    cases: dict[str, list[Record]] = {}
    for one in found:
        cases.setdefault(NETWORKS[one["settings"]["config"]["model"]["name"]], []).append(one)
    return cases


def _slower(one: Record) -> float:
    return one["numbers"]["Gaussians"]["seconds"] / one["numbers"]["points"]["seconds"]


def _widest(found: Sequence[Record]) -> list[Record]:
    return [one for one in found if _width(one) == max(map(_width, found))]


def _width(one: Record) -> float:
    return float(one["settings"]["config"]["model"]["width"])


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
