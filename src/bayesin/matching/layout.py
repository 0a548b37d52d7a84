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

    @property
    def present(self) -> list[str]:
        """The groups, once for each factor they stand on."""
        return [group for group in self.groups if group is not None]


def layouts(spec: PermutationSpec) -> dict[str, Layout]:
    """Returns the layout of every parameter of a spec, by path."""
    result = {}
    for path, axes in spec.parameters:
        factors = [factor for axis in axes for factor in axis]
        result[path] = Layout(path, tuple(f.size for f in factors), tuple(f.group for f in factors))
    return result


def gather(
    array: np.ndarray, layout: Layout, perms: Mapping[str, Any], skip: frozenset[str] = frozenset()
) -> np.ndarray:
    """Returns a factored array with every group moved, except those in `skip`."""
    for place, group in enumerate(layout.groups):
        if group is not None and group not in skip:
            array = array.take(perms[group], axis=place)
    return array


def still(perms: Mapping[str, Any]) -> frozenset[str]:
    """Returns the groups that a permutation leaves as they are."""
    return frozenset(group for group, perm in perms.items() if (perm == np.arange(len(perm))).all())
