"""Adapter of Haiku: `params` has Haiku's own form, `{module: {name: array}}`."""

import inspect
from collections.abc import Mapping
from typing import Any

from ..errors import ModelError
from .model import (
    Keys,
    Model,
    Role,
    adapt,
    as_example,
    evaluation_options,
    is_floating,
    is_number,
    training_options,
)


def from_haiku(
    transformed: Any,
    example_x: Any,
    *,
    init_options: Mapping[str, Any] | None = None,
    name: str = "the Haiku model",
    train_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Model:
    """Returns the `Model` of a function transformed by `hk.transform` or `hk.transform_with_state`.

    Without state, `params` is the dict that Haiku returns; with state it is `{"params": …, "state": …}`, and the
    state a statistic. A module's name holds slashes, which a path writes as `%2F`.

    Args:
        transformed: what the transformation returned, `hk.without_apply_rng` around it or not; it gets a random
            key in training alone.
        example_x: an input, or `jax.ShapeDtypeStruct`, of the shape that the model takes, batch first.
        init_options: keyword arguments of the function where it is initialised, if not the same. Haiku's BatchNorm
            can only be initialised in training, so that `is_training=True` is used there by itself.
        name: for messages.
        train_options: keyword arguments in training, where they differ; customary switches such as
            `is_training=False` are turned by themselves.
        options: keyword arguments of the function that select evaluation; customary switches that it takes, such
            as `is_training`, are set by themselves.

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
    options = evaluation_options(getattr(transformed.init, "_original_fn", transformed.init), options)
    training = training_options(options, train_options)
    if init_options is None:
        init_options = training if stateful or "is_training" in options else options
    takes_rng = list(inspect.signature(transformed.apply).parameters)[1 + stateful :][:1] == ["rng"]

    def build(key: Any) -> Any:
        made = transformed.init(key, example, **init_options)
        return {"params": made[0], "state": made[1]} if stateful else made

    def run(tree: Any, x: Any, rng: Any, chosen: Mapping[str, Any]) -> tuple[Any, Any]:
        trees = (tree["params"], tree["state"]) if stateful else (tree,)
        outputs = transformed.apply(*trees, *((rng,) if takes_rng else ()), x, **chosen)
        return (outputs[0], {**tree, "state": outputs[1]}) if stateful else (outputs, tree)

    def call(tree: Any, x: Any) -> Any:
        return run(tree, x, None, options)[0]

    def call_train(tree: Any, x: Any, key: Any) -> tuple[Any, Any]:
        return run(tree, x, key, training)

    switched = train_options is not None or training != options
    return adapt(
        build,
        call,
        name=name,
        role=_role_with_state if stateful else None,
        call_train=call_train if switched else None,
    )


def is_transformed(value: Any) -> bool:
    """Whether a value is the result of `hk.transform`; by its name, so that only those need Haiku who use it."""
    return type(value).__name__ in {"Transformed", "TransformedWithState"}


def _role_with_state(keys: Keys, leaf: Any) -> Role:
    if keys[0].key == "state":
        return "statistic" if is_number(leaf) else "static"
    return "parameter" if is_floating(leaf) else "static"
