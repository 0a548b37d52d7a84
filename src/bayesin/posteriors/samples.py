"""A bag of weight samples: ensemble members, HMC draws."""

from collections.abc import Iterator, Sequence
from typing import overload

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from ..errors import PosteriorError
from ..randomness import PRNGKey, check_key, sample_with
from ..symmetry import Perms, PermutationSpec, Signs, permute
from ..trees import Tree, flatten, is_float, stacked

Several = slice | Sequence[int] | Int[np.ndarray, "k"] | Bool[np.ndarray, "n"] | Int[Array, "k"] | Bool[Array, "n"]


class Samples(eqx.Module):
    """Equally weighted samples: a parameter tree whose leaves have one common leading axis.

    A sample set can be averaged over and drawn from. It has no density, and does not pretend to.

    Example:
        >>> samples = Samples({"w": np.array([[1.0, 0.0], [3.0, 0.0], [5.0, 3.0]])})
        >>> samples[0]["w"].tolist(), len(samples[:2]), samples[[0, 2]].mean["w"].tolist()
        ([1.0, 0.0], 2, [3.0, 1.5])
    """

    params: Tree

    def __check_init__(self):
        counts = {path: jnp.shape(leaf)[:1] for path, leaf in flatten(self.params).items()}
        if not counts:
            raise PosteriorError("samples need at least one parameter")
        first, count = next(iter(counts.items()))
        for path, other in counts.items():
            if other != count or not other:
                raise PosteriorError(
                    f"samples need one common leading axis: '{first}' has {count}, '{path}' has {other}"
                )

    def __repr__(self) -> str:
        return f"Samples({len(self)} of {self.size:,} weights)"

    def __iter__(self) -> Iterator[Tree]:
        return (self[index] for index in range(len(self)))

    def __len__(self) -> int:
        return jax.tree.leaves(self.params)[0].shape[0]

    @overload
    def __getitem__(self, index: int) -> Tree: ...

    @overload
    def __getitem__(self, index: Several) -> "Samples": ...

    def __getitem__(self, index: int | Several) -> "Tree | Samples":
        """One member as a parameter tree; a slice, a list of numbers or a mask as `Samples`."""
        if isinstance(index, slice):
            return Samples(jax.tree.map(lambda leaf: leaf[index], self.params))
        chosen = np.asarray(index)
        # JAX clamps numbers that are out of range, so they are checked here.
        outside = chosen[(chosen < -len(self)) | (chosen >= len(self))] if chosen.dtype != bool else chosen[:0]
        if outside.size:
            raise IndexError(f"there are {len(self)} samples, counted from 0; number {outside.ravel()[0]} is not one")
        picked = jax.tree.map(lambda leaf: leaf[chosen if chosen.ndim else int(chosen)], self.params)
        return Samples(picked) if chosen.ndim else picked

    @classmethod
    def stack(cls, members: Sequence[Tree]) -> "Samples":
        """Returns a sample set from a list of parameter trees."""
        return cls(stacked(members))

    @classmethod
    def from_chains(cls, params: Tree) -> "Samples":
        """Returns a sample set from a tree with two axes in front, (chains, draws, ...), chain by chain.

        What NumPyro's `get_samples(group_by_chain=True)`, ArviZ, Stan and a vmapped blackjax chain hold.

        Example:
            >>> Samples.from_chains({"w": np.zeros((4, 25, 3))})
            Samples(100 of 3 weights)
        """
        shapes = {path: jnp.shape(leaf)[:2] for path, leaf in flatten(params).items()}
        first = next(iter(shapes.values()), ())
        for path, shape in shapes.items():
            if len(shape) < 2 or shape != first:
                raise PosteriorError(
                    f"every leaf needs two common axes (chains, draws) in front: '{path}' has {shape}"
                )
        return cls(jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), params))

    def to_chains(self, chains: int) -> Tree:
        """Returns the tree with axes (chains, draws, ...) in front: the inverse of `from_chains`."""
        if chains < 1 or len(self) % chains:
            raise PosteriorError(f"{len(self)} samples are not {chains} chains of equal length")
        return jax.tree.map(lambda leaf: leaf.reshape(chains, -1, *leaf.shape[1:]), self.params)

    def sample(self, key: PRNGKey, count: int) -> Tree:
        """Returns `count` members drawn with replacement, as one tree with a leading axis.

        `predict`, `evaluate` and `barrier` do not draw: they average over every member once.
        """
        check_key(key)
        chosen = sample_with(lambda one: jax.random.randint(one, (), 0, len(self)), key, count)
        return jax.tree.map(lambda leaf: leaf[chosen], self.params)

    def permute(self, spec: PermutationSpec, perms: Perms, signs: Signs | None = None) -> "Samples":
        """Returns the samples with the units of each reordered, and flipped where there are signs."""
        return Samples(permute(self.params, spec, perms, signs))

    @property
    def mean(self) -> Tree:
        """The average network; integers are those of the first member."""
        return jax.tree.map(lambda leaf: leaf.mean(0) if is_float(leaf.dtype) else leaf[0], self.params)

    @property
    def std(self) -> Tree:
        """Standard deviation of every weight over the members (divisor n − 1); zero for a single member."""
        freedom = min(1, len(self) - 1)
        return jax.tree.map(
            lambda leaf: leaf.std(0, ddof=freedom) if is_float(leaf.dtype) else jnp.zeros_like(leaf[0]), self.params
        )

    @property
    def size(self) -> int:
        """Number of weights of one network."""
        return sum(leaf.size for leaf in jax.tree.leaves(self.params)) // max(1, len(self))
