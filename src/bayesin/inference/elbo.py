"""The evidence lower bound of a mean-field Gaussian, and the closed forms it consists of.

    loss per example = E_q[−log p(y | x, w)] + T · KL[q ‖ p] / N

is the negative evidence lower bound over the number of examples N, at T = 1. For q = N(m, s²) and a prior
p = N(c, v) on each weight, summed over weights (never averaged over tensors: that is no bound):

    cross entropy   E_q[−log p] = ½ log 2πv + (s² + (m − c)²) / (2v)
    entropy         H[q]        = ½ log 2πe + log s
    KL[q‖p] = cross entropy − entropy

Their gradients are short enough to write down, which spares the training step a backward pass over
every weight:

    ∂/∂m = (m − c) / v,     ∂/∂s = s / v  (cross entropy),     1 / s  (entropy).
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num

from ..likelihoods import Categorical, Likelihood, as_likelihood, negative_log_likelihood
from ..posteriors import Gaussian
from ..trees import Tree, flatten
from .priors import Isotropic, Prior

_CATEGORICAL, _ISOTROPIC = Categorical(), Isotropic()  # those of `VI()`


def elbo_loss(
    posterior: Gaussian,
    apply: Callable[[Tree, Array], Array],
    data: tuple[Float[Array, "batch ..."], Num[Array, "batch ..."]],
    *,
    key: jax.Array,
    likelihood: Likelihood = _CATEGORICAL,
    prior: Prior = _ISOTROPIC,
    examples: int,
    temperature: float | Float[Array, ""] = 1.0,
    samples: int = 1,
) -> Float[Array, ""]:
    """Returns the negative evidence lower bound per example, estimated on a batch; jit, grad and vmap take it.

    The expectation is an average over `posterior.sample(key, samples)`, reparametrised, so that its gradient is
    unbiased; the KL is exact. A weight whose std is zero is a point: it has no entropy, and of its KL the term
    (m − c)² / (2v) alone counts. Integer leaves count for nothing.

    Args:
        posterior: the mean-field Gaussian; differentiate with respect to it, or to what you make it from.
        apply: the network, `apply(params, x)`.
        data: a batch of inputs and targets.
        key: seed of the draws.
        likelihood: Categorical(), Normal(std), or your own.
        prior: independent normals; a centre at "initial" values is zero here, where no initialisation is known.
        examples: N, the size of the whole training set.
        temperature: T; 1 is the Bayes posterior.
        samples: draws of the weights.

    Example:
        >>> q = Gaussian({"w": jnp.zeros((2, 4))}, {"w": jnp.full((2, 4), 0.1)})
        >>> batch = jnp.ones((3, 2)), jnp.array([0, 1, 3])
        >>> loss = lambda q: elbo_loss(q, lambda p, x: x @ p["w"], batch, key=jax.random.key(0), examples=3)
        >>> jax.grad(loss)(q).std["w"].shape
        (2, 4)
    """
    return elbo_of_draws(
        posterior,
        posterior.sample(key, samples),
        apply,
        data,
        likelihood=likelihood,
        prior=prior,
        examples=examples,
        temperature=temperature,
    )


def elbo_of_draws(
    posterior: Gaussian,
    draws: Tree,
    apply: Callable[[Tree, Array], Array],
    data: tuple[Float[Array, "batch ..."], Num[Array, "batch ..."]],
    *,
    likelihood: Likelihood,
    prior: Prior,
    examples: int,
    temperature: float | Float[Array, ""] = 1.0,
) -> Float[Array, ""]:
    """`elbo_loss` with draws of your own: a parameter tree with a leading axis."""
    x, y = data
    likelihood = as_likelihood(likelihood)

    def loss(params: Tree) -> Array:
        return negative_log_likelihood(likelihood, apply(params, x), y).mean()

    expected = jax.lax.map(loss, draws).mean()
    return expected + temperature * divergence_from_prior(posterior, prior) / examples


def divergence_from_prior(posterior: Gaussian, prior: Prior) -> Float[Array, ""]:
    """Returns `KL[posterior ‖ prior]` in nats, summed over all weights; points count with (m − c)² / (2v)."""
    means, stds = flatten(posterior.mean), flatten(posterior.std)
    centres, variances = (flatten(tree) for tree in prior.moments(jax.tree.map(jnp.zeros_like, posterior.mean)))
    total = jnp.zeros((), jnp.float32)
    for path, mean in means.items():
        if not jnp.issubdtype(mean.dtype, jnp.floating):
            continue
        centre, variance, std = centres[path], variances[path], stds[path]
        # A point takes the prior's own std, for which the terms in the std cancel: s²/v − 1 − log s²/v = 0.
        std = jnp.where(std > 0, std, jnp.sqrt(jnp.asarray(variance, std.dtype)))
        total += kl_divergence(mean, std, centre, variance).astype(jnp.float32)
    return total


def kl_divergence(
    mean: Float[Array, " *shape"],
    std: Float[Array, " *shape"],
    centre: Float[Array, " ..."] | float = 0.0,
    variance: Float[Array, " ..."] | float = 1.0,
) -> Float[Array, ""]:
    """Returns `KL[N(mean, diag(std²)) ‖ N(centre, variance · I)]` in nats, summed over all weights.

    Example:
        >>> float(kl_divergence(jnp.zeros(3), jnp.ones(3)))
        0.0
        >>> float(kl_divergence(jnp.full(3, 2.0), jnp.ones(3)))
        6.0
    """
    ratio = jnp.square(std) / variance
    return jnp.sum(0.5 * (ratio - 1 - jnp.log(ratio)) + jnp.square(mean - centre) / (2 * variance))


def cross_entropy(
    mean: Float[Array, " *shape"],
    std: Float[Array, " *shape"],
    centre: Float[Array, " ..."] | float,
    variance: Float[Array, " ..."] | float,
) -> Float[Array, ""]:
    """Returns `E_q[−log p]` in nats, summed over all weights."""
    terms = 0.5 * jnp.log(2 * math.pi * variance) + (jnp.square(std) + jnp.square(mean - centre)) / (2 * variance)
    return jnp.sum(jnp.broadcast_to(terms, jnp.shape(mean)))


def entropy(std: Float[Array, " *shape"]) -> Float[Array, ""]:
    """Returns the entropy of `N(·, diag(std²))` in nats."""
    return jnp.sum(0.5 * math.log(2 * math.pi * math.e) + jnp.log(std))


def softplus_and_slope(rho: Float[Array, " *shape"]) -> tuple[Float[Array, " *shape"], Float[Array, " *shape"]]:
    """Returns `log(1 + exp(rho))` and its derivative; neither overflows, and tiny stds keep their digits."""
    tail = jnp.exp(-jnp.abs(rho))
    slope = jnp.where(rho >= 0, 1.0, tail) / (1.0 + tail)
    return jnp.maximum(rho, 0.0) + jnp.log1p(tail), slope


def inverse_softplus(std: float) -> float:
    """Returns `rho` with softplus(rho) = std, exact to float64 for a std of 1e-30 or 1e30 alike.

    Example:
        >>> round(inverse_softplus(0.01), 4)
        -4.6002
    """
    return float(np.log(-np.expm1(-np.float64(std))) + np.float64(std))
