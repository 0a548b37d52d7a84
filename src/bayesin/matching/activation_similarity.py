"""How alike hidden units are in what they do on data: streamed inner products of activations.

Unit i of the reference is compared with unit j of a network over all examples (and places, in a convolution):

    inner products    Σ a_i b_j                               uncentred, as in Xiao et al. 2023
    correlations      Σ (a_i − ā_i)(b_j − b̄_j) / (σ_i σ_j N)   signed: an anti-correlated pair is no match

Only units × units matrices are kept, so data and activations of any length pass through. A unit that never varies
correlates with nothing. The matrices serve the search as similarities that are given outright.
"""

from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from ..chunks import Chunks
from ..symmetry import Activations
from ..trees import Tree

Sums = dict[str, dict[str, Float[Array, "..."]]]  # by group: of products, of values, of squares

# Variance, as a share of the squared mean, below which it is the rounding of float32 squares and no variance.
NO_VARIANCE = 1e-6


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
