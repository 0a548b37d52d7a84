"""How arrays of one's own were read, where they can be read in two ways: one warning each.

Nothing here changes a number but labels in one-hot form, which can be nothing else.
"""

import warnings

import numpy as np

CHANNELS = (1, 3, 4)  # of images as people have them
MANY_CLASSES = 1000  # whole numbers beyond are counts or years rather than labels


def remark_on_inputs(name: str, x: np.ndarray, normalise: str) -> None:
    """Warns of pixels that are no bytes, of images with their channels in front, and of what may be tokens."""
    if x.ndim == 2 and np.issubdtype(x.dtype, np.integer) and x.dtype != np.uint8 and x.min() >= 0:
        done = "standardised as features" if normalise == "standard" else "made floating-point numbers"
        _warn(f"{name} holds whole numbers ({x.dtype}): {done}; tokens stay whole with normalise='none'")
    if x.ndim != 4:
        return
    height, width = x.shape[2:4]
    if x.shape[1] in CHANNELS and x.shape[3] not in CHANNELS and height == width:
        _warn(
            f"{name} of shape {x.shape} is read as (n, height, width, channels), that is with {width} channels; if "
            "its channels are in front, give np.moveaxis(x, 1, -1), or normalise='none' to leave them there"
        )
    elif x.dtype != np.uint8 and x.max() > 1 and x.min() >= 0 and (x == np.floor(x)).all():
        done = "standardised" if normalise == "standard" else "left as they are"
        _warn(
            f"{name} holds whole numbers up to {x.max():g} as {x.dtype}: read as numbers and {done}; raw pixels are "
            "bytes (astype(np.uint8)), which are divided by 255"
        )


def read_labels(name: str, y: np.ndarray, remark: bool = True) -> np.ndarray:
    """Returns targets, one-hot rows as labels, whole ones in a column as a row.

    Warns of one-hot rows, and of whole numbers that are stored as fractions.
    """
    warn = _warn if remark else lambda text: None
    whole = np.issubdtype(y.dtype, np.integer)
    if whole and y.ndim == 2 and y.shape[1] == 1:  # as Keras has them
        return y[:, 0]
    if y.ndim == 2 and y.shape[1] > 1 and y.size and ((y == 0) | (y == 1)).all() and (y.sum(1) == 1).all():
        warn(f"{name} of shape {y.shape} is read as one-hot labels of {y.shape[1]} classes")
        return y.argmax(1)
    values = np.unique(y) if not whole and y.ndim == 1 else np.zeros(0)
    few = 1 < len(values) <= len(y) / 2
    if few and values[0] >= 0 and values[-1] < MANY_CLASSES and (values == np.floor(values)).all():
        warn(
            f"{name} holds {len(values)} different whole numbers as {y.dtype}: read as targets of a regression; "
            "labels are integers (astype(np.int32))"
        )
    return y


def remark_on_labels(name: str, labels: np.ndarray, classes: int) -> None:
    """Warns of labels that count from one, and of other classes without a training example."""
    missing = sorted(set(range(classes)) - set(np.unique(labels).tolist()))
    if missing == [0]:
        _warn(f"{name}: labels count from 1, so that class 0 of {classes} has no example; subtract 1 to count from 0")
    elif missing:
        named = ", ".join(map(str, missing[:5])) + (", …" if len(missing) > 5 else "")
        _warn(f"{name}: {len(missing)} of {classes} classes have no training example: {named}")


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=4)
