"""How far apart two networks are as permutations, in transpositions, and what that has to do with the barrier.

- A network and a copy whose units were permuted by i transpositions are trained on the same data in different
  orders. Afterwards: how many transpositions does matching find, how far are the weights, how high is the barrier?
- Along the line between two networks: how many transpositions away from its beginning is each point?

Reference: Xiao et al. 2023, figure 3.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..compact import hidden_activations
from ..compact.gram import match_activations
from ..compact.weights import match_to
from ..data import Dataset
from ..errors import ConfigError
from ..models import Model
from ..posteriors import Samples
from ..symmetry import Perms, PermutationSpec, permute, transpositions
from ..trees import Tree, flatten
from .device import Parts, distances, losses, match_pairs, on_device, stack
from .points import Descent, trained_end

Matcher = Callable[[Tree, Tree], Perms]  # (reference, network) -> permutations of the network


class Stage(NamedTuple):
    """Two networks compared."""

    transpositions: int  # of the permutation that matching finds, over all groups
    distance: float  # of the weights, flat
    distances: dict[str, float]  # of each tensor
    loss_barrier: dict[str, float]  # "train", "test": at the midpoint, minus the mean of the ends
    error_barrier: dict[str, float]


class Row(NamedTuple):
    """One number of initial transpositions: before training, after it, and after undoing the permutation."""

    initial: int
    start: Stage
    trained: Stage
    undone: Stage


def random_with_transpositions(key: jax.Array, size: int, count: int) -> np.ndarray:
    """Returns a random permutation of `size` units that takes exactly `count` swaps.

    `size − count` cycles are given one unit each, the other units join cycles chosen at random, and the units
    are dealt out at random. Not uniform over the permutations with that many transpositions: uniform would
    prefer unequal cycles; this is the way of Xiao et al. 2023.

    Example:
        >>> perm = random_with_transpositions(jax.random.key(0), 10, 4)
        >>> transpositions({"g0": perm})
        {'g0': 4}
    """
    if not 0 <= count < size:
        raise ConfigError(f"a permutation of {size} units has 0 to {size - 1} transpositions, not {count}")
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist())
    lengths = 1 + np.bincount(rng.integers(0, size - count, count), minlength=size - count)
    perm = np.arange(size)
    for cycle in np.split(rng.permutation(size), np.cumsum(lengths)[:-1]):
        perm[cycle] = np.roll(cycle, 1)
    return perm


def by_weights(spec: PermutationSpec, *, key: jax.Array, exclude: frozenset[str] = frozenset()) -> Matcher:
    """Returns the matcher that compares weights of all layers."""

    def match(reference: Tree, network: Tree) -> Perms:
        return _only(match_to(reference, _stack(network), spec, key=key, exclude=exclude).perms)

    return match


def by_activations(
    apply: Callable[[Tree, Any], Any],
    params: Tree,
    x: Any,
    spec: PermutationSpec,
    *,
    key: jax.Array,
    correlation=False,
) -> Matcher:
    """Returns the matcher that compares what hidden units do on `x`; uncentred inner products by default."""
    activations = hidden_activations(apply, params, np.asarray(x[:8]), spec, key=key)

    def match(reference: Tree, network: Tree) -> Perms:
        found = match_activations(reference, _stack(network), spec, activations, x, correlation=correlation)
        return _only(found.perms)

    return match


def permuted_initialisation(
    key: jax.Array,
    model: Model,
    data: Dataset,
    spec: PermutationSpec,
    counts: Sequence[int],
    settings: Descent,
    *,
    correlation: bool = False,
    pairs_at_once: int = 50,
    parts: Parts | None = None,
    on_row: Callable[[Row], Any] | None = None,
) -> list[Row]:
    """Returns a row for each number of transpositions: a network and its permuted copy, trained and compared.

    Args:
        key: decides starts, permutations and orders of the data.
        model: a classifier with one group, or with several that are all permuted alike.
        data: its training set is trained on, and matched on by activations.
        spec: the groups.
        counts: numbers of transpositions of the copy at the start, in each group.
        settings: how both are trained.
        correlation: match by correlations of activations; by uncentred inner products otherwise.
        pairs_at_once: pairs trained side by side, in one program.
        parts: the data as `on_device` returns them, where they were sent already.
        on_row: called with every finished row.
    """
    activations = hidden_activations(model.apply, model.init(key), np.asarray(data.x_train[:8]), spec, key=key)
    parts = on_device(data) if parts is None else parts
    rows = []
    for first in range(0, len(counts), pairs_at_once):
        chosen = counts[first : first + pairs_at_once]
        pairs = [_pair(jax.random.fold_in(key, first + i), model, spec, count) for i, count in enumerate(chosen)]
        starts = stack([net for pair in pairs for net in pair[:2]])
        train_key = jax.random.fold_in(jax.random.fold_in(key, first), 1 << 20)
        final = trained_end(train_key, model.apply, starts, (data.x_train, data.y_train), settings)
        before, after = (jax.tree.map(lambda leaf, k=k: leaf[k::2], final) for k in (0, 1))
        moved = stack([permute(_pick(before, i), spec, perms) for i, (*_, perms) in enumerate(pairs)])
        compared = ((stack([p[0] for p in pairs]), stack([p[1] for p in pairs])), (before, after), (moved, after))
        stages = [_compare_all(a, b, model, activations, parts, correlation) for a, b in compared]
        for count, *three in zip(chosen, *stages, strict=True):
            rows.append(Row(int(count), *three))
            if on_row is not None:
                on_row(rows[-1])
    return rows


def _compare_all(
    first: Tree, second: Tree, model: Model, activations: Any, parts: Parts, correlation: bool
) -> list[Stage]:
    """Transpositions, distances and midpoint barriers of every pair of two stacks."""
    perms = match_pairs(activations, first, second, parts.train, correlation=correlation)
    apart = distances(flatten(first), flatten(second))
    middle = jax.tree.map(lambda a, b: (jnp.asarray(a) + jnp.asarray(b)) / 2, first, second)
    heights = {}
    for part, chunks in parts._asdict().items():
        ends, others, mid = (losses(model.apply, nets, chunks) for nets in (first, second, middle))
        heights[part] = [m - (a + b) / 2 for a, b, m in zip(ends, others, mid, strict=True)]  # loss, error
    count = len(jax.tree.leaves(first)[0])
    return [
        Stage(
            transpositions=sum(transpositions({group: perm[k] for group, perm in perms.items()}).values()),
            distance=float(np.sqrt(sum(distance[k] ** 2 for distance in apart.values()))),
            distances={path: float(distance[k]) for path, distance in apart.items()},
            loss_barrier={part: float(height[0][k]) for part, height in heights.items()},
            error_barrier={part: float(height[1][k]) for part, height in heights.items()},
        )
        for k in range(count)
    ]


def along_interpolation(
    first: Tree, second: Tree, match: Matcher, taus: Sequence[float]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns, for every point of the line, its transpositions and its distance from the beginning."""
    counts, distances = [], []
    for tau in taus:
        point = jax.tree.map(lambda a, b, t=tau: (1 - t) * np.asarray(a) + t * np.asarray(b), first, second)
        counts.append(sum(transpositions(match(first, point)).values()))
        gaps = jax.tree.map(lambda a, b: float(np.sum(np.square(np.asarray(a) - b))), first, point)
        distances.append(np.sqrt(sum(jax.tree.leaves(gaps))))
    return np.array(counts), np.array(distances)


def _pair(key: jax.Array, model: Model, spec: PermutationSpec, count: int) -> tuple[Tree, Tree, Perms]:
    start = jax.tree.map(np.asarray, model.init(key))
    perms = {
        group: random_with_transpositions(jax.random.fold_in(key, number), size, count)
        for number, (group, size) in enumerate(spec.sizes.items())
    }
    return start, permute(start, spec, perms), perms


def _pick(networks: Tree, index: int) -> Tree:
    return jax.tree.map(lambda leaf: leaf[index], networks)


def _stack(network: Tree) -> Samples:
    return Samples(jax.tree.map(lambda leaf: np.asarray(leaf)[None], network))


def _only(perms: dict[str, np.ndarray]) -> Perms:
    return {group: perm[0] for group, perm in perms.items()}
