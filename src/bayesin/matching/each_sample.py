"""Many samples of one network, each moved onto a reference by what its hidden units do on data.

Samples lie in memory or on disk: whatever has a length and gives a stack of parameters for a slice of itself.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np

from ..inputs import Inputs, count_of, cut
from ..symmetry import Activations, PermutationSpec
from ..trees import Tree
from .activation_similarity import activation_similarity
from .problem import pose_given
from .search import descend
from .similarity import Similarities

BATCH = 32  # samples in memory beside those that were given
IN_ONE_PASS = 8  # samples whose activations are computed at once
EXAMPLES = 2000  # that they are computed on at once

OnRound = Callable[[int, int, int], object]  # (round, samples matched in it, samples)


@runtime_checkable
class ManySamples(Protocol):
    """`Samples`, or `Draws` on disk."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any, /) -> Any: ...


class MatchedSamples(NamedTuple):
    """One permutation for each sample, and how the search went."""

    perms: dict[str, np.ndarray]  # {group: (samples, units)}
    rounds: int
    converged: bool
    signs: Mapping[str, np.ndarray] = MappingProxyType({})  # alike, of groups that may flip


def match_activations(
    reference: Tree,
    samples: ManySamples,
    spec: PermutationSpec,
    activations: Activations,
    x: Inputs,
    *,
    correlation: bool = False,
    number: int = 1,
    on_round: OnRound | None = None,
) -> MatchedSamples:
    """Returns the permutations under which the samples' units do most what the reference's units do on `x`.

    Signs stay as they are: of what `activations` returns nobody knows what they do to it.
    """
    spec = spec.without_signs
    x = jax.tree.map(np.asarray, x)
    chunks, order = cut(x, np.zeros(count_of(x), np.int32), EXAMPLES), [tuple(spec.sizes)]
    perms = identity_of_each(spec, len(samples))
    for part, stack in batches(samples, IN_ONE_PASS):
        similarity = activation_similarity(activations, reference, stack, chunks, correlation=correlation)
        for index in range(part.start, part.stop):
            given = {group: np.ascontiguousarray(each[index - part.start]) for group, each in similarity.items()}
            best = descend(Similarities(pose_given(spec, given)), spec.identity(), order, 0.0)
            for group, perm in best.perms.items():
                perms[group][index] = perm
        if on_round is not None:
            on_round(number, part.stop, len(samples))
    return MatchedSamples(perms, number, True)


def batches(samples: ManySamples, size: int = BATCH) -> Iterator[tuple[slice, Tree]]:
    """Yields slices of the samples and the stacked trees that they hold, on the host."""
    for start in range(0, len(samples), size):
        part = slice(start, min(start + size, len(samples)))
        yield part, jax.tree.map(np.asarray, samples[part].params)


def identity_of_each(spec: PermutationSpec, count: int) -> dict[str, np.ndarray]:
    """Permutations that leave every sample as it is."""
    return {group: np.stack([perm] * count) for group, perm in spec.identity().items()}
