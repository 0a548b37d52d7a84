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

from ..data import Dataset
from ..evaluation import barrier
from ..models import Model
from ..paths import geodesic
from ..posteriors import Samples
from ..symmetry import PermutationSpec, permute, transpositions
from ..trees import Tree
from .points import Descent, trained
from .transpositions import Matcher, by_activations


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
    match: Matcher | None = None,
    on_epoch: Callable[[int, Tree], Any] | None = None,
) -> Dynamics:
    """Returns what stands between two networks after every epoch of their training.

    Args:
        key: decides both starts and both orders of the data.
        model: a classifier.
        data: its training set is trained and matched on.
        spec: the groups.
        settings: how both are trained.
        taus: points on the line, an odd number.
        match: how the second is matched to the first; by activations on the training set where not given.
        on_epoch: called with the epoch and both networks, stacked.
    """
    match = match or by_activations(model.apply, model.init(key), data.x_train, spec, key=key)
    starts = Samples.stack([model.init(jax.random.fold_in(key, i)) for i in range(2)]).params
    lines: dict[str, list[Any]] = {"naive": [], "matched": []}
    counts = []
    for epoch, both in enumerate(trained(key, model.apply, starts, (data.x_train, data.y_train), settings)):
        first, second = (jax.tree.map(lambda leaf, i=i: leaf[i], both) for i in range(2))
        perms = match(first, second)
        counts.append(sum(transpositions(perms).values()))
        lines["naive"].append(_line(first, second, model, data, taus))
        lines["matched"].append(_line(first, permute(second, spec, perms), model, data, taus))
        if on_epoch is not None:
            on_epoch(epoch, both)
    parts = {
        f"{name}_{what}": {part: np.stack([row[part][what] for row in rows]) for part in ("train", "test")}
        for name, rows in lines.items()
        for what in ("loss", "error")
    }
    return Dynamics(taus=np.arange(taus) / (taus - 1), transpositions=np.array(counts), **parts)


def _line(first: Tree, second: Tree, model: Model, data: Dataset, taus: int) -> dict[str, dict[str, np.ndarray]]:
    found = {}
    for part, inputs in (("train", (data.x_train, data.y_train)), ("test", (data.x_test, data.y_test))):
        curve = barrier(geodesic(first, second), model.apply, inputs, key=jax.random.key(0), taus=taus)  # points
        found[part] = {"loss": curve.nll, "error": 1 - np.asarray(curve.accuracy)}
    return found


def _height(loss: np.ndarray, taus: np.ndarray) -> np.ndarray:
    chord = (1 - taus) * loss[:, :1] + taus * loss[:, -1:]
    return (loss - chord).max(1)
