"""Moving a posterior: the permutation that was found, applied to a point or to mean and std of a Gaussian."""

from typing import Any

import jax
import numpy as np

from ..posteriors import Gaussian
from ..symmetry import Perms, PermutationSpec
from ..trees import Tree
from .layout import Layout, gather, layouts, leaves_by_path, still


def move(posterior: Any, spec: PermutationSpec, perms: Perms) -> Any:
    """Returns a point or a Gaussian with its units permuted; leaves keep their type, dtype and device.

    Example:
        >>> spec = PermutationSpec.parse({"w": ["g0"]}, {"g0": 2})
        >>> q = Gaussian({"w": np.array([1.0, 2.0])}, {"w": np.array([0.1, 0.2])})
        >>> move(q, spec, {"g0": np.array([1, 0])}).std["w"].tolist()
        [0.2, 0.1]
    """
    spec.check_perms(perms)
    perms = {group: np.asarray(perm) for group, perm in perms.items()}
    trees = (posterior.mean, posterior.std) if isinstance(posterior, Gaussian) else (posterior,)
    known = layouts(spec)
    places = [known[path] for path in leaves_by_path(trees[0], spec)]
    moved = [_move_tree(tree, places, perms, still(perms)) for tree in trees]
    return Gaussian(*moved) if isinstance(posterior, Gaussian) else moved[0]


def _move_tree(tree: Tree, places: list[Layout], perms: Perms, skip: frozenset[str]) -> Tree:
    leaves, structure = jax.tree.flatten(tree)
    return structure.unflatten(
        _move_leaf(leaf, layout, perms, skip) for leaf, layout in zip(leaves, places, strict=True)
    )


def _move_leaf(leaf: Any, layout: Layout, perms: Perms, skip: frozenset[str]) -> Any:
    """On the host a gather of numpy's needs no compilation, so it serves JAX arrays too."""
    array = np.asarray(leaf)
    result = gather(array.reshape(layout.shape), layout, perms, skip).reshape(layout.full)
    if set(layout.present) <= skip:  # nothing moved: an immutable array is shared, another one copied
        return leaf if isinstance(leaf, jax.Array) else result.copy()
    return jax.device_put(result, leaf.sharding) if isinstance(leaf, jax.Array) else result
