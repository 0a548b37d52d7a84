"""The products of a similarity on an accelerator.

Tensors are sent once and stay there. A visit sends permutations and brings back one (units × units) matrix,
in full float32: reduced-precision products would decide near-ties by their own rounding.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

WORTH = 1e9  # multiplications of a sweep from which an accelerator wins; below, calls and compilation dominate


def is_worth(multiplications: float) -> bool:
    """Whether JAX computes on an accelerator by default and the work is large enough for one."""
    return multiplications >= WORTH and jax.default_backend() != "cpu"


def put(array: np.ndarray) -> Any:
    """Returns the array on the accelerator."""
    return jax.device_put(array)


@jax.jit
def _sum_of_products(total, targets, sources, perms):
    for target, source, perm in zip(targets, sources, perms, strict=True):
        moved = jnp.take(source, perm, axis=1, mode="clip")
        total += jnp.einsum("rui,ruj->ij", target, moved, precision=jax.lax.Precision.HIGHEST)
    return total


def products(total: Any, targets: list[Any], sources: list[Any], perms: list[np.ndarray]) -> np.ndarray:
    """Returns `total + Σ targetᵀ source[:, perm]` over (rest, other units, units) arrays, on the host."""
    return np.asarray(_sum_of_products(total, targets, sources, [perm.astype(np.int32) for perm in perms]))
