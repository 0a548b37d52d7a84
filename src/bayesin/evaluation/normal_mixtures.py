"""Mixtures of normal distributions on the line: density, distribution function, quantiles and CRPS, in float64.

A regression averaged over draws s of the weights predicts the mixture Σ_s w_s N(μ_s, σ_s²) for every target. With
z = (y − μ)/σ and A(μ, σ) = 2σ φ(μ/σ) + μ (2Φ(μ/σ) − 1), the mean of |X| under N(μ, σ²),

    CRPS = E|X − y| − ½ E|X − X'| = Σ_s w_s A(y − μ_s, σ_s) − ½ Σ_st w_s w_t A(μ_s − μ_t, √(σ_s² + σ_t²)).

Every array has the components in front: (draws, ...), with weights (draws,).

Reference: Gneiting and Raftery 2007; Grimit et al. 2006 (mixtures).
"""

import numpy as np
from scipy.special import logsumexp, ndtr, ndtri

HALVINGS = 60  # of the bracket of a quantile; after them it is as narrow as float64 can tell
BLOCK = 1 << 22  # numbers of a block of pairs of components


def log_density(y: np.ndarray, means: np.ndarray, stds: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Returns the log-density of targets whose last axis is independent given the component: one number each.

    Args:
        y: (..., outputs).
        means: (draws, ..., outputs).
        stds: the same shape.
        weights: (draws,), with sum 1.
    """
    terms = -0.5 * ((y - means) / stds) ** 2 - np.log(stds) - 0.5 * np.log(2 * np.pi)
    return np.asarray(logsumexp(terms.sum(-1), axis=0, b=_along(weights, terms.ndim - 1)))


def cdf(y: np.ndarray, means: np.ndarray, stds: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Returns the probability of being at most `y`.

    Example:
        >>> float(cdf(np.zeros(()), np.array([-1.0, 1.0]), np.ones(2), np.full(2, 0.5)).round(6))
        0.5
    """
    return (_along(weights, means.ndim) * ndtr((y - means) / stds)).sum(0)


def quantile(level: float, means: np.ndarray, stds: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Returns where the distribution function reaches `level`, by bisection between the components' own quantiles.

    Example:
        >>> float(quantile(0.975, np.zeros((1, 1)), np.ones((1, 1)), np.ones(1))[0].round(4))
        1.96
    """
    own = means + stds * ndtri(level)
    low, high = own.min(0), own.max(0)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        below = cdf(middle, means, stds, weights) < level
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return 0.5 * (low + high)


def crps(y: np.ndarray, means: np.ndarray, stds: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Returns the continuous ranked probability score of every target; lower is better, in the targets' unit.

    Example:
        >>> one = crps(np.zeros(1), np.zeros((1, 1)), np.ones((1, 1)), np.ones(1))
        >>> float(one[0].round(6))  # (√2 − 1) / √π
        0.233695
    """
    distance = (_along(weights, means.ndim) * _mean_of_absolute(y - means, stds)).sum(0)
    shape, draws = distance.shape, len(means)
    means, stds = (np.broadcast_to(array, (draws, *shape)).reshape(draws, -1) for array in (means, stds))
    spread = np.zeros(means.shape[1])
    pairs, each = np.outer(weights, weights), max(1, BLOCK // draws**2)
    for start in range(0, means.shape[1], each):
        m, s = means[:, start : start + each], stds[:, start : start + each]
        between = _mean_of_absolute(m[:, None] - m[None], np.hypot(s[:, None], s[None]))
        spread[start : start + each] = np.einsum("st,stn->n", pairs, between)
    return distance - 0.5 * spread.reshape(shape)


def _mean_of_absolute(mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """E|X| of N(mean, std²)."""
    z = mean / std
    return 2 * std * np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi) + mean * (2 * ndtr(z) - 1)


def _along(weights: np.ndarray, dimensions: int) -> np.ndarray:
    return weights.reshape(-1, *(1,) * (dimensions - 1))
