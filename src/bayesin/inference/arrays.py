"""Training data as the compiled program wants it, checked before anything is compiled."""

from typing import Any, NamedTuple

import jax
import numpy as np

from ..errors import DataError, ModelError
from ..models import Model
from ..trees import Tree
from .likelihoods import Likelihood


class Arrays(NamedTuple):
    """Inputs in float32; targets in int32 (labels) or float32."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray | None
    y_test: np.ndarray | None


def training_arrays(data: Any, likelihood: Likelihood) -> Arrays:
    """Takes a data set with x_train, y_train, x_test and y_test, or a pair (x, y), and checks it."""
    if hasattr(data, "x_train") and hasattr(data, "y_train"):
        found = (data.x_train, data.y_train, getattr(data, "x_test", None), getattr(data, "y_test", None))
    elif isinstance(data, tuple | list) and len(data) == 2:
        found = (*data, None, None)
    else:
        raise DataError(f"data must be a Dataset or a pair (x, y), not {type(data).__name__}")
    x, y = _pair(found[0], found[1], likelihood, "training")
    test = (None, None) if found[2] is None else _pair(found[2], found[3], likelihood, "test")
    return Arrays(x, y, *test)


def check_outputs(model: Model, params: Tree, arrays: Arrays, likelihood: Likelihood) -> None:
    """Raises unless the network's outputs fit the targets."""
    x = jax.ShapeDtypeStruct((2, *arrays.x.shape[1:]), np.float32)
    try:
        shape = jax.eval_shape(model.apply, params, x).shape
    except Exception as error:  # whatever a user's network raises while it is traced
        first = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise ModelError(
            f"{model.name} cannot be applied to inputs of shape {arrays.x.shape[1:]}: {first}"
        ) from error
    if not shape or shape[0] != 2:
        raise ModelError(f"{model.name} returns shape {shape} for two inputs; apply must return the batch first")
    y = arrays.y
    if likelihood == "gaussian":
        if int(np.prod(shape[1:])) != int(np.prod(y.shape[1:])):
            raise DataError(f"targets have shape {y.shape[1:]}, but the outputs of {model.name} {shape[1:]}")
        return
    if len(shape) != 2:
        raise ModelError(
            f"a classifier returns (batch, classes), {model.name} (batch, {', '.join(map(str, shape[1:]))})"
        )
    if y.min() < 0 or y.max() >= shape[1]:
        raise DataError(f"labels run from {y.min()} to {y.max()}, but {model.name} has {shape[1]} outputs")


def _pair(x: Any, y: Any, likelihood: Likelihood, part: str) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.asarray(x, np.float32), np.asarray(y)
    if not x.ndim or not y.ndim or len(x) != len(y) or not len(x):
        raise DataError(f"{part} data: inputs {x.shape}, targets {y.shape}; it needs one target for each input")
    if not np.isfinite(x.sum(dtype=np.float64)) and not np.isfinite(x).all():
        raise DataError(f"{part} input {int(np.argwhere(~np.isfinite(x))[0, 0])} holds NaN or infinity")
    if likelihood == "gaussian":
        if not np.isfinite(y.astype(np.float32)).all():
            raise DataError(f"a {part} target is NaN or infinite")
        return x, y.astype(np.float32)
    if y.ndim != 1 or not np.issubdtype(y.dtype, np.integer):
        raise DataError(
            f"{part} labels must be whole numbers, one an example, not {y.dtype} of shape {y.shape}; "
            "real targets need likelihood='gaussian'"
        )
    return x, y.astype(np.int32)
