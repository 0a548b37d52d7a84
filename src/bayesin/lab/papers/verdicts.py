"""The rules that verdicts follow, and numbers over pairs or seeds as text."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.stats import rankdata

from .reproduction import Finding, Record, Verdict

# Declared before anything was judged: a barrier is called zero when alignment leaves less than one part in twenty of
# it and less than 0.05 nats; it is called nearly zero when it leaves less than one part in ten.
ZERO_SHARE, ZERO_NATS, NEARLY_SHARE = 0.05, 0.05, 0.10
# A mean is above or below a limit where it is so by two standard errors; otherwise nothing is decided.
ERRORS = 2.0
# A trend has a rank correlation of at least the first (less what rounding takes), no trend one of at most the second.
TREND, NO_TREND = 0.8 - 1e-9, 0.3
# Its verdict stands where so many of so many redraws of the points, within their standard errors, give the same.
SURE, REDRAWS = 0.95, 1_000
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
    """Barriers of the pairs that have one, "naive", "aligned" or "rescaled", in nats."""
    curves = [_curves(pair, kind) for pair in pairs]
    return [curve[part]["value"] for curve in curves if part in curve]


def _curves(pair: Record, kind: str) -> Mapping[str, Any]:
    """The curves of one path by set; records of pairs that were measured without a rescaled path lack that alone."""
    numbers = pair["numbers"]
    return numbers.get(kind, {}) if kind == "rescaled" else numbers[kind]


def accuracies(pairs: Sequence[Record]) -> list[float]:
    """Test accuracy of the first posterior of every pair, in per cent."""
    return [100 * pair["numbers"]["naive"]["test"]["accuracy"][0] for pair in pairs]


class Barriers(NamedTuple):
    """Barriers of pairs without and after alignment, in nats, and how sure they are."""

    naive: Sequence[float]
    aligned: Sequence[float]
    disjoint: int  # pairs that share no posterior; their number, not that of all, makes the mean surer
    noise: Sequence[tuple[float, float]] = ()  # Monte-Carlo standard errors of both, where they were recorded

    @property
    def share(self) -> float:
        """What alignment leaves, of the mean over pairs."""
        return float(np.mean(self.aligned)) / float(np.mean(self.naive))

    @property
    def share_error(self) -> float:
        """Standard error of the share, that of a ratio of means."""
        residuals = np.asarray(self.aligned) - self.share * np.asarray(self.naive)
        return self._error(residuals, lambda naive, aligned: np.hypot(aligned, self.share * naive)) / float(
            np.mean(self.naive)
        )

    @property
    def naive_error(self) -> float:
        """Standard error of the mean barrier without alignment."""
        return self._error(self.naive, lambda naive, aligned: naive)

    @property
    def nats_error(self) -> float:
        """Standard error of the mean barrier after alignment."""
        return self._error(self.aligned, lambda naive, aligned: aligned)

    def _error(self, values: Sequence[float] | np.ndarray, noise_of: Callable[[float, float], float]) -> float:
        noise = [noise_of(*errors) for errors in self.noise]
        of_draws = float(np.sqrt(np.sum(np.square(noise)))) / len(noise) if noise else 0.0
        return float(np.hypot(standard_error(values, self.disjoint), of_draws))


Rule = Callable[[Barriers], tuple[Verdict, str]]


def barriers_of(pairs: Sequence[Record], part: str = "test", path: str = "aligned") -> Barriers:
    """What was measured on one set of the pairs that have this path, "aligned" or "rescaled"."""
    pairs = [pair for pair in pairs if part in _curves(pair, path)]
    naive, aligned = (barrier_values(pairs, kind, part) for kind in ("naive", path))
    curves = [[pair["numbers"][kind].get(part, {}) for kind in ("naive", path)] for pair in pairs]
    noise = [(of_naive.get("standard_error"), of_aligned.get("standard_error")) for of_naive, of_aligned in curves]
    known = [(one, other) for one, other in noise if one is not None and other is not None]
    return Barriers(naive, aligned, _disjoint(pairs), known)


def heights(barriers: Barriers, digits: int = 3) -> str:
    """Barriers without → after alignment, in words; the latter, which may be tiny, with so many digits."""
    return f"{format_mean_std(barriers.naive)} → {format_mean_std(barriers.aligned, digits)} nats"


def lost_on_the_way(pairs: Sequence[Record]) -> str:
    """Points of accuracy that the path loses, without → after alignment."""
    return " → ".join(format_mean_std(points_lost(pairs, kind), 1) for kind in ("naive", "aligned"))


def verdict_of_all(verdicts: Sequence[Verdict], what: str) -> tuple[Verdict, str]:
    """Of a claim that is to hold for all: partly where it holds for some; and for how many of what it holds.

    Example:
        >>> verdict_of_all(["confirmed", "not decided", "not confirmed"], "values")
        ('partly', '1 of 3 values, not decided at 1')
    """
    if not verdicts:
        return "not measured", f"0 of 0 {what}"
    held, open_ = verdicts.count("confirmed"), verdicts.count("not decided")
    found: Verdict = "confirmed" if held == len(verdicts) else "partly" if held else "not confirmed"
    if open_ and held + open_ == len(verdicts):
        found = "not decided"
    return found, f"{held} of {len(verdicts)} {what}" + (f", not decided at {open_}" if open_ else "")


def findings_of_rescaled(cases: Mapping[str, Sequence[Record]], rule: Rule | None = None) -> list[Finding]:
    """What is left on the rescaled path of every case, beside the geodesic; nothing where it was not measured."""
    findings = []
    for title, of_case in cases.items():
        rescaled, plain = (barriers_of(of_case, path=path) for path in ("rescaled", "aligned"))
        if rescaled.naive:
            said = f"{format_mean_std(plain.aligned)} on the geodesic → {format_mean_std(rescaled.aligned)} nats, "
            said += f"points of accuracy lost {format_mean_std(points_lost(of_case, 'rescaled'), 1)}"
            judge = rule or (verdict_of_nearly_zero if "ResNet20" in title else verdict_of_zero)
            claim = f"{title}, rescaled path: {'nearly ' if judge is verdict_of_nearly_zero else ''}no barrier"
            findings.append(Finding(claim, "not in the paper", said, *judge(rescaled)))
    return findings


def points_lost(pairs: Sequence[Record], kind: str) -> list[float]:
    """By how many points test accuracy falls below the chord between its ends, for the pairs that have the path."""
    curves = [_curves(pair, kind) for pair in pairs]
    return [100 * curve["test"]["accuracy_drop"] for curve in curves if "test" in curve]


def _disjoint(pairs: Sequence[Record]) -> int:
    """How many of the pairs share no posterior with one counted before; those of one run are in order."""
    seen: set[tuple[Any, int]] = set()
    count = 0
    for pair in pairs:
        settings = pair["settings"]
        ends = {(settings["config"].get("hash"), settings[end]) for end in ("first", "second")}
        if not ends & seen:
            seen |= ends
            count += 1
    return count


def standard_error(values: Sequence[float] | np.ndarray, independent: int | None = None) -> float:
    """Of the mean, from the spread of the values, of which so many are independent; infinite for a single one.

    Example:
        >>> round(standard_error([1.0, 2.0, 3.0], independent=2), 4)  # 1 / √2
        0.7071
    """
    if len(values) < 2:
        return float("inf")
    return float(np.std(values, ddof=1) / np.sqrt(independent or len(values)))


def above(mean: float, error: float, limit: float) -> bool | None:
    """Whether a mean lies above a limit; None where the limit is within two standard errors of it.

    Example:
        >>> above(1.0, 0.1, 0.5), above(1.0, 0.1, 1.5), above(1.0, 0.1, 0.9)
        (True, False, None)
    """
    return True if mean - ERRORS * error > limit else False if mean + ERRORS * error <= limit else None


def mean_above(values: Sequence[float] | np.ndarray, limit: float = 0.0) -> bool | None:
    """`above` for the mean of independent values, such as those of seeds."""
    return above(float(np.mean(values)), standard_error(values), limit)


def verdict_of_miss(missed: bool | None) -> Verdict:
    """Of a claim that a mean is not above a limit, from `above`."""
    return "not decided" if missed is None else "not confirmed" if missed else "confirmed"


def verdict_of_zero(barriers: Barriers) -> tuple[Verdict, str]:
    """Whether alignment removed the barrier, and by how much."""
    return _verdict_of_rest(barriers, ZERO_SHARE, ZERO_NATS)


def verdict_of_nearly_zero(barriers: Barriers) -> tuple[Verdict, str]:
    """Whether alignment nearly removed the barrier."""
    return _verdict_of_rest(barriers, NEARLY_SHARE, float("inf"))


def _verdict_of_rest(barriers: Barriers, share: float, nats: float) -> tuple[Verdict, str]:
    """Whether at most so much is left; where surely not, "partly" where surely less than half of it is."""
    if not barriers.naive or not barriers.aligned:
        return "not measured", "no pair was measured"
    if max(barriers.naive) < BARRIER_NATS:
        return "not measured", NO_BARRIER
    reason = f"{barriers.share:.1%} of the barrier is left"
    if len(barriers.aligned) < 2:
        return "not decided", f"{reason}; one pair has no spread"
    error = barriers.share_error
    reason += f", standard error {error:.1%}"
    more = [above(barriers.share, error, share), above(float(np.mean(barriers.aligned)), barriers.nats_error, nats)]
    if True in more:
        return ("partly" if above(barriers.share, error, 0.5) is False else "not confirmed"), reason
    return ("not decided" if None in more else "confirmed"), reason


def verdict_of_rise(correlation: float) -> Verdict:
    """Whether a rank correlation is that of a rise; a fall is a rise of its negative."""
    return "confirmed" if correlation >= TREND else "partly" if correlation > NO_TREND else "not confirmed"


def verdict_of_no_rise(correlation: float) -> Verdict:
    """The opposite claim, by the same limits."""
    return "confirmed" if correlation <= NO_TREND else "partly" if correlation < TREND else "not confirmed"


def trend(
    xs: Sequence[float],
    ys: Sequence[float],
    errors: Sequence[float] | None = None,
    *,
    what: str,
    claim: Literal["rise", "fall", "no fall"] = "rise",
) -> tuple[Verdict, str]:
    """Whether y rises or falls with x, or does not fall, judged with the standard errors of y.

    The points are redrawn within their errors, or where they have none among themselves (with replacement); where
    fewer than 95 in 100 redraws give the verdict of the points themselves, nothing is decided. The former is careful:
    the points have their errors already, and get them again.

    Example:
        >>> trend([1, 2, 3, 4], [0.1, 0.2, 0.3, 0.4], [0.01] * 4, what="x and y")
        ('confirmed', 'rank correlation of x and y +1.00, +1.00 to +1.00 in 95 of 100 redraws')
        >>> trend([1, 2, 3, 4], [0.1, 0.2, 0.3, 0.4], [0.2] * 4, what="x and y")[0]
        'not decided'
    """
    correlation = rank_correlation(xs, ys)
    if np.isnan(correlation):
        return "not measured", "one setting alone"
    reason = f"rank correlation of {what} {correlation:+.2f}"
    if errors is not None and not np.all(np.isfinite(errors)):
        return "not decided", f"{reason}; a single pair has no spread"
    randomness = np.random.default_rng(0)
    if errors is None:
        chosen = randomness.integers(0, len(ys), (REDRAWS, len(ys)))
        redrawn = [rank_correlation(np.asarray(xs)[these], np.asarray(ys)[these]) for these in chosen]
    else:
        redrawn = [rank_correlation(xs, draw) for draw in randomness.normal(ys, errors, (REDRAWS, len(ys)))]
    rule = verdict_of_no_rise if claim == "no fall" else verdict_of_rise
    sign = 1.0 if claim == "rise" else -1.0
    found = rule(sign * correlation)
    same = np.mean([rule(sign * value) == found for value in redrawn])
    low, high = np.nanquantile(redrawn, [0.025, 0.975])
    return (found if same >= SURE else "not decided"), f"{reason}, {low:+.2f} to {high:+.2f} in 95 of 100 redraws"


def rank_correlation(xs: Sequence[float] | np.ndarray, ys: Sequence[float] | np.ndarray) -> float:
    """Spearman's rank correlation of two columns: −1 where y falls whenever x grows; NaN where one is constant.

    Example:
        >>> round(rank_correlation([1, 2, 3], [9.0, 5.0, 1.0]), 6)
        -1.0
    """
    if len(set(xs)) < 2 or len(set(ys)) < 2:  # undefined
        return float("nan")
    return float(np.corrcoef(rankdata(xs), rankdata(ys))[0, 1])
