"""Samples on the host, and one of them seen as a matrix with a row for every unit.

Where a spec has one group that stands at most once in each tensor, a sample is a matrix of units × features:
row i holds every weight that touches unit i. Then a permutation reorders rows, the similarity of two samples
is one matrix product, and the best permutation one assignment.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import jax
import numpy as np

from ..errors import PosteriorError
from ..inference import Draws
from ..matching import batches
from ..posteriors import Samples
from ..symmetry import Layout, PermutationSpec, layouts
from ..trees import Tree, flatten

SampleSet = Samples | Draws  # in memory, or on disk
PermsOfEach = Mapping[str, np.ndarray]  # {group: (samples, units)}: one permutation for each sample
ORDINARY = 2**20  # weights between its inverse and itself have squares that float32 sums without loss


class UnitMatrix(NamedTuple):
    """How to see a parameter tree as units × features."""

    group: str
    layouts: tuple[Layout, ...]  # of the tensors that the group stands in
    exponent: int  # weights are multiplied by two to this power, which is exact; 0 for ordinary ones

    def of(self, flat: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns (units, features) of one sample in float32."""
        return np.concatenate(self.pieces(flat), 1)

    def pieces(self, flat: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Returns the same tensor by tensor, without a copy where a tensor has its units first or last."""
        pieces = []
        for layout in self.layouts:
            array, place = layout.factored(flat[layout.path]), layout.places(self.group)[0]
            if place == array.ndim - 1:
                rows = array.reshape(-1, array.shape[-1]).T
            else:
                rows = np.moveaxis(array, place, 0).reshape(array.shape[place], -1)
            rows = rows.astype(np.float32, copy=False)
            pieces.append(np.ldexp(rows, self.exponent) if self.exponent else rows)
        return pieces

    def of_each(self, samples: SampleSet) -> Iterator[np.ndarray]:
        """Yields (units, features) of every sample."""
        return map(self.of, each_member(samples))


def unit_matrix(spec: PermutationSpec, like: Tree, exclude: frozenset[str]) -> UnitMatrix | None:
    """Returns the view of such trees; None where the spec has signs, several groups, or one twice in a tensor."""
    if len(spec.sizes) != 1 or spec.signed:
        return None
    group = next(iter(spec.sizes))
    if spec.outer(group):
        return None
    flat = {path: np.asarray(leaf) for path, leaf in flatten(like).items()}
    touched = [piece for pieces in layouts(spec).values() for piece in pieces if piece.places(group)]
    if any(len(layout.places(group)) > 1 for layout in touched):
        return None
    compared = tuple(place for place in touched if place.path not in exclude and is_floating(flat[place.path]))
    if not compared:
        return None
    largest = max(float(np.abs(flat[layout.path]).max(initial=0.0)) for layout in compared)
    # Only tiny or huge weights are rescaled, by a power of two, which changes no digit: squares of 1e-25 are zero in
    # float32.
    ordinary = largest == 0 or 1 / ORDINARY <= largest <= ORDINARY
    return UnitMatrix(group, compared, 0 if ordinary else -int(np.frexp(largest)[1]))


def on_host(samples: SampleSet) -> SampleSet:
    """Returns the samples with numpy leaves; draws on disk stay there."""
    if isinstance(samples, Draws):
        return samples
    if not isinstance(samples, Samples):
        raise PosteriorError(f"compact folds Samples (or Draws on disk), not {type(samples).__name__}")
    return Samples(jax.tree.map(np.asarray, samples.params))


def each_member(samples: SampleSet) -> Iterator[dict[str, np.ndarray]]:
    """Yields every sample, by path."""
    for part, stack in batches(samples):
        for index in range(part.stop - part.start):
            yield member(stack, index)


def member(stack: Tree, index: int) -> dict[str, np.ndarray]:
    """One sample of a stack, by path."""
    return {path: leaf[index] for path, leaf in flatten(stack).items()}


def is_floating(leaf: np.ndarray) -> bool:
    """Whether a leaf can be averaged."""
    return np.asarray(leaf).dtype.kind not in "biu"
