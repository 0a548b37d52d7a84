"""Draws and checkpoints of HMC: a folder of safetensors files, written as the chains go, read as they are needed.

A file `draws-000100.safetensors` holds consecutive draws from number 100 on, as `params/<path>` arrays of
shape (chains, draws, ...). `state.safetensors` holds what the chains need to go on and the trace so far. It is
written after the draws it counts, so that a run killed at any moment goes on from the last state, and files
beyond it are leftovers.
"""

import math
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ...errors import ArtifactError, ConfigError
from ...files import remove_leftovers
from ...json_files import json_text, parse_json
from ...posteriors import Samples
from ...store import read_header, read_tensors, write_tensors
from ...trees import Tree, flatten, unflatten
from ..fit import trace_of
from .kernel import ChainStates

DRAWS, STATE, VERSION = "bayesin-hmc-draws", "bayesin-hmc-state", "1"
STATE_FILE = "state.safetensors"


class History(NamedTuple):
    """What the chains have done so far."""

    rows: list[dict[str, Any]]  # of the trace, one an iteration
    probes: list[np.ndarray]  # predictions, one entry a draw


class Draws:
    """The draws of a finished or running chain, read file by file.

    Counted chain by chain: `draws[k]` is draw k of chain 0 for k below `draws.per_chain`. Behaves as `Samples`
    for reading one draw, a slice or the mean; `load` returns all as `Samples`.

    Example:
        >>> import tempfile, jax, bayesin
        >>> init = lambda key: {"w": np.zeros(2, np.float32)}
        >>> model = bayesin.models.from_functions(init, lambda p, x: x @ p["w"][:, None])
        >>> x = np.eye(2, dtype=np.float32).repeat(8, 0)
        >>> config = bayesin.HMC(samples=20, burn_in=10, step_size=0.2, steps=5, likelihood="gaussian")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fit = bayesin.fit_hmc(jax.random.key(0), model, (x, x.sum(1)), config, checkpoint=folder)
        ...     draws = Draws(folder)
        ...     len(draws), draws[0]["w"].shape, len(draws.load(every=5))
        (20, (2,), 4)
    """

    def __init__(self, folder: Path | str):
        self.folder = Path(folder)
        files = sorted(self.folder.glob("draws-*.safetensors"))
        if not files:
            raise ArtifactError(f"{self.folder} holds no draws (draws-*.safetensors)")
        self._starts, self._counts, place = [], [], 0
        self._files, shapes = files, None
        for file in files:
            header = read_header(file)
            if header.metadata.get("format") != DRAWS or not header.entries:
                raise ArtifactError(f"{file} is no file of draws")
            if (version := header.metadata.get("version", "")) != VERSION:
                raise ArtifactError(f"{file} has version {version[:20]!r}; this bayesin reads version {VERSION}")
            found = {name: entry.shape[2:] for name, entry in header.entries.items()}
            lead, *others = {entry.shape[:2] for entry in header.entries.values()}
            if others or len(lead) < 2 or min(lead) < 1:
                raise ArtifactError(f"{file} is no file of draws: its arrays need common axes for chains and draws")
            if file != _shard_path(self.folder, place) or (shapes is not None and (found, lead[0]) != shapes):
                raise ArtifactError(
                    f"{file} does not follow on the draws before it; a file is missing or of another run"
                )
            shapes = found, lead[0]
            self._starts.append(place)
            self._counts.append(lead[1])
            place += lead[1]
        self.chains, self.per_chain = lead[0], place
        self._cache: tuple[int, dict[str, np.ndarray]] | None = None

    def __len__(self) -> int:
        return self.chains * self.per_chain

    @overload
    def __getitem__(self, index: int) -> Tree: ...
    @overload
    def __getitem__(self, index: slice) -> Samples: ...
    def __getitem__(self, index):
        """One draw as a parameter tree, or a slice of them as `Samples`."""
        if isinstance(index, slice):
            return Samples(self.take(np.arange(len(self))[index]))
        if not -len(self) <= index < len(self):
            raise IndexError(f"draw {index} of {len(self)}")
        return jax.tree.map(lambda leaf: leaf[0], self.take(np.array([index % len(self)])))

    def take(self, indices: ArrayLike) -> Tree:
        """Returns the draws with these numbers as one stack, in their order; each file is read once."""
        indices = np.asarray(indices)
        chain, draw = np.divmod(indices, self.per_chain)
        found: dict[str, np.ndarray] = {}
        shards = np.searchsorted(self._starts, draw, side="right") - 1
        for shard in np.unique(shards):
            mine = np.flatnonzero(shards == shard)
            for path, array in self._read(int(shard)).items():
                out = found.setdefault(path, np.empty((len(indices), *array.shape[2:]), array.dtype))
                out[mine] = array[chain[mine], draw[mine] - self._starts[shard]]
        return unflatten(found)

    def load(self, every: int = 1) -> Samples:
        """Returns the draws as `Samples` in memory, one in `every`."""
        return self[::every]

    def mapped(self) -> Samples:
        """Returns all draws as `Samples` whose arrays lie in a nameless file beside them, not in memory.

        The system reads what is used and forgets it again under pressure; the file goes with the arrays.
        """
        found: dict[str, np.ndarray] = {}
        for shard, start in enumerate(self._starts):
            for path, array in self._read(shard).items():
                if path not in found:
                    found[path] = self._mapped(array.dtype, (self.chains, self.per_chain, *array.shape[2:]))
                found[path][:, start : start + array.shape[1]] = array
        return Samples(unflatten({path: leaf.reshape(len(self), *leaf.shape[2:]) for path, leaf in found.items()}))

    def _mapped(self, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        """A map of a nameless file, which it outlives; its room is taken now: a page without any ends a process."""
        try:
            with tempfile.TemporaryFile(dir=self.folder) as file:
                os.posix_fallocate(file.fileno(), 0, max(1, math.prod(shape) * dtype.itemsize))
                return np.memmap(file, dtype, "r+", shape=shape)
        except OSError as error:
            raise ArtifactError(f"cannot write draws to {self.folder}: {error.strerror or error}") from error

    @property
    def params(self) -> Tree:
        """All draws in memory, as `Samples.params`."""
        return self[:].params

    @property
    def mean(self) -> Tree:
        """The average network, accumulated in float64 file by file."""
        total: dict[str, np.ndarray] = {}
        for shard in range(len(self._files)):
            for path, array in self._read(shard).items():
                total[path] = total.get(path, 0.0) + array.sum((0, 1), dtype=np.float64)
        return unflatten({path: (array / len(self)).astype(np.float32) for path, array in total.items()})

    def _read(self, shard: int) -> dict[str, np.ndarray]:
        if self._cache is None or self._cache[0] != shard:
            arrays, _ = read_tensors(self._files[shard])
            for name, array in arrays.items():
                if not name.startswith("params/") or not np.isfinite(array).all():
                    raise ArtifactError(f"{self._files[shard]}: '{name}' is no parameter, or not finite everywhere")
            # One file is kept: draws are mostly read one after another, and all files would be all draws in memory.
            self._cache = shard, {name.removeprefix("params/"): array for name, array in arrays.items()}
        return self._cache[1]


def write_draws(folder: Path, first: int, positions: list[Tree]) -> None:
    """Writes consecutive draws, each a tree with a leading chain axis, as one file."""
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves, 1), *positions)
    tensors = {f"params/{path}": leaf for path, leaf in flatten(stacked).items()}
    write_tensors(_shard_path(folder, first), tensors, {"format": DRAWS, "version": VERSION})


def save(folder: Path, run: dict[str, Any], states: ChainStates, history: History, kept: list[Tree]) -> None:
    """Writes the newest draws, then the state that counts them."""
    if kept:
        write_draws(folder, len(history.probes) - len(kept), kept)
    arrays = {f"state/{path}": leaf for path, leaf in flatten(states).items()}
    arrays |= {f"trace/{name}": column for name, column in trace_of(history.rows).items()}
    arrays["draws"] = np.asarray(len(history.probes))
    if history.probes:
        arrays["probes"] = np.stack(history.probes)
    write_tensors(folder / STATE_FILE, arrays, {"format": STATE, "version": VERSION, "run": json_text(run)})


def restore(folder: Path | None, run: dict[str, Any], beginning: ChainStates) -> tuple[ChainStates, History]:
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


def read_state(folder: Path, run: Mapping[str, Any]) -> dict[str, np.ndarray] | None:
    """Returns the arrays of a folder's checkpoint, or None where there is none; refuses that of another run.

    Draws beyond the checkpoint are removed: they will be made again, with the same bits.
    """
    path = folder / STATE_FILE
    if not path.exists():
        if list(folder.glob("draws-*.safetensors")):
            raise ArtifactError(f"{folder} holds draws but no {STATE_FILE}; empty it or choose another folder")
        return None
    arrays, metadata = read_tensors(path)
    if metadata.get("format") != STATE or metadata.get("version") != VERSION:
        raise ArtifactError(f"{path} is no checkpoint that this version can read")
    strings = parse_json(metadata.get("run", "{}"), f"the settings in {path}")
    if not isinstance(strings, dict) or np.shape(arrays.get("draws", [])) != ():
        raise ArtifactError(f"{path} is no checkpoint that this version can read")
    for name in run.keys() | strings.keys():
        if run.get(name) != strings.get(name):
            raise ConfigError(
                f"{folder} holds another run: {name} was {strings.get(name)!r} and is {run.get(name)!r}; "
                "choose another folder"
            )
    for leftover in folder.glob("draws-*.safetensors"):
        number = leftover.stem.removeprefix("draws-")
        if number.isdecimal() and int(number) >= int(arrays["draws"]):
            leftover.unlink()
    remove_leftovers(folder)
    return arrays


def _shard_path(folder: Path, first: int) -> Path:
    return folder / f"draws-{first:06d}.safetensors"
