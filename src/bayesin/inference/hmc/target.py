"""The posterior of a network as a target for HMC: full-batch gradients in bounded memory, in a chosen precision.

    log p(w | D) = (1/T) [ Σ_n log p(y_n | x_n, w) + log N(w; c, v) ] + constant

The gradient is added up over equal chunks of the data on the way forward (a custom VJP hands it on), so that
only the activations of one chunk are alive at a time.

Why the gradient may be coarse: a leapfrog step with *any* deterministic force `g(w)` that depends on the position
alone is undone by flipping the momentum and is made of shears, so it keeps volume; `g` need not be the gradient of
anything. The accept step then corrects with the true energies of both ends, and the chain keeps the target exactly.
What a coarse `g` costs is acceptance: its error does work along the trajectory, which shows up as energy error. So
gradients may be computed from split bfloat16 or TensorFloat-32 numbers on tensor cores, while the energies always
have the full precision.

    float32   products as float32 has them (the same as highest)
    bf16x3    three products of bfloat16 parts, about 16 bits; bf16x6, about 24 bits
    tf32x3    three products of TensorFloat-32 parts, about 21 bits; tf32, one, about 11 bits

With bfloat16 parts, whole numbers such as pixels take fewer products: see `whole_inputs.py`.

Reference: Neal 2011, section 5.5.3.
"""

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ...errors import ConfigError
from ...inputs import Chunks
from ...trees import Tree
from .energy import compensated_sum

FULL = "highest"
# Our names for them -> JAX's.
PRECISIONS = {
    "float32": FULL,
    "bf16x3": "BF16_BF16_F32_X3",
    "bf16x6": "BF16_BF16_F32_X6",
    "bf16x9": "BF16_BF16_F32_X9",
    "tf32x3": "TF32_TF32_F32_X3",
    "tf32": "TF32_TF32_F32",
}


class TemperedPrior(NamedTuple):
    """N(w; c, v)^(1/T): its precision 1 / (v T), one number or a tree, and its centre; None means zero."""

    precision: float | Tree
    centre: Tree | None = None

    def offset(self, position: Tree) -> Tree:
        """How far a position is from the centre."""
        return position if self.centre is None else jax.tree.map(jnp.subtract, position, self.centre)

    def precisions(self, position: Tree) -> Tree:
        """The precision of every leaf."""
        single = isinstance(self.precision, float)
        return jax.tree.map(lambda leaf: self.precision, position) if single else self.precision

    def log_density(self, position: Tree, total: Callable[[jax.Array], jax.Array] = jnp.sum) -> jax.Array:
        """Up to a constant; `total` adds up a leaf."""
        squares = jax.tree.map(jnp.square, self.offset(position))
        if isinstance(self.precision, float):  # one multiplication for all: as exact as the sums
            return -0.5 * self.precision * sum(map(total, jax.tree.leaves(squares)), jnp.zeros(()))
        scaled = jax.tree.map(jnp.multiply, self.precision, squares)
        return -0.5 * sum(map(total, jax.tree.leaves(scaled)), jnp.zeros(()))


class Target(NamedTuple):
    """Log-posterior up to a constant, with a gradient, and the log-likelihoods it consists of."""

    log_density: Callable[[Tree], jax.Array]  # in the gradient's precision; what the integrator follows
    terms: Callable[[Tree], jax.Array]  # log-likelihood of every example over T, in full precision
    prior: TemperedPrior


LogLikelihood = Callable[[Tree, Any, Any], jax.Array]  # (params, x, y) -> one number for each example


def make_target(
    log_likelihood: LogLikelihood,
    chunks: Chunks,
    prior: TemperedPrior,
    *,
    temperature: float,
    precision: str,
    gradient_chunks: Chunks | None = None,
) -> Target:
    """Returns the target; `precision` is that of the matrix products of the gradient.

    Gradients may read the data in another form, of which `log_likelihood` knows what to make.
    """

    def value_and_grad(params: Tree) -> tuple[jax.Array, Tree]:
        def part(carry, chunk):
            def total(params):
                return jnp.sum(log_likelihood(params, chunk.x, chunk.y) * chunk.weight) / temperature

            with matmul_precision(precision):
                return jax.tree.map(jnp.add, carry, jax.value_and_grad(total)(params)), None

        start = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, params))
        (value, gradient), _ = jax.lax.scan(part, start, chunks if gradient_chunks is None else gradient_chunks)
        # The prior's gradient is known, and needs no trace beside that of the network.
        pull = jax.tree.map(lambda precision, w: precision * w, prior.precisions(params), prior.offset(params))
        return value + prior.log_density(params), jax.tree.map(jnp.subtract, gradient, pull)

    # A gradient through the scan would keep the activations of every chunk for the way back.
    @jax.custom_vjp
    def log_density(params: Tree) -> jax.Array:
        return value_and_grad(params)[0]

    log_density.defvjp(value_and_grad, lambda gradient, g: (jax.tree.map(lambda leaf: g * leaf, gradient),))

    def terms(params: Tree) -> jax.Array:
        def part(chunk):
            with matmul_precision(FULL):
                return log_likelihood(params, chunk.x, chunk.y) * chunk.weight / temperature

        return jax.lax.map(part, chunks).reshape(-1)

    return Target(log_density, terms, prior)


def log_posterior(target: Target, position: Tree, terms: jax.Array) -> jax.Array:
    """Returns the log-posterior up to a constant, for people: too coarse to decide acceptance."""
    return jnp.sum(terms) + target.prior.log_density(position, compensated_sum)


def matmul_precision(name: str) -> AbstractContextManager:
    """The precision of matrix products inside a `with` block, by our name for it or JAX's."""
    return jax.default_matmul_precision(PRECISIONS.get(name, name))


def check_precision(name: str) -> None:
    """Raises `ConfigError` where neither we nor JAX know the name."""
    try:
        with matmul_precision(name):
            pass
    except (ValueError, TypeError):
        raise ConfigError(f"precision: JAX knows no '{name}'; use one of {', '.join(PRECISIONS)}") from None


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
    # No list says which products a device has: one is tried.
    square = jnp.ones((16, 16), jnp.float32)
    try:
        with matmul_precision(name):
            jax.jit(lambda a, b: a @ b)(square, square).block_until_ready()
    except (ValueError, NotImplementedError, RuntimeError):  # XlaRuntimeError is a RuntimeError
        return False
    return True
