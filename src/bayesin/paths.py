"""Paths between two posteriors: the Wasserstein geodesic, and the mixture as a control.

For mean-field Gaussians the W2 geodesic moves mass along straight lines, so that

    mean_τ = (1 − τ) mean_0 + τ mean_1        std_τ = (1 − τ) std_0 + τ std_1.

It is the std that is linear in τ: not the variance, not its log, not the raw parameter of a softplus.

For low-rank Gaussians N(m_i, F_iᵀ F_i), with one factor in each row of F_i, any orthogonal O couples the two by a
common z: x_0 = m_0 + F_0ᵀ z and x_1 = m_1 + (O F_1)ᵀ z, at the cost |m_0 − m_1|² + |F_0 − O F_1|². The least
of these costs is W2² (Bures), because max_O tr(O F_1 F_0ᵀ), the sum of the singular values of F_0 F_1ᵀ, is
tr (C_0^½ C_1 C_0^½)^½. So the geodesic is linear in the means and in the factors, once the factors of the end are
rotated by O = U Vᵀ with F_0 F_1ᵀ = U S Vᵀ, which takes a matrix as small as the ranks.

Between two sets of equally many samples the optimal plan is an assignment (Birkhoff) on the squared distances of
their members; along the geodesic every member goes straight to its partner.

Along the mixture (1 − τ) p + τ q the marginal likelihood is linear and the loss convex in τ (Jensen), so its
barrier is zero with or without alignment: a control, and no evidence of connectivity.

References: Takatsu 2011 (geodesics between Gaussians); Bhatia, Jain and Lim 2019 (Bures distance and factors);
Rossi et al. 2023.
"""

from collections.abc import Collection

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Inexact

from .errors import ConfigError, ModelError, PosteriorError
from .posteriors import Gaussian, LowRankGaussian, Posterior, Samples, is_posterior
from .trees import Tree, check_not_narrowed, check_same_structure, common_dtype, flatten, is_float

Scalar = float | Float[Array, ""]


class Geodesic(eqx.Module):
    """The W2 geodesic, a function of τ; made by `geodesic`."""

    start: Gaussian | LowRankGaussian | Samples
    end: Gaussian | LowRankGaussian | Samples  # in factors rotated, or samples ordered, as those of the start

    def __call__(self, tau: Scalar) -> Gaussian | LowRankGaussian | Samples:
        """The posterior at τ; exactly `start` at 0 and `end` at 1."""
        # Of one type, whatever kind of number τ is: a program is compiled for each type. Under x64 0.1 is Python's.
        return _between(self.start, self.end, jnp.asarray(_checked(tau), jnp.result_type(float)))

    def __repr__(self) -> str:
        return f"Geodesic(from {self.start} to {self.end})"


class Mixture(eqx.Module):
    """The distribution that is `first` with probability 1 − weight and `second` with probability weight."""

    first: Gaussian | LowRankGaussian
    second: Gaussian | LowRankGaussian
    weight: Float[Array, ""]


class MixturePath(eqx.Module):
    """The mixture path, a function of τ; made by `mixture`."""

    start: Gaussian | LowRankGaussian
    end: Gaussian | LowRankGaussian

    def __call__(self, tau: Scalar) -> Mixture:
        """The mixture at τ."""
        return Mixture(self.start, self.end, jnp.asarray(_checked(tau), jnp.float32))

    def __repr__(self) -> str:
        return f"MixturePath(from {self.start} to {self.end})"


def geodesic(p: Posterior | Tree, q: Posterior | Tree) -> Geodesic:
    """Returns the Wasserstein geodesic from `p` to `q`: a function of τ in [0, 1] that gives a posterior.

    Points are Gaussians with zero std, and the path between them is the straight line. Running statistics
    are interpolated like means. Integers (step counters) do not interpolate: they come from the nearer end,
    at τ = ½ from `p`. Half-precision leaves are interpolated in float32 and rounded once.

    Two low-rank Gaussians, of equal or different ranks, have the low-rank path above; its end has the distribution
    of `q`, in rotated factors. Two sets of equally many samples have the path on which every sample goes to its
    partner; whether both sets share an order of units is for `compact` or `align` to see to. A posterior of your own
    family stands for the mean-field Gaussian with its mean and std; for another path of your own, give `barrier` any
    function of τ.

    Args:
        p: where the path starts, a posterior or a parameter tree.
        q: where it ends; aligned to `p` beforehand, or not.

    Raises:
        PosteriorError: the two have different parameters or shapes, stds that are negative or not finite, or are of
            kinds without a common path: one is low-rank and the other mean-field, one a sample set and the other not.

    Example:
        >>> p = Gaussian({"w": jnp.array([0.0])}, {"w": jnp.array([1.0])})
        >>> q = Gaussian({"w": jnp.array([2.0])}, {"w": jnp.array([3.0])})
        >>> middle = geodesic(p, q)(0.5)
        >>> middle.mean["w"].item(), middle.std["w"].item()
        (1.0, 2.0)
    """
    if isinstance(p, Samples) and isinstance(q, Samples):
        return Geodesic(*_partners(p, q))
    start, end = _ends(p, q)
    if isinstance(start, LowRankGaussian) and isinstance(end, LowRankGaussian):
        end = LowRankGaussian(end.mean, _rotated(start.factors, end.factors))
    return Geodesic(start, end)


def mixture(p: Posterior | Tree, q: Posterior | Tree) -> MixturePath:
    """Returns the mixture path from `p` to `q`; its barrier is zero, whatever the two are.

    Example:
        >>> path = mixture({"w": jnp.zeros(2)}, {"w": jnp.ones(2)})
        >>> path(0.25).weight.item()
        0.25
    """
    return MixturePath(*_ends(p, q))


def wasserstein(p: Posterior | Tree, q: Posterior | Tree, *, exclude: Collection[str] = ()) -> Float[Array, ""]:
    """Returns the W2 distance: `sqrt(|mean_p − mean_q|² + |std_p − std_q|²)` for mean-field Gaussians and points.

    For low-rank Gaussians the stds are replaced by the factors, optimally rotated. A pure function:
    `jax.jit`, `jax.grad` and `jax.vmap` take it, and the gradient where all differences are zero is zero.

    Args:
        p, q: Gaussians or points.
        exclude: paths that do not count, such as running statistics; integers never do.

    Example:
        >>> float(wasserstein({"w": jnp.array([0.0, 0.0])}, {"w": jnp.array([3.0, 4.0])}))
        5.0
    """
    start, end = (_without(posterior, frozenset(exclude)) for posterior in _ends(p, q))
    return _distance(start, end)


def as_gaussian(posterior: Posterior | Tree) -> Gaussian:
    """A mean-field Gaussian as it is, a parameter tree as one certain of it, a family of your own by its moments."""
    if isinstance(posterior, Gaussian):
        return posterior
    if isinstance(posterior, Samples):
        raise PosteriorError(
            "samples and a Gaussian have no common path; fold the samples into one with bayesin.compact"
        )
    if isinstance(posterior, LowRankGaussian):
        raise PosteriorError("a mean-field Gaussian or a point is needed; q.marginal is that of a low-rank one")
    if is_posterior(posterior):
        return Gaussian(posterior.mean, posterior.std)
    _check_arrays(posterior)
    return Gaussian.point(posterior)


def is_point(posterior: Gaussian | LowRankGaussian) -> bool:
    """Whether every std is zero."""
    spread = posterior.std if isinstance(posterior, Gaussian) else posterior.factors
    with jax.ensure_compile_time_eval():
        return not any(bool(jnp.any(leaf)) for leaf in jax.tree.leaves(spread))


def _ends(p: Posterior | Tree, q: Posterior | Tree) -> tuple[Gaussian | LowRankGaussian, Gaussian | LowRankGaussian]:
    """The two as Gaussians of one kind, with the same parameters in the same precision."""
    for end in (p, q):
        check_not_narrowed(end, "an end of a path")
    start, end = (end if isinstance(end, LowRankGaussian) else as_gaussian(end) for end in (p, q))
    _check_same_parameters(start.mean, end.mean)
    # A wider precision holds every number of a narrower one exactly.
    dtypes = jax.tree.map(common_dtype, start.mean, end.mean)
    if isinstance(start, Gaussian) and isinstance(end, Gaussian):
        return _as_type(start, dtypes), _as_type(end, dtypes)
    rank = max(end.rank for end in (start, end) if isinstance(end, LowRankGaussian))
    return _of_rank(start, rank, dtypes), _of_rank(end, rank, dtypes)


def _partners(p: Samples, q: Samples) -> tuple[Samples, Samples]:
    """Two sets of samples in one precision, those of the second in the order of their partners."""
    if len(p) != len(q):
        raise PosteriorError(
            f"sets of {len(p)} and {len(q)} samples have no path member by member; take equally many, or fold both "
            "with bayesin.compact"
        )
    for end in (p, q):
        check_not_narrowed(end, "an end of a path")
    _check_same_parameters(p.params, q.params)
    dtypes = jax.tree.map(common_dtype, p.params, q.params)
    start, end = (jax.tree.map(jnp.asarray, samples.params, dtypes) for samples in (p, q))
    # Σ |a_i − b_π(i)|² is least where Σ ⟨a_i, b_π(i)⟩ is largest; what all members share would drown the differences.
    rows = [[np.asarray(row, np.float64) for row in _rows(tree)] for tree in (start, end)]
    alike = sum((a - a.mean(0)) @ (b - b.mean(0)).T for a, b in zip(*rows, strict=True))
    from scipy.optimize import linear_sum_assignment  # slow to import, and seldom needed

    order = linear_sum_assignment(-np.asarray(alike))[1]
    return Samples(start), Samples(jax.tree.map(lambda leaf: leaf[order], end))


def _check_same_parameters(first: Tree, second: Tree) -> None:
    try:
        check_same_structure(first, second, "the two ends of a path")
    except ModelError as error:
        raise PosteriorError(str(error)) from None
    if jax.tree.structure(first) != jax.tree.structure(second):
        raise PosteriorError("the two ends of a path have the same parameters in different containers")


def _as_type(posterior: Gaussian, dtypes: Tree) -> Gaussian:
    _check_stds(posterior.std)
    return Gaussian(
        jax.tree.map(jnp.asarray, posterior.mean, dtypes),
        jax.tree.map(jnp.asarray, posterior.std, dtypes),
    )


def _of_rank(posterior: Gaussian | LowRankGaussian, rank: int, dtypes: Tree) -> LowRankGaussian:
    """A low-rank Gaussian, or a point, with as many factors; those that are added are zero."""
    mean = jax.tree.map(jnp.asarray, posterior.mean, dtypes)
    if isinstance(posterior, LowRankGaussian):
        missing = rank - posterior.rank
        return LowRankGaussian(
            mean,
            jax.tree.map(
                lambda f, dtype: jnp.pad(jnp.asarray(f, dtype), [(0, missing), *[(0, 0)] * (f.ndim - 1)]),
                posterior.factors,
                dtypes,
            ),
        )
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(posterior.std)) or not is_point(posterior):
        raise PosteriorError(
            "one of the two is a low-rank Gaussian and the other a mean-field one, which have no common path; "
            "q.marginal is the mean-field Gaussian of a low-rank one"
        )
    return LowRankGaussian(mean, jax.tree.map(lambda leaf: jnp.zeros((rank, *leaf.shape), leaf.dtype), mean))


def _check_stds(std: Tree) -> None:
    known = {p: leaf for p, leaf in flatten(std).items() if not isinstance(leaf, Tracer) and is_float(leaf.dtype)}
    with jax.ensure_compile_time_eval():  # a constant is checked inside `jit` too
        fine = jax.device_get(_are_spreads(known))
    for path in known:
        if not fine[path]:
            raise PosteriorError(f"the std of '{path}' is negative or not finite somewhere")


@jax.jit  # one program: one for each operation and shape would take over a second to compile
def _are_spreads(stds: dict[str, Array]) -> dict[str, Array]:
    return {path: jnp.all(jnp.isfinite(leaf) & (leaf >= 0)) for path, leaf in stds.items()}


def _check_arrays(params: Tree) -> None:
    for path, leaf in flatten(params).items():
        if not hasattr(leaf, "dtype") and not isinstance(leaf, int | float):
            raise PosteriorError(
                f"'{path or 'it'}' is {type(leaf).__name__}: neither an array of a parameter tree nor a posterior, "
                "which has mean, std, sample(key, count) and permute(spec, perms)"
            )


def _checked(tau: Scalar) -> Scalar:
    if not isinstance(tau, Tracer) and not 0 <= float(tau) <= 1:
        raise ConfigError(f"a path goes from τ = 0 to τ = 1; there is nothing at {float(tau):g}")
    return tau


@jax.jit
def _between(start: Gaussian, end: Gaussian, tau: Float[Array, ""]) -> Gaussian:
    return jax.tree.map(lambda a, b: _line(a, b, tau), start, end)


def _line(a: Array, b: Array, tau: Float[Array, ""]) -> Array:
    """`(1 − τ) a + τ b`, written from the nearer end: exact where a = b, and never below zero where a, b ≥ 0."""
    if not is_float(a.dtype):
        return jnp.where(tau <= 0.5, a, b)
    wide = common_dtype(a, tau)
    tau = tau.astype(wide)
    step = b.astype(wide) - a.astype(wide)
    inner = jnp.where(tau < 0.5, a.astype(wide) + tau * step, b.astype(wide) - (1 - tau) * step).astype(a.dtype)
    return jnp.where(tau == 0, a, jnp.where(tau == 1, b, inner))  # the ends to the bit, -0.0 included


@jax.jit
def _rotated(factors: Tree, others: Tree) -> Tree:
    """The factors `others`, rotated to be as near as can be to `factors`."""
    rows, columns = (_rows(tree) for tree in (factors, others))
    cross = sum(jnp.matmul(a, b.T, precision="highest") for a, b in zip(rows, columns, strict=True))
    left, _, right = jnp.linalg.svd(cross)
    # The distance is least at this rotation, so its own derivative does not contribute to that of the distance;
    # the derivative of a singular value decomposition is infinite where two values agree.
    rotation = jax.lax.stop_gradient(jnp.matmul(left, right, precision="highest"))

    def rotate(leaf: Array) -> Array:
        if not is_float(leaf.dtype):
            return leaf
        return jnp.tensordot(rotation, leaf.astype(rotation.dtype), 1, precision="highest").astype(leaf.dtype)

    return jax.tree.map(rotate, others)


def _rows(factors: Tree) -> list[Inexact[Array, "rank size"]]:
    leaves = [leaf for leaf in jax.tree.leaves(factors) if is_float(leaf.dtype)]
    wide = common_dtype(jnp.float32, *leaves)
    return [leaf.reshape(leaf.shape[0], -1).astype(wide) for leaf in leaves]


def _without(posterior: Gaussian | LowRankGaussian, exclude: frozenset[str]) -> Gaussian | LowRankGaussian:
    """The weights that count, by path."""
    kept = [path for path, leaf in flatten(posterior.mean).items() if path not in exclude and is_float(leaf.dtype)]
    spread = posterior.std if isinstance(posterior, Gaussian) else posterior.factors
    mean, spread = flatten(posterior.mean), flatten(spread)
    return type(posterior)({path: mean[path] for path in kept}, {path: spread[path] for path in kept})


@jax.jit
def _distance(p: Gaussian | LowRankGaussian, q: Gaussian | LowRankGaussian) -> Float[Array, ""]:
    if not jax.tree.leaves(p):
        return jnp.zeros(())
    if isinstance(p, LowRankGaussian) and isinstance(q, LowRankGaussian):
        q = LowRankGaussian(q.mean, _rotated(p.factors, q.factors))
    wide = common_dtype(jnp.float32, *jax.tree.leaves(p))
    apart = jax.tree.leaves(jax.tree.map(lambda a, b: a.astype(wide) - b.astype(wide), p, q))
    # Differences are measured in units of the largest, whose square could be too large or too small for float32.
    largest = jnp.max(jnp.stack([jnp.max(jnp.abs(leaf), initial=0) for leaf in apart]))
    unit = jax.lax.stop_gradient(jnp.where(largest > 0, largest, 1))
    total = sum((jnp.sum((leaf / unit) ** 2) for leaf in apart), jnp.zeros((), wide))
    # The square root has no slope at zero; the inner `where` keeps its infinite derivative out of the gradient.
    return unit * jnp.where(largest > 0, jnp.sqrt(jnp.where(largest > 0, total, 1)), 0)
