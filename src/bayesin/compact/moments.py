"""Permuted samples as one Gaussian, in one pass and little memory, or as a mixture of a few.

    mean = r + Σ d / K,    std² = (Σ d² − (Σ d)² / K) / (K − 1),    d = w − r,

with the first sample as r, accumulated in float64. The divisor K − 1 makes the variance unbiased: with
five networks it is a quarter more than with K. The clusters of a mixture are found by k-means in weight space, and
their widths pooled, `Σ_c Σ_{k in c} (w_k − mean_c)² / (K − C)`, since small clusters know little of theirs.
"""

from typing import NamedTuple

import jax
import numpy as np

from ..matching import batches
from ..posteriors import Gaussian, GaussianMixture, Samples
from ..symmetry import Perms, PermutationSpec, Signs, permute
from ..trees import Tree, flatten
from .unit_matrix import PermsOfEach, SampleSet, is_floating

FEATURES = 1 << 13  # of a batch of samples: so many stay in the cache while they are summed


class Moments(NamedTuple):
    """What a diagonal Gaussian needs, and one number for how wide it is."""

    mean: Tree
    std: Tree
    spread: float  # root mean square of the stds


def moments(
    samples: SampleSet, spec: PermutationSpec, perms: PermsOfEach, exclude: frozenset[str] = frozenset()
) -> Moments:
    """Returns mean and unbiased std of the samples, each moved by its own permutations.

    Leaves that hold integers have no mean: those of the first sample are taken, with std zero.
    """
    like = samples[0]
    first = {path: np.asarray(leaf) for path, leaf in flatten(like).items()}
    reference: dict[str, np.ndarray] = {}
    total: dict[str, np.ndarray] = {}
    squares: dict[str, np.ndarray] = {}
    for part, stack in batches(samples):
        stack = permute(stack, spec, {group: perm[part] for group, perm in perms.items()})
        for path, leaf in flatten(stack).items():
            if is_floating(leaf):
                if path not in reference:
                    # A copy, since the stack that it is a view of would otherwise stay in memory.
                    reference[path] = leaf[0].copy()
                    total[path], squares[path] = np.zeros(leaf.shape[1:]), np.zeros(leaf.shape[1:])
                _add_deviations(leaf, reference[path], total[path], squares[path])
    count = len(samples)
    mean, std, widths = dict(first), {path: np.zeros_like(leaf) for path, leaf in first.items()}, []
    for path, sums in total.items():
        # The two are equal where samples agree, and rounding may leave less than nothing.
        variance = np.maximum(squares[path] - sums**2 / count, 0.0) / (count - 1)
        mean[path] = (reference[path].astype(np.float64) + sums / count).astype(first[path].dtype)
        std[path] = np.sqrt(variance).astype(first[path].dtype)
        if path not in exclude:
            widths.append(variance.reshape(-1))
    structure = jax.tree.structure(like)
    return Moments(
        jax.tree.unflatten(structure, [mean[path] for path in first]),
        jax.tree.unflatten(structure, [std[path] for path in first]),
        float(np.sqrt(np.concatenate(widths).mean())) if widths else 0.0,
    )


def _add_deviations(stack: np.ndarray, reference: np.ndarray, total: np.ndarray, squares: np.ndarray) -> None:
    """Adds the deviations of a stack from the reference, and their squares, to the sums so far."""
    rows, flat = stack.reshape(len(stack), -1), [array.reshape(-1) for array in (reference, total, squares)]
    # Some features at a time: the float64 copy of a whole stack would be twice its size.
    for at in range(0, rows.shape[1], FEATURES):
        centre, first, second = (array[at : at + FEATURES] for array in flat)
        offset = rows[:, at : at + FEATURES].astype(np.float64)
        offset -= centre
        first += offset.sum(0)
        second += np.einsum("kf,kf->f", offset, offset)


def rebase(
    samples: SampleSet, spec: PermutationSpec, perms: PermsOfEach, signs: PermsOfEach | None = None
) -> Samples:
    """Returns all samples in the common order of units.

    Args:
        samples: what `compact` was given.
        spec: which axes move together.
        perms: `Compact.perms`.
        signs: `Compact.signs`, where units may flip.

    Example:
        >>> spec = PermutationSpec.parse({"w": ["g0"]}, {"g0": 2})
        >>> samples = Samples({"w": np.array([[1.0, 2.0], [2.0, 1.0]])})
        >>> rebase(samples, spec, {"g0": np.array([[0, 1], [1, 0]])}).params["w"].tolist()
        [[1.0, 2.0], [1.0, 2.0]]
    """
    parts = []
    for part, stack in batches(samples):
        own: Perms = {group: perm[part] for group, perm in perms.items()}
        flips: Signs = {group: sign[part] for group, sign in (signs or {}).items()}
        parts.append(permute(stack, spec, own, flips))
    return Samples(jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts))


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
