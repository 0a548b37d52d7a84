"""What goes into a network: one array, or a tree of them (tokens and their mask), batch first.

Whole numbers are tokens or indices and stay whole; floating-point numbers are float32 on the way in, and so are
bytes, which are pixels. `cut` puts a data set onto the device in equal parts, so that only the activations of one
part are alive at a time.
"""

import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PyTree, Shaped

from .errors import DataError

Inputs = PyTree  # an array, or a tree of arrays that all count the same examples
# The same for verbs that check the shapes of their arguments against each other.
ExampleInputs = PyTree[Shaped[jax.Array | np.ndarray, "examples ..."]]


def count_of(x: Inputs) -> int:
    """How many examples there are."""
    leaves = jax.tree.leaves(x)
    if not leaves or not np.ndim(leaves[0]):
        raise DataError(f"inputs are arrays, batch first, not {x!r:.60}")
    return len(leaves[0])


def take(x: Inputs, index: Any) -> Inputs:
    """The chosen examples, of every array.

    Example:
        >>> take({"ids": np.arange(6).reshape(3, 2), "mask": np.ones(3)}, slice(1))
        {'ids': array([[0, 1]]), 'mask': array([1.])}
    """
    return jax.tree.map(lambda leaf: leaf[index], x)


def shapes_of(x: Inputs, count: int) -> Inputs:
    """Shapes and dtypes of so many examples, as they would reach a network."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((count, *leaf.shape[1:]), _dtype(leaf)), x)


def describe(x: Inputs) -> str:
    """The shape of one example, for messages.

    Example:
        >>> describe(np.ones((5, 8))), describe({"ids": np.ones((5, 8)), "mask": np.ones((5, 8))})
        ('(8,)', "{'ids': (8,), 'mask': (8,)}")
    """
    return str(jax.tree.map(lambda leaf: tuple(np.shape(leaf)[1:]), x))


def as_inputs(x: Any, what: str) -> Inputs:
    """Inputs as arrays on the host: floats and bytes in float32, whole numbers in int32, truth values as they are.

    Raises:
        DataError: there is nothing, arrays count different examples, or a number is NaN, infinite or too large.
    """
    x = _arrays(x, what)
    leaves = jax.tree.leaves(x)
    if not leaves or any(not leaf.ndim for leaf in leaves) or len({len(leaf) for leaf in leaves}) > 1:
        raise DataError(f"{what}: inputs of shape {describe(x)} do not count the same examples, batch first")
    for leaf in leaves:
        # The sum is quick, and finite for nearly all finite data; only where it is not is every entry looked at.
        if not np.isfinite(leaf.sum(dtype=np.float64)) and not np.isfinite(leaf).all():
            raise DataError(f"{what} input {int(np.argwhere(~np.isfinite(leaf))[0, 0])} holds NaN or infinity")
    return x


def some_inputs(x: Any) -> Inputs:
    """Inputs on the host on which units are compared or measured: at least two, left as they are.

    Raises:
        DataError: they are no arrays that count the same examples, or fewer than two.

    Example:
        >>> some_inputs({"ids": [[1, 2], [3, 4]], "mask": [[1, 1], [1, 0]]})["ids"].shape
        (2, 2)
    """
    x = {name: some_inputs(part) for name, part in x.items()} if isinstance(x, dict) else np.asarray(x)
    counts = {len(leaf) if leaf.ndim else 0 for leaf in jax.tree.leaves(x)}
    if len(counts) != 1 or min(counts) < 2 or getattr(x, "ndim", 2) < 2:  # of one array every example has an axis
        raise DataError(f"need two or more inputs, batch first, not {describe(x)} of {sorted(counts)} examples")
    return x


def check_whole(x: Any, what: str) -> None:
    """Raises `DataError` where whole numbers on the host are beyond 32 bits, in which networks get them.

    Example:
        >>> check_whole(np.array([3, 2**40]), "these")
        Traceback (most recent call last):
        bayesin.errors.DataError: these: whole numbers beyond 32 bits, 3 to 1099511627776
    """
    if not isinstance(x, np.ndarray) or not np.issubdtype(x.dtype, np.integer) or not x.size:
        return
    limits = np.iinfo(np.int32)
    if x.min() < limits.min or x.max() > limits.max:
        raise DataError(f"{what}: whole numbers beyond 32 bits, {x.min()} to {x.max()}")


def without_bytes(x: Any, what: str) -> Any:
    """An array, bytes as float32 with a warning: a network is as a rule trained on pixels that were scaled."""
    if getattr(x, "dtype", None) != np.uint8:
        return x
    warnings.warn(
        f"{what} inputs are bytes: read as numbers from 0 to 255, not scaled; data.from_arrays(…) standardises "
        "pixels, and dataset.transform(x) does so with new ones",
        stacklevel=3,
    )
    return x.astype(np.float32)


def _arrays(x: Any, what: str) -> Inputs:
    if isinstance(x, dict):
        return {name: _arrays(part, what) for name, part in x.items()}
    x = np.asarray(x)
    if x.dtype == np.bool_:
        return x
    if x.dtype == np.uint8:
        return without_bytes(x, what)
    if np.issubdtype(x.dtype, np.integer):
        check_whole(x, what)
        return x.astype(np.int32)
    return np.asarray(x, np.float32)


def _dtype(leaf: Any) -> Any:
    return jnp.asarray(leaf[:1]).dtype


class Chunks(NamedTuple):
    """Arrays (parts, length, ...), and the weight of every example: 1, or 0 where it only fills up the last part."""

    x: Inputs
    y: Shaped[Array, "parts length ..."]
    weight: Float[Array, "parts length"]


def cut(x: Inputs, y: ArrayLike, length: int) -> Chunks:
    """Returns the examples in parts of at most `length`, as equal as can be.

    The last part is filled up with copies of the last example, which carry no weight. Arrays on a device are
    cut there.

    Example:
        >>> chunks = cut(np.arange(5.0), np.arange(5), 4)
        >>> chunks.y.tolist(), chunks.weight.tolist()
        ([[0, 1, 2], [3, 4, 4]], [[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]])
    """
    count = count_of(x)
    parts = max(1, -(-count // min(length, count)))
    length = -(-count // parts)  # nearly equal parts: fewer than `parts` examples are copied
    weight = np.arange(parts * length) < count
    x = jax.tree.map(lambda array: _in_parts(array, parts, length), x)
    return Chunks(x, _in_parts(y, parts, length), jnp.asarray(weight.reshape(parts, length), jnp.float32))


def _in_parts(array: ArrayLike, parts: int, length: int) -> Shaped[Array, "parts length ..."]:
    numpy = jnp if isinstance(array, jax.Array) else np
    array = numpy.asarray(array)
    missing = parts * length - len(array)
    if missing:
        array = numpy.concatenate([array, numpy.repeat(array[-1:], missing, 0)])
    return jnp.asarray(array.reshape(parts, length, *array.shape[1:]))
