"""A model by its address, `package.module:attribute` or `path/file.py:attribute`, for the command line.

The file is the user's and may do anything: whatever it raises becomes one line that names the file and the line.
"""

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from flax import linen, nnx

from ..errors import BayesinError, ModelError, did_you_mean
from ..trees import Tree
from .adapter import first_line
from .equinox import from_equinox
from .haiku import from_haiku
from .linen import from_linen
from .model import Model
from .nnx import from_nnx

BATCH = 2  # examples in an input of which only the shape is known


class Loaded(NamedTuple):
    """A function, parameters and an input that it takes."""

    apply: Callable[[Any, Any], Any]
    params: Tree
    x: Any  # an array, or shape and dtype
    name: str


def load(target: str, *, key: jax.Array, input_shape: Sequence[int] | None = None) -> Loaded:
    """Returns the model at an address.

    The attribute may be a `bayesin.models.Model`; an NNX, Linen or Equinox module; the result of `hk.transform`; a
    pair of one of these and an example input; a triple `(apply, params, example input)`; or a function without
    arguments that returns any of them. Where no example is given, `input_shape` says the shape of one.

    Args:
        target: `package.module:attribute` or `path/file.py:attribute`.
        key: for models that have to be initialised.
        input_shape: shape of one example, without the batch.

    Raises:
        ModelError: the file fails, there is no such attribute, or it is none of these.
    """
    source, _, attribute = target.rpartition(":")
    if not source or not attribute:
        raise ModelError(f"'{target}' is no address of a model; write file.py:attribute or package.module:attribute")
    module = _import(source)
    found = _attribute(module, attribute, target)
    if _is_function(found):
        found = _run(lambda: found(), f"{target}()", module)
    return _loaded(found, target, key, input_shape)


def _loaded(found: Any, target: str, key: jax.Array, input_shape: Sequence[int] | None) -> Loaded:
    x = None if input_shape is None else jax.ShapeDtypeStruct((BATCH, *input_shape), jnp.float32)
    if isinstance(found, tuple) and not isinstance(found, Model) and not hasattr(found, "_fields"):
        if len(found) == 3 and callable(found[0]):
            return Loaded(found[0], found[1], found[2], target)
        if len(found) != 2:
            raise ModelError(f"{target} holds {len(found)} values; a pair (model, x) or (apply, params, x) is needed")
        found, x = found
    model = _model(found, x, target)
    return Loaded(model.apply, model.init(key), x, target)


def _model(found: Any, x: Any, target: str) -> Model:
    kinds = (Model, nnx.Module, linen.Module, eqx.Module)
    if x is None and (isinstance(found, kinds) or _is_haiku(found)):
        raise ModelError(f"{target} comes without an example input; give the shape of one: --input-shape 28 28 1")
    if isinstance(found, Model):
        return found
    if isinstance(found, nnx.Module):
        return from_nnx(found)
    if isinstance(found, linen.Module):
        return from_linen(found, x)
    if isinstance(found, eqx.Module):
        return from_equinox(found)
    if _is_haiku(found):
        return from_haiku(found, x)
    raise ModelError(
        f"{target} is {found!r:.60}; it should be a bayesin Model, an NNX, Linen or Equinox module, or the result of "
        f"hk.transform, alone or in a pair with an example input; or a function that returns one"
    )


def _is_haiku(found: Any) -> bool:
    return type(found).__name__ in {"Transformed", "TransformedWithState"}


def _is_function(found: Any) -> bool:
    return callable(found) and not isinstance(found, nnx.Module | linen.Module | eqx.Module | tuple)


def _import(source: str) -> ModuleType:
    path = Path(source)
    if path.suffix == ".py":
        if not path.is_file():
            raise ModelError(f"there is no file {source}")
        return _run(lambda: _import_file(path), source, None)
    if "/" in source or not all(part.isidentifier() for part in source.split(".")):
        raise ModelError(f"'{source}' is neither a Python file nor the name of a module")
    with _ImportsFrom(Path.cwd()):
        return _run(lambda: importlib.import_module(source), source, None)


def _import_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"_bayesin_{path.stem}", path.resolve())
    if spec is None or spec.loader is None:
        raise ModelError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up while it is being made
    with _ImportsFrom(path.resolve().parent):
        spec.loader.exec_module(module)
    return module


class _ImportsFrom:
    """Lets a file import its neighbours, as `python file.py` does."""

    def __init__(self, folder: Path):
        self._folder = str(folder)

    def __enter__(self) -> None:
        sys.path.insert(0, self._folder)

    def __exit__(self, *_: Any) -> None:
        if self._folder in sys.path:
            sys.path.remove(self._folder)


def _run(work: Callable[[], Any], what: str, module: ModuleType | None) -> Any:
    """Runs the user's code; an error becomes one line with the last line of the user's own that it came from."""
    try:
        return work()
    except BayesinError as error:
        raise ModelError(f"{what}: {error}") from error
    except (Exception, SystemExit) as error:
        own = {getattr(module, "__file__", None), str(Path(what).resolve())}
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename in own]
        if isinstance(error, SyntaxError) and not lines:
            lines = [error.lineno]
        message = error.msg if isinstance(error, SyntaxError) else first_line(error)
        where = f", line {lines[-1]}" if lines and lines[-1] else ""
        raise ModelError(f"{what} failed{where}: {type(error).__name__}: {message}") from error


def _attribute(module: ModuleType, attribute: str, target: str) -> Any:
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            public = [name for name in dir(found) if not name.startswith("_")]
            raise ModelError(f"{target}: there is no '{part}'{did_you_mean(part, public)}")
        found = getattr(found, part)
    return found
