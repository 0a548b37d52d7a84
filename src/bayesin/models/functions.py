"""Adapter of a plain pair of functions, with parameters in any pytree."""

from collections.abc import Callable, Collection
from typing import Any

import jax

from ..errors import ModelError
from ..jaxprs import Apply
from ..trees import Tree, path_of
from .model import ApplyTrain, Keys, Model, Role, adapt, is_array, is_floating


def from_functions(
    init: Callable[[jax.Array], Tree],
    apply: Apply,
    *,
    statistics: Collection[str] = (),
    name: str = "the model",
    apply_train: ApplyTrain | None = None,
) -> Model:
    """Returns the `Model` of `init(key) -> params` and `apply(params, x) -> logits`.

    `params` may be any pytree of arrays; the model's own is a nested dict with the same paths, and the same tree
    where it is a nested dict already. Integer arrays stay outside, at their value for key 0.

    Args:
        init: makes parameters from a key.
        apply: evaluates a batch.
        statistics: paths of leaves that are statistics of the data and not trained.
        name: for messages.
        apply_train: `(params, x, key) -> (logits, params)`, the network in training where that is something else:
            dropout drawn with the key, batch statistics, and `params` with what was collected of them.

    Raises:
        ModelError: `init` fails, or a leaf is not an array.

    Example:
        >>> import jax
        >>> model = from_functions(
        ...     lambda key: [jax.random.normal(key, (3, 2)), jax.numpy.zeros(2)], lambda p, x: x @ p[0] + p[1]
        ... )
        >>> jax.tree.map(jax.numpy.shape, model.init(jax.random.key(0)))
        {'0': (3, 2), '1': (2,)}
    """
    for function, what in ((init, "init(key)"), (apply, "apply(params, x)"), (apply_train, "apply_train")):
        if not callable(function) and (function is not None or what != "apply_train"):
            raise ModelError(f"from_functions takes two functions; {what} is {function!r:.80}")

    def role(keys: Keys, leaf: Any) -> Role:
        if not is_array(leaf):
            raise ModelError(
                f"{name}: parameter '{path_of(keys)}' is {leaf!r:.80}, not an array; "
                f"wrap it in jnp.asarray or keep it out of the parameters"
            )
        if not is_floating(leaf):
            return "static"
        return "statistic" if path_of(keys) in statistics else "parameter"

    model = adapt(init, apply, name=name, role=role, call_train=apply_train)
    for path in set(statistics) - model.statistics:
        raise ModelError(f"{name}: there is no floating-point parameter '{path}' to be a statistic")
    return model
