"""A model by its address, `package.module:attribute` or `path/file.py:attribute`.

The file is the user's and may do anything: whatever it raises becomes one message that names the file and the line.
"""

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from flax import linen, nnx

from ..errors import BayesinError, ModelError, did_you_mean, first_line
from ..jaxprs import Apply
from ..trees import Tree
from .equinox import from_equinox
from .haiku import from_haiku, is_transformed
from .linen import from_linen
from .model import Model
from .nnx import from_nnx
from .torch import from_torch, inputs_of, is_torch_module


class Loaded(NamedTuple):
    """A function, parameters and an input that it takes."""

    apply: Apply
    params: Tree
    x: Any  # an array, or shape and dtype; batch first
    name: str


def load(target: str, *, key: jax.Array, input_shape: Sequence[int] | None = None, example: Any = None) -> Loaded:
    """Returns the model at an address.

    The attribute may be a `bayesin.models.Model`; an NNX, Linen, Equinox or PyTorch module, or the class of one that
    is made from `rngs`, `key` or nothing; the result of `hk.transform`; a pair of one of these and an example input;
    a triple `(apply, params, example input)`; a function of `rngs` (NNX) or `key` (Equinox) that makes a module; or a
    function without arguments that returns any of them. Where no example is given, `input_shape` says its shape.

    Args:
        target: `package.module:attribute` or `path/file.py:attribute`.
        key: for models that have to be initialised.
        input_shape: shape of one example, without the batch.
        example: an input, where a shape does not say enough: tokens, or a dict of inputs.

    Raises:
        ModelError: the file fails, there is no such attribute, or it is none of these.

    Example:
        >>> import tempfile, jax, numpy as np
        >>> from pathlib import Path
        >>> code = "from bayesin.models import build" + chr(10) + "model = build('mlp', (4,), 2, width=3, depth=1)"
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     written = Path(folder, "net.py").write_text(code)
        ...     loaded = load(f"{folder}/net.py:model", key=jax.random.key(0), input_shape=(4,))
        >>> loaded.apply(loaded.params, np.zeros((5, 4), np.float32)).shape
        (5, 2)
    """
    value, x = _found(target, example if input_shape is None else example_input(input_shape))
    if type(value) is tuple:  # apply and params
        apply, params = value
        return Loaded(apply, params, x, target)
    model = _model(value, x, target)
    return Loaded(model.apply, model.init(key), x, target)


def load_model(target: str, example: Any) -> Model:
    """Returns the `Model` at an address, where `load` returns one set of parameters; raises as that does.

    Args:
        target: `package.module:attribute` or `path/file.py:attribute`, of what `load` takes.
        example: an input, or shape and dtype, for a network that comes without one.
    """
    value, x = _found(target, example)
    if type(value) is tuple:
        apply, params = value
        return Model(lambda key: params, apply, name=target)
    return _model(value, x, target)


def example_input(shape: Sequence[int]) -> jax.ShapeDtypeStruct:
    """Two examples of this shape, of which nothing else is known."""
    return jax.ShapeDtypeStruct((2, *shape), jnp.float32)


def _found(target: str, x: Any) -> tuple[Any, Any]:
    """What stands at an address, a network or a pair (apply, params), and an example input."""
    source, _, attribute = target.rpartition(":")
    if not source or not attribute:
        raise ModelError(
            f"'{target}' is not the address of a model; write file.py:attribute or package.module:attribute"
        )
    module = _import(source)
    value = _attribute(module, attribute, target)
    if callable(value) and not _is_network(value) and not isinstance(value, tuple):
        value = _made(value, target, module)
    if isinstance(value, tuple) and not hasattr(value, "_fields"):  # a Model is a tuple with fields
        if len(value) == 3 and callable(value[0]):
            return value[:2], value[2]
        if len(value) != 2:
            raise ModelError(f"{target} holds {len(value)} values; a pair (model, x) or (apply, params, x) is needed")
        value, x = value
    return value, None if x is None else jax.tree.map(
        lambda leaf: inputs_of(leaf) if hasattr(leaf, "detach") else leaf, x
    )


def _made(function: Callable[..., Any], target: str, module: ModuleType) -> Any:
    """What a function returns, or for one of `rngs` or `key` the model of the modules that it makes."""
    makers: dict[str, Callable[..., Model]] = {"rngs": from_nnx, "key": from_equinox}
    for argument, adapter in makers.items():
        if _needs_only(function, argument):
            return _run(lambda adapter=adapter: adapter(function), f"{target}({argument})", module)
    return _run(function, f"{target}()", module)


def _needs_only(function: Callable[..., Any], argument: str) -> bool:
    try:
        known = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [one.name for one in known if one.default is inspect.Parameter.empty and one.kind not in variadic]
    return needed == [argument]


def _is_network(value: Any) -> bool:
    known = isinstance(value, Model | nnx.Module | linen.Module | eqx.Module)
    return known or is_transformed(value) or is_torch_module(value) or _is_class(value, nnx.Module, eqx.Module)


def _is_class(value: Any, *kinds: type) -> bool:
    """Whether a value is the class of networks of some kind, or of PyTorch's."""
    torch = sys.modules.get("torch")
    kinds = kinds if torch is None else (*kinds, torch.nn.Module)
    return isinstance(value, type) and issubclass(value, kinds)


def _model(value: Any, x: Any, target: str) -> Model:
    if not _is_network(value):
        raise ModelError(
            f"{target} is {value!r:.60}; it should be a bayesin Model, an NNX, Linen, Equinox or PyTorch module, or "
            f"the result of hk.transform, alone or in a pair with an example input; or a function that returns one"
        )
    if x is None:
        raise ModelError(f"{target} comes without an example input; give the shape of one: --input-shape 28 28 1")
    if isinstance(value, Model):
        return value
    kind = value if isinstance(value, type) else type(value)
    if issubclass(kind, nnx.Module):
        return from_nnx(value)
    if issubclass(kind, eqx.Module):
        return from_equinox(value)
    if is_torch_module(value) or isinstance(value, type):
        return from_torch(value, x)
    return from_linen(value, x) if isinstance(value, linen.Module) else from_haiku(value, x)


def _import(source: str) -> ModuleType:
    path = Path(source)
    if path.suffix == ".py":
        if not path.is_file():
            raise ModelError(f"there is no file {source}")
        return _run(lambda: _import_file(path), source, None)
    if "/" in source or not all(part.isidentifier() for part in source.split(".")):
        raise ModelError(f"'{source}' is neither a Python file nor the name of a module")
    with _importing_from(Path.cwd()):
        return _run(lambda: importlib.import_module(source), source, None)


def _import_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"_bayesin_{path.stem}", path.resolve())
    if spec is None or spec.loader is None:
        raise ModelError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up while it is being made
    with _importing_from(path.resolve().parent):
        spec.loader.exec_module(module)
    return module


@contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    """Lets a file import its neighbours, as `python file.py` does."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        if str(folder) in sys.path:  # unless the file took it out
            sys.path.remove(str(folder))


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
    value: Any = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            public = [name for name in dir(value) if not name.startswith("_")]
            raise ModelError(f"{target}: there is no '{part}'{did_you_mean(part, public)}")
        value = getattr(value, part)
    return value
