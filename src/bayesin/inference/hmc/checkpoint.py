"""What a run of HMC leaves in its folder beside the draws, and how it is taken up again."""

import zlib
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import ArtifactError
from ...trees import Tree, flatten
from ..arrays import Arrays
from ..checkpoint import checksum, key_numbers
from ..fit import trace_of
from .config import HMC, meaningful
from .draws import read_state, write_draws, write_state
from .program import Running


class History(NamedTuple):
    """What the chains have done so far."""

    rows: list[dict[str, Any]]  # of the trace, one an iteration
    probes: list[np.ndarray]  # predictions, one entry a draw


def identity(key: jax.Array, config: HMC, arrays: Arrays, positions: Tree) -> dict[str, Any]:
    """What makes two runs the same run: key, settings, data and start."""
    flat = flatten(positions)
    start = [zlib.crc32("/".join(flat).encode()), checksum(*flat.values())]
    return meaningful(config) | {"key": key_numbers(key), "data": checksum(arrays.x, arrays.y), "start": start}


def save(folder: Path, run: dict[str, Any], running: Running, history: History, kept: list[Tree]) -> None:
    """Writes the newest draws, then the state that counts them."""
    if kept:
        write_draws(folder, len(history.probes) - len(kept), kept)
    arrays = {f"state/{path}": leaf for path, leaf in flatten(running).items()}
    arrays |= {f"trace/{name}": column for name, column in trace_of(history.rows).items()}
    arrays["draws"] = np.asarray(len(history.probes))
    if history.probes:
        arrays["probes"] = np.stack(history.probes)
    write_state(folder, arrays, run)


def restore(folder: Path | None, run: dict[str, Any], beginning: Running) -> tuple[Running, History]:
    """Returns where a run stands: at its beginning where the folder holds nothing of it."""
    arrays = None if folder is None else read_state(folder, run)
    if arrays is None:
        return beginning, History([], [])
    for path, leaf in flatten(beginning).items():
        if f"state/{path}" not in arrays or arrays[f"state/{path}"].shape != np.shape(leaf):
            raise ArtifactError(f"the checkpoint in {folder} has no '{path}' of shape {np.shape(leaf)}; start anew")
    leaves = [jnp.asarray(arrays[f"state/{path}"]) for path in flatten(beginning)]
    columns = {name.removeprefix("trace/"): array for name, array in arrays.items() if name.startswith("trace/")}
    rows = [{name: column[i] for name, column in columns.items()} for i in range(len(columns.get("step", ())))]
    return jax.tree.unflatten(jax.tree.structure(beginning), leaves), History(rows, list(arrays.get("probes", [])))
