"""The CIFAR binary format: records of label bytes and a 32 × 32 image in three planes, red, green, blue.

CIFAR-10 has one label byte; CIFAR-100 has two, the coarse class (of 20) and the fine one (of 100).
"""

import numpy as np

from ..errors import DataError

SIDE, CHANNELS = 32, 3
PIXELS = CHANNELS * SIDE * SIDE


def parse_cifar(content: bytes, classes: int, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns images `(n, 3, 32, 32)` and fine labels `(n,)` as views of the content.

    Args:
        content: the decompressed file.
        classes: 10 or 100; tells how many label bytes a record has.
        name: the file, for messages.

    Raises:
        DataError: the content is not a whole number of records, or a label is out of range.

    Example:
        >>> images, labels = parse_cifar(bytes([3]) + bytes(3072), 10, "batch")
        >>> images.shape, labels.tolist()
        ((1, 3, 32, 32), [3])
    """
    label_bytes = 2 if classes == 100 else 1
    length = label_bytes + PIXELS
    if not content or len(content) % length:
        raise DataError(f"{name}: {len(content):,} bytes are not a whole number of records of {length:,}")
    records = np.frombuffer(content, np.uint8).reshape(-1, length)
    labels = records[:, label_bytes - 1]
    if labels.max() >= classes:
        raise DataError(
            f"{name}: record {int(labels.argmax())} has label {labels.max()}, expected 0 to {classes - 1}"
        )
    return records[:, label_bytes:].reshape(-1, CHANNELS, SIDE, SIDE), labels
