"""Energy differences that float32 can hold.

The Hamiltonian of a network is a sum of hundreds of thousands of terms, about 4·10⁵ in size for 407,050
weights, where neighbouring float32 numbers are 0.03 apart; whether a proposal is accepted depends on changes
of about 0.1. So the energy itself is never formed. Each term is subtracted from its earlier value first,

    H₁ − H₀ = Σ_n [ℓ_n(w₀) − ℓ_n(w₁)] / T + ½ Σ_i [ (w₁² − w₀²)_i / (vT) + (p₁² − p₀²)_i ],

prior and kinetic energy of one weight together, since they trade with each other along a trajectory, and
what is left, small and of both signs, is added up with its rounding errors carried along (TwoSum). Then only
the rounding of the terms ℓ_n remains, which the network's forward pass makes: about √N · 10⁻⁷ · |logit|.
"""

from typing import Any

import jax
import jax.numpy as jnp

Pair = tuple[Any, Any]  # a sum and the rounding error it has not absorbed


def energy_difference(before: Pair, after: Pair, terms: Pair, prior_precision: Any) -> jax.Array:
    """Returns `H(after) − H(before)`; infinite where it is not a number, so that it is rejected.

    Args:
        before: (position, momentum) trees at the start; positions are counted from the prior's centre.
        after: (position, momentum) trees at the end.
        terms: log-likelihoods of all examples at start and end, already divided by the temperature.
        prior_precision: 1 / (prior variance · temperature), one number or a tree like the positions.
    """
    likelihood = compensated_pair(terms[0] - terms[1])
    if jax.tree.structure(prior_precision) != jax.tree.structure(before[0]):
        prior_precision = jax.tree.map(lambda leaf: prior_precision, before[0])
    weights = jax.tree.map(
        lambda w0, w1, p0, p1, precision: compensated_pair(
            # A difference of squares as a product: close numbers are subtracted without rounding, their squares would
            # share most digits.
            0.5 * ((w1 - w0) * (w1 + w0) * precision + (p1 - p0) * (p1 + p0))
        ),
        before[0],
        after[0],
        before[1],
        after[1],
        prior_precision,
    )
    sums = [likelihood, *jax.tree.leaves(weights, is_leaf=lambda node: isinstance(node, tuple))]
    high = compensated_pair(jnp.stack([pair[0] for pair in sums]))
    # Remainders first: one by one they would vanish beside the sum.
    total = high[0] + (high[1] + sum(pair[1] for pair in sums))
    return jnp.where(jnp.isnan(total), jnp.inf, total)


def compensated_sum(values: jax.Array) -> jax.Array:
    """Returns the sum of an array as if added in twice its precision.

    Example:
        >>> float(compensated_sum(jnp.array([1e8, 1.0, -1e8, 1.0], jnp.float32)))
        2.0
    """
    high, low = compensated_pair(values)
    return high + low


def compensated_pair(values: jax.Array) -> Pair:
    """Returns (sum, remainder): what each addition rounds off is added up beside the sum."""
    flat = values.reshape(-1)
    zero = jnp.zeros((), flat.dtype)
    return tuple(jax.lax.reduce((flat, jnp.zeros_like(flat)), (zero, zero), _add, (0,)))  # in any order


def _add(first: Pair, second: Pair) -> Pair:
    total, error = _two_sum(first[0], second[0])
    # The errors are so much smaller than the sums that their own rounding may be lost.
    return total, first[1] + second[1] + error


def _two_sum(a: jax.Array, b: jax.Array) -> Pair:
    """Knuth's TwoSum: `a + b` is exactly `total + error`, whichever of the two is larger."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)
