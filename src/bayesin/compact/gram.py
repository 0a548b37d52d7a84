"""Matching samples by what their hidden units do on data: streamed inner products of activations.

Unit i of the reference is compared with unit j of a sample over all examples (and places, in a convolution):

    inner products    Σ a_i b_j                               uncentred, as in Xiao et al. 2023
    correlations      Σ (a_i − ā_i)(b_j − b̄_j) / (σ_i σ_j N)   signed: an anti-correlated pair is no match

Only units × units matrices are kept, so data and activations of any length pass through. A unit that never varies
correlates with nothing.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..inference.hmc import Draws
from ..inference.hmc.target import cut
from ..matching.assignment import assign
from ..posteriors import Samples
from ..symmetry import PermutationSpec
from ..trees import Tree
from .activations import Activations
from .rows import identity
from .weights import Matched, OnRound

TOGETHER = 8  # samples whose activations are computed at once
CHUNK = 2000  # examples


def match_activations(
    reference: Tree,
    samples: Samples | Draws,
    spec: PermutationSpec,
    activations: Activations,
    x: Any,
    *,
    correlation: bool,
    number: int = 1,
    on_round: OnRound | None = None,
) -> Matched:
    """Returns the permutations under which the samples' units do most what the reference's units do."""
    chunks = cut(np.asarray(x), np.zeros(len(x), np.int32), CHUNK)
    perms = identity(spec, len(samples))
    for start in range(0, len(samples), TOGETHER):
        part = slice(start, min(start + TOGETHER, len(samples)))
        similarities = similarity(activations, reference, samples[part], chunks, correlation)
        for group, alike in similarities.items():
            perms[group][part] = [assign(np.ascontiguousarray(matrix)).perm for matrix in alike]
        if on_round is not None:
            on_round(number, part.stop, len(samples))
    return Matched(perms, number, True)


def similarity(activations: Activations, reference: Tree, stack: Tree, chunks: Any, correlation: bool) -> dict:
    """Returns {group: (samples, units of the reference, units of the sample)} in float64."""
    found = jax.device_get(_inner_products(activations, reference, stack, chunks))
    return {group: similarity_of(sums, correlation) for group, sums in found.items()}


def inner_products(
    activations: Activations, reference: Tree, stack: Tree, chunks: Any
) -> dict[str, dict[str, jax.Array]]:
    """Returns sums over all examples, by group: of products, of values and of squares. May be traced."""

    def part(chunk: Any) -> dict[str, dict[str, jax.Array]]:
        with jax.default_matmul_precision("highest"):
            ours = activations(reference, chunk.x)
            theirs = jax.vmap(activations, (0, None))(stack, chunk.x)
            return {group: _products(ours[group], theirs[group], chunk.weight) for group in ours}

    def step(carry: Any, chunk: Any) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, carry, part(chunk)), None

    zero = jax.tree.map(
        lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(part, jax.tree.map(lambda a: a[0], chunks))
    )
    return jax.lax.scan(step, zero, chunks)[0]


_inner_products = partial(jax.jit, static_argnums=0)(inner_products)


def _products(ours: jax.Array, theirs: jax.Array, weight: jax.Array) -> dict[str, jax.Array]:
    units = ours.shape[-1]
    places = ours.size // (units * len(weight))
    weight = jnp.repeat(weight, places)[:, None]
    ours, theirs = ours.reshape(-1, units) * weight, theirs.reshape(len(theirs), -1, units)
    return {
        "products": jnp.einsum("pi,bpj->bij", ours, theirs),
        "ours": ours.sum(0),
        "theirs": (theirs * weight).sum(1),
        "our_squares": jnp.square(ours).sum(0),
        "their_squares": (jnp.square(theirs) * weight).sum(1),
        "count": weight.sum(),
    }


def similarity_of(sums: dict[str, Any], correlation: bool) -> np.ndarray:
    """Returns (..., samples, units of the reference, units of the sample) from what `inner_products` returned."""
    sums = {name: np.asarray(value, np.float64) for name, value in sums.items()}
    if not correlation:
        return sums["products"]
    count = sums["count"][..., None]
    ours, theirs = sums["ours"] / count, sums["theirs"] / count[..., None]
    spreads = [sums["our_squares"] / count - ours**2, sums["their_squares"] / count[..., None] - theirs**2]
    covariance = sums["products"] / count[..., None, None]
    covariance -= ours[..., None, :, None] * theirs[..., :, None, :]
    # a variance below the rounding of its squares is none
    spreads = [np.where(v > 1e-6 * (m**2 + 1e-30), v, np.inf) for v, m in zip(spreads, (ours, theirs), strict=True)]
    return covariance / np.sqrt(spreads[0][..., None, :, None] * spreads[1][..., :, None, :])
