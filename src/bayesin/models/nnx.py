"""Adapter of Flax NNX: reference semantics end here."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
from flax import nnx

from ..errors import ModelError
from ..trees import path_of
from .model import (
    Keys,
    Model,
    Role,
    adapt,
    evaluation_options,
    is_array,
    is_number,
    name_of,
    packing_of,
    takes_keyword,
    training_options,
)

PARAMETERS, STATISTICS, STATIC = 1, 2, 3  # places in what `nnx.split` returns below; 0 is the graph


def from_nnx(
    source: nnx.Module | Callable[..., nnx.Module],
    *,
    name: str | None = None,
    train_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Model:
    """Returns the `Model` of a Flax NNX module: `module.eval()` to predict, `module.train()` in fits.

    `nnx.Param`s are parameters; every other variable that holds numbers (`nnx.BatchStat` and your own) is a
    statistic; random states and caches stay outside. Shared variables are one leaf.

    Args:
        source: a function of `rngs` that makes the module, for fresh parameters with every key; or a module,
            whose own values `init` then returns whatever the key. The module itself is not changed.
        name: for messages; the class's name where not given.
        train_options: keyword arguments of the call in training, where they differ; customary switches such as
            `train=False` are turned by themselves.
        options: keyword arguments of the module's call, such as `decode=False`; customary switches that it takes,
            such as `train`, are set by themselves.

    Raises:
        ModelError: the source is neither, or cannot be built.

    Example:
        >>> model = from_nnx(lambda rngs: nnx.Linear(3, 2, rngs=rngs))
        >>> params = model.init(jax.random.key(0))
        >>> jax.tree.map(jax.numpy.shape, params)
        {'bias': (2,), 'kernel': (3, 2)}
        >>> model.apply(params, jax.numpy.ones((5, 3))).shape
        (5, 2)
    """
    if not callable(source):
        raise ModelError(f"from_nnx takes an nnx.Module or a function of rngs that makes one, not {source!r:.80}")
    name = name or name_of(source)

    def evaluation(module: nnx.Module) -> dict[str, Any]:
        return evaluation_options(type(module).__call__, options)

    def call(tree: Any, x: Any) -> Any:
        module = nnx.merge(*tree)
        return module(x, **evaluation(module))

    def call_train(tree: Any, x: Any, key: Any) -> tuple[Any, Any]:
        module = nnx.merge(*tree)
        module.train()
        _reseed(module, key)
        outputs = module(x, **training_options(evaluation(module), train_options))
        nnx.pop(module, nnx.Intermediate)  # what was sown on the way is no state
        return outputs, _split(module, evaluate=False)

    def trains_apart(tree: Any) -> bool:
        module = nnx.merge(*tree)
        module.train()
        options = evaluation(module)
        return (
            training_options(options, train_options) != options
            or nnx.split(module)[0] != nnx.split(nnx.merge(*tree))[0]
        )

    return adapt(
        _builder(source, name),
        call,
        name=name,
        role=_role,
        path=_path,
        trace=not isinstance(source, nnx.Module),
        call_train=call_train,
        trains_apart=trains_apart,
    )


def into_nnx(params: Any, module: nnx.Module) -> nnx.Module:
    """Returns a copy of the module that holds these parameters and statistics; the module is left as it is.

    Example:
        >>> module = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
        >>> params = from_nnx(lambda rngs: nnx.Linear(3, 2, rngs=rngs)).init(jax.random.key(1))
        >>> bool((into_nnx(params, module).kernel[...] == params["kernel"]).all())
        True
    """
    tree = _split(nnx.clone(module), evaluate=False)
    return nnx.merge(*packing_of(tree, type(module).__name__, _role, _path).unpack(params))


def _builder(source: Any, name: str) -> Callable[[Any], Any]:
    if isinstance(source, nnx.Module):
        tree = _split(nnx.clone(source))
        return lambda key: tree
    keyword = takes_keyword(source, "rngs")

    def build(key: Any) -> Any:
        rngs = nnx.Rngs(key)
        module = source(rngs=rngs) if keyword else source(rngs)
        if not isinstance(module, nnx.Module):
            raise ModelError(f"{name} should return an nnx.Module, not {type(module).__name__}")
        return _split(module)

    return build


def _split(module: nnx.Module, evaluate: bool = True) -> Any:
    if evaluate:
        module.eval()
    return nnx.split(module, nnx.Param, _is_statistic, ...)


def _reseed(module: nnx.Module, key: Any) -> None:
    """Gives every random stream of a module a key of its own."""
    streams = [node for _, node in nnx.iter_graph(module) if isinstance(node, nnx.RngStream)]
    for number, stream in enumerate(streams):
        fresh = jax.random.fold_in(key, number)
        shape = stream.key.shape  # modules made under vmap have a stream for each copy
        stream.key.set_value(jax.random.split(fresh, shape) if shape else fresh)


def _is_statistic(path: Any, variable: Any) -> bool:
    if isinstance(variable, nnx.RngState | nnx.Cache | nnx.Intermediate):
        return False
    value = variable.get_value() if isinstance(variable, nnx.Variable) else variable
    return all(is_number(leaf) for leaf in jax.tree.leaves(value))


def _role(keys: Keys, leaf: Any) -> Role:
    place = keys[0].idx
    if place == PARAMETERS and is_array(leaf):
        return "parameter"
    return "statistic" if place == STATISTICS else "static"


def _path(keys: Keys) -> str:
    """Path without the place in the split and without the `value` that a variable adds to its own path."""
    return path_of(tuple(key for key in keys[1:] if not isinstance(key, jax.tree_util.GetAttrKey)))
