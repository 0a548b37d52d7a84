"""How inputs become floats of mean 0 and standard deviation 1: bytes exactly, other numbers in float64.

Images of bytes: sums and sums of squares are whole numbers, so mean and variance come out of integers without any
rounding. `(pixel / top - mean) / std` is computed in float32, step by step, each step rounded as IEEE says: the
result is the same to the bit on every machine. Other arrays: statistics in float64, a chunk at a time.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ..errors import DataError

IMAGES = 256  # at a time: a channel of so many, in float32, stays in the cache
CHUNK_BYTES = 32 << 20  # of float64 at a time, so that a large array is never held twice in float64
SMALLEST_VARIANCE = 1e-290  # below it, squares lose their digits before they vanish


def pixel_statistics(images: np.ndarray, top: int = 255) -> tuple[np.ndarray, np.ndarray]:
    """Returns mean and standard deviation of each channel, in float64, of pixels divided by `top`.

    Args:
        images: bytes, `(n, channels, height, width)`.
        top: the value of full brightness.

    Example:
        >>> mean, std = pixel_statistics(np.array([0, 255], np.uint8).reshape(1, 1, 1, 2))
        >>> mean.tolist(), std.tolist()
        ([0.5], [0.5])
    """

    def sums(start: int) -> list[tuple[int, int]]:
        chunk = images[start : start + IMAGES].astype(np.int32)
        firsts = chunk.sum((0, 2, 3), dtype=np.int64)
        chunk *= chunk
        return list(zip(firsts.tolist(), chunk.sum((0, 2, 3), dtype=np.int64).tolist(), strict=True))

    parts = in_threads(sums, range(0, len(images), IMAGES))
    number = images[:, 0].size
    mean, std = [], []
    for channel in range(images.shape[1]):
        first, second = (sum(part[channel][power] for part in parts) for power in (0, 1))
        mean.append(first / (number * top))
        # n Σv² - (Σv)² in Python's integers: int64 would overflow and float64 cancel
        std.append((number * second - first**2) ** 0.5 / (number * top))
    return np.array(mean), np.array(std)


def pixels_to_floats(images: np.ndarray, mean: np.ndarray, std: np.ndarray, top: int = 255) -> np.ndarray:
    """Returns `(pixel / top - mean) / std` of each channel as float32 `(n, height, width, channels)`."""
    count, channels, height, width = images.shape
    floats = np.empty((count, height, width, channels), np.float32)

    def fill(start: int) -> None:
        for channel in range(channels):
            plane = images[start : start + IMAGES, channel].astype(np.float32)
            plane /= np.float32(top)
            plane -= np.float32(mean[channel])
            plane /= np.float32(std[channel])
            floats[start : start + IMAGES, :, :, channel] = plane

    in_threads(fill, range(0, count, IMAGES))
    return floats


def feature_statistics(x: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns mean and standard deviation along all but the last axis, in float64, in two passes.

    Sums are taken relative to the first example, which makes a constant feature exactly constant; its
    standard deviation is given as 1, so that standardising makes it 0.

    Raises:
        DataError: a value is not finite, or so large or so small that its square is not a number of its own.

    Example:
        >>> mean, std = feature_statistics(np.array([[1.0, 7.0], [3.0, 7.0]]), "toy")
        >>> mean.tolist(), std.tolist()
        ([2.0, 7.0], [1.0, 1.0])
    """
    number = x.size // x.shape[-1]
    axes, first = tuple(range(x.ndim - 1)), x[(0,) * (x.ndim - 1)].astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        mean = first + sum(((chunk - first).sum(axes) for chunk in _chunks(x)), np.zeros(x.shape[-1])) / number
        squares = sum((((chunk - mean) ** 2).sum(axes) for chunk in _chunks(x)), np.zeros(x.shape[-1]))
        std = np.sqrt(squares / number)
    if not (np.isfinite(mean).all() and np.isfinite(std).all()):
        check_finite(x, name)
        raise DataError(f"{name}: values too large for a standard deviation; rescale them")
    small = squares / number < SMALLEST_VARIANCE
    if small.any() and any((chunk != first)[..., small].any() for chunk in _chunks(x)):
        raise DataError(f"{name}: values that differ by too little for a standard deviation; rescale them")
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


def in_threads(function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """Maps over items in a few threads; numpy, zlib and hashlib let go of the interpreter meanwhile."""
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return list(pool.map(function, items))


def _chunks(x: np.ndarray) -> Iterator[np.ndarray]:
    rows = max(1, CHUNK_BYTES // max(1, 8 * x[0].size))
    for start in range(0, len(x), rows):
        yield x[start : start + rows].astype(np.float64)
