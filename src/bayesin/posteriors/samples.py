"""A bag of weight samples: ensemble members, HMC draws."""

from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp

from ..errors import PosteriorError
from ..trees import Tree, flatten


class Samples(eqx.Module):
    """Equally weighted samples: a parameter tree whose leaves have one common leading axis.

    A sample set can be averaged over and drawn from. It has no density, and does not pretend to.
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

    def __iter__(self) -> Iterator[Tree]:
        return (self[index] for index in range(len(self)))  # else Python asks until an index fails, and none does

    def __len__(self) -> int:
        return jax.tree.leaves(self.params)[0].shape[0]

    def __getitem__(self, index) -> Tree:
        """One member as a parameter tree, or a slice as a shorter stack."""
        return jax.tree.map(lambda leaf: leaf[index], self.params)

    @classmethod
    def stack(cls, members: list[Tree]) -> "Samples":
        """Returns a sample set from a list of parameter trees."""
        return cls(jax.tree.map(lambda *leaves: jnp.stack(leaves), *members))

    @property
    def mean(self) -> Tree:
        """The average network."""
        return jax.tree.map(lambda leaf: leaf.mean(0), self.params)
