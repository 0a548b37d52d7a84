"""Do the chains agree, and how many independent draws are they worth? Both statistics are blackjax's.

R-hat is the rank-normalised split statistic: every chain is cut in half, values are replaced by the normal
scores of their ranks, and the spread between halves is compared with that within. 1 means no difference;
above 1.01 the chains have not mixed. A single chain is compared with itself, one half against the other. Weights
of a network are not comparable between modes, so the statistics are taken of its predictions.

References: Vehtari et al. 2021 (R-hat); Geyer 1992 (effective sample size).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np


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
    from blackjax.diagnostics import rhat

    return _of_each(rhat, values)


def effective_sample_size(values: np.ndarray) -> np.ndarray:
    """Returns how many independent draws have the same error of the mean; NaN as for `split_rhat`.

    The draws' number over `1 + 2 Σ_t ρ_t`, the autocorrelations of all chains together, cut off where the
    sum of two neighbours turns negative and made to fall (Geyer's initial monotone sequence).

    Args:
        values: shape (chains, draws, ...).
    """
    from blackjax.diagnostics import effective_sample_size as of_chains

    return _of_each(of_chains, values)


def _of_each(statistic: Callable[[jax.Array], jax.Array], values: np.ndarray) -> np.ndarray:
    values = np.asarray(values)
    shape = values.shape[2:]
    if values.shape[1] < 4 or not values.size:
        return np.full(shape, np.nan)
    # Centred first: blackjax computes in float32, where a mean far from zero would swallow the variation.
    centred = np.asarray(values - values.mean((0, 1), keepdims=True, dtype=np.float64), np.float32)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        found = jax.jit(statistic)(jnp.asarray(centred.reshape(*values.shape[:2], -1)))
    varies = (values != values[:, :1]).any((0, 1))
    return np.where(varies, np.asarray(found, np.float64).reshape(shape), np.nan)
