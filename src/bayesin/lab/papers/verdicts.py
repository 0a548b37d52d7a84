"""The rules that verdicts follow, and numbers over pairs or seeds as text."""

from collections.abc import Iterable, Sequence

import numpy as np
from scipy.stats import spearmanr

from .reproduction import Record, Verdict

# Declared before anything was judged: a barrier is called zero when alignment leaves less than one part in twenty of
# it and less than 0.05 nats; it is called nearly zero when it leaves less than one part in ten.
ZERO_SHARE, ZERO_NATS, NEARLY_SHARE = 0.05, 0.05, 0.10
# A trend has a rank correlation of at least the first (less what rounding takes), no trend one of at most the second.
TREND, NO_TREND = 0.8 - 1e-9, 0.3
# Networks that are hardly trained have hardly a barrier; what alignment leaves of that tells nothing.
BARRIER_NATS, NO_BARRIER = 0.1, "hardly any barrier to begin with: too little trained to tell"


def format_mean_std(values: Iterable[float], digits: int = 3, *, count: bool = True) -> str:
    """Mean ± standard deviation over pairs or seeds; with `count` also their number.

    Example:
        >>> format_mean_std([1.0, 2.0, 3.0], 1)
        '2.0 ± 1.0 (3)'
    """
    values = [float(value) for value in values]
    if not values:
        return "–"
    deviation = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{deviation}" + (f" ({len(values)})" if count else "")


def barrier_values(pairs: Sequence[Record], kind: str, part: str = "test") -> list[float]:
    """Barriers of pairs, "naive" or "aligned", in nats."""
    curves = [pair["numbers"][kind] for pair in pairs]
    return [curve[part]["value"] for curve in curves if part in curve]


def accuracies(pairs: Sequence[Record]) -> list[float]:
    """Test accuracy of the first posterior of every pair, in per cent."""
    return [100 * pair["numbers"]["naive"]["test"]["accuracy"][0] for pair in pairs]


def verdict_of_zero(naive: Sequence[float], aligned: Sequence[float]) -> tuple[Verdict, str]:
    """Whether alignment removed the barrier, and by how much."""
    if not naive or not aligned:
        return "not measured", "no pair was measured"
    if max(naive) < BARRIER_NATS:
        return "not measured", NO_BARRIER
    left = float(np.mean(aligned))
    share = left / float(np.mean(naive))
    reason = f"{share:.1%} of the barrier is left"
    if share <= ZERO_SHARE and left <= ZERO_NATS:
        return "confirmed", reason
    return ("partly" if share <= 0.5 else "not confirmed"), reason


def verdict_of_nearly_zero(naive: Sequence[float], aligned: Sequence[float]) -> tuple[Verdict, str]:
    """Whether alignment nearly removed the barrier."""
    verdict, reason = verdict_of_zero(naive, aligned)
    nearly = verdict != "not measured" and np.mean(aligned) <= NEARLY_SHARE * np.mean(naive)
    return ("confirmed" if nearly else verdict), reason


def verdict_of_rise(correlation: float) -> Verdict:
    """Whether a rank correlation is that of a rise; a fall is a rise of its negative."""
    return "confirmed" if correlation >= TREND else "partly" if correlation > NO_TREND else "not confirmed"


def verdict_of_no_rise(correlation: float) -> Verdict:
    """The opposite claim, by the same limits."""
    return "confirmed" if correlation <= NO_TREND else "partly" if correlation < TREND else "not confirmed"


def rank_correlation(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Spearman's rank correlation of two columns: −1 where y falls whenever x grows; NaN where one is constant.

    Example:
        >>> round(rank_correlation([1, 2, 3], [9.0, 5.0, 1.0]), 6)
        -1.0
    """
    if len(set(xs)) < 2 or len(set(ys)) < 2:  # undefined; scipy would warn
        return float("nan")
    return float(spearmanr(xs, ys)[0])  # pyright: ignore[reportArgumentType]
