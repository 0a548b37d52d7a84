"""Samples on the host: moved sample by sample, and seen as one row for every unit.

Where a spec has one group that stands at most once in each tensor, a sample is a matrix of units × features:
row i holds every weight that touches unit i. Then a permutation reorders rows, the similarity of two samples
is one matrix product, and the best permutation one assignment.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from ..errors import PosteriorError
from ..inference.hmc import Draws
from ..matching.layout import Layout, gather, layouts
from ..posteriors import Samples
from ..symmetry import PermutationSpec
from ..trees import Tree, flatten

Stacked = Mapping[str, Any]  # {group: (samples, units)}: one permutation for each sample
BATCH = 32  # samples in memory beside those that were given


class Rows(NamedTuple):
    """How to see a parameter tree as units × features."""

    group: str
    layouts: tuple[Layout, ...]  # of the tensors that the group stands in

    def of(self, flat: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns (units, features) of one sample in float32."""
        pieces = []
        for layout in self.layouts:
            array = np.moveaxis(flat[layout.path].reshape(layout.shape), layout.places(self.group)[0], 0)
            pieces.append(array.reshape(len(array), -1))
        return np.concatenate(pieces, 1, dtype=np.float32)


def rows_of(spec: PermutationSpec, like: Tree, exclude: frozenset[str]) -> Rows | None:
    """Returns the view as rows; None where the spec has several groups or one stands twice in a tensor."""
    if len(spec.sizes) != 1:
        return None
    group, flat = next(iter(spec.sizes)), flatten(like)
    found = [layout for layout in layouts(spec).values() if layout.places(group)]
    if any(len(layout.places(group)) > 1 for layout in found):
        return None
    kept = tuple(one for one in found if one.path not in exclude and is_floating(flat[one.path]))
    return Rows(group, kept) if kept else None


def on_host(samples: Any) -> Samples | Draws:
    """Returns the samples with numpy leaves; draws on disk stay there."""
    if isinstance(samples, Draws):
        return samples
    if not isinstance(samples, Samples):
        raise PosteriorError(f"compact folds Samples (or Draws on disk), not {type(samples).__name__}")
    return Samples(jax.tree.map(np.asarray, samples.params))


def batches(samples: Samples | Draws, size: int = BATCH) -> Iterator[tuple[slice, dict[str, np.ndarray]]]:
    """Yields slices of the samples and their stacked leaves by path."""
    for start in range(0, len(samples), size):
        part = slice(start, min(start + size, len(samples)))
        yield part, flatten(samples[part])


def one(stack: Mapping[str, np.ndarray], index: int) -> dict[str, np.ndarray]:
    """One sample of a stack, by path."""
    return {path: leaf[index] for path, leaf in stack.items()}


def moved(stack: Mapping[str, np.ndarray], spec: PermutationSpec, perms: Stacked) -> dict[str, np.ndarray]:
    """Returns a stack whose samples are permuted, each by its own permutations."""
    result = {}
    for path, layout in layouts(spec).items():
        leaf = stack[path]
        if not layout.present:
            result[path] = leaf
            continue
        out = np.empty_like(leaf)
        for index in range(len(leaf)):
            mine = {group: perm[index] for group, perm in perms.items()}
            out[index] = gather(leaf[index].reshape(layout.shape), layout, mine).reshape(leaf.shape[1:])
        result[path] = out
    return {path: result[path] for path in stack}


def is_floating(leaf: Any) -> bool:
    """Whether a leaf can be averaged."""
    return np.asarray(leaf).dtype.kind not in "biu"


def identity(spec: PermutationSpec, count: int) -> dict[str, np.ndarray]:
    """Permutations that leave every sample as it is."""
    return {group: np.tile(np.arange(size), (count, 1)) for group, size in spec.sizes.items()}
