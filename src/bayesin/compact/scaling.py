"""How wide a posterior should be: one number by which all deviations from the mean are multiplied.

A diagonal Gaussian of samples is too wide, because independent draws lose the combinations that the posterior pins
down; even with the covariance kept, networks between samples may lie outside the basin. A diagonal Laplace
approximation is too wide for the first reason. So the scale is the one among candidates under which held-out targets
are likeliest, averaged over draws.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import jax
import numpy as np

from ..errors import ConfigError, PosteriorError
from ..evaluation import Data, evaluate
from ..inference import Fit
from ..jaxprs import Apply
from ..likelihoods import LikelihoodLike
from ..posteriors import FactorGaussian, Gaussian, GaussianMixture, LowRankGaussian, Samples
from ..randomness import PRNGKey
from ..trees import Tree, is_float, map_with_path

SCALES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
DRAWS = 50  # with which a scale is chosen
Folded = Gaussian | LowRankGaussian | FactorGaussian | GaussianMixture
P = TypeVar("P", bound=Folded)


def fit_scale(
    posterior: Folded | Fit,
    model: Apply,
    data: Data,
    *,
    key: PRNGKey,
    scales: Sequence[float] = SCALES,
    samples: int = DRAWS,
    likelihood: LikelihoodLike | None = None,
) -> float:
    """Returns the scale of the spread under which targets are likeliest, for `scaled(posterior, scale)`.

    Fit it on held-out examples: on those of the training the narrowest one would often be best.

    Args:
        posterior: a Gaussian of any kind, a mixture, or a `Fit` with one of them, whose likelihood is then taken.
        model: the network.
        data: inputs and targets.
        key: for the draws, the same for every scale.
        scales: what to choose among.
        samples: draws of the weights.
        likelihood: of the targets; categorical by default.

    Example:
        >>> x = np.ones((4, 1), np.float32)
        >>> wide = Gaussian({"w": np.array([[0.0, 3.0]], np.float32)}, {"w": np.full((1, 2), 9.0, np.float32)})
        >>> fit_scale(wide, lambda p, x: x @ p["w"], (x, np.array([1, 1, 1, 1])), key=jax.random.key(0))
        0.0
    """
    if not scales:
        raise ConfigError("scales= is empty; give some numbers to choose among")
    if isinstance(posterior, Fit):
        likelihood = posterior.likelihood if likelihood is None else likelihood
        posterior = cast(Folded, posterior.posterior)
    losses = losses_of_scales(posterior, model, data, scales, key=key, samples=samples, likelihood=likelihood)
    return min(losses, key=lambda scale: losses[scale])


def losses_of_scales(
    posterior: Folded, apply: Apply, data: Data, scales: Sequence[float], **options: Any
) -> dict[float, float]:
    """The marginal loss of a posterior with its spread multiplied by each scale; options are those of `evaluate`."""
    return {scale: evaluate(scaled(posterior, scale), apply, data, **options).nll for scale in scales}


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
    """Returns the posterior with its spread multiplied by `scale`; of a mixture that of every component.

    Example:
        >>> float(scaled(Gaussian({"w": np.ones(1)}, {"w": np.full(1, 0.5)}), 0.5).std["w"][0])
        0.25
    """
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
