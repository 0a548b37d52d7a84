"""Parameter trees as flat maps from path to array.

A path joins the keys from the root with `/`. A key that holds `/` or `%` itself is percent-encoded, so
that every nested dict has exactly one flat form and comes back unchanged.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.tree_util as jtu
import numpy as np
from jax.core import Tracer
from jaxtyping import PyTree

from .errors import ModelError, PosteriorError

Tree = PyTree  # a nested dict of arrays; any pytree of arrays where only paths matter
Flat = dict[str, Any]

OF_TORCH = "is PyTorch's; load the state dict into its module, and give bayesin.models.from_torch(module, example)"


def of_torch(leaf: Any) -> bool:
    """Whether a leaf is a tensor or a module of PyTorch, which need not be installed."""
    return any(base.__module__.partition(".")[0] == "torch" for base in type(leaf).__mro__)


def path_of(keys: tuple[Any, ...]) -> str:
    """The path of a leaf from the key path that JAX reports."""
    return "/".join(_encode(_name(key)) for key in keys)


def flatten(tree: Tree) -> Flat:
    """Returns `{path: leaf}` in the tree's own leaf order.

    Raises:
        ModelError: two leaves have one path, as under the keys 1 and "1", or keys cannot be sorted.

    Example:
        >>> flatten({"dense": {"bias": 0.0, "kernel": 1.0}})
        {'dense/bias': 0.0, 'dense/kernel': 1.0}
    """
    return flatten_with_structure(tree)[0]


def flatten_with_structure(tree: Tree) -> tuple[Flat, Any]:
    """Returns `{path: leaf}` and the structure that `jax.tree.unflatten` makes a tree from."""
    try:
        leaves, structure = jtu.tree_flatten(tree)
    except ValueError as error:  # JAX sorts the keys of a dict
        raise ModelError("a dict of the tree has keys that cannot be sorted; use text for all of them") from error
    try:
        paths = _paths(structure)
    except TypeError:  # a static part of some node cannot be hashed
        paths = _paths.__wrapped__(structure)
    return dict(zip(paths, leaves, strict=True)), structure


def unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the nested dict with these paths; the inverse of `flatten` on nested dicts.

    Example:
        >>> unflatten({"dense/bias": 0.0, "dense/kernel": 1.0})
        {'dense': {'bias': 0.0, 'kernel': 1.0}}
    """
    root: dict[str, Any] = {}
    for path, leaf in flat.items():
        *parents, last = [_decode(part) for part in path.split("/")]
        node = root
        for parent in parents:
            node = node.setdefault(parent, {})
            if not isinstance(node, dict):
                raise ModelError(f"'{path}' runs through a leaf: '{parent}' is an array and a folder")
        if last in node:
            raise ModelError(f"'{path}' is named twice")
        node[last] = leaf
    return root


def map_with_path(function: Callable[..., Any], tree: Tree, *rest: Tree) -> Tree:
    """Maps `function(path, leaf, *other leaves)` over trees of one structure."""
    return jtu.tree_map_with_path(lambda keys, *leaves: function(path_of(keys), *leaves), tree, *rest)


def check_same_structure(first: Tree, second: Tree, what: str) -> None:
    """Raises `ModelError` naming the first path or shape in which two trees differ."""
    left, right = flatten(first), flatten(second)
    if left.keys() == right.keys() and all(np.shape(left[path]) == np.shape(right[path]) for path in left):
        return
    for path in left:
        if path not in right:
            raise ModelError(f"{what}: '{path}' is in the first tree only")
    for path in right:
        if path not in left:
            raise ModelError(f"{what}: '{path}' is in the second tree only")
    for path, leaf in left.items():
        if np.shape(leaf) != np.shape(right[path]):
            raise ModelError(
                f"{what}: '{path}' has shape {np.shape(leaf)} in the first tree "
                f"and {np.shape(right[path])} in the second"
            )


def is_float(dtype: Any) -> bool:
    """Whether a leaf of this dtype is a weight; integers are counters, which stay as they are."""
    return jax.numpy.issubdtype(dtype, jax.numpy.inexact)


def check_not_narrowed(tree: Tree, what: str) -> None:
    """Raises `PosteriorError` where JAX would change a number: it keeps 32 bits of 64 unless x64 is on.

    Numbers that 32 bits hold exactly, as zeros and small counts, are let pass.

    Example:
        >>> check_not_narrowed({"w": np.array([2, 2**40])}, "the mean")
        Traceback (most recent call last):
        bayesin.errors.PosteriorError: the mean: 'w' holds int64, which JAX rounds to int32; convert it, or use x64
    """
    for path, leaf in flatten(tree).items():
        if not isinstance(leaf, np.ndarray | np.generic) or leaf.dtype.itemsize != 8:
            continue
        narrow = jax.dtypes.canonicalize_dtype(leaf.dtype)
        if narrow == leaf.dtype:
            continue
        with np.errstate(all="ignore"):
            same = np.array_equal(leaf.astype(narrow).astype(leaf.dtype), leaf)
        if not same:
            raise PosteriorError(
                f"{what}: '{path}' holds {leaf.dtype}, which JAX rounds to {narrow}; convert it, or use x64"
            )


def stacked(trees: Sequence[Tree]) -> Tree:
    """Trees of one structure as one with a leading axis; on the host where JAX would keep 32 bits of 64.

    Example:
        >>> stacked([{"w": np.array([2**40])}, {"w": np.array([1])}])["w"].tolist()
        [[1099511627776], [1]]
    """

    def stack(*leaves: Any) -> Any:
        kept = [jax.dtypes.canonicalize_dtype(leaf.dtype) == leaf.dtype for leaf in leaves if hasattr(leaf, "dtype")]
        on_host = not all(kept) and not any(isinstance(leaf, Tracer) for leaf in leaves)
        return np.stack(leaves) if on_host else jax.numpy.stack([jax.numpy.asarray(leaf) for leaf in leaves])

    return jax.tree.map(stack, *trees)


def placed_as(leaf: Any, array: np.ndarray) -> Any:
    """An array that takes the place of a leaf: numpy's, or JAX's on the leaf's devices, tied to them where that was.

    A program is compiled anew for arrays that are tied to a device, as `device_put` ties them.

    Example:
        >>> placed_as(jax.numpy.zeros(2), np.ones(2, np.float32)).committed
        False
    """
    if not isinstance(leaf, jax.Array):
        return array
    if leaf.committed:
        return jax.device_put(array, leaf.sharding)
    with jax.default_device(next(iter(leaf.devices()))):
        return jax.numpy.asarray(array)


def common_dtype(*values: Any) -> Any:
    """The dtype that holds the numbers of all these arrays or dtypes.

    Promotion on purpose: it works where JAX is told to promote nothing in silence.
    """
    with jax.numpy_dtype_promotion("standard"):
        return jax.numpy.result_type(*values)


@lru_cache(maxsize=64)
def _paths(structure: Any) -> tuple[str, ...]:
    """The paths of all leaves; cached, since naming them takes longer than a small sum over the tree."""
    numbered = jtu.tree_unflatten(structure, range(structure.num_leaves))
    key_paths = [keys for keys, _ in jtu.tree_leaves_with_path(numbered)]
    by_path: dict[str, tuple[Any, ...]] = {}
    for keys in key_paths:
        path = path_of(keys)
        if path in by_path:
            places = f"{jtu.keystr(by_path[path])} and {jtu.keystr(keys)}"
            raise ModelError(f"two leaves have the path '{path}': {places}; rename one of the keys")
        by_path[path] = keys
    return tuple(by_path)


def _name(key: Any) -> str:
    for attribute in ("key", "name", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def _encode(key: str) -> str:
    return key.replace("%", "%25").replace("/", "%2F")


def _decode(part: str) -> str:
    return part.replace("%2F", "/").replace("%25", "%")
