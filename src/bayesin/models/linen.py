"""Adapter of Flax Linen: `params` is the dict of variable collections that Linen itself returns."""

from collections.abc import Mapping
from typing import Any

import jax
from flax import linen as nn
from flax.core import unfreeze

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


def from_linen(
    module: nn.Module,
    example_x: Any,
    *,
    name: str | None = None,
    train_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Model:
    """Returns the `Model` of a Flax Linen module.

    `params` has Linen's own form, `{"params": …, "batch_stats": …}`, so that variables you trained fit as they
    are; every collection other than "params" is a statistic.

    Args:
        module: the module, unbound.
        example_x: an input, or `jax.ShapeDtypeStruct`, of the shape that the model takes, batch first.
        name: for messages; the class's name where not given.
        train_options: keyword arguments of the call in training, where they differ; customary switches such as
            `train=False` or `deterministic=True` are turned by themselves. Collections other than "params" are
            mutable there, and random numbers of every name come from the fit's key.
        options: keyword arguments of the module's call that select evaluation; customary switches that it takes,
            such as `train`, are set by themselves.

    Raises:
        ModelError: not a Linen module, or it cannot be initialised on the example.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> model = from_linen(nn.Dense(2), jnp.ones((1, 3)))
        >>> params = model.init(jax.random.key(0))
        >>> jax.tree.map(jnp.shape, params)
        {'params': {'bias': (2,), 'kernel': (3, 2)}}
        >>> model.apply(params, jnp.ones((5, 3))).shape
        (5, 2)
    """
    if not isinstance(module, nn.Module):
        raise ModelError(f"from_linen takes a flax.linen.Module instance, not {module!r:.80}")
    example = as_example(example_x)
    options = evaluation_options(type(module).__call__, options)

    def build(key: Any) -> Any:
        variables = module.init(key, example, **options)
        return unfreeze(nn.meta.unbox(variables))  # sharding annotations are of no use to a plain tree

    def call(variables: Any, x: Any) -> Any:
        return module.apply(variables, x, **options)

    training = training_options(options, train_options)

    def call_train(variables: Any, x: Any, key: Any) -> tuple[Any, Any]:
        mutable = [collection for collection in variables if collection != "params"]
        rngs = {stream: jax.random.fold_in(key, number) for number, stream in enumerate(("params", "dropout"))}
        outputs, changed = module.apply(variables, x, rngs=rngs, mutable=mutable, **training)  # pyright: ignore
        return outputs, {**variables, **unfreeze(nn.meta.unbox(changed))}

    switched = train_options is not None or training != options
    return adapt(
        build,
        call,
        name=name or type(module).__name__,
        role=_role,
        call_train=call_train if switched else None,
    )


def _role(keys: Keys, leaf: Any) -> Role:
    if keys[0].key == "params":
        return "parameter" if is_floating(leaf) else "static"
    return "statistic" if is_number(leaf) else "static"
