"""Figure 2: the barrier between two networks after every epoch of their training. Xiao et al. 2023.

Two networks start apart and see the data in different orders. After every epoch the second is matched to the
first, and loss and error are measured on the line between them, before and after.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ....posteriors import Samples
from ....randomness import seed_key
from ...campaign import Task, TaskContext
from .. import drawing
from ..reproduction import Finding, Record, Reproduction
from ..verdicts import format_mean_std
from .small_networks import (
    Setting,
    Study,
    count_transpositions,
    losses_and_errors,
    match_pairs,
    network_and_descent,
    of_study,
    on_line,
    trained,
)

TAUS = 11
LOOKS = {
    "naive": {"color": drawing.ORANGE, "label": "as they are"},
    "matched": {"color": drawing.BLUE, "label": "after matching"},
}


@dataclass(frozen=True)
class Dynamics(Study):
    """Losses and errors on the line between two networks, before training and after every epoch."""

    which: str = "dynamics"
    words = "dynamics"

    def perform(self, folder: Path, context: TaskContext) -> dict[str, Any]:
        return training_dynamics(seed_key(self.key), self.setting(context), tell=context.tell)


def training_dynamics(
    key: jax.Array, setting: Setting, taus: int = TAUS, tell: Callable[[str], Any] = lambda note: None
) -> dict[str, Any]:
    """Returns losses, errors and barriers by epoch, "naive" and "matched", on both sets, as plain numbers."""
    points = np.arange(taus) / (taus - 1)
    starts = Samples.stack([setting.model.init(jax.random.fold_in(key, i)) for i in range(2)])
    lines: dict[str, list[dict[str, np.ndarray]]] = {"naive": [], "matched": []}
    counts = []
    for epoch, both in enumerate(trained(key, setting, starts)):
        perms = match_pairs(setting, both[:1], both[1:])
        counts += count_transpositions(perms)
        for kind, end in (("naive", both[1:]), ("matched", both[1:].permute(setting.spec, perms))):
            networks = on_line(both[0], end[0], points)
            lines[kind].append({part: losses_and_errors(setting, networks, part) for part in setting.sets})
        tell(f"epoch {epoch}")
    numbers: dict[str, Any] = {"taus": points.tolist(), "transpositions": counts}
    for kind, epochs in lines.items():
        curves = {part: np.stack([line[part] for line in epochs], 1) for part in setting.sets}
        numbers[f"{kind}_loss"] = {part: loss.tolist() for part, (loss, _) in curves.items()}
        numbers[f"{kind}_error"] = {part: error.tolist() for part, (_, error) in curves.items()}
        numbers[f"{kind}_barrier"] = {part: _barriers(loss, points).tolist() for part, (loss, _) in curves.items()}
    return numbers


def _barriers(losses: np.ndarray, taus: np.ndarray) -> np.ndarray:
    """Largest height above the chord, for every row: `Barrier.value` of every epoch."""
    chords = losses[:, :1] + taus * (losses[:, -1:] - losses[:, :1])
    return (losses - chords).max(1)


def tasks(scale: str) -> list[Task]:
    seeds = {"smoke": 1, "cpu": 3, "paper": 5}[scale]
    return [Dynamics(*network_and_descent(scale), key=seed) for seed in range(seeds)]


def judge(records: Sequence[Record]) -> list[Finding]:
    pairs = [record["numbers"] for record in of_study(records, "dynamics")]
    if not pairs:
        return []
    naive, matched = ([pair[f"{kind}_barrier"]["test"] for pair in pairs] for kind in LOOKS)
    ends = [[curve[-1] for curve in curves] for curves in (naive, matched)]
    tops = [[max(curve) for curve in curves] for curves in (naive, matched)]
    removed = all(after < 0.1 * before for before, after in zip(*tops, strict=True))
    less = all(after < 0.5 * before for before, after in zip(*ends, strict=True))
    return [
        Finding(
            "matching removes the barrier in every epoch",
            "a barrier before, none after; values unknown",
            f"test barrier after training {format_mean_std(ends[0], 4)} → {format_mean_std(ends[1], 4)}; the largest "
            f"of any epoch {format_mean_std(tops[0], 4)} → {format_mean_std(tops[1], 4)} nats",
            "confirmed" if removed else "partly" if less else "not confirmed",
            "rule: in every pair at most a tenth is left of the largest of all epochs",
        )
    ]


def draw(figure: Any, records: Sequence[Record]) -> None:
    pairs = [record["numbers"] for record in of_study(records, "dynamics")]
    axes = figure.subplots(1, 3)
    if pairs:
        maps = {kind: np.array(pairs[0][f"{kind}_loss"]["test"]) for kind in LOOKS}
        top = max(float(values[1:].max()) for values in maps.values())  # the untrained would use up all colours
        for axis, (kind, values) in zip(axes, maps.items(), strict=False):
            extent = (0, 1, 0, len(values) - 1)
            image = axis.imshow(values, origin="lower", aspect="auto", extent=extent, vmin=0, vmax=top)
            title = f"test loss, {LOOKS[kind]['label']}"
            axis.set(title=title, xlabel="position on the line, τ", ylabel="epoch")
            axis.grid(visible=False)
        figure.colorbar(image, ax=axes[1], label="nats")
    for number, pair in enumerate(pairs):
        for kind, look in LOOKS.items():
            axes[2].plot(pair[f"{kind}_barrier"]["test"], marker="", **look | ({"label": None} if number else {}))
    axes[2].set(xlabel="epoch", ylabel="test barrier (nats)", title="barrier")
    axes[2].set_ylim(bottom=0)
    drawing.legend_inside(axes[2])


DYNAMICS = Reproduction(
    name="dynamics",
    source="Xiao et al. 2023, figure 2",
    claim="matching removes the barrier between two networks in every epoch of their training",
    tasks=tasks,
    judge=judge,
    draw=draw,
    minutes={"smoke": 0.2, "cpu": 0.4, "paper": 1},
    size=(8.4, 2.7),
)
