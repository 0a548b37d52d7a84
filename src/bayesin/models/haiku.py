"""Adapter of Haiku: `params` has Haiku's own form, `{module: {name: array}}`."""

from collections.abc import Mapping
from typing import Any

from ..errors import ModelError
from .model import Keys, Model, Role, adapt, as_example, is_floating


def from_haiku(
    transformed: Any,
    example_x: Any,
    *,
    init_options: Mapping[str, Any] | None = None,
    name: str = "the Haiku model",
    **options: Any,
) -> Model:
    """Returns the `Model` of a function transformed by `hk.transform` or `hk.transform_with_state`.

    Without state, `params` is the dict that Haiku returns; with state it is `{"params": …, "state": …}`, and the
    floating-point part of the state is a statistic. A module's name holds slashes, which a path writes as `%2F`.

    Args:
        transformed: what the transformation returned; it is applied without a random key.
        example_x: an input, or `jax.ShapeDtypeStruct`, of the shape that the model takes, batch first.
        init_options: keyword arguments of the function where it is initialised, if not the same. Haiku's BatchNorm
            can only be initialised in training, so that `is_training=True` is used there by itself.
        name: for messages.
        options: keyword arguments of the function that select evaluation, such as `is_training=False`.

    Raises:
        ModelError: not a transformed function, or it cannot be initialised on the example.

    Example:
        >>> import haiku as hk
        >>> import jax
        >>> import jax.numpy as jnp
        >>> model = from_haiku(hk.transform(lambda x: hk.Linear(2)(x)), jnp.ones((1, 3)))
        >>> params = model.init(jax.random.key(0))
        >>> jax.tree.map(jnp.shape, params)
        {'linear': {'b': (2,), 'w': (3, 2)}}
        >>> model.apply(params, jnp.ones((5, 3))).shape
        (5, 2)
    """
    if not is_transformed(transformed):
        raise ModelError(f"from_haiku takes the result of hk.transform, not {transformed!r:.80}")
    stateful = type(transformed).__name__ == "TransformedWithState"
    example = as_example(example_x)

    if init_options is None:
        init_options = {**options, "is_training": True} if "is_training" in options else options

    def build(key: Any) -> Any:
        made = transformed.init(key, example, **init_options)
        return {"params": made[0], "state": made[1]} if stateful else made

    def call(tree: Any, x: Any) -> Any:
        if stateful:
            return transformed.apply(tree["params"], tree["state"], None, x, **options)[0]
        return transformed.apply(tree, None, x, **options)

    return adapt(build, call, name=name, role=_role_with_state if stateful else None)


def is_transformed(value: Any) -> bool:
    """Whether a value is the result of `hk.transform`; by its name, so that only those need Haiku who use it."""
    return type(value).__name__ in {"Transformed", "TransformedWithState"}


def _role_with_state(keys: Keys, leaf: Any) -> Role:
    if not is_floating(leaf):
        return "static"
    return "statistic" if keys[0].key == "state" else "parameter"
