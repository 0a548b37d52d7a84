"""What every fit and every evaluation reads: a training set, a test set, how they were normalised, and subsets.

A subset keeps the shares of the classes and is always the same one.
"""

import operator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from ..errors import ConfigError, DataError
from .content import content_of_arrays

Normalise = Literal["standard", "unit"]


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Inputs and targets for training and testing; frozen, and its arrays are read-only.

    Images are `(n, height, width, channels)`. `mean` and `std` are the statistics of the whole training set,
    one a channel (or a feature), of pixels between 0 and 1; `normalise` says whether `x` was standardised
    with them (`"standard"`) or left between 0 and 1 (`"unit"`).

    Example:
        >>> data = Dataset(np.zeros((4, 2)), [0, 1, 0, 1], np.zeros((2, 2)), [1, 0], name="toy", classes=2)
        >>> len(data), data.input_shape, data
        (4, (2,), Dataset('toy', 4 training and 2 test examples of shape (2,), 2 classes))
    """

    x_train: np.ndarray  # float32
    y_train: np.ndarray  # int32 labels, or float32 targets of a regression
    x_test: np.ndarray
    y_test: np.ndarray
    name: str = "arrays"
    classes: int | None = None  # None for a regression
    mean: np.ndarray = field(default_factory=lambda: np.zeros(1))
    std: np.ndarray = field(default_factory=lambda: np.ones(1))
    normalise: Normalise = "standard"
    read_from: str | None = None  # hash of the files it was read from, before limit and normalisation

    def __post_init__(self):
        target = np.float32 if self.classes is None else np.int32
        for part, dtype in (("x_train", np.float32), ("x_test", np.float32), ("y_train", target), ("y_test", target)):
            object.__setattr__(self, part, _read_only(getattr(self, part), dtype))
        for part, dtype in (("mean", np.float32), ("std", np.float32)):
            object.__setattr__(self, part, _read_only(getattr(self, part), dtype))
        for x, y, part in ((self.x_train, self.y_train, "train"), (self.x_test, self.y_test, "test")):
            if not x.ndim or not y.ndim or len(x) != len(y):
                raise DataError(
                    f"{self.name}: x_{part} has shape {x.shape} and y_{part} {y.shape}; lengths must agree"
                )
            if not len(x):
                raise DataError(f"{self.name}: x_{part} is empty")
        if self.x_train.shape[1:] != self.x_test.shape[1:]:
            raise DataError(
                f"{self.name}: a training example has shape {self.input_shape}, a test one {self.x_test.shape[1:]}"
            )

    def __len__(self) -> int:
        """Number of training examples."""
        return len(self.x_train)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one example."""
        return self.x_train.shape[1:]

    @cached_property
    def content(self) -> str:
        """The SHA-256 that it is known by: of what it was read from, else of its arrays."""
        arrays = (self.x_train, self.y_train, self.x_test, self.y_test)
        return content_of_arrays(arrays) if self.read_from is None else self.read_from

    @property
    def outputs(self) -> int:
        """How many outputs a network for this data has: the classes, or the numbers of one regression target."""
        return self.classes or int(np.prod(self.y_train.shape[1:], dtype=np.int64))

    def __repr__(self) -> str:
        kind = f"{self.classes} classes" if self.classes is not None else "regression"
        return (
            f"Dataset({self.name!r}, {len(self):,} training and {len(self.x_test):,} test examples "
            f"of shape {self.input_shape}, {kind})"
        )


def check_normalise(normalise: str) -> None:
    """Raises `ConfigError` unless this is a known way to normalise."""
    if normalise not in get_args(Normalise):
        raise ConfigError(f"normalise needs 'standard' or 'unit', not {normalise!r}")


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
