"""Adapter of Equinox: the floating-point arrays of a module are its parameters, the rest stays outside."""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax

from ..errors import ModelError
from .model import (
    Keys,
    Model,
    Role,
    adapt,
    evaluation_options,
    is_number,
    name_of,
    packing_of,
    role_of_array,
    takes_keyword,
    training_options,
)


def from_equinox(
    source: Any,
    *,
    batched: bool = False,
    name: str | None = None,
    train_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Model:
    """Returns the `Model` of an Equinox module: in inference mode to predict, out of it in fits.

    Args:
        source: a function of `key` that makes the module, for fresh parameters with every key; or a module,
            whose own values `init` then returns whatever the key. For a stateful model (BatchNorm) either may be
            the pair of module and `eqx.nn.State` that `eqx.nn.make_with_state` makes, which a function that returns
            the module alone is called through; `params` is then `{"params": …, "state": …}`, and the state a
            statistic.
        batched: whether the module takes a whole batch. As a rule Equinox models take one example, and the
            adapter maps them over the batch, under the axis name of the module's BatchNorm.
        name: for messages; the class's name where not given.
        train_options: keyword arguments of the call in training, where they differ. A call that takes `key` gets
            one there, for each example its own.
        options: keyword arguments of the module's call; customary switches that it takes, such as `inference`, are
            set by themselves.

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

    def evaluation(tree: Any) -> dict[str, Any]:
        return evaluation_options(type(tree["params"] if isinstance(tree, dict) else tree).__call__, options)

    def call(tree: Any, x: Any) -> Any:
        chosen = evaluation(tree)
        if isinstance(tree, dict):
            module, state = tree["params"], tree["state"]
            run = lambda example: module(example, state, **chosen)[0]  # noqa: E731
        else:
            run = lambda example: tree(example, **chosen)  # noqa: E731
        return run(x) if batched else jax.vmap(run)(x)

    def call_train(tree: Any, x: Any, key: Any) -> tuple[Any, Any]:
        stateful = isinstance(tree, dict)
        module = eqx.nn.inference_mode(tree["params"] if stateful else tree, value=False)
        before = (tree["state"],) if stateful else ()
        training = training_options(evaluation(tree), train_options)

        def run(example: Any, key: Any) -> Any:
            random = {"key": key} if takes_keyword(type(module).__call__, "key") else {}
            made = module(example, *before, **random, **training)
            return made if stateful else (made, None)

        if batched:
            outputs, after = run(x, key)
        else:
            keys = jax.random.split(key, len(jax.tree.leaves(x)[0]))
            outputs, after = jax.vmap(run, out_axes=(0, None), axis_name=_batch_axis(module))(x, keys)
        return outputs, {**tree, "state": after} if stateful else tree

    def trains_apart(tree: Any) -> bool:
        options = evaluation(tree)
        return training_options(options, train_options) != options or _has_switch(
            tree["params"] if isinstance(tree, dict) else tree
        )

    return adapt(
        _builder(source, name),
        call,
        name=name,
        role=_role,
        trace=not _is_module(source),
        call_train=call_train,
        trains_apart=trains_apart,
    )


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
        if isinstance(made, eqx.Module) and _has_state(made):
            made = eqx.nn.make_with_state(lambda: made)()
        if not _is_module(made):
            raise ModelError(f"{name} should return an eqx.Module, not {type(made).__name__}")
        return _evaluation(made)

    return build


def _is_module(made: Any) -> bool:
    if isinstance(made, tuple):
        return len(made) == 2 and isinstance(made[0], eqx.Module) and isinstance(made[1], eqx.nn.State)
    return isinstance(made, eqx.Module)


def _has_state(module: eqx.Module) -> bool:
    """Whether some layer keeps a state, which a module holds only until `eqx.nn.make_with_state` takes it out."""
    leaves = jax.tree.leaves(module, is_leaf=lambda node: isinstance(node, eqx.nn.StateIndex))
    return any(isinstance(leaf, eqx.nn.StateIndex) for leaf in leaves)


def _evaluation(made: Any) -> Any:
    if isinstance(made, tuple):
        return {"params": eqx.nn.inference_mode(made[0]), "state": made[1]}
    return eqx.nn.inference_mode(made)


def _has_switch(module: Any) -> bool:
    """Whether any part of a module does something else in training, as `eqx.nn.inference_mode` finds them."""
    modes = (jax.tree.leaves(eqx.nn.inference_mode(module, value=value)) for value in (True, False))
    return any(isinstance(one, bool) and one is not other for one, other in zip(*modes, strict=True))


def _batch_axis(module: Any) -> Any:
    """The name under which the module's BatchNorm averages over the batch; one that nobody asks for without it."""
    norms = jax.tree.leaves(module, is_leaf=lambda node: isinstance(node, eqx.nn.BatchNorm))
    names = {node.axis_name for node in norms if isinstance(node, eqx.nn.BatchNorm)}
    if len(names) > 1:
        raise ModelError(
            f"BatchNorms of one module average over different axes: {', '.join(sorted(map(str, names)))}"
        )
    return names.pop() if names else "batch"


def _role(keys: Keys, leaf: Any) -> Role:
    """A module is never a dict at its root, so a first key "state" is the state of a stateful model."""
    if isinstance(keys[0], jax.tree_util.DictKey) and keys[0].key == "state":
        return "statistic" if is_number(leaf) else "static"
    return role_of_array(keys, leaf)
