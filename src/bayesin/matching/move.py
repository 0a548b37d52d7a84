"""Moving a posterior: the permutation that was found, applied to a point or to mean and std of a Gaussian."""

from typing import Any

import jax
import numpy as np

from ..posteriors import Gaussian
from ..symmetry import Perms, PermutationSpec
from ..trees import Tree, flatten
from .layout import gather, layouts, still


def move(posterior: Any, spec: PermutationSpec, perms: Perms) -> Any:
    """Returns a point or a Gaussian with its units permuted; leaves keep their type, dtype and device.

    Example:
        >>> spec = PermutationSpec.parse({"w": ["g0"]}, {"g0": 2})
        >>> q = Gaussian({"w": np.array([1.0, 2.0])}, {"w": np.array([0.1, 0.2])})
        >>> move(q, spec, {"g0": np.array([1, 0])}).std["w"].tolist()
        [0.2, 0.1]
    """
    trees = (posterior.mean, posterior.std) if isinstance(posterior, Gaussian) else (posterior,)
    spec.check(trees[0])
    spec.check_perms(perms)
    perms = {group: np.asarray(perm) for group, perm in perms.items()}
    paths = list(flatten(trees[0]))
    moved = [_move_tree(tree, paths, spec, perms) for tree in trees]
    return Gaussian(*moved) if isinstance(posterior, Gaussian) else moved[0]


def _move_tree(tree: Tree, paths: list[str], spec: PermutationSpec, perms: Perms) -> Tree:
    places, skip = layouts(spec), still(perms)
    leaves, structure = jax.tree.flatten(tree)
    moved = []
    for path, leaf in zip(paths, leaves, strict=True):
        layout, array = places[path], np.asarray(leaf)
        result = gather(array.reshape(layout.shape), layout, perms, skip).reshape(array.shape)
        moved.append(_like(result, leaf, array))
    return structure.unflatten(moved)


def _like(result: np.ndarray, leaf: Any, array: np.ndarray) -> Any:
    """On the host a gather of numpy's needs no compilation, so it serves JAX arrays too."""
    if isinstance(leaf, jax.Array):
        return leaf if result is array else jax.device_put(result, leaf.sharding)
    return result.copy() if np.shares_memory(result, array) else result
