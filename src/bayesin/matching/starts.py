"""Where the search begins: the identity, the anchored start, random permutations.

The anchored start settles groups from the fixed axes inwards. A tensor speaks for a group only once all its
other factors are fixed or settled, so that the first decisions rest on evidence no permutation can change.
"""

from collections.abc import Iterator

import jax
import numpy as np

from ..symmetry import Perms
from .assignment import assign
from .features import Problem
from .layout import front, gather


def starts(problem: Problem, key: jax.Array, count: int, init: Perms | None) -> Iterator[tuple[str, Perms]]:
    """Yields `count` named starts: the given one or the identity, then anchored, then random ones."""
    for index in range(count):
        if index == 0:
            yield ("identity", problem.spec.identity()) if init is None else ("init", init)
        elif index == 1:
            yield "anchored", anchored(problem)
        else:
            yield f"random {index - 1}", problem.spec.random(jax.random.fold_in(key, index))


def anchored(problem: Problem) -> Perms:
    """Returns permutations settled one group at a time, the best anchored group first."""
    perms = problem.spec.identity()
    settled: set[str] = set()
    while len(settled) < len(perms):
        weights = {group: _evidence(problem, group, settled) for group in perms if group not in settled}
        group = max(weights, key=lambda name: weights[name])  # the first of equals, in the order of the spec
        if weights[group] > 0:
            perms[group] = assign(_settled_similarity(problem, group, settled, perms))
        settled.add(group)
    return perms


def _evidence(problem: Problem, group: str, settled: set[str]) -> float:
    """Numbers known of each unit: entries of its settled tensors."""
    return sum(
        pair.target.size / problem.spec.sizes[group] for pair in problem.pairs if _speaks(pair.layout, group, settled)
    )


def _settled_similarity(problem: Problem, group: str, settled: set[str], perms: Perms) -> np.ndarray:
    size = problem.spec.sizes[group]
    total = np.zeros((size, size))
    for layout, target, source in problem.pairs:
        if _speaks(layout, group, settled):
            place = layout.places(group)[0]
            total += front(target, place) @ front(gather(source, layout, perms, skip=place), place).T
    return total


def _speaks(layout, group: str, settled: set[str]) -> bool:
    others = [other for other in layout.groups if other is not None and other != group]
    return len(layout.places(group)) == 1 and all(other in settled for other in others)
