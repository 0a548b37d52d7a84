"""Where the search begins and in which order it goes: the identity, the anchored start, random permutations.

The anchored start settles groups from the fixed axes inwards. A tensor speaks for a group only once all its
other factors are fixed or settled, so that the first decisions rest on evidence no permutation can change.
"""

import zlib
from collections.abc import Iterator

import jax
import numpy as np

from ..symmetry import Perms, PermutationSpec
from .assignment import assign
from .similarity import Similarities


def starts(similarities: Similarities, key: jax.Array, count: int, init: Perms | None) -> Iterator[tuple[str, Perms]]:
    """Yields `count` named starts: the given one or the identity, then anchored, then random ones."""
    spec = similarities.problem.spec
    for index in range(count):
        if index == 0:
            yield ("identity", spec.identity()) if init is None else ("init", init)
        elif index == 1:
            yield "anchored", anchored(similarities)
        else:
            yield f"random {index - 1}", spec.random(jax.random.fold_in(key, index))


def anchored(similarities: Similarities) -> Perms:
    """Returns permutations settled one group at a time, the group with most evidence a unit first."""
    perms = similarities.problem.spec.identity()
    settled: set[str] = set()
    while len(settled) < len(perms):
        counts = {group: similarities.evidence(group, settled) for group in perms if group not in settled}
        group = max(counts, key=lambda name: counts[name])  # the first of equals, in the order of the spec
        if counts[group]:
            perms[group] = assign(similarities.settled(group, perms, settled)).perm
        settled.add(group)
    return perms


def random_order(spec: PermutationSpec, key: jax.Array, sweeps: int) -> list[tuple[str, ...]]:
    """Returns the groups in a fresh random order for each sweep."""
    groups = list(spec.sizes)
    draws = jax.random.uniform(jax.random.fold_in(key, zlib.crc32(b"order")), (sweeps, len(groups)))
    return [tuple(groups[i] for i in np.argsort(row, kind="stable")) for row in np.asarray(draws)]
