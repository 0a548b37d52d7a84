"""What every adapter shares: a library's own tree of values, and a nested dict of arrays.

An adapter says how the library builds its tree from a key and how it calls a model with one. Each leaf has
a role: a parameter, a statistic of the data (both are leaves of `params`), or static: activation functions,
random states and integers, which stay outside at their value for key 0.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from ..errors import BayesinError, ModelError
from ..trees import Tree, flatten, path_of, unflatten
from .model import Model

# Initialisation runs once, and the random bits of every kernel are compiled anew: with the full optimisation of the
# backend ResNet20 takes 9 CPU seconds to compile, with the first level 2.6, for the same bits.
QUICK_TO_COMPILE = {"xla_backend_optimization_level": 1}

Role = Literal["parameter", "statistic", "static"]
Keys = tuple[Any, ...]  # the key path of a leaf, as JAX reports it


class Packing(NamedTuple):
    """A library's tree, leaf by leaf: the path in `params`, or the value that stays outside."""

    treedef: Any
    paths: tuple[str | None, ...]  # None where the leaf is static
    static: tuple[Any, ...]  # None where the leaf moves
    statistics: frozenset[str]

    def pack(self, tree: Tree) -> dict[str, Any]:
        """The nested dict that holds the floating-point arrays of a tree of this structure."""
        leaves = self.treedef.flatten_up_to(tree)
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
) -> Model:
    """Returns the `Model` of a library whose trees come from `build(key)` and run with `call(tree, x)`."""
    packing, traceable = _inspect(build, name, role or role_of_array, path)

    def make(key: Any) -> dict[str, Any]:
        return packing.pack(build(key))

    compiled = jax.jit(make, compiler_options=QUICK_TO_COMPILE)

    def init(key: Any) -> dict[str, Any]:
        inside = isinstance(key, jax.core.Tracer)  # under jit or vmap; options belong to the outermost jit
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


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type where it has none; short enough for one line."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return text if len(text) <= 300 else text[:299] + "…"


def _inspect(build: Callable[[Any], Tree], name: str, role: Any, path: Any) -> tuple[Packing, bool]:
    """The packing, and whether `build` can be traced; values are computed only where a static array needs one."""
    key = jax.random.key(0)
    try:
        packing, traceable = packing_of(eqx.filter_eval_shape(build, key), name, role, path), True
    except BayesinError:
        raise
    except Exception:
        packing, traceable = None, False  # a constructor may read the value of its key; it then runs for real
    if packing is None or any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in packing.static):
        try:
            packing = packing_of(build(key), name, role, path)
        except BayesinError:
            raise
        except Exception as error:
            raise ModelError(f"{name} cannot be initialised: {first_line(error)}") from error
    unflatten({p: None for p in packing.paths if p is not None})  # refuses two leaves of one name
    return packing, traceable


def name_of(source: Any) -> str:
    """A name for messages: of the class or the function, "the model" for a lambda."""
    source = source.func if isinstance(source, functools.partial) else source
    named = source if isinstance(source, type) or inspect.isroutine(source) else type(source)
    return "the model" if named.__name__ == "<lambda>" else named.__name__


def takes_keyword(function: Callable[..., Any], keyword: str) -> bool:
    """Whether an argument of this name can be given by name."""
    try:
        found = inspect.signature(function).parameters.get(keyword)
    except (TypeError, ValueError):
        return False
    return found is not None and found.kind is not inspect.Parameter.POSITIONAL_ONLY
