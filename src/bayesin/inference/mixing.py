"""Do the chains agree, and how many independent draws are they worth?

R-hat is the rank-normalised split statistic: every chain is cut in half, values are replaced by the normal
scores of their ranks, and the spread between halves is compared with that within. 1 means no difference;
above 1.01 the chains have not mixed. A single chain is compared with itself, one half against the other. Weights
of a network are not comparable between modes: `chains.py` puts them into one order first.

References: Vehtari et al. 2021 (R-hat); Geyer 1992 (effective sample size).
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..randomness import PRNGKey, generator

REPEATS = 40  # sets of independent draws that R-hat is judged by
CHANCE = 0.05  # of calling independent draws unmixed
TAIL = 0.01  # of R-hats, whose shape is taken to be exponential
USUAL = 1.1  # an R-hat that needs no warning, whatever the number of draws


def split_rhat(values: np.ndarray) -> np.ndarray:
    """Returns R-hat of every quantity; NaN where there are fewer than four draws or no variation.

    Args:
        values: shape (chains, draws, ...).

    Example:
        >>> rng = np.random.default_rng(0)
        >>> mixed, apart = rng.normal(size=(2, 4, 500))
        >>> apart += np.arange(4)[:, None]
        >>> [round(float(split_rhat(v)), 1) for v in (mixed, apart)]
        [1.0, 1.6]
    """
    # blackjax's, written for the host: there it is compiled anew for every shape, and XLA sorts on a CPU in several
    # times the time of numpy.
    return _of_each(_rhat_of_halves, values)


def effective_sample_size(values: np.ndarray) -> np.ndarray:
    """Returns how many independent draws have the same error of the mean; NaN as for `split_rhat`.

    The draws' number over `1 + 2 Σ_t ρ_t`, the autocorrelations of all chains together, cut off where the
    sum of two neighbours turns negative and made to fall (Geyer's initial monotone sequence).

    Args:
        values: shape (chains, draws, ...).

    Example:
        >>> rng = np.random.default_rng(0)
        >>> independent, walk = rng.normal(size=(2, 4, 500))
        >>> [int(effective_sample_size(v)) > 500 for v in (independent, walk.cumsum(1))]
        [True, False]
    """
    from blackjax.diagnostics import effective_sample_size as of_chains

    def compiled(centred: np.ndarray) -> jax.Array:
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            return jax.jit(of_chains)(jnp.asarray(centred))

    return _of_each(compiled, values)


def iid_rhats(chains: int, draws: int, quantities: int, key: PRNGKey) -> dict[str, float]:
    """Returns what R-hat is for independent draws of as many quantities: its median, and its largest value.

    The largest of many quantities exceeds 1 by chance, the more so the fewer the draws: of 640 quantities and four
    chains of 30 draws by 0.1. A fixed bound says nothing; this one does.
    """
    random = generator(key, "iid")
    block = min(quantities, 2_000)
    values = [split_rhat(random.standard_normal((chains, draws, block))) for _ in range(REPEATS)]
    # The largest of more quantities than a block holds, from the tail of all blocks together.
    everything = np.sort(np.concatenate(values))
    at = min(len(everything) - 1, round(len(everything) * (1 - 1 / quantities)))
    return {"median": float(np.median(everything)), "largest of as many": float(everything[at])}


def rhat_bound(chains: int, draws: int, quantities: int) -> float:
    """Returns the R-hat that the largest of so many quantities exceeds in one of twenty sets of independent draws.

    From 4,000 quantities drawn independently, and beyond their highest hundredth along an exponential tail.
    """
    values = _iid_values(chains, draws)
    edge, tail = np.quantile(values, 1 - TAIL), CHANCE / quantities
    if tail >= TAIL:
        return float(np.quantile(values, 1 - tail))
    beyond = values[values > edge] - edge
    if not beyond.size:  # a handful of draws has so few ranks that the highest hundredth is one value
        return float(edge)
    return float(edge + beyond.mean() * np.log(TAIL / tail))


@functools.cache
def _iid_values(chains: int, draws: int) -> np.ndarray:
    random = np.random.default_rng([chains, draws])
    return split_rhat(random.standard_normal((chains, draws, 4_000)))


class Mixing(NamedTuple):
    """R-hat and effective sample size over many quantities, and what independent draws would give."""

    quantities: int
    rhat_median: float
    rhat_max: float
    rhat_bound: float  # which the largest of as many quantities of independent draws exceeds one time in twenty
    ess_median: float
    ess_min: float
    median_bound: float = float("inf")  # which the median exceeds no more often, however the quantities depend

    @property
    def mixed(self) -> bool:
        """Whether the largest R-hat, and the median, are ones that independent draws might have.

        Of few draws the largest says little, since one of many is large by chance; that half of all are is no chance.
        """
        return self.rhat_max <= self.rhat_bound and self.rhat_median <= self.median_bound

    @property
    def apart(self) -> bool:
        """Whether it is so far beyond that as to be worth a warning: draws of one chain depend on each other."""
        return not self.mixed and self.rhat_max > USUAL


def mixing_of(values: np.ndarray) -> Mixing:
    """Returns R-hat and effective sample size of quantities (chains, draws, ...), judged by independent draws.

    Example:
        >>> mixed, apart = np.random.default_rng(0).normal(size=(2, 4, 100, 5))
        >>> apart += np.arange(4)[:, None, None]
        >>> [mixing_of(values).mixed for values in (mixed, apart)]
        [True, False]
    """
    values = np.asarray(values)
    values = values.reshape(*values.shape[:2], -1)
    rhat, ess = split_rhat(values), effective_sample_size(values)
    rhat, ess = rhat[np.isfinite(rhat)], ess[np.isfinite(ess)]
    if not rhat.size:
        return Mixing(0, *[float("nan")] * 6)
    chains, draws = values.shape[:2]
    # Where half of all exceed what each exceeds with chance c / 2, Markov's inequality gives that at most chance c.
    bounds = rhat_bound(chains, draws, len(rhat)), rhat_bound(chains, draws, 2)
    rhats = float(np.median(rhat)), float(rhat.max())
    return Mixing(len(rhat), *rhats, bounds[0], float(np.median(ess)), float(ess.min()), bounds[1])


def _rhat_of_halves(values: np.ndarray) -> np.ndarray:
    """Of (chains, draws, quantities): the larger R-hat of their normal scores, and of those of their distances from
    the median, which tells apart chains of other spread."""
    half = values.shape[1] // 2
    halves = np.concatenate([values[:, :half], values[:, half : 2 * half]])
    shape, pooled = halves.shape, halves.reshape(-1, values.shape[2])
    scores = [_normal_scores(part).reshape(shape) for part in (pooled, np.abs(pooled - np.median(pooled, 0)))]
    return np.maximum(*map(_scale_reduction, scores))


def _normal_scores(values: np.ndarray) -> np.ndarray:
    """Every column's values replaced by the normal scores of their ranks (Blom 1958); ties share one."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    return ndtri((rankdata(values, axis=0) - 3 / 8) / (len(values) + 1 / 4))


def _scale_reduction(values: np.ndarray) -> np.ndarray:
    """√(pooled variance / variance within) of every column of (chains, draws, quantities); Gelman and Rubin 1992."""
    within, draws = values.var(1, ddof=1).mean(0), values.shape[1]
    with np.errstate(divide="ignore", invalid="ignore"):  # constant columns, which have no R-hat
        return np.sqrt((draws * values.mean(1).var(0, ddof=1) / within + draws - 1) / draws)


def _of_each(statistic: Callable[[np.ndarray], np.ndarray | jax.Array], values: np.ndarray) -> np.ndarray:
    """A statistic of every quantity of (chains, draws, ...); NaN where draws are too few, or do not vary."""
    values = np.asarray(values)
    shape = values.shape[2:]
    if values.shape[1] < 4 or not values.size:
        return np.full(shape, np.nan)
    # Centred first: both compute in float32, where a mean far from zero would swallow the variation.
    # And scaled by a power of two, as the squares of tiny numbers would vanish there.
    centred = values - values.mean((0, 1), keepdims=True, dtype=np.float64)
    exponent = np.frexp(np.abs(centred).max((0, 1), keepdims=True))[1]
    centred = np.asarray(np.ldexp(centred, -exponent), np.float32).reshape(*values.shape[:2], -1)
    varies = (values != values[:, :1]).any((0, 1))
    return np.where(varies, np.asarray(statistic(centred), np.float64).reshape(shape), np.nan)
