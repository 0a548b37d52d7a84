"""The products of a similarity on an accelerator.

Tensors are sent once and stay there. A visit sends permutations and brings back one (units × units) matrix,
in full float32: reduced-precision products would decide near-ties by their own rounding.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# Multiplications of a sweep from which an accelerator is used. Measured on an H200: its programs take some twenty
# seconds to compile, and at widths 512 and 1024 the host is faster even after that.
WORTH = 2e11


def is_worth(multiplications: float) -> bool:
    """Whether JAX computes on an accelerator by default and the work is large enough for one."""
    return multiplications >= WORTH and jax.default_backend() != "cpu"


def put(array: np.ndarray) -> Any:
    """Returns the array on the accelerator."""
    return jax.device_put(array)


@partial(jax.jit, static_argnames="last")
def _sum_of_products(total, targets, sources, perms, last):
    for target, source, perm, is_last in zip(targets, sources, perms, last, strict=True):
        moved = jnp.take(source, perm, axis=0 if is_last else 1, mode="clip")
        axes = "uri,urj->ij" if is_last else "iru,ruj->ij"
        total += jnp.einsum(axes, target, moved, precision=jax.lax.Precision.HIGHEST)
    return total


def products(
    total: Any, targets: list[Any], sources: list[Any], perms: list[np.ndarray], last: tuple[bool, ...]
) -> np.ndarray:
    """Returns `total` plus the products of targets and moved sources, on the host.

    Where `last` says so, both are (other units, rest, units); else they are (units, rest, other units) and
    (rest, other units, units).
    """
    small = [perm.astype(np.int32) for perm in perms]
    return np.asarray(_sum_of_products(total, targets, sources, small, last=last))
