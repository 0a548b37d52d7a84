"""The Gaussian whose covariance is that of a set of samples, exactly and across tensors.

K samples w_k with mean m have the covariance C = Σ_k f_k f_kᵀ with f_k = (w_k − m) / √(K − 1), of rank at most
K − 1. One standard normal number for each factor, shared by all tensors, draws from N(m, C):

    w = m + Σ_k z_k f_k,     z ~ N(0, I).

An independent z for each tensor would make the covariance block-diagonal, which is another posterior.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError, PosteriorError
from ..randomness import PRNGKey, sample_of
from ..symmetry import Perms, PermutationSpec, Signs, permute
from ..trees import Tree, check_same_structure, common_dtype, is_float
from .gaussian import Gaussian
from .samples import Samples


class LowRankGaussian(eqx.Module):
    """`N(mean, Σ_k f_k f_kᵀ)`; `factors` is a parameter tree with the factors along a leading axis.

    `mean` and `std` (the marginal one) are what alignment compares, which bounds the true W₂² from below.

    Example:
        >>> samples = Samples({"a": jnp.array([[1.0], [3.0]]), "b": jnp.array([[0.0], [4.0]])})
        >>> q = LowRankGaussian.from_samples(samples)
        >>> float(q.mean["a"][0]), round(float(q.std["b"][0]) ** 2, 4)
        (2.0, 8.0)
        >>> draws = q.sample(jax.random.key(0), 5)
        >>> bool(jnp.allclose(draws["b"] - 2, 2 * (draws["a"] - 2), atol=1e-5))  # perfectly correlated
        True
    """

    mean: Tree
    factors: Tree

    def __check_init__(self):
        try:
            check_same_structure(self.mean, jax.tree.map(lambda leaf: leaf[0], self.factors), "mean and factors")
        except (ModelError, IndexError) as error:
            raise PosteriorError(f"factors are a stack of trees like the mean: {error}") from None
        if len({leaf.shape[0] for leaf in jax.tree.leaves(self.factors)}) != 1:
            raise PosteriorError("all factors need the same leading axis")

    def __repr__(self) -> str:
        return f"LowRankGaussian({self.size:,} weights, rank {self.rank})"

    @classmethod
    def from_samples(cls, samples: Samples, rank: int | None = None) -> "LowRankGaussian":
        """Returns the Gaussian with the samples' mean and covariance (divisor K − 1).

        Args:
            samples: at least two.
            rank: keep the directions of largest variance only; all of them where not given.
        """
        count = len(samples)
        if count < 2:
            raise PosteriorError(f"a covariance needs at least two samples, not {count}")
        if rank is not None and rank < 1:
            raise PosteriorError(f"a rank of {rank}; ranks start at 1")
        mean = samples.mean
        factors = jax.tree.map(lambda leaf, m: _deviations(leaf, m, count), samples.params, mean)
        return cls(mean, factors if rank is None or rank >= count else _leading(factors, rank))

    def sample(self, key: PRNGKey, count: int) -> Tree:
        """Returns `count` draws as one tree with a leading axis; number s is `draw(fold_in(key, s))`."""
        return sample_of(self, key, count)

    def draw(self, key: PRNGKey) -> Tree:
        """Returns one draw; the same key at every posterior of this rank gives common random numbers."""
        return self.at(jax.random.normal(key, (self.rank,), jnp.float32))

    def at(self, noise: Float[Array, "*draws rank"]) -> Tree:
        """Returns `mean + noise @ factors` in the precision of the mean; integers stay as they are."""
        lead = noise.shape[:-1]

        def shifted(mean: Array, factors: Array) -> Array:
            spread = jnp.broadcast_to(mean, (*lead, *mean.shape))
            if not is_float(mean.dtype):
                return spread
            wide = common_dtype(mean.dtype, jnp.float32)
            step = jnp.tensordot(noise.astype(wide), factors.astype(wide), 1, precision="highest")
            return (spread.astype(wide) + step).astype(mean.dtype)

        return jax.tree.map(shifted, self.mean, self.factors)

    def permute(self, spec: PermutationSpec, perms: Perms, signs: Signs | None = None) -> "LowRankGaussian":
        """Returns the posterior with its units reordered, and flipped where there are signs."""
        return LowRankGaussian(*(permute(tree, spec, perms, signs) for tree in (self.mean, self.factors)))

    @property
    def marginal(self) -> Gaussian:
        """The mean-field Gaussian with the same mean and the same std of every weight."""
        return Gaussian(self.mean, self.std)

    @property
    def std(self) -> Tree:
        """Marginal standard deviation of every weight."""

        def width(factors: Array) -> Array:
            return (
                jnp.sqrt(jnp.sum(jnp.square(factors), 0)) if is_float(factors.dtype) else jnp.zeros_like(factors[0])
            )

        return jax.tree.map(width, self.factors)

    @property
    def rank(self) -> int:
        """Number of factors: at least the rank of the covariance."""
        return jax.tree.leaves(self.factors)[0].shape[0]

    @property
    def size(self) -> int:
        """Number of weights."""
        return sum(leaf.size for leaf in jax.tree.leaves(self.mean))


def _deviations(leaf: Array, mean: Array, count: int) -> Array:
    """`(w_k − m) / √(K − 1)`; integers do not deviate."""
    if not is_float(leaf.dtype):
        return jnp.zeros_like(leaf)
    return (leaf - mean[None]) / np.sqrt(count - 1.0).astype(leaf.dtype)


def _leading(factors: Tree, rank: int) -> Tree:
    """The principal directions, from the small Gram matrix of the factors."""
    leaves = [np.asarray(leaf).reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(factors)]
    largest = max((float(np.abs(leaf).max()) for leaf in leaves if leaf.size), default=0.0) or 1.0
    unit = np.ldexp(1.0, np.frexp(largest)[1] - 1)  # a power of two, by which division is exact
    gram = sum(_gram(leaf, unit) for leaf in leaves)
    _, vectors = np.linalg.eigh(gram)  # eigenvalues ascend
    rotation = vectors[:, ::-1][:, :rank].T

    def rotated(leaf: Any) -> Any:
        if not is_float(leaf.dtype):
            return leaf[:rank]  # zeros
        if isinstance(leaf, np.ndarray) and leaf.dtype == np.float64:  # which JAX would round
            return np.tensordot(rotation, leaf, 1)
        return jnp.tensordot(jnp.asarray(rotation, jnp.float32), leaf, 1, precision="highest")

    return jax.tree.map(rotated, factors)


def _gram(rows: np.ndarray, unit: float, block: int = 1 << 15) -> np.ndarray:
    """Inner products of the rows in float64 and in this unit, a block of columns at a time."""
    total = np.zeros((len(rows), len(rows)))
    for start in range(0, rows.shape[1], block):
        part = rows[:, start : start + block].astype(np.float64) / unit
        total += part @ part.T
    return total
