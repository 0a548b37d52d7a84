"""Figure 3: how far apart networks are as permutations, and what that has to do with the barrier. Xiao et al. 2023.

- A network and a copy whose units were permuted by i transpositions are trained on the same data in different
  orders. Afterwards: how many transpositions does matching find, how far are the weights, how high is the barrier?
- Along the line between two networks: how many transpositions away from its beginning is each point?
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ....errors import ConfigError
from ....paths import wasserstein
from ....posteriors import Samples
from ....randomness import seed_key
from ....symmetry import Perms, permute
from ....trees import flatten
from ...campaign import Task, TaskContext
from .. import drawing
from ..reproduction import Finding, Record, Reproduction
from ..verdicts import rank_correlation, trend, verdict_of_rise
from .small_networks import (
    Setting,
    Study,
    count_transpositions,
    losses_and_errors,
    match_pairs,
    network_and_descent,
    of_study,
    on_line,
    trained_end,
)

TRAINING = 1 << 20  # stream of the orders of the data; those of starts and permutations are small numbers


@dataclass(frozen=True)
class PermutedStarts(Study):
    """A row for each of `values` numbers of transpositions: a network and its permuted copy, trained and compared."""

    which: str = "swaps"
    words = "permuted starts, run {run}"

    def perform(self, folder: Path, context: TaskContext) -> dict[str, Any]:
        setting = self.setting(context)
        counts = np.linspace(1, max(setting.spec.sizes.values()) - 1, self.values).astype(int).tolist()
        context.tell(f"{self.values} pairs")
        key = jax.random.fold_in(seed_key(self.key), self.run)
        return {"counts": counts, "rows": permuted_starts(key, setting, counts)}


@dataclass(frozen=True)
class TranspositionsOnLines(Study):
    """Transpositions, distance and losses along the lines between `values` pairs of independent networks."""

    which: str = "line"
    words = "transpositions along lines"

    def perform(self, folder: Path, context: TaskContext) -> dict[str, Any]:
        return transpositions_on_lines(seed_key(self.key), self.setting(context), pairs=self.values)


def permuted_starts(key: jax.Array, setting: Setting, counts: Sequence[int]) -> list[dict[str, Any]]:
    """Returns a row for each number of transpositions: the pair at the start, trained, and permuted back after it.

    Args:
        key: decides starts, permutations and orders of the data.
        setting: network and data.
        counts: numbers of transpositions of the copy at the start, in each group.
    """
    keys = [jax.random.fold_in(key, number) for number in range(len(counts))]
    perms: Perms = {
        group: np.stack(
            [
                random_with_transpositions(jax.random.fold_in(own, number), size, count)
                for own, count in zip(keys, counts, strict=True)
            ]
        )
        for number, (group, size) in enumerate(setting.spec.sizes.items())
    }
    first = Samples.stack([setting.model.init(own) for own in keys])
    second = first.permute(setting.spec, perms)
    starts = Samples(jax.tree.map(_alternating, first.params, second.params))
    ends = trained_end(jax.random.fold_in(jax.random.fold_in(key, 0), TRAINING), setting, starts)
    stages = {
        "start": compare(setting, first, second),
        "trained": compare(setting, ends[::2], ends[1::2]),
        "undone": compare(setting, ends[::2].permute(setting.spec, perms), ends[1::2]),
    }
    return [
        {"initial": int(count)} | {name: pairs[k] for name, pairs in stages.items()} for k, count in enumerate(counts)
    ]


def compare(setting: Setting, first: Samples, second: Samples) -> list[dict[str, Any]]:
    """Returns transpositions, distances and barriers at the middle, for every pair of two stacks."""
    counts = count_transpositions(match_pairs(setting, first, second))
    middle = Samples(jax.tree.map(lambda a, b: (a + b) / 2, first.params, second.params))
    barriers = {}
    for part in setting.sets:
        ends = [losses_and_errors(setting, networks, part) for networks in (first, second)]
        barriers[part] = losses_and_errors(setting, middle, part) - np.mean(ends, axis=0)
    left, right = flatten(first.params), flatten(second.params)
    apart = {path: np.asarray(jax.vmap(wasserstein)({path: left[path]}, {path: right[path]})) for path in left}
    whole = np.asarray(jax.vmap(wasserstein)(left, right))
    return [
        {
            "transpositions": count,
            "distance": float(whole[k]),
            "distances": {path: float(distances[k]) for path, distances in apart.items()},
            "loss_barrier": {part: float(values[0, k]) for part, values in barriers.items()},
            "error_barrier": {part: float(values[1, k]) for part, values in barriers.items()},
        }
        for k, count in enumerate(counts)
    ]


def _alternating(first: jax.Array, second: jax.Array) -> jax.Array:
    """Both stacks in one: the first network of each, then the second of each, and so on."""
    return jnp.stack([first, second], 1).reshape(-1, *first.shape[1:])


def random_with_transpositions(key: jax.Array, size: int, count: int) -> np.ndarray:
    """Returns a random permutation of `size` units that takes exactly `count` swaps.

    `size − count` cycles are given one unit each, the other units join cycles chosen at random, and the units
    are dealt out at random. Not uniform over the permutations with that many transpositions: uniform would
    prefer unequal cycles; this is the way of Xiao et al. 2023.

    Example:
        >>> from bayesin.symmetry import transpositions
        >>> transpositions({"g0": random_with_transpositions(jax.random.key(0), 10, 4)})
        {'g0': 4}
    """
    if not 0 <= count < size:
        raise ConfigError(f"a permutation of {size} units has 0 to {size - 1} transpositions, not {count}")
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist())
    lengths = 1 + np.bincount(rng.integers(0, size - count, count), minlength=size - count)
    perm = np.arange(size)
    for cycle in np.split(rng.permutation(size), np.cumsum(lengths)[:-1]):
        perm[cycle] = np.roll(cycle, 1)
    return perm


def transpositions_on_lines(key: jax.Array, setting: Setting, *, pairs: int = 5, taus: int = 51) -> dict[str, Any]:
    """Returns transpositions, distance and losses along the lines between independently trained networks."""
    starts = Samples.stack([setting.model.init(jax.random.fold_in(key, i)) for i in range(2 * pairs)])
    ends = trained_end(key, setting, starts)
    points, lines = np.linspace(0, 1, taus), []
    for pair in range(pairs):
        first, second = ends[2 * pair], ends[2 * pair + 1]
        networks = on_line(first, second, points)
        beginning = Samples(jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (taus, *leaf.shape)), first))
        perms = match_pairs(setting, beginning, networks)
        line: dict[str, Any] = {
            "transpositions": count_transpositions(perms),
            "distance": jax.vmap(wasserstein)(beginning.params, networks.params).tolist(),
        }
        at_the_end = {group: perm[-1] for group, perm in perms.items()}
        matched = on_line(first, permute(second, setting.spec, at_the_end), points)
        for kind, along in (("naive", networks), ("matched", matched)):
            measured = {part: losses_and_errors(setting, along, part).tolist() for part in setting.sets}
            line[kind] = {part: {"loss": loss, "error": error} for part, (loss, error) in measured.items()}
        lines.append(line)
    return {"taus": points.tolist(), "lines": lines}


def tasks(scale: str) -> list[Task]:
    network, descent = network_and_descent(scale)
    values, runs = {"smoke": (5, 2), "cpu": (10, 3), "paper": (50, 5)}[scale]
    lines = {"smoke": 1, "cpu": 3, "paper": 5}[scale]
    starts = [PermutedStarts(network, descent, run=run, values=values) for run in range(runs)]
    return [*starts, TranspositionsOnLines(network, descent, values=lines)]


def judge(records: Sequence[Record]) -> list[Finding]:
    findings = []
    if rows := [row for record in of_study(records, "swaps") for row in record["numbers"]["rows"]]:
        findings += _judge_permuted_starts(rows)
    return findings + [_judge_lines(record["numbers"]) for record in of_study(records, "line")]


def _judge_permuted_starts(rows: Sequence[dict[str, Any]]) -> list[Finding]:
    initial = [row["initial"] for row in rows]
    after = [row["trained"]["transpositions"] for row in rows]
    distance = [row["trained"]["distance"] for row in rows]
    barrier, undone = ([row[stage]["loss_barrier"]["test"] for row in rows] for stage in ("trained", "undone"))
    change = float(np.mean(np.abs(np.array(after) - np.array(initial))))
    stable, follows = rank_correlation(initial, after), rank_correlation(initial, barrier)
    return [
        Finding(
            "transpositions are stable under training",
            "stable",
            f"rank correlation of before and after {stable:+.3f}, mean change {change:.1f}; {len(rows)} pairs",
            *trend(initial, after, what="before and after"),
        ),
        Finding(
            "transpositions correlate with the loss barrier",
            "they correlate; values unknown",
            f"rank correlation with the test barrier {follows:+.3f}, with the distance "
            f"{rank_correlation(initial, distance):+.3f}; barriers {min(barrier):.3f} to {max(barrier):.3f} nats",
            *trend(initial, barrier, what="transpositions and barrier"),
        ),
        Finding(
            "undoing the permutation removes the barrier (ours)",
            "–",
            f"largest test barrier {max(undone):.4f} nats after undoing, {max(barrier):.3f} before",
            "confirmed" if max(undone) < 0.1 * max(barrier) else "partly",
        ),
    ]


def _judge_lines(numbers: dict[str, Any]) -> Finding:
    counts = [line["transpositions"] for line in numbers["lines"]]
    trends = [rank_correlation(numbers["taus"], of_line) for of_line in counts]
    ends = [of_line[-1] for of_line in counts]
    steps = np.concatenate([np.diff(of_line) for of_line in counts])
    back = int((steps < 0).sum())
    rises = verdict_of_rise(min(trends))
    return Finding(
        "transpositions change monotonically along the line between two networks",
        "monotonically",
        f"rank correlation with τ {min(trends):+.3f} to {max(trends):+.3f} over {len(counts)} lines; "
        f"{min(ends)} to {max(ends)} at the end; {back} of {len(steps)} steps go back",
        "partly" if back and rises == "confirmed" else rises,
    )


def draw(figure: Any, records: Sequence[Record]) -> None:
    axes = figure.subplots(1, 4)
    if runs := [record["numbers"]["rows"] for record in of_study(records, "swaps")]:
        initial = [row["initial"] for row in runs[0]]
        panels = (
            ("transpositions", lambda stage: stage["transpositions"]),
            ("distance of the weights", lambda stage: stage["distance"]),
            ("test barrier at the middle (nats)", lambda stage: stage["loss_barrier"]["test"]),
        )
        stages = {"trained": ("trained", drawing.PURPLE), "undone": ("permutation undone", drawing.OCHRE)}
        for axis, (label, measure) in zip(axes, panels, strict=False):
            for stage, (words, colour) in stages.items():
                values = np.array([[measure(row[stage]) for row in rows] for rows in runs])
                mean, std = values.mean(0), values.std(0, ddof=1) if len(runs) > 1 else np.zeros(len(initial))
                axis.plot(initial, mean, color=colour, marker="", label=words)
                axis.fill_between(initial, mean - std, mean + std, color=colour, alpha=0.2, lw=0)
            axis.set(xlabel="transpositions at the start", ylabel=label)
        drawing.legend(figure, axes[1])
    for record in of_study(records, "line"):
        for line in record["numbers"]["lines"]:
            taus, counts = record["numbers"]["taus"], line["transpositions"]
            axes[3].plot(taus, counts, color=drawing.PURPLE, marker="", lw=1)
        axes[3].set(xlabel="position on the line, τ", ylabel="transpositions from the start")


TRANSPOSITIONS = Reproduction(
    name="transpositions",
    source="Xiao et al. 2023, figure 3",
    claim="the number of transpositions is stable under training and follows the barrier",
    tasks=tasks,
    judge=judge,
    draw=draw,
    minutes={"smoke": 0.3, "cpu": 0.8, "paper": 3.4},
    choices=("networks start as PyTorch's do; matched by activations on the training set, as in the paper",),
    size=(9.4, 2.9),
)
