"""Moved members as a small mixture: k-means in weight space, one Gaussian a cluster.

The widths are pooled, `Σ_c Σ_{k in c} (w_k − mean_c)² / (K − C)`, since small clusters know little of theirs.
"""

import jax
import numpy as np

from ..posteriors import Gaussian, GaussianMixture, Samples
from ..trees import Tree
from .unit_matrix import is_floating

MOST_ROUNDS = 50


def mixture_of(moved: Samples, components: int, noise: Tree | None) -> GaussianMixture:
    """Returns a mixture of so many Gaussians; `noise` is the members' own std, where they have one."""
    labels = _cluster(_rows(moved), components)
    counts = np.bincount(labels, minlength=components)
    freedom = max(1, len(moved) - components)

    def centre(leaf: np.ndarray, label: int) -> np.ndarray:
        own = leaf[labels == label]
        return own.mean(0, dtype=np.float64).astype(leaf.dtype) if is_floating(leaf) else own[0]

    means = [jax.tree.map(lambda leaf, c=c: centre(leaf, c), moved.params) for c in range(components)]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *means)

    def width(leaf: np.ndarray, centres: np.ndarray) -> np.ndarray:
        if not is_floating(leaf):
            return np.zeros_like(leaf[0])
        return np.sqrt(((leaf - centres[labels]).astype(np.float64) ** 2).sum(0) / freedom).astype(leaf.dtype)

    std = jax.tree.map(width, moved.params, stacked)
    if noise is not None:
        std = jax.tree.map(lambda s, own: np.sqrt(s**2 + own**2).astype(s.dtype), std, noise)
    return GaussianMixture.of([Gaussian(mean, std) for mean in means], counts / counts.sum())


def _rows(moved: Samples) -> np.ndarray:
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(moved.params)]
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves if is_floating(leaf)], 1).astype(np.float32)


def _cluster(rows: np.ndarray, components: int) -> np.ndarray:
    """Labels by Lloyd's iteration from the member nearest to the mean and those farthest from all chosen."""
    gram = rows @ rows.T  # distances between members are all that is needed
    squares = np.diag(gram)
    between = squares[:, None] + squares[None] - 2 * gram
    chosen = [int(between.sum(1).argmin())]
    while len(chosen) < components:
        chosen.append(int(between[chosen].min(0).argmax()))
    labels = between[chosen].argmin(0)
    for _ in range(MOST_ROUNDS):
        member = labels[None] == np.arange(components)[:, None]
        share = member / np.maximum(member.sum(1, keepdims=True), 1)
        distance = (
            np.einsum("ck,kl,cl->c", share, gram, share)[:, None] - 2 * share @ gram
        )  # to the centres, + squares
        again = distance.argmin(0)
        again[[int(between[c].argmin()) for c in chosen]] = np.arange(components)  # no cluster becomes empty
        if (again == labels).all():
            break
        labels = again
    return labels
