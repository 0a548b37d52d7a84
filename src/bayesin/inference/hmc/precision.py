"""Precision of the matrix products along a trajectory, and why it may be coarse.

A leapfrog step with *any* deterministic force `g(w)` that depends on the position alone is undone by flipping
the momentum and is made of shears, so it keeps volume; `g` need not be the gradient of anything. The accept
step then corrects with the true energies of both ends, and the chain keeps the target exactly. What a coarse
`g` costs is acceptance: its error does work along the trajectory, which shows up as energy error. So gradients
may be computed from split bfloat16 or TensorFloat-32 numbers on tensor cores, while the energies always have
the full precision.

    float32   products as float32 has them (the same as highest)
    bf16x3    three products of bfloat16 parts, about 16 bits; bf16x6, about 24 bits
    tf32x3    three products of TensorFloat-32 parts, about 21 bits; tf32, one, about 11 bits

Reference: Neal 2011, section 5.5.3.
"""

import warnings
from contextlib import AbstractContextManager
from functools import cache

import jax
import jax.numpy as jnp

from ...errors import ConfigError

FULL = "highest"
# Ours -> JAX's.
NAMES = {
    "float32": FULL,
    "bf16x3": "BF16_BF16_F32_X3",
    "bf16x6": "BF16_BF16_F32_X6",
    "bf16x9": "BF16_BF16_F32_X9",
    "tf32x3": "TF32_TF32_F32_X3",
    "tf32": "TF32_TF32_F32",
}


def matmul_precision(name: str) -> AbstractContextManager:
    """The precision of matrix products inside a `with` block, by our name for it or JAX's."""
    return jax.default_matmul_precision(NAMES.get(name, name))


def check_precision(name: str) -> None:
    """Raises `ConfigError` where neither we nor JAX know the name."""
    try:
        with matmul_precision(name):
            pass
    except (ValueError, TypeError):
        raise ConfigError(f"precision: JAX knows no '{name}'; use one of {', '.join(NAMES)}") from None


def usable_precision(name: str) -> str:
    """Returns the name, or `highest`, with a warning, where the device has no such products.

    The chain's target is the same with either, so a run may go on on another device.
    """
    if _works(name, jax.default_backend()):
        return name
    warnings.warn(
        f"precision {name} is not available on {jax.default_backend()}: gradients are computed in float32 instead",
        stacklevel=2,
    )
    return FULL


@cache
def _works(name: str, backend: str) -> bool:
    one = jnp.ones((16, 16), jnp.float32)
    try:
        with matmul_precision(name):
            jax.jit(lambda a, b: a @ b)(one, one).block_until_ready()
    except (ValueError, NotImplementedError, RuntimeError):  # XlaRuntimeError is a RuntimeError
        return False
    return True
