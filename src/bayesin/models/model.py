"""What bayesin needs to know of a model: how to make parameters and how to apply them."""

from collections.abc import Callable
from typing import Any, NamedTuple

from ..trees import Tree


class Model(NamedTuple):
    """A network as a pair of pure functions.

    `params` is a nested dict of arrays; everything that has a value is a leaf of it, running statistics
    included. `statistics` names the leaves that are statistics of the data rather than parameters: they
    move with a permutation, but are neither trained by a gradient nor part of a distance.
    """

    init: Callable[[Any], Tree]  # key -> params
    apply: Callable[[Tree, Any], Any]  # (params, x) -> logits, batch first, in evaluation mode
    statistics: frozenset[str] = frozenset()  # paths, as `bayesin.trees.flatten` writes them
    name: str = "model"
