"""A parameter tree as one flat vector, and what becomes of each leaf.

Training works on one vector: one draw of random numbers, one optimiser update, a handful of kernels
whatever the number of layers. Every leaf has a role:

    gaussian   a mean and a std for each weight
    point      trained, but certain (norm gains where asked for; all leaves of an ensemble)
    fixed      not trained: running statistics, which training mode collects, and integers

The vector holds the Gaussian leaves first, then the points, each in the tree's own order.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import ModelError
from ..trees import Tree, flatten

Role = Literal["gaussian", "point", "fixed"]


@dataclass(frozen=True)
class Leaf:
    """One array of the parameter tree."""

    path: str
    shape: tuple[int, ...]
    dtype: str
    role: Role

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class FlatLayout:
    """Where each leaf stands in the vector; static and hashable."""

    tree: Any  # the treedef
    leaves: tuple[Leaf, ...]  # in the tree's order

    @property
    def trained(self) -> list[tuple[int, Leaf]]:
        """(index in the tree, leaf) in the vector's order."""
        numbered = list(enumerate(self.leaves))
        return [pair for role in ("gaussian", "point") for pair in numbered if pair[1].role == role]

    @property
    def size(self) -> int:
        """Length of the vector."""
        return sum(leaf.size for _, leaf in self.trained)

    @property
    def gaussian_size(self) -> int:
        """How many entries of the vector have a std."""
        return sum(leaf.size for _, leaf in self.trained if leaf.role == "gaussian")

    def split(self, params: Tree) -> tuple[jax.Array, list[jax.Array]]:
        """Returns the vector and the fixed leaves of a tree."""
        leaves = jax.tree.leaves(params)
        return self.concatenate([leaves[i] for i, _ in self.trained]), self.fixed_of(params)

    def fixed_of(self, params: Tree) -> list[jax.Array]:
        """Returns the fixed leaves of a tree, in their own dtypes."""
        pairs = zip(jax.tree.leaves(params), self.leaves, strict=True)
        return [jnp.asarray(value).astype(leaf.dtype) for value, leaf in pairs if leaf.role == "fixed"]

    def concatenate(self, trained: Sequence[Any]) -> jax.Array:
        """Returns the vector of trained leaves given in the vector's order."""
        if not trained:
            return jnp.zeros(0, jnp.float32)
        return jnp.concatenate([jnp.asarray(leaf, jnp.float32).reshape(-1) for leaf in trained])

    def pieces(self, vector: jax.Array) -> list[jax.Array]:
        """Returns the trained leaves in the vector's order, in float32."""
        pieces, start = [], 0
        for _, leaf in self.trained:
            pieces.append(jax.lax.slice_in_dim(vector, start, start + leaf.size).reshape(leaf.shape))
            start += leaf.size
        return pieces

    def assemble(self, pieces: Sequence[Any], fixed: Sequence[Any]) -> Tree:
        """Returns the tree of trained leaves, in the vector's order, and fixed ones."""
        leaves: list[Any] = [None] * len(self.leaves)
        for (index, _), piece in zip(self.trained, pieces, strict=True):
            leaves[index] = piece
        rest = iter(fixed)
        leaves = [
            next(rest) if leaf.role == "fixed" else piece for leaf, piece in zip(self.leaves, leaves, strict=True)
        ]
        return jax.tree.unflatten(self.tree, leaves)

    def tree_of(self, vector: Any, fixed: Sequence[Any]) -> Tree:
        """Returns the parameter tree with the leaves' own dtypes; the inverse of `split`."""
        pieces = [p.astype(leaf.dtype) for p, (_, leaf) in zip(self.pieces(vector), self.trained, strict=True)]
        return self.assemble(pieces, fixed)


def make_layout(params: Tree, role: Callable[[str, Any], Role]) -> FlatLayout:
    """Returns the layout of a tree; `role` is asked for every floating leaf, others are fixed."""
    flat = flatten(params)
    if not flat:
        raise ModelError("the model has no parameters")
    leaves = []
    for path, leaf in flat.items():
        array = jnp.asarray(leaf)
        trainable = jnp.issubdtype(array.dtype, jnp.floating)
        leaves.append(Leaf(path, array.shape, str(array.dtype), role(path, leaf) if trainable else "fixed"))
    layout = FlatLayout(jax.tree.structure(params), tuple(leaves))
    if not layout.size:
        raise ModelError("the model has nothing to train: every leaf is a statistic or holds integers")
    return layout


def constant_leaves(first: Tree, second: Tree) -> dict[str, np.ndarray]:
    """Leaves that two initialisations with different keys agree on, by path: gains, thresholds, biases."""
    left, right = flatten(first), flatten(second)
    return {p: np.asarray(leaf) for p, leaf in left.items() if np.array_equal(np.asarray(leaf), np.asarray(right[p]))}
