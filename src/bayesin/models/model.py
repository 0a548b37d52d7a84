"""What bayesin needs to know of a model, and how the model of any library becomes that.

A `Model` is pure functions on a nested dict of arrays. An adapter says how its library builds a tree of its own from
a key, how it calls a model with one, and how it calls it in training; the rest is here. Each leaf of the library's
tree has a role: a parameter, a statistic of the data (both are leaves of `params`), or static: activation functions,
random states and constants, which stay outside at their value for key 0.

Whatever training mode changes is a statistic: running means, and the counters that go with them. So a trained network
is one tree, which `apply(params, x)` evaluates with what was collected, and which permutations move as a whole.

`from_functions` is the plainest adapter: of a pair of functions, with parameters in any pytree.
"""

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer

from ..errors import BayesinError, ModelError, first_line
from ..inputs import Inputs
from ..jaxprs import Apply
from ..trees import Tree, flatten, path_of, unflatten

# Initialisation runs once, and the random bits of every kernel are compiled anew: with the full optimisation of the
# backend ResNet20 takes 9 CPU seconds to compile, with the first level 2.6, for the same bits.
QUICK_TO_COMPILE = {"xla_backend_optimization_level": 1}

Role = Literal["parameter", "statistic", "static"]
Keys = tuple[Any, ...]  # the key path of a leaf, as JAX reports it


ApplyTrain = Callable[[Tree, Inputs, jax.Array], tuple[Tree, Tree]]  # (params, x, key) -> (logits, params)

# Options of a call that switch between training and evaluation in the libraries of the field, as training wants them.
SWITCHES = {
    "train": True,
    "training": True,
    "is_training": True,
    "deterministic": False,
    "use_running_average": False,
    "update_stats": True,
    "inference": False,
}


class Model(NamedTuple):
    """A network as pure functions.

    `params` is a nested dict of arrays; everything that has a value is a leaf of it, running statistics
    included. `statistics` names the leaves that are statistics of the data rather than parameters: they
    move with a permutation, but are neither trained by a gradient nor part of a distance.

    Fits call `apply_train`, where there is one: the network in training mode (batch statistics, dropout with the
    key), which returns its outputs, and `params` with the statistics that it collected; the rest is not looked at.

    Called, it is its `apply`: every verb that asks for a network takes either.

    Example:
        >>> init = lambda key: {"w": jax.random.normal(key, (2, 3))}
        >>> model = Model(init, lambda params, x: x @ params["w"], name="linear")
        >>> params = model.init(jax.random.key(0))
        >>> model(params, jax.numpy.ones((4, 2))).shape
        (4, 3)
    """

    init: Callable[[jax.Array], Tree]  # key -> params
    apply: Apply  # (params, x) -> logits, batch first, in evaluation mode
    statistics: frozenset[str] = frozenset()  # paths, as `bayesin.trees.flatten` writes them
    name: str = "model"
    apply_train: ApplyTrain | None = None  # (params, x, key) -> (logits, params); None where it is `apply`

    def __call__(self, params: Tree, x: Any) -> Any:
        """The network in evaluation mode, so that verbs which ask for a function `(params, x)` take a model."""
        return self.apply(params, x)

    def __repr__(self) -> str:
        more = [f"{len(self.statistics)} running statistics"] if self.statistics else []
        return f"Model({', '.join([self.name, *more])})"


@dataclass(frozen=True)
class Held:
    """Training in evaluation mode: statistics stay as they are."""

    apply: Apply

    def __call__(self, params: Tree, x: Any, key: jax.Array) -> tuple[Any, Tree]:
        return self.apply(params, x), params


def frozen(model: Model) -> Model:
    """Returns the model with its statistics held as they are: fits then run it in evaluation mode.

    For statistics that come from elsewhere (a network trained before), and for methods that need one log-posterior
    (HMC), which batch statistics and dropout do not have.

    Example:
        >>> from flax import nnx
        >>> from bayesin.models import from_nnx
        >>> model = frozen(from_nnx(lambda rngs: nnx.BatchNorm(3, rngs=rngs)))
        >>> params = model.init(jax.random.key(0))
        >>> _, after = model.apply_train(params, jnp.ones((2, 3)), jax.random.key(0))
        >>> bool((after["mean"] == params["mean"]).all())
        True
    """
    return model._replace(apply_train=Held(model.apply))


def has_training_mode(model: Model) -> bool:
    """Whether the model does something else in training than in evaluation."""
    return model.apply_train is not None and not isinstance(model.apply_train, Held)


class Packing(NamedTuple):
    """A library's tree, leaf by leaf: the path in `params`, or the value that stays outside."""

    treedef: Any
    paths: tuple[str | None, ...]  # None where the leaf is static
    static: tuple[Any, ...]  # None where the leaf moves
    statistics: frozenset[str]

    def pack(self, tree: Tree) -> dict[str, Any]:
        """The nested dict that holds the floating-point arrays of a tree of this structure."""
        leaves = jax.tree.leaves(tree)
        if len(leaves) != len(self.paths):
            raise ModelError(f"init made {len(leaves)} values where it made {len(self.paths)} before")
        return unflatten({path: leaf for path, leaf in zip(self.paths, leaves, strict=True) if path is not None})

    def unpack(self, params: Tree) -> Tree:
        """The library's own tree with these parameters; refuses a missing or an unknown one by name."""
        flat = flatten(params)
        for path in self.paths:
            if path is not None and path not in flat:
                raise ModelError(f"parameter '{path}' is missing; model.init(key) shows what this model needs")
        for path in flat.keys() - set(self.paths):
            raise ModelError(f"parameter '{path}' is unknown to this model; model.init(key) shows what it needs")
        leaves = [fixed if path is None else flat[path] for path, fixed in zip(self.paths, self.static, strict=True)]
        return jax.tree.unflatten(self.treedef, leaves)


def adapt(
    build: Callable[[Any], Tree],
    call: Callable[[Tree, Any], Any],
    *,
    name: str,
    role: Callable[[Keys, Any], Role] | None = None,
    path: Callable[[Keys], str] = path_of,
    trace: bool = True,
    call_train: Callable[[Tree, Any, Any], tuple[Any, Tree]] | None = None,
    trains_apart: Callable[[Tree], bool] = lambda tree: True,
) -> Model:
    """Returns the `Model` of a library whose trees come from `build(key)` and run with `call(tree, x)`.

    `trace` says whether to compile `build` where that can be done; not for one that returns values it has.
    `call_train(tree, x, key)` runs a tree in training mode and returns the outputs and the tree afterwards;
    `trains_apart` says of a tree, or of its shapes, whether that is anything else than evaluation.
    """
    packing, traceable, tree = _inspect(build, name, role or role_of_array, path, trace)

    def make(key: Any) -> dict[str, Any]:
        return packing.pack(build(key))

    compiled = jax.jit(make, compiler_options=QUICK_TO_COMPILE)

    def init(key: Any) -> dict[str, Any]:
        inside = isinstance(key, Tracer)  # under jit or vmap; options belong to the outermost jit
        return compiled(key) if traceable and not inside else make(key)

    def run(mode: str, function: Callable[..., Any], params: Tree, x: Any, *key: Any) -> Any:
        tree = packing.unpack(params)
        try:
            return function(tree, x, *key)
        except BayesinError:
            raise
        except Exception as error:
            shapes = jax.tree.map(jnp.shape, x)
            raise ModelError(f"{name} failed{mode} on an input of shape {shapes}: {first_line(error)}") from error

    def apply(params: Tree, x: Any) -> Any:
        return run("", call, params, x)

    def apply_train(params: Tree, x: Any, key: Any) -> tuple[Any, Tree]:
        outputs, after = run(" in training mode", call_train or _none, params, x, key)
        return outputs, packing.pack(after)

    apart = call_train is not None and (packing.statistics or trains_apart(tree))
    return Model(init, apply, packing.statistics, name, apply_train if apart else None)


def training_options(options: Mapping[str, Any], given: Mapping[str, Any] | None) -> dict[str, Any]:
    """The options of a call in training: those given, or those of evaluation with the customary switches turned.

    Example:
        >>> training_options({"train": False, "scale": 2}, None)
        {'train': True, 'scale': 2}
    """
    turned = {name: SWITCHES[name] for name, value in options.items() if name in SWITCHES and isinstance(value, bool)}
    return {**options, **(turned if given is None else given)}


def evaluation_options(function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a call in evaluation: those given, and the customary switches that it takes besides.

    Example:
        >>> evaluation_options(lambda x, train, scale=1: x, {})
        {'train': False}
    """
    try:
        known = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return {**options}
    switches = (one for one in known if one.name in SWITCHES and one.kind is not inspect.Parameter.POSITIONAL_ONLY)
    return {**{one.name: not SWITCHES[one.name] for one in switches if _may_be_a_switch(one)}, **options}


def _may_be_a_switch(parameter: inspect.Parameter) -> bool:
    """Whether it has no default, or one that can be turned; None often stands for the module's own attribute."""
    return parameter.default is inspect.Parameter.empty or isinstance(parameter.default, bool)


def packing_of(
    tree: Tree, name: str, role: Callable[[Keys, Any], Role], path: Callable[[Keys], str] = path_of
) -> Packing:
    """Sorts the leaves of a tree by their role."""
    leaves, treedef = jax.tree_util.tree_flatten_with_path(tree)
    roles = [role(keys, leaf) for keys, leaf in leaves]
    if "parameter" not in roles:
        raise ModelError(f"{name} has no floating-point parameters")
    paths: list[str | None] = []
    static, statistics = [], set()
    for (keys, leaf), what in zip(leaves, roles, strict=True):
        fixed = what == "static"
        paths.append(None if fixed else path(keys) or "params")  # a tree that is one array has no path
        if not fixed and paths[-1] in paths[:-1]:
            raise ModelError(f"{name} has two parameters '{paths[-1]}'")
        static.append(leaf if fixed else None)
        if what == "statistic":
            statistics.add(paths[-1])
    return Packing(treedef, tuple(paths), tuple(static), frozenset(statistics))


def role_of_array(keys: Keys, leaf: Any) -> Role:
    """Floating-point arrays are parameters, everything else is static."""
    return "parameter" if is_floating(leaf) else "static"


def is_floating(leaf: Any) -> bool:
    """Whether a leaf is an array of real or complex floating-point numbers."""
    return is_array(leaf) and jnp.issubdtype(leaf.dtype, jnp.inexact)


def is_array(leaf: Any) -> bool:
    """Whether a leaf is an array, or the shape and dtype of one."""
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")


def is_number(leaf: Any) -> bool:
    """Whether a leaf is an array of numbers or truth values: what state is made of, random keys aside."""
    return is_array(leaf) and (jnp.issubdtype(leaf.dtype, jnp.number) or leaf.dtype == jnp.bool_)


def as_example(x: Any) -> Any:
    """An example input as arrays: itself, since initialisation may depend on the data, or zeros of its shape.

    A dict is a tree of inputs, such as tokens and their mask.
    """
    if isinstance(x, jax.ShapeDtypeStruct):
        return jnp.zeros(x.shape, x.dtype)
    if isinstance(x, dict) and x:
        return {name: as_example(part) for name, part in x.items()}
    if isinstance(x, str) or not (is_array(x) or isinstance(x, int | float | list | tuple)):
        raise ModelError(f"an example input should be an array or a jax.ShapeDtypeStruct, not {x!r:.80}")
    return jnp.asarray(x)


def name_of(source: Any) -> str:
    """A name for messages: of the class or the function, "the model" for a lambda."""
    source = source.func if isinstance(source, functools.partial) else source
    named = source if isinstance(source, type) or inspect.isroutine(source) else type(source)
    return "the model" if named.__name__ == "<lambda>" else named.__name__


def takes_keyword(function: Callable[..., Any], keyword: str) -> bool:
    """Whether an argument of this name can be given by name."""
    function = function.func if isinstance(function, functools.partial) else function
    function = function.__init__ if isinstance(function, type) else function  # a metaclass may hide the signature
    try:
        parameter = inspect.signature(function).parameters.get(keyword)
    except (TypeError, ValueError):
        return False
    return parameter is not None and parameter.kind is not inspect.Parameter.POSITIONAL_ONLY


def _none(*arguments: Any) -> Any:
    raise AssertionError("a model without a training mode was called in it")


def _inspect(
    build: Callable[[Any], Tree], name: str, role: Any, path: Any, trace: bool
) -> tuple[Packing, bool, Tree]:
    """The packing, whether `build` can be traced, and a tree or its shapes; only static values are computed."""
    key = jax.random.key(0)
    if trace:
        try:
            shapes = eqx.filter_eval_shape(build, key)
            return _fill(packing_of(shapes, name, role, path), build, key), True, shapes
        except BayesinError:
            raise
        except Exception:
            pass
    try:
        tree = build(key)
        return packing_of(tree, name, role, path), False, tree
    except BayesinError:
        raise
    except Exception as error:
        raise ModelError(f"{name} cannot be initialised: {first_line(error)}") from error


def _fill(packing: Packing, build: Callable[[Any], Tree], key: Any) -> Packing:
    """Gives the static arrays, of which a trace knows the shape alone, their values."""
    places = [place for place, leaf in enumerate(packing.static) if isinstance(leaf, jax.ShapeDtypeStruct)]
    if not places:
        return packing
    pick = jax.jit(lambda key: [jax.tree.leaves(build(key))[place] for place in places])
    filled = list(packing.static)
    for place, value in zip(places, pick(key), strict=True):
        filled[place] = value
    return packing._replace(static=tuple(filled))


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
