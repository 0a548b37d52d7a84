"""The Gaussian with a low-rank part and a diagonal one, as in factor analysis:

    w = m + Σ_k z_k f_k + d · ε,     z ~ N(0, I_K),  ε ~ N(0, I),     covariance  Σ_k f_k f_kᵀ + diag(d²).

What SWAG makes of the iterates of gradient descent (Maddox et al. 2019), and `compact` of several Gaussians.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..randomness import PRNGKey, normal_tree, sample_of
from ..symmetry import Perms, PermutationSpec, Signs, permute
from ..trees import Tree, is_float
from .gaussian import Gaussian
from .lowrank import LowRankGaussian


class FactorGaussian(eqx.Module):
    """`N(mean, Σ_k f_k f_kᵀ + diag(noise²))`; `factors` has a leading axis, `noise` is a tree like the mean.

    Example:
        >>> q = FactorGaussian({"w": jnp.zeros(2)}, {"w": jnp.array([[3.0, 0.0]])}, {"w": jnp.array([4.0, 1.0])})
        >>> q.std["w"].tolist()
        [5.0, 1.0]
    """

    mean: Tree
    factors: Tree
    noise: Tree

    def __check_init__(self):
        Gaussian(self.mean, self.noise)
        LowRankGaussian(self.mean, self.factors)

    def __repr__(self) -> str:
        return f"FactorGaussian({self.size:,} weights, rank {self.rank})"

    def sample(self, key: PRNGKey, count: int) -> Tree:
        """Returns `count` draws as one tree with a leading axis; number s is `draw(fold_in(key, s))`."""
        return sample_of(self, key, count)

    def draw(self, key: PRNGKey) -> Tree:
        """Returns one draw; both parts come from streams of their own."""
        shared, own = jax.random.split(key)
        return Gaussian(self.without_noise.draw(shared), self.noise).at(normal_tree(own, self.mean))

    def permute(self, spec: PermutationSpec, perms: Perms, signs: Signs | None = None) -> "FactorGaussian":
        """Returns the posterior with its units reordered, and flipped where there are signs."""
        mean, factors = (permute(tree, spec, perms, signs) for tree in (self.mean, self.factors))
        return FactorGaussian(mean, factors, permute(self.noise, spec, perms))

    @property
    def without_noise(self) -> LowRankGaussian:
        """The low-rank part, around the same mean."""
        return LowRankGaussian(self.mean, self.factors)

    @property
    def std(self) -> Tree:
        """Marginal standard deviation of every weight."""

        def width(noise: Array, factors: Array) -> Array:
            return jnp.sqrt(noise**2 + jnp.sum(factors**2, 0)) if is_float(factors.dtype) else jnp.zeros_like(noise)

        return jax.tree.map(width, self.noise, self.factors)

    @property
    def rank(self) -> int:
        """Number of factors."""
        return self.without_noise.rank

    @property
    def size(self) -> int:
        """Number of weights."""
        return self.without_noise.size
