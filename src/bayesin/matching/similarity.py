"""How alike the units of one group are, with all other groups held where they are.

Entry (i, j) is the inner product of target unit i with source unit j over every tensor the group touches:
bring the group's factor to the front, move the source along the other factors, contract the rest. Where a
group stands on several factors of a tensor this is the gradient of the objective rather than the objective.
"""

import numpy as np

from ..symmetry import Perms
from .features import Problem
from .layout import front, gather


def similarity(problem: Problem, group: str, perms: Perms) -> np.ndarray:
    """Returns the (units × units) similarity of a group, in float64."""
    size = problem.spec.sizes[group]
    total = np.zeros((size, size))
    for layout, target, source in problem.pairs:
        for place in layout.places(group):
            total += front(target, place) @ front(gather(source, layout, perms, skip=place), place).T
    return total


def is_linear(problem: Problem, group: str) -> bool:
    """Whether the objective is linear in the group's permutation: at most one factor a tensor."""
    return all(len(pair.layout.places(group)) <= 1 for pair in problem.pairs)
