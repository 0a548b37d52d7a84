"""Many networks measured at once, with the data kept on the device: losses, errors and matching of pairs.

`evaluate` and `compact` take one network, or one set of samples, and data from anywhere. A study of hundreds of
networks on one data set would spend its time on carrying that data, so here it is sent once, and all
networks pass through one compiled program.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..compact.activations import Activations
from ..compact.gram import inner_products, similarity_of
from ..data import Dataset
from ..inference.hmc.target import Chunks, cut
from ..inference.likelihoods import negative_log_likelihood
from ..matching.assignment import assign
from ..posteriors import Samples
from ..trees import Tree

LENGTH = 5_000  # examples of one pass
NETWORKS = 16  # in one pass
Apply = Callable[[Tree, Any], Any]


class Parts(NamedTuple):
    """A data set on the device."""

    train: Chunks
    test: Chunks


def on_device(data: Dataset) -> Parts:
    """Returns training and test set, cut and sent."""
    return Parts(*(_send(x, y) for x, y in ((data.x_train, data.y_train), (data.x_test, data.y_test))))


def losses(apply: Apply, stack: Tree, chunks: Chunks) -> tuple[np.ndarray, np.ndarray]:
    """Returns mean cross-entropy and share of errors of every network of a stack."""
    loss, error = jax.device_get(_losses(apply, stack, chunks))
    return np.asarray(loss, np.float64), np.asarray(error, np.float64)


def match_pairs(
    activations: Activations, first: Tree, second: Tree, chunks: Chunks, *, correlation: bool = False
) -> dict[str, np.ndarray]:
    """Returns the permutations {group: (pairs, units)} that match network k of `second` to network k of `first`."""
    sums = jax.device_get(_pair_sums(activations, first, second, chunks))
    return {
        group: np.stack([assign(np.ascontiguousarray(one)).perm for one in similarity_of(found, correlation)[:, 0]])
        for group, found in sums.items()
    }


def line(first: Tree, second: Tree, taus: Any) -> Tree:
    """Returns the networks `(1 − τ) first + τ second` as a stack."""
    taus = np.asarray(taus, np.float32)

    def along(a: Any, b: Any) -> Any:
        weight = taus.reshape(-1, *[1] * np.ndim(a))
        return (1 - weight) * jnp.asarray(a) + weight * jnp.asarray(b)

    return jax.tree.map(along, first, second)


def stack(networks: list[Tree]) -> Tree:
    """Returns networks with a leading axis."""
    return Samples.stack(networks).params


def distances(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Returns the Euclidean distance of every pair in two flat stacks, for each tensor."""
    return {
        path: np.sqrt(np.square(np.asarray(leaf, np.float64) - second[path]).reshape(len(leaf), -1).sum(1))
        for path, leaf in first.items()
    }


def _send(x: Any, y: Any) -> Chunks:
    return Chunks(*(jnp.asarray(part) for part in cut(x, y, LENGTH)))


@partial(jax.jit, static_argnums=0)
def _losses(apply: Apply, stack: Tree, chunks: Chunks) -> tuple[jax.Array, jax.Array]:
    count = chunks.weight.sum()

    def one(params: Tree) -> tuple[jax.Array, jax.Array]:
        def part(total: Any, chunk: Chunks) -> tuple[Any, None]:
            with jax.default_matmul_precision("highest"):
                outputs = apply(params, chunk.x)
            loss = (negative_log_likelihood("categorical", outputs, chunk.y) * chunk.weight).sum()
            wrong = ((outputs.argmax(-1) != chunk.y) * chunk.weight).sum()
            return (total[0] + loss, total[1] + wrong), None

        (loss, wrong), _ = jax.lax.scan(part, (jnp.zeros(()), jnp.zeros(())), chunks)
        return loss / count, wrong / count

    return jax.lax.map(one, stack, batch_size=NETWORKS)


@partial(jax.jit, static_argnums=0)
def _pair_sums(activations: Activations, first: Tree, second: Tree, chunks: Chunks) -> dict[str, Any]:
    def one(pair: tuple[Tree, Tree]) -> dict[str, Any]:
        return inner_products(activations, pair[0], jax.tree.map(lambda leaf: leaf[None], pair[1]), chunks)

    return jax.lax.map(one, (first, second), batch_size=NETWORKS // 2)
