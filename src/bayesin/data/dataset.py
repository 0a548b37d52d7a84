"""What every fit and every evaluation reads: a training set, a test set, how they were normalised, and subsets.

A subset keeps the shares of the classes and is always the same one.
"""

import operator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args

import jax
import numpy as np

from ..errors import ConfigError, DataError
from ..inputs import Inputs, as_inputs, count_of, describe
from .normalise import pixels_to_floats, standardise
from .sources import content_of_arrays

Normalise = Literal["standard", "unit", "none"]


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Inputs and targets for training and testing; frozen, and its arrays are read-only.

    Images are `(n, height, width, channels)`. `mean` and `std` are the statistics of the whole training set,
    one a channel (or a feature), of pixels between 0 and 1; `normalise` says whether `x` was standardised
    with them (`"standard"`), left between 0 and 1 (`"unit"`), or not touched at all (`"none"`): then whole numbers,
    such as tokens, stay whole, and inputs may be a dict of arrays. `transform` prepares new inputs in the same way.

    Example:
        >>> data = Dataset(np.zeros((4, 2)), [0, 1, 0, 1], np.zeros((2, 2)), [1, 0], name="toy", classes=2)
        >>> len(data), data.input_shape, data
        (4, (2,), Dataset('toy', 4 training and 2 test examples of shape (2,), 2 classes))
    """

    x_train: Inputs  # float32; where nothing was normalised also int32, or a dict of arrays
    y_train: np.ndarray  # int32 labels, or float32 targets of a regression
    x_test: Inputs
    y_test: np.ndarray
    name: str = "arrays"
    classes: int | None = None  # None for a regression
    mean: np.ndarray = field(default_factory=lambda: np.zeros(1))
    std: np.ndarray = field(default_factory=lambda: np.ones(1))
    normalise: Normalise = "standard"
    top: int | None = None  # the largest value of raw pixels; None where inputs are other numbers
    read_from: str | None = None  # hash of the files it was read from, before limit and normalisation

    def __post_init__(self):
        target = np.float32 if self.classes is None else np.int32
        for part in ("x_train", "x_test"):
            object.__setattr__(self, part, self._inputs(getattr(self, part), part))
        for part in ("y_train", "y_test"):
            object.__setattr__(self, part, _read_only(getattr(self, part), target))
        for part, dtype in (("mean", np.float32), ("std", np.float32)):
            object.__setattr__(self, part, _read_only(getattr(self, part), dtype))
        for x, y, part in ((self.x_train, self.y_train, "train"), (self.x_test, self.y_test, "test")):
            if not y.ndim or count_of(x) != len(y):
                shape = x.shape if isinstance(x, np.ndarray) else f"{{…}} of {count_of(x)} examples"
                raise DataError(f"{self.name}: x_{part} has shape {shape} and y_{part} {y.shape}; lengths must agree")
            if not len(y):
                raise DataError(f"{self.name}: x_{part} is empty")
        if describe(self.x_train) != describe(self.x_test):
            raise DataError(
                f"{self.name}: a training example has shape {describe(self.x_train)}, a test one "
                f"{describe(self.x_test)}"
            )

    def _inputs(self, x: Inputs, part: str) -> Inputs:
        if self.normalise != "none":
            x = np.asarray(x)
            if not x.ndim:
                raise DataError(f"{self.name}: {part} has shape (), not one entry for each example")
            return _read_only(x, np.float32)
        return jax.tree.map(lambda leaf: _read_only(leaf, leaf.dtype), as_inputs(x, f"{self.name}: {part}"))

    def transform(self, x: Inputs) -> Inputs:
        """Returns new raw inputs as the network expects them: prepared as the training set was.

        Args:
            x: inputs as `from_arrays` took them, or as the files of a named data set hold them (images of bytes);
                a channel of its own may be left out.

        Raises:
            DataError: they have another shape, or are of another kind than the training set was made from.

        Example:
            >>> from bayesin.data import from_arrays
            >>> data = from_arrays([[0.0], [2.0]], [0, 1], [[4.0]], [1])
            >>> data.transform([[4.0]]).tolist()
            [[3.0]]
        """
        if self.normalise == "none":
            x = as_inputs(x, "new")
            if describe(x) != describe(self.x_train):
                raise DataError(f"new inputs have the shape {describe(x)}, those of {self.name} {self.input_shape}")
            return x
        x = np.asarray(x)
        if x.shape[1:] == self.input_shape[:-1] and self.input_shape[-1:] == (1,):
            x = x[..., None]
        if x.shape[1:] != self.input_shape:
            raise DataError(f"new inputs have the shape {x.shape[1:]}, those of {self.name} {self.input_shape}")
        shift, scale = (self.mean, self.std) if self.normalise == "standard" else (0 * self.mean, 0 * self.std + 1)
        if self.top is None:
            if x.dtype == np.uint8:
                raise DataError(f"new inputs are bytes, those of {self.name} were other numbers; prepare both alike")
            return standardise(x, shift.astype(np.float64), scale.astype(np.float64), "new inputs")
        if not ((x >= 0) & (x <= self.top) & (x == np.floor(x))).all():
            raise DataError(f"{self.name} was made from whole pixels of 0 to {self.top}; new inputs are not")
        if x.ndim != 4:
            return standardise(x / np.float32(self.top), shift, scale, "new inputs")
        return pixels_to_floats(np.moveaxis(x.astype(np.uint8), -1, 1), shift, scale, self.top)

    def __len__(self) -> int:
        """Number of training examples."""
        return len(self.y_train)

    @property
    def input_shape(self) -> Any:
        """Shape of one example; of a dict of inputs the shapes by name."""
        return jax.tree.map(lambda leaf: leaf.shape[1:], self.x_train)

    @cached_property
    def content(self) -> str:
        """The SHA-256 that it is known by: of what it was read from, else of its arrays."""
        arrays = jax.tree.leaves((self.x_train, self.y_train, self.x_test, self.y_test))
        return content_of_arrays(arrays) if self.read_from is None else self.read_from

    @property
    def outputs(self) -> int:
        """How many outputs a network for this data has: the classes, or the numbers of one regression target."""
        return self.classes or int(np.prod(self.y_train.shape[1:], dtype=np.int64))

    def __repr__(self) -> str:
        kind = f"{self.classes} classes" if self.classes is not None else "regression"
        return (
            f"Dataset({self.name!r}, {len(self):,} training and {len(self.y_test):,} test examples "
            f"of shape {self.input_shape}, {kind})"
        )


def check_normalise(normalise: str) -> None:
    """Raises `ConfigError` unless this is a known way to normalise."""
    if normalise not in get_args(Normalise):
        raise ConfigError(f"normalise needs 'standard', 'unit' or 'none', not {normalise!r}")


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


def _read_only(values: object, dtype: type) -> np.ndarray:
    view = np.asarray(values, dtype).view()  # a view: the caller's own array stays writable
    view.flags.writeable = False
    return view
