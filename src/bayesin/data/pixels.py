"""Images of bytes: their statistics, exactly, and their normalised floats.

Sums and sums of squares of bytes are whole numbers, so mean and variance come out of integers without any
rounding. `(pixel / top - mean) / std` is computed in float32, step by step, each step rounded as IEEE says:
the result is the same to the bit on every machine.
"""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

CHUNK = 256  # images at a time: a channel of a chunk, in float32, stays in the cache


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
        chunk = images[start : start + CHUNK].astype(np.int32)
        firsts = chunk.sum((0, 2, 3), dtype=np.int64)
        chunk *= chunk
        return list(zip(firsts.tolist(), chunk.sum((0, 2, 3), dtype=np.int64).tolist(), strict=True))

    parts = in_threads(sums, range(0, len(images), CHUNK))
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
            plane = images[start : start + CHUNK, channel].astype(np.float32)
            plane /= np.float32(top)
            plane -= np.float32(mean[channel])
            plane /= np.float32(std[channel])
            floats[start : start + CHUNK, :, :, channel] = plane

    in_threads(fill, range(0, count, CHUNK))
    return floats


def in_threads(function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """Maps over items in a few threads; numpy, zlib and hashlib let go of the interpreter meanwhile."""
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return list(pool.map(function, items))
