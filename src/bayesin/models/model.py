"""What bayesin needs to know of a model, and how the model of any library becomes that.

A `Model` is a pair of pure functions on a nested dict of arrays. An adapter says how its library builds a tree of
its own from a key and how it calls a model with one; the rest is here. Each leaf of the library's tree has a role: a
parameter, a statistic of the data (both are leaves of `params`), or static: activation functions, random states and
integers, which stay outside at their value for key 0.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer

from ..errors import BayesinError, ModelError, first_line
from ..jaxprs import Apply
from ..trees import Tree, flatten, path_of, unflatten

# Initialisation runs once, and the random bits of every kernel are compiled anew: with the full optimisation of the
# backend ResNet20 takes 9 CPU seconds to compile, with the first level 2.6, for the same bits.
QUICK_TO_COMPILE = {"xla_backend_optimization_level": 1}

Role = Literal["parameter", "statistic", "static"]
Keys = tuple[Any, ...]  # the key path of a leaf, as JAX reports it


class Model(NamedTuple):
    """A network as a pair of pure functions.

    `params` is a nested dict of arrays; everything that has a value is a leaf of it, running statistics
    included. `statistics` names the leaves that are statistics of the data rather than parameters: they
    move with a permutation, but are neither trained by a gradient nor part of a distance.
    """

    init: Callable[[jax.Array], Tree]  # key -> params
    apply: Apply  # (params, x) -> logits, batch first, in evaluation mode
    statistics: frozenset[str] = frozenset()  # paths, as `bayesin.trees.flatten` writes them
    name: str = "model"


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
) -> Model:
    """Returns the `Model` of a library whose trees come from `build(key)` and run with `call(tree, x)`.

    `trace` says whether to compile `build` where that can be done; not for one that returns values it has.
    """
    packing, traceable = _inspect(build, name, role or role_of_array, path, trace)

    def make(key: Any) -> dict[str, Any]:
        return packing.pack(build(key))

    compiled = jax.jit(make, compiler_options=QUICK_TO_COMPILE)

    def init(key: Any) -> dict[str, Any]:
        inside = isinstance(key, Tracer)  # under jit or vmap; options belong to the outermost jit
        return compiled(key) if traceable and not inside else make(key)

    def apply(params: Tree, x: Any) -> Any:
        tree = packing.unpack(params)
        try:
            return call(tree, x)
        except BayesinError:
            raise
        except Exception as error:
            raise ModelError(f"{name} failed on an input of shape {jnp.shape(x)}: {first_line(error)}") from error

    return Model(init, apply, packing.statistics, name)


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


def as_example(x: Any) -> jax.Array:
    """An example input as an array: itself, since initialisation may depend on the data, or zeros of its shape."""
    if isinstance(x, jax.ShapeDtypeStruct):
        return jnp.zeros(x.shape, x.dtype)
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


def _inspect(build: Callable[[Any], Tree], name: str, role: Any, path: Any, trace: bool) -> tuple[Packing, bool]:
    """The packing, and whether `build` can be traced; of the values only the static ones are computed."""
    key = jax.random.key(0)
    if trace:
        try:
            return _fill(packing_of(eqx.filter_eval_shape(build, key), name, role, path), build, key), True
        except BayesinError:
            raise
        except Exception:
            pass
    try:
        return packing_of(build(key), name, role, path), False
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
