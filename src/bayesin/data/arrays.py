"""A data set from arrays of one's own: checked, then normalised with the training set's statistics.

Whole-number targets make a classification, floating-point targets a regression (left as they are). Where arrays can
be read in two ways there is one warning each, which changes no number but labels in one-hot form, which can be
nothing else.
"""

import dataclasses
import warnings
from typing import Any

import numpy as np

from .. import inputs
from ..errors import DataError
from .dataset import Dataset, Normalise, check_limit, check_normalise, evenly, stratified, take
from .normalise import check_finite, feature_statistics, pixel_statistics, pixels_to_floats, standardise

MOST_CLASSES = 1 << 20  # more is a column of identifiers, not of labels


def from_arrays(
    x_train: object,
    y_train: object,
    x_test: object,
    y_test: object,
    *,
    name: str = "arrays",
    limit: int | None = None,
    normalise: Normalise = "standard",
) -> Dataset:
    """Returns the data set of four arrays.

    Args:
        x_train: `(n, features)`, or images `(n, height, width)` or `(n, height, width, channels)`. Bytes are
            taken for pixels and divided by 255.
        y_train: labels `(n,)` from 0, or floating-point targets `(n,)` or `(n, outputs)`.
        x_test: like `x_train`.
        y_test: like `y_train`.
        name: for messages and reports.
        limit: keep so many training and so many test examples, in the shares of the classes.
        normalise: `"standard"` standardises each channel or feature with the whole training set's mean and
            standard deviation (a constant one becomes 0); `"unit"` leaves it, bytes between 0 and 1; `"none"` takes
            inputs of any shape as they are, a dict of arrays too, and leaves whole numbers (tokens) whole.

    What can be read in two ways (pixels that are no bytes, channels in front, one-hot or floating-point labels,
    labels from 1, a class without an example) is met with a warning that says how it was read.

    Raises:
        DataError: shapes, lengths or types do not fit together, or a value is not finite.
        ConfigError: an option has no meaning.

    Example:
        >>> data = from_arrays([[0.0], [2.0]], [0, 1], [[4.0]], [1])
        >>> data.x_train.ravel().tolist(), data.x_test.ravel().tolist(), data.classes
        ([-1.0, 1.0], [3.0], 2)
    """
    check_normalise(normalise)
    if normalise == "none":
        return _as_given(x_train, y_train, x_test, y_test, name, limit)
    if isinstance(x_train, dict) or isinstance(x_test, dict):
        raise DataError(f"{name}: a dict of inputs is taken as it is; say so: normalise='none', or --normalise none")
    train, test = _inputs(f"{name}: x_train", x_train), _inputs(f"{name}: x_test", x_test)
    train_targets, test_targets = _both_targets(name, y_train, y_test)
    remark_on_inputs(f"{name}: x_train", train, normalise)
    _check_together(name, train, test, train_targets, test_targets)
    classes = _classes(name, train_targets, test_targets)
    parts = _pixels_or_floats(train), train_targets, _pixels_or_floats(test), test_targets
    made = normalised(parts, name=name, classes=classes, limit=limit, normalise=normalise)
    return made if train.dtype != np.uint8 else dataclasses.replace(made, top=255)


def normalised(
    parts: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    *,
    name: str,
    classes: int | None,
    limit: int | None,
    normalise: Normalise,
    top: int = 255,
) -> Dataset:
    """Returns the data set of checked arrays x_train, y_train, x_test, y_test, cut to `limit` and normalised.

    Args:
        parts: inputs are floats `(n, …, features)`, or bytes `(n, channels, height, width)`; targets `(n, …)`.
        name: of the data set.
        classes: None for a regression.
        limit: as `from_arrays` takes it.
        normalise: as `from_arrays` takes it.
        top: the largest byte.
    """
    x_train, y_train, x_test, y_test = parts
    train = _choose(y_train, classes, limit, f"the training set of {name}")
    test = _choose(y_test, classes, limit, f"the test set of {name}")
    is_image = x_train.dtype == np.uint8
    mean, std = pixel_statistics(x_train, top) if is_image else feature_statistics(x_train, f"{name}: x_train")
    std = np.where(std > 0, std, 1.0)  # of a constant channel, which becomes 0
    shift, scale = (mean, std) if normalise == "standard" else (np.zeros_like(mean), np.ones_like(std))

    def floats(x: np.ndarray, part: str) -> np.ndarray:
        return pixels_to_floats(x, shift, scale, top) if is_image else standardise(x, shift, scale, f"{name}: {part}")

    return Dataset(
        floats(take(x_train, train), "x_train"),
        take(y_train, train),
        floats(take(x_test, test), "x_test"),
        take(y_test, test),
        name=name,
        classes=classes,
        mean=mean,
        std=std,
        normalise=normalise,
        top=top if is_image else None,
    )


def _as_given(x_train: Any, y_train: object, x_test: Any, y_test: object, name: str, limit: int | None) -> Dataset:
    """Inputs of any shape, or a dict of them, that nothing is done to."""
    train = inputs.as_inputs(_without_bytes(x_train), f"{name}: x_train")
    test = inputs.as_inputs(_without_bytes(x_test), f"{name}: x_test")
    targets = _both_targets(name, y_train, y_test)
    _check_targets(name, *targets)
    classes = _classes(name, *targets)
    parts = []
    for x, y, part in zip((train, test), targets, ("train", "test"), strict=True):
        if inputs.count_of(x) != len(y):
            raise DataError(
                f"{name}: x_{part} has {inputs.count_of(x)} examples and y_{part} {len(y)}; lengths must agree"
            )
        chosen = _choose(y, classes, limit, f"the {part} set of {name}")
        parts += [inputs.take(x, chosen), y[chosen]]
    return Dataset(*parts, name=name, classes=classes, normalise="none")


def _without_bytes(x: Any) -> Any:
    """Bytes as whole numbers: what is not to be touched is not taken for pixels."""
    if isinstance(x, dict):
        return {name: _without_bytes(part) for name, part in x.items()}
    x = np.asarray(x)
    return x.astype(np.int32) if x.dtype == np.uint8 else x


def _inputs(name: str, values: object) -> np.ndarray:
    x = _numbers(name, values)
    if x.ndim not in (2, 3, 4):
        raise DataError(
            f"{name} has shape {x.shape}; expected (n, features), (n, height, width) or (n, height, width, channels)"
        )
    if not x.size:
        raise DataError(f"{name} is empty: shape {x.shape}")
    return x[..., None] if x.ndim == 3 else x


def _pixels_or_floats(x: np.ndarray) -> np.ndarray:
    """Images of bytes with their channels in front, rows of bytes between 0 and 1, other numbers as given."""
    if x.dtype != np.uint8:
        return x
    return np.moveaxis(x, -1, 1) if x.ndim == 4 else x / np.float32(255)


def _both_targets(name: str, train: object, test: object) -> tuple[np.ndarray, np.ndarray]:
    return _targets(f"{name}: y_train", train), _targets(f"{name}: y_test", test, remark=False)


def _targets(name: str, values: object, remark: bool = True) -> np.ndarray:
    y = read_labels(name, _numbers(name, values), remark)
    if np.issubdtype(y.dtype, np.floating):
        if y.ndim not in (1, 2) or not y.size:
            raise DataError(f"{name} has shape {y.shape}; regression targets are (n,) or (n, outputs)")
        check_finite(y, name)
        with np.errstate(over="ignore"):
            narrow = y.astype(np.float32)
        check_finite(narrow, f"{name}, in float32")
        return narrow
    if y.ndim != 1 or not y.size:
        hint = "; take argmax(1) of one-hot labels" if y.ndim == 2 else ""
        raise DataError(f"{name} has shape {y.shape}; labels are (n,){hint}")
    for bad in y[(y < 0) | (y >= MOST_CLASSES)][:1]:
        raise DataError(f"{name} holds the label {bad}; labels count from 0 and stay below {MOST_CLASSES:,}")
    return y.astype(np.int32)


def _numbers(name: str, values: object) -> np.ndarray:
    if isinstance(values, np.ma.MaskedArray):
        raise DataError(f"{name} is a masked array; fill it, or leave out the masked examples")
    try:
        array = np.asarray(values)
    except (ValueError, TypeError) as error:
        raise DataError(f"{name} is not an array: {error}") from None
    if array.dtype == np.bool_:
        return array.astype(np.uint8) if name.endswith(("y_train", "y_test")) else array.astype(np.float32)
    if array.dtype.kind not in "iuf":  # time spans, too, are integers to numpy
        names = "; np.unique(y, return_inverse=True)[1] numbers names" if array.dtype.kind in "USO" else ""
        raise DataError(f"{name} holds {array.dtype}; expected whole or floating-point numbers{names}")
    return array


def _check_together(name: str, train: np.ndarray, test: np.ndarray, *targets: np.ndarray) -> None:
    for part, x, y in zip(("train", "test"), (train, test), targets, strict=True):
        if len(x) != len(y):
            raise DataError(f"{name}: x_{part} has {len(x)} examples and y_{part} {len(y)}; lengths must agree")
    if train.shape[1:] != test.shape[1:]:
        raise DataError(f"{name}: x_train has examples of shape {train.shape[1:]}, x_test of {test.shape[1:]}")
    if (train.dtype == np.uint8) != (test.dtype == np.uint8):
        raise DataError(
            f"{name}: x_train holds {train.dtype}, x_test {test.dtype}; bytes are scaled, so store both alike"
        )
    _check_targets(name, *targets)


def _check_targets(name: str, *targets: np.ndarray) -> None:
    if targets[0].dtype != targets[1].dtype:
        raise DataError(f"{name}: labels in one of y_train and y_test, regression targets in the other")
    if targets[0].shape[1:] != targets[1].shape[1:]:
        raise DataError(f"{name}: y_train has shape {targets[0].shape}, y_test {targets[1].shape}")


def _classes(name: str, train: np.ndarray, test: np.ndarray) -> int | None:
    if train.dtype != np.int32:
        return None
    if test.max() > train.max():
        raise DataError(f"{name}: y_test holds the label {test.max()}, y_train none above {train.max()}")
    if train.max() == 0:
        raise DataError(f"{name}: every label is 0; a classification needs two classes, a regression float targets")
    classes = int(train.max()) + 1
    remark_on_labels(name, train, classes)
    return classes


def _choose(targets: np.ndarray, classes: int | None, limit: int | None, what: str) -> np.ndarray:
    if classes is not None:
        return stratified(targets, limit, what)
    number = len(targets) if limit is None else min(check_limit(limit), len(targets))
    return evenly(len(targets), number)


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
