"""A few mean-field Gaussians with weights: for posteriors that one Gaussian cannot stand for."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from ..errors import PosteriorError
from ..randomness import PRNGKey, sample_of
from ..symmetry import Perms, PermutationSpec, Signs, permute
from ..trees import Tree, is_float, stacked
from .gaussian import Gaussian


class GaussianMixture(eqx.Module):
    """`Σ_k weights[k] N(means[k], diag(stds[k]²))`; means and stds are trees with the components in front.

    Example:
        >>> parts = [Gaussian({"w": jnp.full(1, m)}, {"w": jnp.ones(1)}) for m in (-2.0, 2.0)]
        >>> q = GaussianMixture.of(parts, [0.5, 0.5])
        >>> q.mean["w"].tolist(), round(float(q.std["w"][0]) ** 2, 4), len(q.components)
        ([0.0], 5.0, 2)
    """

    means: Tree
    stds: Tree
    weights: Float[Array | np.ndarray, " components"]

    def __check_init__(self):
        first = Gaussian(self.means, self.stds)  # one structure, equal shapes
        counts = {leaf.shape[:1] for leaf in jax.tree.leaves(first.mean)}
        if counts != {jnp.shape(self.weights)} or not counts - {(0,)}:
            raise PosteriorError(f"a mixture needs as many means as weights: {counts} and {jnp.shape(self.weights)}")
        if isinstance(self.weights, Tracer):
            return
        if np.any(np.asarray(self.weights) < 0) or abs(float(np.sum(np.asarray(self.weights))) - 1) > 1e-4:
            raise PosteriorError("the weights of a mixture are not negative and add up to one")

    def __repr__(self) -> str:
        return f"GaussianMixture({len(self.weights)} components of {self.size:,} weights)"

    @classmethod
    def of(cls, components: Sequence[Gaussian], weights: Sequence[float]) -> "GaussianMixture":
        """Returns the mixture of these Gaussians."""
        means, stds = (
            stacked(trees) for trees in ([one.mean for one in components], [one.std for one in components])
        )
        return cls(means, stds, jnp.asarray(weights, jnp.float32))

    @property
    def components(self) -> list[Gaussian]:
        """The Gaussians one by one."""
        return [
            Gaussian(*(jax.tree.map(lambda leaf, at=k: leaf[at], tree) for tree in (self.means, self.stds)))
            for k in range(len(self.weights))
        ]

    def sample(self, key: PRNGKey, count: int) -> Tree:
        """Returns `count` draws as one tree with a leading axis; number s is `draw(fold_in(key, s))`."""
        return sample_of(self, key, count)

    def draw(self, key: PRNGKey) -> Tree:
        """Returns one draw of one component, which is chosen by a stream of its own."""
        which, noise = jax.random.split(key)
        # Logs of zero weights are −∞, which `categorical` never chooses.
        chosen = jax.random.categorical(which, jnp.log(jnp.asarray(self.weights, jnp.float32)))
        mean, std = (jax.tree.map(lambda leaf: jnp.asarray(leaf)[chosen], tree) for tree in (self.means, self.stds))
        return Gaussian(mean, std).draw(noise)

    def permute(self, spec: PermutationSpec, perms: Perms, signs: Signs | None = None) -> "GaussianMixture":
        """Returns the posterior with its units reordered, and flipped by signs, in every component alike."""
        means, stds = permute(self.means, spec, perms, signs), permute(self.stds, spec, perms)
        return GaussianMixture(means, stds, self.weights)

    @property
    def mean(self) -> Tree:
        """The mean of every weight; integers are those of the first component."""
        return jax.tree.map(lambda leaf: self._average(leaf) if is_float(leaf.dtype) else leaf[0], self.means)

    @property
    def std(self) -> Tree:
        """Marginal standard deviation: mean variance of the components and variance of their means."""

        def width(means: Array, stds: Array) -> Array:
            if not is_float(means.dtype):
                return jnp.zeros_like(means[0])
            return jnp.sqrt(self._average(stds**2 + (means - self._average(means)[None]) ** 2))

        return jax.tree.map(width, self.means, self.stds)

    @property
    def size(self) -> int:
        """Number of weights of one network."""
        return sum(leaf.size for leaf in jax.tree.leaves(self.means)) // len(self.weights)

    def _average(self, leaf: Array) -> Array:
        return jnp.tensordot(jnp.asarray(self.weights, leaf.dtype), leaf, 1, precision="highest")
