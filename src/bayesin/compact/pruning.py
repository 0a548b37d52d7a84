"""Pruning a network by how certain its weights are: the least certain ones become zero.

The rank is global, over all weights and biases together, by a standard deviation that may come from another
posterior than the mean: HMC's spread can prune an ensemble's network. Both must then live in one reference
frame, so align the network onto the mean of the posterior the stds are of before its mask is applied:

    network = align(posterior.mean, network, spec, key=key).posterior
    prune(network, posterior.std, 0.1)
"""

from typing import Any

import jax
import numpy as np

from ..errors import ConfigError, ModelError, PosteriorError
from ..trees import Tree, check_same_structure, flatten


def prune(mean: Tree, std: Tree, keep: float, *, exclude: frozenset[str] = frozenset()) -> Tree:
    """Returns the network with the share `keep` of its weights that have the lowest std, the rest set to zero.

    Args:
        mean: the network.
        std: standard deviations of the same structure and in the same reference frame.
        keep: between 0 and 1; `int(keep · d)` of the d weights stay.
        exclude: paths that are never pruned nor counted, such as running statistics.

    Example:
        >>> mean, std = {"w": np.array([1.0, 2.0, 3.0, 4.0])}, {"w": np.array([0.3, 0.1, 0.2, 0.4])}
        >>> prune(mean, std, 0.5)["w"].tolist()
        [0.0, 2.0, 3.0, 0.0]
    """
    try:
        check_same_structure(mean, std, "mean and std")
    except ModelError as error:
        raise PosteriorError(str(error)) from None
    mask = keep_mask(std, keep, exclude=exclude)
    return jax.tree.map(lambda weight, kept: weight * kept.astype(weight.dtype), mean, mask)


def keep_mask(std: Tree, keep: float, *, exclude: frozenset[str] = frozenset()) -> Tree:
    """Returns True for the weights that stay; among equal stds the first ones do."""
    if not 0 <= keep <= 1:
        raise ConfigError(f"keep must be between 0 and 1, not {keep}")
    flat = {path: np.asarray(leaf) for path, leaf in flatten(std).items()}
    counted = [path for path in flat if path not in exclude]
    values = np.concatenate([flat[path].reshape(-1) for path in counted]) if counted else np.zeros(0)
    if np.isnan(values).any():
        raise PosteriorError("a std is NaN; weights cannot be ranked")
    kept = np.zeros(values.size, bool)
    # By rank and not by a threshold, which would keep more than was asked for among equal stds.
    kept[np.argsort(values, kind="stable")[: int(keep * values.size)]] = True
    masks: dict[str, Any] = {path: np.ones(leaf.shape, bool) for path, leaf in flat.items()}
    start = 0
    for path in counted:
        masks[path] = kept[start : start + flat[path].size].reshape(flat[path].shape)
        start += flat[path].size
    return jax.tree.unflatten(jax.tree.structure(std), list(masks.values()))
