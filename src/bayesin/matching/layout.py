"""Where the groups of a spec stand in the arrays, with every axis split into its factors.

A tensor whose axes are products of factors is the same memory seen with one axis a factor. In that shape a
group is simply some of the axes, and the action of a permutation is a gather along each of them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

from ..errors import PosteriorError
from ..symmetry import PermutationSpec
from ..trees import Tree, flatten


@dataclass(frozen=True)
class Layout:
    """The factored shape of one tensor, and the group of each of its factors (None where fixed)."""

    path: str
    full: tuple[int, ...]  # shape of the array as it is
    shape: tuple[int, ...]
    groups: tuple[str | None, ...]

    def places(self, group: str) -> tuple[int, ...]:
        """The factors that count the units of a group."""
        return tuple(place for place, other in enumerate(self.groups) if other == group)

    @property
    def present(self) -> list[str]:
        """The groups, once for each factor they stand on."""
        return [group for group in self.groups if group is not None]


@lru_cache(maxsize=16)
def layouts(spec: PermutationSpec) -> Mapping[str, Layout]:
    """Returns the layout of every parameter of a spec, by path."""
    result = {}
    for path, axes in spec.parameters:
        factors = [factor for axis in axes for factor in axis]
        full = tuple(math.prod(factor.size for factor in axis) for axis in axes)
        result[path] = Layout(path, full, tuple(f.size for f in factors), tuple(f.group for f in factors))
    return MappingProxyType(result)


def leaves_by_path(tree: Tree, spec: PermutationSpec) -> dict[str, Any]:
    """Returns the leaves of a tree that fits the spec, without leading axes.

    Raises:
        SpecError: it does not fit.
        PosteriorError: it fits as a stack of several trees.
    """
    places, flat = layouts(spec), flatten(tree)
    if flat.keys() != places.keys() or any(np.shape(leaf) != places[path].full for path, leaf in flat.items()):
        spec.check(tree)  # says what is wrong
        raise PosteriorError("these parameters have leading axes; give one posterior at a time, or a list")
    return flat


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
