"""The mean-field Gaussian: an independent normal on every weight."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from ..errors import ModelError, PosteriorError
from ..randomness import PRNGKey, normal_tree, sample_of
from ..symmetry import Perms, PermutationSpec, Signs, permute
from ..trees import Tree, check_not_narrowed, check_same_structure, flatten, is_float


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

    def __repr__(self) -> str:
        return f"Gaussian({self.size:,} weights)"

    @classmethod
    def point(cls, params: Tree) -> "Gaussian":
        """The posterior that is certain of `params`."""
        return cls(params, jax.tree.map(jnp.zeros_like, params))

    def sample(self, key: PRNGKey, count: int) -> Tree:
        """Returns `count` draws as one tree with a leading axis; number s is `draw(fold_in(key, s))`."""
        return sample_of(self, key, count)

    def draw(self, key: PRNGKey) -> Tree:
        """Returns one draw, `mean + std · ε`; the same key at every posterior gives common random numbers."""
        return self.at(normal_tree(key, self.mean))

    def at(self, noise: Tree) -> Tree:
        """Returns `mean + std · noise` in the precision of the mean; integers stay as they are."""

        def shifted(mean: Array, std: Array, noise: Array) -> Array:
            if not is_float(mean.dtype):
                return jnp.broadcast_to(mean, noise.shape)
            wide, scale = (jnp.broadcast_to(leaf, noise.shape).astype(noise.dtype) for leaf in (mean, std))
            return (wide + scale * noise).astype(mean.dtype)

        return jax.tree.map(shifted, self.mean, self.std, noise)

    def permute(self, spec: PermutationSpec, perms: Perms, signs: Signs | None = None) -> "Gaussian":
        """Returns the posterior with its units reordered, and flipped where there are signs."""
        return Gaussian(permute(self.mean, spec, perms, signs), permute(self.std, spec, perms))

    def log_density(self, params: Tree) -> Float[Array, ""]:
        """Returns `log q(params)`, summed over all weights.

        Raises:
            PosteriorError: a std is zero or negative, so that there is no density; or other parameters were given.
        """
        for tree in (self, params):
            check_not_narrowed(tree, "a density")
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
