"""Scores of predictive probabilities, in float64 on the host.

nll        −mean_i log p_i(y_i), nats per example
accuracy   share of examples whose most probable class is right
ece        Σ_b (n_b / N) |accuracy_b − confidence_b| over 15 bins of equal width (Guo et al. 2017)
brier      mean_i Σ_c (p_i(c) − [c = y_i])²,  between 0 and 2
agreement  share of examples on which two predictions name the same class
total variation   mean_i ½ Σ_c |p_i(c) − q_i(c)|,  between 0 and 1
temperature   T of least nll for probabilities p^(1/T), renormalised; above 1 where they are too sure
selective  accuracy of the examples that are kept when the least certain are left out, by the share that is kept
auroc      probability that a score of one set lies above one of another, ties counted half
"""

from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike
from scipy.special import logsumexp

from ..errors import DataError

BINS = 15
COLDEST, HOTTEST = 1e-3, 1e3  # temperatures between which the best one is looked for


class Calibration(NamedTuple):
    """What a reliability diagram shows; NaN-free: an empty bin has count 0 and zeros.

    Example:
        >>> found = calibration(np.array([[0.9, 0.1], [0.3, 0.7]]), np.array([0, 0]), bins=2)
        >>> gaps = abs(found.accuracy - found.confidence)
        >>> round(float(gaps @ found.count / found.count.sum()), 4)  # the calibration error
        0.3
    """

    confidence: np.ndarray  # mean probability of the named class, one entry a bin
    accuracy: np.ndarray
    count: np.ndarray


class Selective(NamedTuple):
    """Accuracy by the share of examples that are kept, the most certain ones first."""

    coverage: np.ndarray
    accuracy: np.ndarray


def nll(log_probs: ArrayLike, y: ArrayLike) -> float:
    """Returns the mean negative log-probability of the labels.

    Example:
        >>> round(nll(np.log([[0.5, 0.5], [0.25, 0.75]]), [0, 1]), 4)
        0.4904
    """
    log_probs, y = checked(log_probs, y)
    return float(-log_probs[np.arange(len(y)), y].mean())


def tempered(log_probs: ArrayLike, temperature: float) -> np.ndarray:
    """Returns the log-probabilities p^(1/T), renormalised.

    Example:
        >>> np.exp(tempered(np.log([[0.5, 0.25, 0.25]]), 0.5)).round(4).tolist()
        [[0.6667, 0.1667, 0.1667]]
    """
    scaled = np.asarray(log_probs, np.float64) / temperature
    return scaled - logsumexp(scaled, axis=1, keepdims=True)


def best_temperature(log_probs: ArrayLike, y: ArrayLike) -> float:
    """Returns the temperature at which the labels are likeliest, `COLDEST` or `HOTTEST` where none between them is.

    The negative log-likelihood is convex in 1/T, so that its slope has one root.

    Example:
        >>> log_probs = np.log([[0.9, 0.1]] * 3)  # 90 % sure, right two times in three
        >>> round(best_temperature(log_probs, [0, 0, 1]), 3)
        3.17
    """
    log_probs, y = checked(log_probs, y)
    logs = log_probs.astype(np.float64)
    right = float(logs[np.arange(len(y)), y].mean())

    def slope(inverse: float) -> float:
        probs = np.exp(tempered(logs, 1 / inverse))
        expected = np.multiply(probs, logs, where=probs > 0, out=np.zeros_like(probs))
        return float(expected.sum(1).mean()) - right

    if slope(1 / HOTTEST) >= 0:
        return HOTTEST
    if slope(1 / COLDEST) <= 0:
        return COLDEST
    from scipy.optimize import brentq  # slow to import, and seldom needed

    return 1 / float(brentq(slope, 1 / HOTTEST, 1 / COLDEST, xtol=1e-12))  # pyright: ignore[reportArgumentType]


def accuracy(probs: ArrayLike, y: ArrayLike) -> float:
    """Returns the share of right answers; probabilities or log-probabilities alike.

    Example:
        >>> accuracy([[0.5, 0.1], [0.2, 0.8]], [0, 0])
        0.5
    """
    probs, y = checked(probs, y)
    return float((probs.argmax(1) == y).mean())


def brier(probs: ArrayLike, y: ArrayLike) -> float:
    """Returns the Brier score.

    Example:
        >>> brier([[1.0, 0.0], [1.0, 0.0]], [0, 1])
        1.0
    """
    probs, y = checked(probs, y)
    return float(((probs - np.eye(probs.shape[1])[y]) ** 2).sum(1).mean())


def calibration(probs: ArrayLike, y: ArrayLike, bins: int = BINS) -> Calibration:
    """Returns confidence, accuracy and count in bins of equal width over the confidence (0, 1].

    Example:
        >>> found = calibration(np.array([[0.9, 0.1], [0.3, 0.7]]), np.array([0, 0]), bins=2)
        >>> found.confidence.round(4).tolist(), found.accuracy.tolist(), found.count.tolist()
        ([0.0, 0.8], [0.0, 0.5], [0, 2])
    """
    probs, y = checked(probs, y)
    confidence, right = probs.max(1), probs.argmax(1) == y
    # A confidence on a boundary belongs to the bin below it, as in the usual definition (lower, upper].
    place = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    count = np.bincount(place, minlength=bins)
    some = np.maximum(count, 1)
    return Calibration(
        np.bincount(place, confidence, bins) / some, np.bincount(place, right.astype(float), bins) / some, count
    )


def ece(probs: ArrayLike, y: ArrayLike, bins: int = BINS) -> float:
    """Returns the expected calibration error.

    Example:
        >>> round(ece([[0.8, 0.2], [0.8, 0.2]], [0, 1]), 4)
        0.3
    """
    found = calibration(probs, y, bins)
    return float((found.count * np.abs(found.accuracy - found.confidence)).sum() / found.count.sum())


def confusion(probs: ArrayLike, y: ArrayLike) -> np.ndarray:
    """Returns the counts of (true class, named class).

    Example:
        >>> confusion(np.array([[0.9, 0.1], [0.3, 0.7]]), np.array([0, 0])).tolist()
        [[1, 1], [0, 0]]
    """
    probs, y = checked(probs, y)
    classes = probs.shape[1]
    return np.bincount(y * classes + probs.argmax(1), minlength=classes**2).reshape(classes, classes)


def agreement(probs: ArrayLike, others: ArrayLike) -> float:
    """Returns the share of examples on which two predictions name the same class.

    Example:
        >>> agreement([[0.9, 0.1], [0.9, 0.1]], [[0.6, 0.4], [0.4, 0.6]])
        0.5
    """
    probs, others = _pair(probs, others)
    return float((probs.argmax(1) == others.argmax(1)).mean())


def total_variation(probs: ArrayLike, others: ArrayLike) -> float:
    """Returns the mean total variation distance between two predictions, with its factor ½.

    Example:
        >>> total_variation([[1.0, 0.0]], [[0.0, 1.0]])
        1.0
    """
    probs, others = _pair(probs, others)
    return float(0.5 * np.abs(probs - others).sum(1).mean())


def selective_accuracy(probs: ArrayLike, y: ArrayLike) -> Selective:
    """Returns the accuracy of the most certain examples, for every number of them; equal confidence is averaged over.

    Example:
        >>> kept = selective_accuracy([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3]], [0, 0, 0])
        >>> kept.coverage.round(2).tolist(), kept.accuracy.round(2).tolist()
        ([0.33, 0.67, 1.0], [1.0, 1.0, 0.67])
    """
    probs, y = checked(probs, y)
    confidence, right = probs.max(1), (probs.argmax(1) == y).astype(np.float64)
    _, group = np.unique(-confidence, return_inverse=True)
    shared = np.bincount(group, right) / np.bincount(group)  # among equals the order is chance
    count = np.arange(1, len(y) + 1)
    return Selective(count / len(y), np.cumsum(shared[np.sort(group)]) / count)


def auroc(inside: ArrayLike, outside: ArrayLike) -> float:
    """Returns the probability that a score of `outside` lies above one of `inside`, ties counted half.

    Example:
        >>> auroc([0.1, 0.4], [0.3, 0.9])
        0.75
    """
    inside, outside = (np.asarray(scores, np.float64).reshape(-1) for scores in (inside, outside))
    if not inside.size or not outside.size or np.isnan(inside).any() or np.isnan(outside).any():
        raise DataError("need scores of both sets, without NaN")
    ordered = np.sort(inside)
    below, up_to = (np.searchsorted(ordered, outside, side=side).mean() for side in ("left", "right"))
    return float(0.5 * (below + up_to) / inside.size)


def checked(probs: ArrayLike, y: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Returns probabilities and labels as arrays that fit each other."""
    probs, y = np.asarray(probs, np.float64), np.asarray(y)
    if probs.ndim != 2 or y.shape != probs.shape[:1] or not len(y):
        raise DataError(f"need probabilities (examples, classes) and as many labels: {probs.shape} and {y.shape}")
    if not np.issubdtype(y.dtype, np.integer) or y.min() < 0 or y.max() >= probs.shape[1]:
        raise DataError(
            f"labels must be whole numbers from 0 to {probs.shape[1] - 1}; real targets need predict(…, likelihood=…)"
        )
    return probs, y


def _pair(probs: ArrayLike, others: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    probs, others = np.asarray(probs, np.float64), np.asarray(others, np.float64)
    if probs.ndim != 2 or probs.shape != others.shape or not len(probs):
        raise DataError(f"need two predictions of one shape (examples, classes): {probs.shape} and {others.shape}")
    return probs, others
