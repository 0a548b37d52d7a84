"""How alike hidden units are in what they do on data: streamed inner products of activations.

Unit i of the reference is compared with unit j of a network over all examples (and places, in a convolution):

    inner products    Σ a_i b_j                               uncentred, as in Xiao et al. 2023
    correlations      Σ (a_i − ā_i)(b_j − b̄_j) / (σ_i σ_j N)   signed: an anti-correlated pair is no match

Only units × units matrices are kept, so data and activations of any length pass through. A unit that never varies
correlates with nothing. The matrices serve the search as similarities that are given outright.

The cost `Activations` compares two posteriors at every site of a group (`symmetry/activations.py`), draw by draw.
There the program is split in two, what the network computes and the products of it, one for each shape: as one
program the products are compiled together with all norms of the network, which takes minutes on a GPU.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from ..errors import ConfigError
from ..inputs import Chunks, Inputs, count_of, cut, shapes_of
from ..posteriors import Posterior, is_posterior
from ..randomness import PRNGKey, check_key
from ..symmetry import Activations, Sites
from ..trees import Tree

Sums = dict[str, dict[str, Float[Array, "..."]]]  # by group: of products, of values, of squares

# Variance, as a share of the squared mean, below which it is the rounding of float32 squares and no variance.
NO_VARIANCE = 1e-6
CHUNK_BYTES = 1 << 30  # of what stands at all sites at once


class CrossMoments(NamedTuple):
    """What the units of two networks did at one site, over all examples, places and draws."""

    covariance: Float[np.ndarray, "units units"]
    variances: tuple[Float[np.ndarray, " units"], Float[np.ndarray, " units"]]


def cross_moments(
    sites: Sites, members: Sequence[Sequence[Tree]], x: Inputs
) -> dict[tuple[int, int], list[CrossMoments]]:
    """Returns the covariances of every two members' units at every site, draw s of one with draw s of the other.

    Every member computes its activations once; what is kept are the matrices of all pairs (first < second).
    """
    pairs, totals = list(itertools.combinations(range(len(members)), 2)), {}
    for chunk in site_chunks(sites, members[0][0], x, len(members)):
        for draws in zip(*members, strict=True):
            values = [sites(params, chunk.x) for params in draws]
            for i, j in pairs:
                sums = [_site_products(a, b, chunk.weight) for a, b in zip(values[i], values[j], strict=True)]
                totals[i, j] = _added(totals.get((i, j)), jax.device_get(sums))
    return {pair: [_cross_moments(part) for part in sums] for pair, sums in totals.items()}


def site_chunks(sites: Sites, params: Tree, x: Inputs, together: int = 1) -> Iterator[Chunks]:
    """Yields the inputs in parts for which everything at the sites of so many networks fits into memory."""
    one = jax.eval_shape(sites.values, params, shapes_of(x, 1))
    size = together * sum(4 * value.size for value in one)
    parts = cut(x, np.zeros(count_of(x), np.int32), max(1, CHUNK_BYTES // size))
    for index in range(len(parts.weight)):
        yield jax.tree.map(lambda array, at=index: array[at], parts)


def draws_of(posterior: Posterior | Tree, samples: int, key: PRNGKey | None, stream: int) -> list[Tree]:
    """Returns so many draws of a posterior, its mean where none are asked for, or the point that it is."""
    if not is_posterior(posterior):
        return [posterior] * max(1, samples)
    if not samples:
        return [posterior.mean]
    if key is None:
        raise ConfigError("key= is needed to draw from this posterior; for example key=jax.random.key(0)")
    check_key(key)
    stacked = posterior.sample(jax.random.fold_in(key, stream), samples)
    return [jax.tree.map(lambda leaf, at=index: leaf[at], stacked) for index in range(samples)]


def correlated(moments: CrossMoments) -> np.ndarray:
    """The correlation of every pair of units; a unit that never varies has none."""
    spreads = [np.where(variance > 0, variance, np.inf) for variance in moments.variances]
    return moments.covariance / np.sqrt(spreads[0][:, None] * spreads[1][None])


def _added(totals: list | None, more: list) -> list:
    """Sums of chunks, each in float32 on the device, added in float64 on the host."""
    wide = jax.tree.map(lambda value: np.asarray(value, np.float64), more)
    return wide if totals is None else jax.tree.map(np.add, totals, wide)


def _cross_moments(sums: Mapping[str, np.ndarray]) -> CrossMoments:
    count = sums["count"]
    ours, theirs = sums["ours"] / count, sums["theirs"][0] / count
    squares = (sums["our_squares"] / count, ours), (sums["their_squares"][0] / count, theirs)
    variances = [square - mean**2 for square, mean in squares]
    fine = [
        np.where(variance > NO_VARIANCE * (mean**2 + 1e-30), variance, 0.0)
        for variance, (_, mean) in zip(variances, squares, strict=True)
    ]
    return CrossMoments(sums["products"][0] / count - np.outer(ours, theirs), (fine[0], fine[1]))


@jax.jit
def _site_products(ours: Array, theirs: Array, weight: Array) -> dict[str, Array]:
    with jax.default_matmul_precision("highest"):
        return _products(ours, theirs[None], weight)


def activation_similarity(
    activations: Activations, reference: Tree, stack: Tree, chunks: Chunks, *, correlation: bool
) -> dict[str, Float[np.ndarray, "networks units units"]]:
    """Returns the similarity of the units of the reference (rows) and of each network of a stack, by group."""
    sums = jax.device_get(_inner_products(activations, reference, stack, chunks))
    return {group: _similarity(parts, correlation) for group, parts in sums.items()}


def inner_products(activations: Activations, reference: Tree, stack: Tree, chunks: Chunks) -> Sums:
    """Returns sums over all examples, by group: of products, of values and of squares. May be traced."""

    def of_chunk(chunk: Chunks) -> Sums:
        with jax.default_matmul_precision("highest"):
            ours = activations(reference, chunk.x)
            theirs = jax.vmap(activations, (0, None))(stack, chunk.x)
            return {group: _products(ours[group], theirs[group], chunk.weight) for group in ours}

    def step(carry: Sums, chunk: Chunks) -> tuple[Sums, None]:
        return jax.tree.map(jnp.add, carry, of_chunk(chunk)), None

    shapes = jax.eval_shape(of_chunk, jax.tree.map(lambda array: array[0], chunks))
    zero = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
    return jax.lax.scan(step, zero, chunks)[0]


def _similarity(sums: Mapping[str, ArrayLike], correlation: bool) -> Float[np.ndarray, "..."]:
    """Returns (..., networks, units of the reference, units of the network) from what `inner_products` returned."""
    wide = {name: np.asarray(value, np.float64) for name, value in sums.items()}
    if not correlation:
        return wide["products"]
    count = wide["count"][..., None]
    ours, theirs = wide["ours"] / count, wide["theirs"] / count[..., None]
    spreads = [wide["our_squares"] / count - ours**2, wide["their_squares"] / count[..., None] - theirs**2]
    covariance = wide["products"] / count[..., None, None]
    covariance -= ours[..., None, :, None] * theirs[..., :, None, :]
    spreads = [
        np.where(variance > NO_VARIANCE * (mean**2 + 1e-30), variance, np.inf)
        for variance, mean in zip(spreads, (ours, theirs), strict=True)
    ]
    return covariance / np.sqrt(spreads[0][..., None, :, None] * spreads[1][..., :, None, :])


_inner_products = partial(jax.jit, static_argnums=0)(inner_products)


def _products(ours: Array, theirs: Array, weight: Array) -> dict[str, Array]:
    units = ours.shape[-1]
    places = ours.size // (units * len(weight))
    weight = jnp.repeat(weight, places)[:, None]
    ours, theirs = ours.reshape(-1, units) * weight, theirs.reshape(len(theirs), -1, units)
    return {
        "products": jnp.einsum("pi,bpj->bij", ours, theirs),
        "ours": ours.sum(0),
        "theirs": (theirs * weight[None]).sum(1),
        "our_squares": jnp.square(ours).sum(0),
        "their_squares": (jnp.square(theirs) * weight[None]).sum(1),
        "count": weight.sum(),
    }
