"""The transposition and dynamics studies of Xiao et al. 2023 as plain numbers.

The paper's: 784-512-10 on MNIST with pixels between 0 and 1, started as PyTorch starts linear layers, U(±1/√fan_in)
for weights and biases; gradient descent 1e-3 with momentum 0.9, batch 64, 50 epochs, no weight decay; matching by
uncentred inner products of activations over the training set.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..compact import hidden_activations
from ..data import Dataset
from ..models import Model
from ..symmetry import PermutationSpec, discover, permute, transpositions
from ..trees import Tree, flatten, map_with_path
from .device import Parts, distances, line, losses, match_pairs, on_device, stack
from .dynamics import training_dynamics
from .points import Descent, trained_end
from .transpositions import Row, permuted_initialisation


class Setting(NamedTuple):
    """What a study works on."""

    model: Model
    data: Dataset
    spec: PermutationSpec
    descent: Descent
    parts: Parts


def study_setting(data: Dataset, model: Model, descent: Descent) -> Setting:
    """Returns what a study of a dense model works on; its networks start as PyTorch's do."""
    model = uniform_start(model)
    spec = discover(model.apply, model.init(jax.random.key(0)), np.asarray(data.x_train[:2]))
    return Setting(model, data, spec, descent, on_device(data))


def uniform_start(model: Model) -> Model:
    """Returns a dense model whose weights and biases start as U(±1/√fan_in), the default of PyTorch."""

    def init(key: jax.Array) -> Tree:
        params = model.init(key)
        kernels = {path.rpartition("/")[0]: leaf.shape[0] for path, leaf in flatten(params).items() if leaf.ndim == 2}

        def start(path: str, leaf: Any) -> Any:
            bound = 1 / np.sqrt(kernels[path.rpartition("/")[0]])
            step = jax.random.fold_in(key, sorted(flatten(params)).index(path))
            return jax.random.uniform(step, leaf.shape, jnp.float32, -bound, bound)

        return map_with_path(start, params)

    return model._replace(init=init)


def transposition_study(
    key: jax.Array,
    setting: Setting,
    *,
    values: int = 50,
    runs: Iterable[int] = range(5),
    pairs_at_once: int = 50,
    on_row: Callable[[int, Row], Any] | None = None,
) -> dict[str, Any]:
    """Returns transpositions, distances and midpoint barriers against initial transpositions, of every run.

    Args:
        key: run r uses `fold_in(key, r)` and nothing else, so runs can be made in parts.
        setting: of `study_setting`.
        values: numbers of initial transpositions, evenly spaced from 1 to units − 1.
        runs: numbers of the runs.
        pairs_at_once: pairs trained side by side in one program.
        on_row: called with the run and every finished row.
    """
    units = max(setting.spec.sizes.values())
    counts = np.linspace(1, units - 1, values).astype(int).tolist()
    found = {}
    for run in runs:
        rows = permuted_initialisation(
            jax.random.fold_in(key, run), *setting[:3], counts, setting.descent, pairs_at_once=pairs_at_once,
            parts=setting.parts, on_row=None if on_row is None else lambda row, run=run: on_row(run, row),
        )  # fmt: skip
        found[str(run)] = [
            {"initial": row.initial} | {name: getattr(row, name)._asdict() for name in ("start", "trained", "undone")}
            for row in rows
        ]
    return {"counts": counts, "runs": found}


def interpolation_study(key: jax.Array, setting: Setting, *, pairs: int = 5, taus: int = 51) -> dict[str, Any]:
    """Returns transpositions, distance and losses along the lines between independently trained networks.

    Args:
        key: decides starts and orders of the data.
        setting: of `study_setting`.
        pairs: how many lines.
        taus: points on each.
    """
    model, data, spec, descent, parts = setting
    starts = stack([model.init(jax.random.fold_in(key, i)) for i in range(2 * pairs)])
    final = trained_end(key, model.apply, starts, (data.x_train, data.y_train), descent)
    activations = hidden_activations(model.apply, model.init(key), np.asarray(data.x_train[:8]), spec, key=key)
    points, lines = np.linspace(0, 1, taus), []
    for pair in range(pairs):
        first, second = (jax.tree.map(lambda leaf, k=2 * pair + i: leaf[k], final) for i in range(2))
        networks = line(first, second, points)
        begin = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (taus, *leaf.shape)), first)
        perms = match_pairs(activations, begin, networks, parts.train)
        counts = [sum(transpositions({g: p[k] for g, p in perms.items()}).values()) for k in range(taus)]
        matched = permute(second, spec, {group: perm[-1] for group, perm in perms.items()})
        apart = distances(flatten(begin), {path: np.asarray(leaf) for path, leaf in flatten(networks).items()})
        row = {"transpositions": counts, "distance": np.sqrt(sum(d**2 for d in apart.values())).tolist()}
        for name, nets in (("naive", networks), ("matched", line(first, matched, points))):
            found = {part: losses(model.apply, nets, chunks) for part, chunks in parts._asdict().items()}
            row[name] = {p: {"loss": f[0].tolist(), "error": f[1].tolist()} for p, f in found.items()}
        lines.append(row)
    return {"taus": points.tolist(), "lines": lines}


def dynamics_study(
    key: jax.Array, setting: Setting, *, taus: int = 11, on_epoch: Callable[[int, Tree], Any] | None = None
) -> dict[str, Any]:
    """Returns losses and errors on the line between two networks after every epoch, before and after matching."""
    found = training_dynamics(
        key, setting.model, setting.data, setting.spec, setting.descent, taus=taus, parts=setting.parts,
        on_epoch=on_epoch,
    )  # fmt: skip
    names = ("naive_loss", "naive_error", "matched_loss", "matched_error", "naive_barrier", "matched_barrier")
    maps = {name: {part: values.tolist() for part, values in getattr(found, name).items()} for name in names}
    return {"taus": found.taus.tolist(), "transpositions": found.transpositions.tolist()} | maps
