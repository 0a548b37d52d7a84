"""What every fit and every evaluation reads: a training set, a test set, and how they were normalised."""

from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from ..errors import ConfigError, DataError

Normalise = Literal["standard", "unit"]


def _zero() -> np.ndarray:
    return np.zeros(1, np.float32)


def _one() -> np.ndarray:
    return np.ones(1, np.float32)


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
    mean: np.ndarray = field(default_factory=_zero)
    std: np.ndarray = field(default_factory=_one)
    normalise: Normalise = "standard"

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


def _read_only(values: object, dtype: type) -> np.ndarray:
    view = np.asarray(values, dtype).view()  # a view: the caller's own array stays writable
    view.flags.writeable = False
    return view
