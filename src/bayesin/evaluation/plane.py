"""The plane through three posteriors: marginal likelihood and posterior on a grid.

Every point of the plane is an affine combination with barycentric coordinates λ, Σ λ_k = 1:

    mean = Σ λ_k mean_k        std = max(0, Σ λ_k std_k)

The clip acts only outside the triangle, where some λ_k is negative. Coordinates (u, v) are distances in weight
space: the first posterior lies at the origin, the second on the u axis (Gram–Schmidt on the means).

    log_likelihood  Σ_i log 1/S Σ_s p(y_i | x_i, θ_s)
    log_posterior   log_likelihood + E_q log p(θ),  p(θ) = N(0, prior_variance), up to the evidence

For points both are the ordinary ones.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ConfigError, PosteriorError
from ..jaxprs import Apply
from ..likelihoods import LikelihoodLike, as_likelihood
from ..paths import as_gaussian, geodesic
from ..posteriors import Gaussian, Posterior
from ..randomness import PRNGKey
from ..trees import Tree, common_dtype, flatten, is_float
from .marginal import Data, KeptNoise
from .predict import evaluate_prepared, prepare


class Plane(eqx.Module):
    """Values on a grid; `log_likelihood[i, j]` belongs to (u[j], v[i]).

    Example:
        >>> zeros = np.zeros((2, 3))
        >>> found = Plane(np.arange(3.0), np.arange(2.0), zeros - 1, zeros - 2, corners=np.eye(3, 2))
        >>> found.log_posterior.tolist()
        [[-3.0, -3.0, -3.0], [-3.0, -3.0, -3.0]]
    """

    u: Float[np.ndarray, " columns"]
    v: Float[np.ndarray, " rows"]
    log_likelihood: Float[np.ndarray, "rows columns"]
    log_prior: Float[np.ndarray, "rows columns"]
    corners: Float[np.ndarray, "3 2"]  # where the three posteriors lie

    def __repr__(self) -> str:
        return f"Plane({len(self.v)} × {len(self.u)} points, u to {self.u[-1]:.3g}, v to {self.v[-1]:.3g})"

    @property
    def log_posterior(self) -> Float[np.ndarray, "rows columns"]:
        """Log-likelihood plus expected log-prior."""
        return self.log_likelihood + self.log_prior

    def to_json(self) -> dict[str, Any]:
        """Plain numbers."""
        names = ("u", "v", "log_likelihood", "log_prior", "log_posterior", "corners")
        return {name: getattr(self, name).tolist() for name in names}


def plane(
    posteriors: Sequence[Posterior | Tree],
    apply: Apply,
    data: Data,
    *,
    key: PRNGKey,
    prior_variance: float,
    resolution: int = 21,
    samples: int = 16,
    margin: float = 0.25,
    exclude: Collection[str] = (),
    likelihood: LikelihoodLike = "categorical",
    on_point: Callable[[int, int], None] | None = None,
) -> Plane:
    """Returns likelihood and posterior on a grid in the plane through three posteriors.

    Args:
        posteriors: three Gaussians or points whose means do not lie on one line.
        apply: the network, `apply(params, x)`.
        data: inputs and targets.
        key: seed of the draws, the same at every point.
        prior_variance: of the zero-mean Gaussian prior on every weight.
        resolution: grid points along each side.
        samples: draws of the weights at every point.
        margin: room around the triangle, as a share of its size.
        exclude: paths without a prior, such as running statistics; integers never have one.
        likelihood: as in `barrier`.
        on_point: called with (points done, points in all).

    Raises:
        PosteriorError: not three, of different models, or on one line.

    Example:
        >>> corners = [{"w": jnp.array([[0.0, 0.0]])}, {"w": jnp.array([[1.0, 0.0]])}, {"w": jnp.array([[0.0, 2.0]])}]
        >>> x, y = jnp.ones((1, 1)), jnp.array([0])
        >>> found = plane(corners, lambda p, x: x @ p["w"], (x, y), key=jax.random.key(0), prior_variance=1.0,
        ...               resolution=3)
        >>> found.corners.tolist(), found.log_posterior.shape
        ([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]], (3, 3))
    """
    if len(posteriors) != 3:
        raise PosteriorError(f"a plane goes through three posteriors, not {len(posteriors)}")
    if not prior_variance > 0 or resolution < 2 or margin < 0:
        raise ConfigError("a plane needs prior_variance > 0, resolution ≥ 2 and margin ≥ 0")
    first, second, third = (as_gaussian(posterior) for posterior in posteriors)
    ends = [geodesic(first, second).start, geodesic(first, second).end, geodesic(first, third).end]  # checked
    corners = _corners([end.mean for end in ends])
    low, high = corners.min(0), corners.max(0)
    room = margin * (high - low)
    u, v = (np.linspace(a, b, resolution) for a, b in zip(low - room, high + room, strict=True))
    prepared = prepare(first, apply, data, samples, as_likelihood(likelihood))
    noise = KeptNoise(key, samples)
    log_likelihood, prior = np.empty((resolution, resolution)), np.empty((resolution, resolution))
    for number, (i, j) in enumerate(np.ndindex(resolution, resolution)):
        there = _combine(ends, jnp.asarray(_barycentric(corners, u[j], v[i]), jnp.result_type(float)))
        log_likelihood[i, j] = -prepared.count * evaluate_prepared(there, prepared, key, samples, noise).nll
        prior[i, j] = _expected_log_prior(there, prior_variance, frozenset(exclude))
        if on_point is not None:
            on_point(number + 1, resolution**2)
    return Plane(u, v, log_likelihood, prior, corners)


def _corners(means: list[Tree]) -> np.ndarray:
    """Coordinates of the means in their plane, from their inner products alone."""
    aa, ab, bb = (sum(map(float, products)) for products in _products_of_sides(means))
    length = np.sqrt(aa)
    height = np.sqrt(max(bb - ab**2 / aa, 0.0)) if aa > 0 else 0.0
    if not height > 1e-4 * np.sqrt(bb):  # float32 inner products resolve no less
        raise PosteriorError("the means of the three posteriors lie on one line; a plane needs three different ones")
    return np.array([[0.0, 0.0], [length, 0.0], [ab / length, height]])


@jax.jit  # one program: compiled one operation at a time, they would take longer than a barrier
def _products_of_sides(means: list[Tree]) -> list[list[Array]]:
    """Inner products of the two sides that begin at the first mean, tensor by tensor: of the one with itself, of the
    two, and of the other with itself."""
    first, second = (flatten(jax.tree.map(jnp.subtract, mean, means[0])) for mean in means[1:])
    pairs = (first, first), (first, second), (second, second)
    paths = [path for path, leaf in first.items() if is_float(leaf.dtype)]
    return [[jnp.vdot(_widened(one[path]), _widened(other[path])) for path in paths] for one, other in pairs]


def _widened(leaf: Array) -> Array:
    return leaf.astype(common_dtype(leaf, jnp.float32))


def _barycentric(corners: np.ndarray, u: float, v: float) -> np.ndarray:
    third = v / corners[2, 1]
    second = (u - third * corners[2, 0]) / corners[1, 0]
    return np.array([1 - second - third, second, third])


@jax.jit
def _combine(ends: list[Gaussian], weights: Float[Array, "3"]) -> Gaussian:
    def affine(*leaves: Array) -> Array:
        if not is_float(leaves[0].dtype):
            return leaves[0]
        wide = common_dtype(leaves[0], weights)
        total = sum(weight.astype(wide) * leaf.astype(wide) for weight, leaf in zip(weights, leaves, strict=True))
        return jnp.asarray(total).astype(leaves[0].dtype)

    mean = jax.tree.map(affine, *[end.mean for end in ends])
    std = jax.tree.map(affine, *[end.std for end in ends])
    return Gaussian(mean, jax.tree.map(lambda leaf: jnp.maximum(leaf, 0) if is_float(leaf.dtype) else leaf, std))


def _expected_log_prior(posterior: Gaussian, variance: float, exclude: frozenset[str]) -> float:
    """`−½ Σ (mean² + std²) / v − ½ n log 2πv`: the log-prior averaged over the posterior."""
    squares = {path: square for path, square in jax.device_get(_squares(posterior)).items() if path not in exclude}
    means = flatten(posterior.mean)
    total, count = sum(map(float, squares.values())), sum(means[path].size for path in squares)
    return -0.5 * total / variance - 0.5 * count * float(np.log(2 * np.pi * variance))


@jax.jit
def _squares(posterior: Gaussian) -> dict[str, Array]:
    """Σ mean² + std² of every tensor of weights."""
    stds = flatten(posterior.std)
    return {
        path: jnp.sum(_widened(mean) ** 2) + jnp.sum(_widened(stds[path]) ** 2)
        for path, mean in flatten(posterior.mean).items()
        if is_float(mean.dtype)
    }
