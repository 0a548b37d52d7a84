"""Arrays of numbers: their statistics in float64 and their standardised floats, a chunk at a time."""

from collections.abc import Iterator

import numpy as np

from ..errors import DataError

CHUNK_BYTES = 32 << 20  # of float64 at a time, so that a large array is never held twice in float64


def feature_statistics(x: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns mean and standard deviation along all but the last axis, in float64, in two passes.

    Sums are taken relative to the first example, which makes a constant feature exactly constant; its
    standard deviation is given as 1, so that standardising makes it 0.

    Raises:
        DataError: a value is not finite, or so large that its square is not.

    Example:
        >>> mean, std = feature_statistics(np.array([[1.0, 7.0], [3.0, 7.0]]), "toy")
        >>> mean.tolist(), std.tolist()
        ([2.0, 7.0], [1.0, 1.0])
    """
    number = x.size // x.shape[-1]
    axes, first = tuple(range(x.ndim - 1)), x[(0,) * (x.ndim - 1)].astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = first + sum(((chunk - first).sum(axes) for chunk in _chunks(x)), np.zeros(x.shape[-1])) / number
        squares = sum((((chunk - mean) ** 2).sum(axes) for chunk in _chunks(x)), np.zeros(x.shape[-1]))
        std = np.sqrt(squares / number)
    if not (np.isfinite(mean).all() and np.isfinite(std).all()):
        check_finite(x, name)
        raise DataError(f"{name}: values too large for a standard deviation; rescale them")
    return mean, np.where(std > 0, std, 1.0)


def standardise(x: np.ndarray, mean: np.ndarray, std: np.ndarray, name: str) -> np.ndarray:
    """Returns `(x - mean) / std` as float32, computed in float64.

    Raises:
        DataError: a value is not finite, or not within float32's range afterwards.
    """
    floats = np.empty(x.shape, np.float32)
    start = 0
    with np.errstate(over="ignore", invalid="ignore"):
        for chunk in _chunks(x):
            floats[start : start + len(chunk)] = (chunk - mean) / std
            start += len(chunk)
    if not np.isfinite(floats).all():
        check_finite(x, name)
        check_finite(floats, f"{name}, in float32")
    return floats


def check_finite(x: np.ndarray, name: str) -> None:
    """Raises `DataError` with the place of the first value that is not finite."""
    if np.issubdtype(x.dtype, np.floating) and not np.isfinite(x).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(x))[0])
        raise DataError(f"{name} holds {x[place]} at {list(place)}; every value must be finite")


def _chunks(x: np.ndarray) -> Iterator[np.ndarray]:
    rows = max(1, CHUNK_BYTES // max(1, 8 * x[0].size))
    for start in range(0, len(x), rows):
        yield x[start : start + rows].astype(np.float64)
