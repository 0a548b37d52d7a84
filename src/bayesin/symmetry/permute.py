"""The action of permutations on a parameter tree.

One action serves means, stds, momenta and stacks of samples: every axis is gathered with the index that
its factors compose, `new[i] = old[perm[i]]`.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..trees import Tree, map_with_path
from .spec import Axis, Perms, PermutationSpec


def permute(tree: Tree, spec: PermutationSpec, perms: Perms) -> Tree:
    """Returns the tree with the units of every group reordered; the input is left as it is.

    Args:
        tree: params, stds, gradients, or a stack of them with leading axes.
        spec: which axes move together.
        perms: one integer array for each group, `new[i] = old[perm[i]]`. May be traced.

    Raises:
        SpecError: a parameter, a shape or a permutation does not fit the spec.

    Example:
        >>> spec = PermutationSpec.parse({"b": ["g0"], "w": ["2", "g0"]}, {"g0": 3})
        >>> tree = {"b": np.array([10, 20, 30]), "w": np.array([[1, 2, 3], [4, 5, 6]])}
        >>> permute(tree, spec, {"g0": np.array([2, 0, 1])})["w"].tolist()
        [[3, 1, 2], [6, 4, 5]]
    """
    lead = spec.check(tree)
    spec.check_perms(perms)
    axes = spec.axes

    def move(path: str, leaf: Any) -> Any:
        for number, axis in enumerate(axes[path]):
            index = axis_index(axis, perms)
            if index is not None:
                leaf = _take(leaf, index, lead + number)
        return leaf

    return map_with_path(move, tree)


def axis_index(axis: Axis, perms: Perms) -> Any:
    """The gather index of one axis, composed of its factors row-major; None where nothing moves."""
    if not any(factor.group for factor in axis):
        return None
    numpy = np if all(isinstance(perms[f.group], np.ndarray) for f in axis if f.group) else jnp
    index = numpy.zeros(1, np.int32)
    for factor in axis:
        step = numpy.asarray(perms[factor.group]) if factor.group else numpy.arange(factor.size, dtype=np.int32)
        index = (index[:, None] * factor.size + step[None, :]).reshape(-1)
    return index


def _take(leaf: Any, index: Any, axis: int) -> Any:
    if isinstance(leaf, np.ndarray) and isinstance(index, np.ndarray):
        return np.take(leaf, index, axis)
    return jax.numpy.take(jnp.asarray(leaf), index, axis, mode="clip")  # indices are in range by construction
