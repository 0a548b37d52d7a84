"""Do the chains agree, and how many independent draws are they worth?

R-hat is the rank-normalised split statistic: every chain is cut in half, values are replaced by the normal
scores of their ranks, and the spread between halves is compared with that within. 1 means no difference;
above 1.01 the chains have not mixed. A single chain has two halves, so it is asked as well. Weights of
a network are not comparable between modes, so the statistics are taken of its predictions.

References: Vehtari et al. 2021 (R-hat); Geyer 1992 (effective sample size).
"""

import numpy as np
from scipy.fft import next_fast_len
from scipy.special import ndtri


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
    values = np.asarray(values, np.float64)
    if values.shape[1] < 4:
        return np.full(values.shape[2:], np.nan)
    halves = _split(values)
    folded = np.abs(halves - np.median(halves, (0, 1)))
    return np.maximum(_rhat(_normal_scores(halves)), _rhat(_normal_scores(folded)))


def effective_sample_size(values: np.ndarray) -> np.ndarray:
    """Returns how many independent draws have the same error of the mean.

    The draws' number over `1 + 2 Σ_t ρ_t`, the autocorrelations of all chains together, cut off where the
    sum of two neighbours turns negative and made to fall (Geyer's initial monotone sequence). NaN below four draws
    and where nothing varies.

    Args:
        values: shape (chains, draws, ...).
    """
    values = np.asarray(values, np.float64)
    chains, draws = values.shape[:2]
    if draws < 4:
        return np.full(values.shape[2:], np.nan)
    covariance = _autocovariance(values).mean(0)
    within = covariance[0] * draws / (draws - 1)
    spread = covariance[0] + (values.mean(1).var(0, ddof=1) if chains > 1 else 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        correlation = 1 - (within - covariance) / spread
    correlation[0] = 1
    pairs = correlation[: draws // 2 * 2].reshape(draws // 2, 2, *values.shape[2:]).sum(1)
    pairs = np.minimum.accumulate(np.where(np.cumprod(pairs > 0, 0) > 0, pairs, 0), 0)
    time = np.maximum(2 * pairs.sum(0) - 1, 1 / np.log10(chains * draws))
    return np.where(within > 0, chains * draws / time, np.nan)


def _autocovariance(values: np.ndarray) -> np.ndarray:
    """Of every chain at every lag, through the Fourier transform; divisor: the number of draws."""
    draws = values.shape[1]
    length = next_fast_len(2 * draws, real=True)
    spectrum = np.fft.rfft(values - values.mean(1, keepdims=True), length, axis=1)
    return np.fft.irfft(np.abs(spectrum) ** 2, length, axis=1)[:, :draws] / draws


def _split(values: np.ndarray) -> np.ndarray:
    half = values.shape[1] // 2
    return np.concatenate([values[:, :half], values[:, -half:]])


def _normal_scores(values: np.ndarray) -> np.ndarray:
    from scipy.stats import rankdata  # a second to import, and most runs never need it

    flat = values.reshape(values.shape[0] * values.shape[1], -1)
    ranks = rankdata(flat, axis=0)
    return ndtri((ranks - 0.375) / (len(flat) + 0.25)).reshape(values.shape)


def _rhat(values: np.ndarray) -> np.ndarray:
    count = values.shape[1]
    within = values.var(1, ddof=1).mean(0)
    between = values.mean(1).var(0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.sqrt((count - 1) / count + between / within)
    return np.where(within > 0, ratio, np.nan)
