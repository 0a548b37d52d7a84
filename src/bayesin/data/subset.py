"""Smaller data sets that keep the shares of the classes."""

import operator

import numpy as np

from ..errors import ConfigError


def stratified(labels: np.ndarray, limit: int | None, what: str = "the data set") -> np.ndarray:
    """Returns the indices, in order, of `limit` examples whose classes have the shares they have in all.

    Every class keeps at least one example; the rest is shared out by largest remainders. Within a class
    the chosen ones are spread evenly over the file, because some files grow harder towards their end
    (the second half of MNIST's test set was written by other people).

    Raises:
        ConfigError: the limit is not a positive whole number, or there are more classes than that.

    Example:
        >>> stratified(np.array([0, 0, 0, 0, 1, 1]), 3).tolist()
        [1, 3, 5]
    """
    if limit is None or check_limit(limit) >= len(labels):
        return np.arange(len(labels))
    _, member, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if limit < len(counts):
        raise ConfigError(f"limit {limit} is too small: {what} has {len(counts)} classes, so at least {len(counts)}")
    chosen = [
        np.flatnonzero(member == label)[evenly(count, quota)]
        for label, (count, quota) in enumerate(zip(counts, quotas(counts, limit), strict=True))
    ]
    return np.sort(np.concatenate(chosen))


def take(values: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """The chosen rows; all of them without a copy."""
    return values if len(indices) == len(values) else values[indices]


def quotas(counts: np.ndarray, limit: int) -> np.ndarray:
    """How many of each class: one each, the rest in proportion, by largest remainders."""
    rest, total = limit - len(counts), int(counts.sum()) - len(counts)
    share = rest * (counts - 1)  # in units of 1 / total, so that everything stays whole
    whole, remainder = share // total, share % total
    order = np.argsort(-remainder, kind="stable")
    whole[order[: rest - int(whole.sum())]] += 1
    return whole + 1


def evenly(count: int, quota: int) -> np.ndarray:
    """`quota` of `range(count)`, one from the middle of each equal part."""
    return (2 * np.arange(quota) + 1) * count // (2 * quota)


def check_limit(limit: int) -> int:
    """Returns the limit as an int, or raises `ConfigError` where it is not a positive whole number."""
    try:
        number = operator.index(limit)
    except TypeError:
        number = 0
    if number < 1 or isinstance(limit, bool):
        raise ConfigError(f"limit needs a positive whole number, not {limit!r}")
    return number
