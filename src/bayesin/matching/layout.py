"""Where the groups of a spec stand in the arrays, with every axis split into its factors.

A tensor whose axes are products of factors is the same memory seen with one axis a factor. In that shape a
group is simply some of the axes, and the action of a permutation is a gather along each of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..symmetry import PermutationSpec


@dataclass(frozen=True)
class Layout:
    """The factored shape of one tensor, and the group of each of its factors (None where fixed)."""

    path: str
    shape: tuple[int, ...]
    groups: tuple[str | None, ...]

    def places(self, group: str) -> tuple[int, ...]:
        """The factors that count the units of a group."""
        return tuple(place for place, other in enumerate(self.groups) if other == group)


def layouts(spec: PermutationSpec) -> dict[str, Layout]:
    """Returns the layout of every parameter of a spec, by path."""
    result = {}
    for path, axes in spec.parameters:
        factors = [factor for axis in axes for factor in axis]
        result[path] = Layout(path, tuple(f.size for f in factors), tuple(f.group for f in factors))
    return result


def gather(array: np.ndarray, layout: Layout, perms: Mapping[str, Any], skip: int | None = None) -> np.ndarray:
    """Returns a factored array with every group moved, except at the factor `skip`."""
    for place, group in enumerate(layout.groups):
        if group is not None and place != skip and not _is_identity(perms[group]):
            array = array.take(perms[group], axis=place)
    return array


def front(array: np.ndarray, place: int) -> np.ndarray:
    """Returns the array as a matrix whose rows are the units at one factor."""
    return np.moveaxis(array, place, 0).reshape(array.shape[place], -1)


def _is_identity(perm: np.ndarray) -> bool:
    return bool((perm == np.arange(perm.size)).all())
