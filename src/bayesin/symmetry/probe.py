"""Parameters and inputs that hide nothing from a numerical check.

Freshly initialised leaves are often constant (zero biases, unit gains, unit variances), and constants look the
same in every order. Noise makes every entry differ, and keeps every sign, so that a variance stays one.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import ModelError
from ..trees import Tree, flatten, map_with_path
from .exact import widened
from .randomness import generator


def perturbed(params: Tree, key: jax.Array, noise: float) -> Tree:
    """Returns the parameters with relative noise; shapes without values get random ones."""

    def perturb(path: str, leaf: Any) -> Any:
        draws = generator(key, "params", path)
        leaf = _like_a_weight(leaf, draws) if isinstance(leaf, jax.ShapeDtypeStruct) else leaf
        if not _is_inexact(leaf):
            return leaf
        values, normal = widened(leaf), draws.standard_normal(leaf.shape)
        return np.where(values == 0, noise * np.abs(normal), values * np.exp(noise * normal)).astype(leaf.dtype)

    return map_with_path(perturb, params)


def filled(x: Any, key: jax.Array) -> Any:
    """Returns an input with values: those given, or random ones for shapes and for arrays all of one value."""

    def fill(path: str, leaf: Any) -> Any:
        draws = generator(key, "x", path)
        is_shape = isinstance(leaf, jax.ShapeDtypeStruct)
        if not _is_inexact(leaf):
            # Zeros and ones are tokens, labels and masks of any model.
            return draws.integers(0, 2, leaf.shape).astype(leaf.dtype) if is_shape else leaf
        if is_shape or (leaf.size > 1 and np.ptp(np.abs(widened(leaf))) == 0):
            return draws.standard_normal(leaf.shape).astype(leaf.dtype)
        return leaf

    return map_with_path(fill, x)


def check_no_nan(tree: Tree, what: str) -> None:
    """Raises `ModelError` naming the first leaf that holds NaN."""
    for path, leaf in flatten(tree).items():
        if _is_inexact(leaf) and not isinstance(leaf, jax.ShapeDtypeStruct):
            count = int(np.isnan(widened(leaf)).sum())
            if count:
                where = f"{what}: '{path}'" if path else what
                raise ModelError(f"{where} holds NaN in {count} of {leaf.size} entries")


def _like_a_weight(shape: jax.ShapeDtypeStruct, draws: np.random.Generator) -> np.ndarray:
    """Kernels of a scale that keeps activations in range; vectors positive, for they may be variances."""
    if not _is_inexact(shape):
        return np.zeros(shape.shape, shape.dtype)
    if len(shape.shape) < 2:
        return np.ones(shape.shape, shape.dtype)
    return (draws.standard_normal(shape.shape) / np.prod(shape.shape[:-1]) ** 0.5).astype(shape.dtype)


def _is_inexact(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.inexact)
