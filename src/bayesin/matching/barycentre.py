"""The barycentre of posteriors whose units stand in one common order: mean of means, mean of stds.

For mean-field Gaussians with matched coordinates this minimises the sum of W₂² to all of them.

References: Agueh and Carlier 2011.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ..posteriors import Gaussian
from ..trees import Tree


def barycentre(posteriors: Sequence[Any]) -> Gaussian:
    """Returns the Gaussian with the mean of the means and the mean of the stds, units as they stand.

    Integer leaves have no mean: those of the first posterior are taken.
    """
    gaussians = [q if isinstance(q, Gaussian) else Gaussian(q, zeros_like(q)) for q in posteriors]
    return Gaussian(_average([q.mean for q in gaussians]), _average([q.std for q in gaussians]))


def zeros_like(tree: Tree) -> Tree:
    """Returns the std of a point: a tree of zeros."""
    return jax.tree.map(lambda leaf: np.zeros_like(np.asarray(leaf)), tree)


def _average(trees: list[Tree]) -> Tree:
    return jax.tree.map(_average_leaf, *trees)


def _average_leaf(*leaves: Any) -> Any:
    first = np.asarray(leaves[0])
    if first.dtype.kind in "biu":
        return leaves[0]
    total = np.zeros(first.shape, np.float64)
    for leaf in leaves:
        total += np.asarray(leaf)
    mean = (total / len(leaves)).astype(first.dtype)
    return jax.device_put(mean, leaves[0].sharding) if isinstance(leaves[0], jax.Array) else mean
