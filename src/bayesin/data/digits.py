"""The 8 × 8 digits that scikit-learn carries: no file, no network.

1,797 digits of 43 people (Alpaydin and Kaynak 1998, the test part), pixels 0 to 16. The authors' own
training part is not embedded, so the split is ours and fixed: 360 test digits, in the shares of the
classes, drawn with numpy's frozen generator `RandomState(0)`; the other 1,437 are for training.
"""

import numpy as np

from ..errors import DataError
from .subset import quotas

TOP = 16  # the brightest pixel
TEST = 360


def read_digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns training images and labels, test images and labels; images are bytes `(n, 1, 8, 8)`.

    Example:
        >>> [part.shape for part in read_digits()]
        [(1437, 1, 8, 8), (1437,), (360, 1, 8, 8), (360,)]
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise DataError("the digits come with scikit-learn: pip install scikit-learn") from None
    pixels, labels = load_digits(return_X_y=True)
    images = np.asarray(pixels).astype(np.uint8).reshape(-1, 1, 8, 8)
    labels = np.asarray(labels)
    test = _test_indices(labels)
    return images[~test], labels[~test], images[test], labels[test]


def _test_indices(labels: np.ndarray) -> np.ndarray:
    """Which digits are for testing, as a mask."""
    mask = np.zeros(len(labels), bool)
    random = np.random.RandomState(0)
    for label, quota in enumerate(quotas(np.bincount(labels), TEST)):
        mask[random.permutation(np.flatnonzero(labels == label))[:quota]] = True
    return mask
