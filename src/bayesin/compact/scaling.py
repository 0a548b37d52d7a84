"""How wide a folded posterior should be: one number by which all deviations from the mean are multiplied.

A diagonal Gaussian of samples is too wide, because independent draws lose the combinations that the posterior pins
down; even with the covariance kept, networks between samples may lie outside the basin. So the scale is the one
among candidates under which held-out targets are likeliest, averaged over draws.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import numpy as np

from ..errors import PosteriorError
from ..posteriors import FactorGaussian, Gaussian, GaussianMixture, LowRankGaussian, Samples
from ..trees import Tree, is_float, map_with_path

SCALES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
P = TypeVar("P", bound=Gaussian | LowRankGaussian | FactorGaussian | GaussianMixture)


def best_scale(loss: Callable[[float], float], scales: Sequence[float] = SCALES) -> tuple[float, dict[float, float]]:
    """Returns the scale of least loss, and the loss of each.

    Example:
        >>> best_scale(lambda scale: (scale - 0.3) ** 2)[0]
        0.3
    """
    losses = {scale: loss(scale) for scale in scales}
    return min(losses, key=lambda scale: losses[scale]), losses


def shrunk(networks: Samples, mean: Tree, scale: float) -> Samples:
    """Returns networks with their deviations from the mean multiplied by `scale`.

    Example:
        >>> shrunk(Samples({"w": np.array([[1.0], [5.0]])}), {"w": np.array([3.0])}, 0.5).params["w"].tolist()
        [[2.0], [4.0]]
    """
    factor = np.float32(scale)

    def towards_mean(w: np.ndarray, m: Any) -> np.ndarray:
        return (np.asarray(m) + factor * (w - np.asarray(m))).astype(w.dtype)

    return Samples(jax.tree.map(towards_mean, networks.params, mean))


def scaled(posterior: P, scale: float) -> P:
    """Returns the posterior with its spread multiplied by `scale`; of a mixture that of every component."""
    return _with_spread(posterior, lambda path, leaf: (leaf * scale).astype(leaf.dtype))


def certain(posterior: P, paths: frozenset[str]) -> P:
    """Returns the posterior without a spread at these paths."""
    return _with_spread(posterior, lambda path, leaf: leaf * 0 if path in paths else leaf) if paths else posterior


def _with_spread(posterior: P, change: Callable[[str, Any], Any]) -> P:
    def times(tree: Tree) -> Tree:
        return map_with_path(lambda path, leaf: change(path, leaf) if is_float(leaf.dtype) else leaf, tree)

    if isinstance(posterior, Gaussian):
        return Gaussian(posterior.mean, times(posterior.std))  # pyright: ignore[reportReturnType]
    if isinstance(posterior, LowRankGaussian):
        return LowRankGaussian(posterior.mean, times(posterior.factors))  # pyright: ignore[reportReturnType]
    if isinstance(posterior, FactorGaussian):
        return FactorGaussian(posterior.mean, times(posterior.factors), times(posterior.noise))  # pyright: ignore[reportReturnType]
    if isinstance(posterior, GaussianMixture):
        return GaussianMixture(posterior.means, times(posterior.stds), posterior.weights)  # pyright: ignore[reportReturnType]
    raise PosteriorError(f"a {type(posterior).__name__} has no spread that could be scaled")
