"""The group: composition, inverse, and how far a permutation is from the identity."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import SpecError
from .spec import Perms, check_permutation


def compose(outer: Mapping[str, Any], inner: Mapping[str, Any]) -> Perms:
    """Returns the permutations that act as `inner` first and `outer` after it.

    `permute(permute(t, inner), outer) == permute(t, compose(outer, inner))`, which in the gather
    convention is `inner[g][outer[g]]`.

    Example:
        >>> compose({"g0": np.array([1, 2, 0])}, {"g0": np.array([0, 2, 1])})["g0"].tolist()
        [2, 1, 0]
    """
    if set(outer) != set(inner):
        odd = sorted(set(outer) ^ set(inner))[0]
        raise SpecError(f"group '{odd}' is in one of the two permutations only")
    for group in outer:
        if np.shape(outer[group]) != np.shape(inner[group]):
            raise SpecError(
                f"group '{group}' has size {np.shape(outer[group])} in one permutation "
                f"and {np.shape(inner[group])} in the other"
            )
    return {group: _array(inner[group])[_array(outer[group])] for group in outer}


def invert(perms: Mapping[str, Any]) -> Perms:
    """Returns the permutations that undo these.

    Example:
        >>> invert({"g0": np.array([1, 2, 0])})["g0"].tolist()
        [2, 0, 1]
    """
    return {group: _invert_one(_array(perm)) for group, perm in perms.items()}


def transpositions(perms: Mapping[str, Any]) -> dict[str, int]:
    """Returns, for each group, the least number of swaps that make the permutation: n minus its cycles.

    Example:
        >>> transpositions({"g0": np.array([1, 2, 0, 3]), "g1": np.array([1, 0])})
        {'g0': 2, 'g1': 1}
    """
    return {group: _transpositions_of_one(perm, group) for group, perm in perms.items()}


def _transpositions_of_one(perm: Any, group: str) -> int:
    perm = np.asarray(perm)
    check_permutation(perm, perm.size, group)
    seen, cycles = np.zeros(perm.size, bool), 0
    for start in range(perm.size):
        cycles += not seen[start]
        while not seen[start]:
            seen[start], start = True, perm[start]
    return perm.size - cycles


def _invert_one(perm: Any) -> Any:
    if isinstance(perm, np.ndarray):
        return np.argsort(perm, kind="stable")
    return jnp.argsort(perm)


def _array(perm: Any) -> Any:
    return perm if isinstance(perm, jax.Array | np.ndarray) else np.asarray(perm)
