"""The mean-field Gaussian: an independent normal on every weight."""

import zlib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..errors import ModelError, PosteriorError
from ..trees import Tree, check_same_structure, flatten


class Gaussian(eqx.Module):
    """`N(mean, diag(std²))` over a parameter tree; `std` is zero where the posterior is a point.

    Example:
        >>> q = Gaussian({"w": jnp.zeros(3)}, {"w": jnp.ones(3)})
        >>> q.sample(jax.random.key(0), 5)["w"].shape
        (5, 3)
    """

    mean: Tree
    std: Tree

    def __check_init__(self):
        try:
            check_same_structure(self.mean, self.std, "mean and std of a Gaussian")
        except ModelError as error:
            raise PosteriorError(str(error)) from None

    @classmethod
    def point(cls, params: Tree) -> "Gaussian":
        """The posterior that is certain of `params`."""
        return cls(params, jax.tree.map(jnp.zeros_like, params))

    def sample(self, key: jax.Array, count: int) -> Tree:
        """Returns `count` draws as one tree with a leading axis.

        Every leaf has its own stream, folded from the CRC of its path, so that a draw does not depend
        on which other leaves the tree holds.
        """
        return self.at(standard_normal(key, self.mean, count))

    def at(self, noise: Tree) -> Tree:
        """Returns `mean + std * noise`; the same noise at every posterior gives common random numbers."""
        return jax.tree.map(lambda m, s, e: m + s * e, self.mean, self.std, noise)

    def log_density(self, params: Tree) -> jax.Array:
        """Returns `log q(params)`, summed over all weights.

        Raises:
            PosteriorError: a std is zero or negative, so that there is no density; or other parameters were given.
        """
        try:
            check_same_structure(self.mean, params, "a Gaussian and the point to take its density at")
        except ModelError as error:
            raise PosteriorError(str(error)) from None
        for path, std in flatten(self.std).items():
            if not isinstance(std, Tracer) and not bool(jnp.all(std > 0)):
                raise PosteriorError(f"there is no density: the std of '{path}' is not positive everywhere")
        terms = jax.tree.map(  # the square of a small std would be zero
            lambda m, s, w: -jnp.sum(0.5 * ((w - m) / s) ** 2 + jnp.log(s) + 0.5 * np.log(2 * np.pi)),
            self.mean,
            self.std,
            params,
        )
        return sum(jax.tree.leaves(terms), jnp.zeros(()))

    @property
    def size(self) -> int:
        """Number of weights."""
        return sum(leaf.size for leaf in jax.tree.leaves(self.mean))


def standard_normal(key: jax.Array, like: Tree, count: int) -> Tree:
    """Returns `count` standard normal trees shaped like `like`, with a leading axis."""
    flat = flatten(like)
    noise = [
        jax.random.normal(jax.random.fold_in(key, zlib.crc32(path.encode())), (count, *leaf.shape), leaf.dtype)
        for path, leaf in flat.items()
    ]
    return jax.tree.unflatten(jax.tree.structure(like), noise)
