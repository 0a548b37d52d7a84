"""What a data set is known by: a SHA-256 of its content, whatever its name is and wherever it lies.

Published data sets and the digits have one content, which stands in the source and is compared whenever they are
read. Of an `.npz` file the four arrays count, not how they are compressed. Limits and normalisation do not: they are
settings, and stand beside the content in the config of a run.
"""

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ..files import content_hash
from .sources import SOURCES, Source

DIGITS = "3c2b47978e1131cac713fcc07611e0aed2c927ed9029aee0c7416dd26ff6d617"


def is_data_file(name: str | Path) -> bool:
    """Whether a data set is named by a file of its own, which may change, move, and have namesakes."""
    return os.fspath(name).endswith(".npz")


def content_of_arrays(arrays: Iterable[np.ndarray]) -> str:
    """The hash of arrays: their types, shapes and values, in their order.

    Example:
        >>> content_of_arrays([np.arange(3)]) == content_of_arrays([np.arange(3)[::-1]])
        False
    """
    parts = []
    for array in arrays:
        array = np.asarray(array, array.dtype.newbyteorder("<"))  # the order of bytes on a disk is no content
        values = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        parts += [f"{array.dtype.str} {array.shape}".encode(), values]
    return content_hash(parts)


def published_content(name: str) -> str | None:
    """The content that a data set of this name must have; None where the name does not decide it."""
    if name == "digits":
        return DIGITS
    return content_of_source(SOURCES[name]) if name in SOURCES else None


def content_of_source(source: Source) -> str:
    """The hash of a published data set, from those of its files."""
    return content_hash(file.sha256.encode() for file in source.files)
