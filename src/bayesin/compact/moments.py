"""Mean and standard deviation of permuted samples, in one pass and little memory.

    mean = r + Σ d / K,    std² = (Σ d² − (Σ d)² / K) / (K − 1),    d = w − r,

with the first sample as r, accumulated in float64. The divisor K − 1 makes the variance unbiased: with
five networks it is a quarter more than with K.
"""

from typing import NamedTuple

import jax
import numpy as np

from ..matching import batches
from ..posteriors import Samples
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
