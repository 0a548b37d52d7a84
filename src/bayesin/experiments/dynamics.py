"""Training dynamics: the barrier between two networks after every epoch, as they are and after matching.

Two networks start apart and see the data in different orders. After every epoch the second is matched to the
first, and loss and error are measured on the line between them, before and after.

Reference: Xiao et al. 2023, figure 2.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from ..compact import hidden_activations
from ..data import Dataset
from ..models import Model
from ..symmetry import PermutationSpec, permute, transpositions
from ..trees import Tree
from .device import Parts, line, losses, match_pairs, on_device, stack
from .points import Descent, trained


@dataclass(frozen=True)
class Dynamics:
    """Losses and errors along the line, for every epoch from 0 on: arrays (epochs + 1, taus) by set."""

    taus: np.ndarray
    naive_loss: dict[str, np.ndarray]  # "train", "test"
    naive_error: dict[str, np.ndarray]
    matched_loss: dict[str, np.ndarray]
    matched_error: dict[str, np.ndarray]
    transpositions: np.ndarray  # (epochs + 1,): of the permutation that matching found

    @property
    def naive_barrier(self) -> dict[str, np.ndarray]:
        """Largest height of the loss above the chord, for every epoch."""
        return {part: _height(loss, self.taus) for part, loss in self.naive_loss.items()}

    @property
    def matched_barrier(self) -> dict[str, np.ndarray]:
        """The same after matching."""
        return {part: _height(loss, self.taus) for part, loss in self.matched_loss.items()}


def training_dynamics(
    key: jax.Array,
    model: Model,
    data: Dataset,
    spec: PermutationSpec,
    settings: Descent,
    *,
    taus: int = 11,
    correlation: bool = False,
    parts: Parts | None = None,
    on_epoch: Callable[[int, Tree], Any] | None = None,
) -> Dynamics:
    """Returns what stands between two networks after every epoch of their training.

    Args:
        key: decides both starts and both orders of the data.
        model: a classifier.
        data: its training set is trained on, and matched on by activations.
        spec: the groups.
        settings: how both are trained.
        taus: points on the line, at least two.
        correlation: match by correlations of activations; by uncentred inner products otherwise.
        parts: the data as `on_device` returns them, where they were sent already.
        on_epoch: called with the epoch and both networks, stacked.
    """
    points = np.arange(taus) / (taus - 1)
    parts = on_device(data) if parts is None else parts
    activations = hidden_activations(model.apply, model.init(key), np.asarray(data.x_train[:8]), spec, key=key)
    starts = stack([model.init(jax.random.fold_in(key, i)) for i in range(2)])
    lines: dict[str, list[Any]] = {"naive": [], "matched": []}
    counts = []
    for epoch, both in enumerate(trained(key, model.apply, starts, (data.x_train, data.y_train), settings)):
        first, second = (jax.tree.map(lambda leaf, i=i: leaf[i : i + 1], both) for i in range(2))
        perms = match_pairs(activations, first, second, parts.train, correlation=correlation)
        counts.append(sum(transpositions({group: perm[0] for group, perm in perms.items()}).values()))
        first, second = (jax.tree.map(lambda leaf: leaf[0], one) for one in (first, second))
        moved = permute(second, spec, {group: perm[0] for group, perm in perms.items()})
        lines["naive"].append(_line(line(first, second, points), model, parts))
        lines["matched"].append(_line(line(first, moved, points), model, parts))
        if on_epoch is not None:
            on_epoch(epoch, both)
    sides = {
        f"{name}_{what}": {part: np.stack([row[part][what] for row in rows]) for part in ("train", "test")}
        for name, rows in lines.items()
        for what in ("loss", "error")
    }
    return Dynamics(taus=points, transpositions=np.array(counts), **sides)


def _line(networks: Tree, model: Model, parts: Parts) -> dict[str, dict[str, np.ndarray]]:
    found = {part: losses(model.apply, networks, chunks) for part, chunks in parts._asdict().items()}
    return {part: {"loss": loss, "error": error} for part, (loss, error) in found.items()}


def _height(loss: np.ndarray, taus: np.ndarray) -> np.ndarray:
    chord = (1 - taus) * loss[:, :1] + taus * loss[:, -1:]
    return (loss - chord).max(1)
