"""Figures 2 and 3: transpositions against the barrier, along a line, and while networks train. Xiao et al. 2023."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..experiments import RunConfig
from ..experiments.campaign import Bench, Resources, Task, seeded
from ..experiments.points import Descent
from ..experiments.studies import dynamics_study, interpolation_study, study_setting, transposition_study
from ..inference import Ensemble
from . import drawing
from .reproduction import Finding, Record, Reproduction, of_kind
from .words import rank_correlation, spread, verdict_of_rise

SHAPES: dict[str, dict[str, Any]] = {
    "smoke": {"data": "digits", "width": 24},
    "cpu": {"data": "mnist", "width": 64, "limit": 5_000},
    "paper": {"data": "mnist", "width": 512},
}
EPOCHS = {"smoke": 10, "cpu": 20, "paper": 50}


@dataclass(frozen=True)
class Study(Task):
    """One study of the one-hidden-layer network: swaps, line or dynamics."""

    network: RunConfig  # data and network; how it says to train is not used
    descent: Descent
    which: str
    run: int = 0  # of swaps: run r depends on the key and r alone
    values: int = 50  # numbers of initial transpositions, or pairs of networks, or points of a line
    key: int = 0

    kind = "study"

    @property
    def title(self) -> str:
        what = {
            "swaps": f"permuted starts, run {self.run}",
            "line": "transpositions along lines",
            "dynamics": "dynamics",
        }
        return f"{what[self.which]}, width {self.network.width} on {self.network.data}{seeded(self.key)}"

    @property
    def resources(self) -> Resources:
        return Resources(cpus=2, gpus=1, memory=8 << 30)

    def perform(self, folder: Path, bench: Bench) -> dict[str, Any]:
        data, model = bench.prepared(self.network)
        setting, key = study_setting(data, model, self.descent), jax.random.key(self.key)
        if self.which == "swaps":
            rows = transposition_study(
                key,
                setting,
                values=self.values,
                runs=[self.run],
                on_row=lambda run, row: bench.tell(f"{row.initial} transpositions"),
            )
            return {"counts": rows["counts"], "rows": rows["runs"][str(self.run)]}
        if self.which == "line":
            return interpolation_study(key, setting, pairs=self.values)
        return dynamics_study(key, setting, on_epoch=lambda epoch, nets: bench.tell(f"epoch {epoch}"))


def swaps_tasks(scale: str) -> list[Task]:
    network, descent = _network(scale)
    values, runs = {"smoke": (5, 2), "cpu": (10, 3), "paper": (50, 5)}[scale]
    found: list[Task] = [Study(network, descent, "swaps", run, values) for run in range(runs)]
    return [*found, Study(network, descent, "line", 0, {"smoke": 1, "cpu": 3, "paper": 5}[scale])]


def dynamics_tasks(scale: str) -> list[Task]:
    seeds = {"smoke": 1, "cpu": 3, "paper": 5}[scale]
    return [Study(*_network(scale), "dynamics", key=seed) for seed in range(seeds)]


def judge_swaps(records: Sequence[Record]) -> list[Finding]:
    findings = []
    rows = [row for one in _of(records, "swaps") for row in one["numbers"]["rows"]]
    if rows:
        initial = [row["initial"] for row in rows]
        after = [row["trained"]["transpositions"] for row in rows]
        barrier = [row["trained"]["loss_barrier"]["test"] for row in rows]
        distance = [row["trained"]["distance"] for row in rows]
        undone = [row["undone"]["loss_barrier"]["test"] for row in rows]
        off = float(np.mean(np.abs(np.array(after) - np.array(initial))))
        stable, follows = rank_correlation(initial, after), rank_correlation(initial, barrier)
        findings += [
            Finding(
                "transpositions are stable under training",
                "stable",
                f"rank correlation of before and after {stable:+.3f}, mean change {off:.1f}; {len(rows)} pairs",
                verdict_of_rise(stable),
            ),
            Finding(
                "transpositions correlate with the loss barrier",
                "they correlate; values unknown",
                f"rank correlation with the test barrier {follows:+.3f}, with the distance "
                f"{rank_correlation(initial, distance):+.3f}; barriers {min(barrier):.3f} to {max(barrier):.3f} nats",
                verdict_of_rise(follows),
            ),
            Finding(
                "undoing the permutation removes the barrier (ours)",
                "–",
                f"largest test barrier {max(undone):.4f} nats after undoing, {max(barrier):.3f} before",
                "confirmed" if max(undone) < 0.1 * max(barrier) else "partly",
            ),
        ]
    for one in _of(records, "line"):
        lines, taus = one["numbers"]["lines"], one["numbers"]["taus"]
        trends = [rank_correlation(taus, line["transpositions"]) for line in lines]
        ends = [line["transpositions"][-1] for line in lines]
        steps = np.concatenate([np.diff(line["transpositions"]) for line in lines])
        back = int((steps < 0).sum())
        rises = verdict_of_rise(min(trends))
        findings.append(
            Finding(
                "transpositions change monotonically along the line between two networks",
                "monotonically",
                f"rank correlation with τ {min(trends):+.3f} to {max(trends):+.3f} over {len(lines)} lines; "
                f"{min(ends)} to {max(ends)} at the end; {back} of {len(steps)} steps go back",
                "partly" if back and rises == "confirmed" else rises,
            )
        )
    return findings


def judge_dynamics(records: Sequence[Record]) -> list[Finding]:
    pairs = [one["numbers"] for one in _of(records, "dynamics")]
    if not pairs:
        return []
    naive, matched = ([one[f"{kind}_barrier"]["test"] for one in pairs] for kind in ("naive", "matched"))
    ends = [[curve[-1] for curve in curves] for curves in (naive, matched)]
    tops = [[max(curve) for curve in curves] for curves in (naive, matched)]
    removed = all(after < 0.1 * before for before, after in zip(*tops, strict=True))
    less = all(after < 0.5 * before for before, after in zip(*ends, strict=True))
    return [
        Finding(
            "matching removes the barrier in every epoch",
            "a barrier before, none after; values unknown",
            f"test barrier after training {spread(ends[0], 4)} → {spread(ends[1], 4)}; the largest of any epoch "
            f"{spread(tops[0], 4)} → {spread(tops[1], 4)} nats",
            "confirmed" if removed else "partly" if less else "not confirmed",
            "rule: in every pair at most a tenth is left of the largest of all epochs",
        )
    ]


def draw_swaps(figure: Any, records: Sequence[Record]) -> None:
    axes = figure.subplots(1, 4)
    runs = [one["numbers"]["rows"] for one in _of(records, "swaps")]
    if runs:
        initial = [row["initial"] for row in runs[0]]
        panels = (
            ("transpositions", lambda row: row["transpositions"]),
            ("distance of the weights", lambda row: row["distance"]),
            ("test barrier at the middle (nats)", lambda row: row["loss_barrier"]["test"]),
        )
        for axis, (label, of) in zip(axes, panels, strict=False):
            for stage, colour in (("trained", "#0072B2"), ("undone", "#009E73")):
                values = np.array([[of(row[stage]) for row in rows] for rows in runs])
                mean, around = values.mean(0), values.std(0, ddof=1) if len(runs) > 1 else np.zeros(len(initial))
                axis.plot(
                    initial,
                    mean,
                    color=colour,
                    marker="",
                    label={"trained": "trained", "undone": "permutation undone"}[stage],
                )
                axis.fill_between(initial, mean - around, mean + around, color=colour, alpha=0.2, lw=0)
            axis.set(xlabel="transpositions at the start", ylabel=label)
        drawing.legend(figure, axes[1])
    for one in _of(records, "line"):
        for line in one["numbers"]["lines"]:
            axes[3].plot(one["numbers"]["taus"], line["transpositions"], color="#0072B2", marker="", lw=1)
        axes[3].set(xlabel="position on the line, τ", ylabel="transpositions from the start")


def draw_dynamics(figure: Any, records: Sequence[Record]) -> None:
    found = _of(records, "dynamics")
    axes = figure.subplots(1, 3)
    if found:
        numbers = found[0]["numbers"]
        maps = {kind: np.array(numbers[f"{kind}_loss"]["test"]) for kind in ("naive", "matched")}
        top = max(float(values[1:].max()) for values in maps.values())  # the untrained would use up all colours
        for axis, (kind, title) in zip(axes, (("naive", "as they are"), ("matched", "after matching")), strict=False):
            image = axis.imshow(
                maps[kind], origin="lower", aspect="auto", extent=(0, 1, 0, len(maps[kind]) - 1), vmin=0, vmax=top
            )
            axis.set(title=f"test loss, {title}", xlabel="position on the line, τ", ylabel="epoch")
            axis.grid(visible=False)
        figure.colorbar(image, ax=axes[1], label="nats")
    for one in found:
        for kind, colour in (("naive", "#D55E00"), ("matched", "#0072B2")):
            label = {"naive": "as they are", "matched": "after matching"}[kind] if one is found[0] else None
            axes[2].plot(one["numbers"][f"{kind}_barrier"]["test"], color=colour, marker="", label=label)
    axes[2].set(xlabel="epoch", ylabel="test barrier (nats)", title="barrier")
    axes[2].set_ylim(bottom=0)
    drawing.inside(axes[2])


def _network(scale: str) -> tuple[RunConfig, Descent]:
    shape = SHAPES[scale] | {"model": "mlp", "depth": 1, "normalise": "unit"}
    return RunConfig(training=Ensemble(), **shape), Descent(epochs=EPOCHS[scale])


def _of(records: Sequence[Record], which: str) -> list[Record]:
    return [one for one in of_kind(records, "study") if one["settings"]["which"] == which]


TRANSPOSITIONS = Reproduction(
    name="transpositions",
    source="Xiao et al. 2023, figure 3",
    claim="the number of transpositions is stable under training and follows the barrier",
    tasks=swaps_tasks,
    judge=judge_swaps,
    draw=draw_swaps,
    minutes={"smoke": 0.3, "cpu": 0.8, "paper": 3.4},
    choices=("networks start as PyTorch's do; matched by activations on the training set, as in the paper",),
    size=(9.4, 2.9),
)
DYNAMICS = Reproduction(
    name="dynamics",
    source="Xiao et al. 2023, figure 2",
    claim="matching removes the barrier between two networks in every epoch of their training",
    tasks=dynamics_tasks,
    judge=judge_dynamics,
    draw=draw_dynamics,
    minutes={"smoke": 0.2, "cpu": 0.4, "paper": 1},
    size=(8.4, 2.7),
)
