"""Adapter of Equinox: the floating-point arrays of a module are its parameters, the rest stays outside."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax

from ..errors import ModelError
from .model import Keys, Model, Role, adapt, is_floating, name_of, packing_of, role_of_array, takes_keyword


def from_equinox(source: Any, *, batched: bool = False, name: str | None = None, **options: Any) -> Model:
    """Returns the `Model` of an Equinox module, in inference mode.

    Args:
        source: a function of `key` that makes the module, for fresh parameters with every key; or a module,
            whose own values `init` then returns whatever the key. For a stateful model (BatchNorm) either may be
            the pair of module and `eqx.nn.State` that `eqx.nn.make_with_state` makes; `params` is then
            `{"params": …, "state": …}`, and the state a statistic.
        batched: whether the module takes a whole batch. As a rule Equinox models take one example, and the
            adapter maps them over the batch.
        name: for messages; the class's name where not given.
        options: keyword arguments of the module's call.

    Raises:
        ModelError: the source is neither, or cannot be built.

    Example:
        >>> model = from_equinox(lambda key: eqx.nn.MLP(3, 2, width_size=8, depth=1, key=key))
        >>> params = model.init(jax.random.key(0))
        >>> params["layers"]["0"]["weight"].shape
        (8, 3)
        >>> model.apply(params, jax.numpy.ones((5, 3))).shape
        (5, 2)
    """
    if not (callable(source) or _is_module(source)):
        raise ModelError(f"from_equinox takes an eqx.Module or a function of key that makes one, not {source!r:.80}")
    name = name or name_of(source[0] if isinstance(source, tuple) else source)

    def call(tree: Any, x: Any) -> Any:
        if isinstance(tree, dict):
            module, state = tree["params"], tree["state"]
            run = lambda example: module(example, state, **options)[0]  # noqa: E731
        else:
            run = lambda example: tree(example, **options)  # noqa: E731
        return run(x) if batched else jax.vmap(run)(x)

    return adapt(_builder(source, name), call, name=name, role=_role, trace=not _is_module(source))


def into_equinox(params: Any, module: Any) -> Any:
    """Returns the module, or the pair of module and state, with these parameters in place of its own.

    Example:
        >>> module = eqx.nn.Linear(3, 2, key=jax.random.key(0))
        >>> params = from_equinox(lambda key: eqx.nn.Linear(3, 2, key=key)).init(jax.random.key(1))
        >>> bool((into_equinox(params, module).weight == params["weight"]).all())
        True
    """
    tree = {"params": module[0], "state": module[1]} if isinstance(module, tuple) else module
    tree = packing_of(tree, name_of(tree), _role).unpack(params)
    return (tree["params"], tree["state"]) if isinstance(module, tuple) else tree


def _builder(source: Any, name: str) -> Callable[[Any], Any]:
    if _is_module(source):
        return lambda key: _evaluation(source)
    keyword = takes_keyword(source, "key")

    def build(key: Any) -> Any:
        made = source(key=key) if keyword else source(key)
        if not _is_module(made):
            raise ModelError(f"{name} should return an eqx.Module, not {type(made).__name__}")
        return _evaluation(made)

    return build


def _is_module(made: Any) -> bool:
    if isinstance(made, tuple):
        return len(made) == 2 and isinstance(made[0], eqx.Module) and isinstance(made[1], eqx.nn.State)
    return isinstance(made, eqx.Module)


def _evaluation(made: Any) -> Any:
    if isinstance(made, tuple):
        return {"params": eqx.nn.inference_mode(made[0]), "state": made[1]}
    return eqx.nn.inference_mode(made)


def _role(keys: Keys, leaf: Any) -> Role:
    """A module is never a dict at its root, so a first key "state" is the state of a stateful model."""
    if not is_floating(leaf):
        return "static"
    stateful = isinstance(keys[0], jax.tree_util.DictKey) and keys[0].key == "state"
    return "statistic" if stateful else role_of_array(keys, leaf)
