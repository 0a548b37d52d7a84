"""The idx format of MNIST: two zeros, a type, the number of axes, their sizes, then the values.

Sizes are big-endian 32-bit integers. Images and labels are unsigned bytes, type 8, with three axes and one.
"""

import math
import struct

import numpy as np

from ..errors import DataError

UNSIGNED_BYTE = 8


def parse_idx(content: bytes, axes: int, name: str) -> np.ndarray:
    """Returns the bytes of an idx file as an array with so many axes, without copying them.

    Args:
        content: the decompressed file.
        axes: 3 for images, 1 for labels.
        name: the file, for messages.

    Raises:
        DataError: the header is not that of an idx file of bytes, or its sizes and the content disagree.

    Example:
        >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]), 1, "labels").tolist()
        [7, 9]
    """
    if len(content) < 4 or content[:2] != b"\0\0":
        raise DataError(f"{name} is not an idx file: it should start with two zero bytes")
    if content[2] != UNSIGNED_BYTE:
        raise DataError(f"{name}: idx type {content[2]:#04x}, expected unsigned bytes (0x08)")
    if content[3] != axes:
        raise DataError(f"{name}: {content[3]} axes, expected {axes}; are images and labels swapped?")
    start = 4 + 4 * axes
    if len(content) < start:
        raise DataError(f"{name} is truncated: {len(content)} bytes, its header alone has {start}")
    shape = struct.unpack(f">{axes}I", content[4:start])
    if math.prod(shape) != len(content) - start:
        raise DataError(
            f"{name} declares shape {shape}, {math.prod(shape):,} bytes, but holds {len(content) - start:,}"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
