"""Paths between two posteriors: the Wasserstein geodesic, and the mixture as a control.

For mean-field Gaussians the W2 geodesic moves mass along straight lines, so that

    mean_τ = (1 − τ) mean_0 + τ mean_1        std_τ = (1 − τ) std_0 + τ std_1.

It is the std that is linear in τ: not the variance, not its log, not the raw parameter of a softplus.
Along the mixture (1 − τ) p + τ q the marginal likelihood is linear and the loss convex in τ (Jensen), so its
barrier is zero with or without alignment: a control, and no evidence of connectivity.

References: Takatsu 2011 (geodesics between Gaussians); Rossi et al. 2023.
"""

from collections.abc import Collection
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from .errors import ConfigError, ModelError, PosteriorError
from .posteriors import Gaussian, LowRankGaussian, Samples
from .trees import Tree, check_same_structure, flatten


class Geodesic(eqx.Module):
    """The W2 geodesic, a function of τ; made by `geodesic`."""

    start: Gaussian
    end: Gaussian

    def __call__(self, tau: Any) -> Gaussian:
        """The Gaussian at τ; exactly `start` at 0 and `end` at 1."""
        return _between(self.start, self.end, _checked(tau))


class Mixture(eqx.Module):
    """The distribution that is `first` with probability 1 − weight and `second` with probability weight."""

    first: Gaussian
    second: Gaussian
    weight: Any


class MixturePath(eqx.Module):
    """The mixture path, a function of τ; made by `mixture`."""

    start: Gaussian
    end: Gaussian

    def __call__(self, tau: Any) -> Mixture:
        """The mixture at τ."""
        return Mixture(self.start, self.end, jnp.asarray(_checked(tau), jnp.float32))


def geodesic(p: Gaussian | Tree, q: Gaussian | Tree) -> Geodesic:
    """Returns the Wasserstein geodesic from `p` to `q`: a function of τ in [0, 1] that gives a Gaussian.

    Points are Gaussians with zero std, and the path between them is the straight line. Running statistics
    are interpolated like means. Integers (step counters) do not interpolate: they come from the nearer end,
    at τ = ½ from `p`. Half-precision leaves are interpolated in float32 and rounded once.

    Args:
        p: where the path starts, a Gaussian or a parameter tree.
        q: where it ends; aligned to `p` beforehand, or not.

    Raises:
        PosteriorError: the two have different parameters or shapes, or stds that are negative or not finite.

    Example:
        >>> p = Gaussian({"w": jnp.array([0.0])}, {"w": jnp.array([1.0])})
        >>> q = Gaussian({"w": jnp.array([2.0])}, {"w": jnp.array([3.0])})
        >>> middle = geodesic(p, q)(0.5)
        >>> middle.mean["w"].item(), middle.std["w"].item()
        (1.0, 2.0)
    """
    return Geodesic(*_ends(p, q))


def mixture(p: Gaussian | Tree, q: Gaussian | Tree) -> MixturePath:
    """Returns the mixture path from `p` to `q`; its barrier is zero, whatever the two are.

    Example:
        >>> path = mixture({"w": jnp.zeros(2)}, {"w": jnp.ones(2)})
        >>> path(0.25).weight.item()
        0.25
    """
    return MixturePath(*_ends(p, q))


def wasserstein(p: Gaussian | Tree, q: Gaussian | Tree, *, exclude: Collection[str] = ()) -> float:
    """Returns the W2 distance `sqrt(|mean_p − mean_q|² + |std_p − std_q|²)`.

    Args:
        p, q: Gaussians or points.
        exclude: paths that do not count, such as running statistics; integers never do.

    Example:
        >>> wasserstein({"w": jnp.array([0.0, 0.0])}, {"w": jnp.array([3.0, 4.0])})
        5.0
    """
    p, q = _ends(p, q)
    total = 0.0
    for left, right in ((p.mean, q.mean), (p.std, q.std)):
        others = flatten(right)
        for path, leaf in flatten(left).items():
            if path not in exclude and jnp.issubdtype(leaf.dtype, jnp.inexact):
                largest, rest = _squared_distance(leaf, others[path])
                total += float(largest) ** 2 * float(rest)
    return float(np.sqrt(total))


def as_gaussian(posterior: Gaussian | Tree) -> Gaussian:
    """A Gaussian as it is, a parameter tree as the Gaussian that is certain of it."""
    if isinstance(posterior, Samples):
        raise PosteriorError("a path needs Gaussians or points; fold the samples into one with bayesin.compact")
    if isinstance(posterior, LowRankGaussian):
        raise PosteriorError("a path needs mean-field Gaussians or points; q.marginal is that of a low-rank one")
    return posterior if isinstance(posterior, Gaussian) else Gaussian.point(posterior)


def is_point(posterior: Gaussian) -> bool:
    """Whether every std is zero."""
    return not any(bool(jnp.any(leaf != 0)) for leaf in jax.tree.leaves(posterior.std))


def _ends(p: Any, q: Any) -> tuple[Gaussian, Gaussian]:
    p, q = as_gaussian(p), as_gaussian(q)
    try:
        check_same_structure(p.mean, q.mean, "the two ends of a path")
    except ModelError as error:
        raise PosteriorError(str(error)) from None
    if jax.tree.structure(p.mean) != jax.tree.structure(q.mean):
        raise PosteriorError("the two ends of a path have the same parameters in different containers")
    _check_stds(p.std)
    _check_stds(q.std)
    dtypes = jax.tree.map(jnp.result_type, p.mean, q.mean)  # an end in half precision is widened, which is exact
    return tuple(  # pyright: ignore[reportReturnType]
        Gaussian(
            jax.tree.map(lambda leaf, dtype: jnp.asarray(leaf, dtype), end.mean, dtypes),
            jax.tree.map(lambda leaf, dtype: jnp.asarray(leaf, dtype), end.std, dtypes),
        )
        for end in (p, q)
    )


def _check_stds(std: Tree) -> None:
    for path, leaf in flatten(std).items():
        if isinstance(leaf, Tracer):
            continue
        if not bool(jnp.all(jnp.isfinite(leaf) & (leaf >= 0))):
            raise PosteriorError(f"the std of '{path}' is negative or not finite somewhere")


def _checked(tau: Any) -> Any:
    if not isinstance(tau, Tracer) and not 0 <= float(tau) <= 1:
        raise ConfigError(f"a path goes from τ = 0 to τ = 1; there is nothing at {float(tau):g}")
    return tau


@jax.jit
def _between(start: Gaussian, end: Gaussian, tau: Any) -> Gaussian:
    tau = jnp.asarray(tau, jnp.float32)
    return jax.tree.map(lambda a, b: _line(a, b, tau), start, end)


def _line(a: jax.Array, b: jax.Array, tau: jax.Array) -> jax.Array:
    """`(1 − τ) a + τ b`, written from the nearer end: exact where a = b, and never below zero where a, b ≥ 0."""
    if not jnp.issubdtype(a.dtype, jnp.inexact):
        return jnp.where(tau <= 0.5, a, b)
    wide = jnp.promote_types(a.dtype, jnp.float32)
    tau = tau.astype(wide)
    step = b.astype(wide) - a.astype(wide)
    inner = jnp.where(tau < 0.5, a.astype(wide) + tau * step, b.astype(wide) - (1 - tau) * step).astype(a.dtype)
    return jnp.where(tau == 0, a, jnp.where(tau == 1, b, inner))  # the ends to the bit, -0.0 included


@jax.jit
def _squared_distance(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    """|a − b|² as the largest difference, squared, times a number that no float32 is too small for."""
    wide = jnp.promote_types(a.dtype, jnp.float32)
    apart = jnp.abs(a.astype(wide) - b.astype(wide))
    largest = jnp.max(apart, initial=0)
    return largest, jnp.sum((apart / jnp.where(largest > 0, largest, 1)) ** 2)
