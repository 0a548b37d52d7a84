"""Adapter of PyTorch: `params` has the names of `state_dict()`, and goes back into one.

torchax runs a module's own Python with JAX arrays inside its tensors, so that the network is traced like any other.
The floating-point parameters are parameters, floating-point buffers of the state dict (running statistics) are
statistics, and everything else (integer buffers, buffers that are not saved, tensors that a module keeps as plain
attributes) is constant. The module itself is copied and never changed.

torchax 0.0.13 is mended in two places here, in an environment of our own that no other user of torchax sees:
- names of operators that newer versions of PyTorch no longer have are passed over when torchax is imported;
- its batch normalisation forgets the running statistics, so that the function which `nn.BatchNorm` and its kin call
  is written out below.
"""

import copy
import functools
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..errors import BayesinError, ModelError, first_line
from ..trees import Tree, flatten
from .model import Keys, Model, Role, adapt, name_of

INSTALL = "PyTorch networks need torch and torchax: pip install 'bayesin[torch]'"


def from_torch(
    source: Any,
    example: Any,
    *,
    name: str | None = None,
    output: Callable[[Any], Any] | None = None,
    **options: Any,
) -> Model:
    """Returns the `Model` of a PyTorch module: `module.eval()` to predict, `module.train()` in fits.

    `params` is one dict with the names of the module's `state_dict()`; tied weights are one parameter under the first
    of their names. `to_torch(params, module)` makes a state dict of it. Inputs are arrays in PyTorch's own layout,
    images with their channels in front: one array, a tuple of arrays for a module with several inputs, or a dict for
    keyword inputs.

    Args:
        source: the module, whose own values `init` returns whatever the key; or a function without arguments that
            makes one, for fresh parameters with every key. Of a module given in training mode, parts in evaluation
            mode (frozen BatchNorm) stay so in fits; one in evaluation mode is trained as a whole.
        example: an input as the module takes it, batch first: tensor or array, a tuple, or a dict by keyword.
        name: for messages; the class's name where not given.
        output: which of several outputs to return, `lambda out: out[0]`; Hugging Face's `logits` are found.
        options: keyword arguments of the module's call that are no inputs, such as `use_cache=False`.

    Raises:
        ModelError: torch or torchax is not installed, this is no module, or it cannot be traced on the example: an
            operator that torchax does not know, shapes or branches that depend on the data. The line names the place.

    Example:
        >>> import torch
        >>> model = from_torch(torch.nn.Linear(3, 2), torch.zeros(1, 3))
        >>> jax.tree.map(jnp.shape, model.init(jax.random.key(0)))
        {'bias': (2,), 'weight': (2, 3)}
    """
    torch = _torch()
    fresh = not isinstance(source, torch.nn.Module)
    if fresh and not callable(source):
        raise ModelError(f"from_torch takes an nn.Module or a function that makes one, not {source!r:.80}")
    if isinstance(source, torch.jit.ScriptModule):
        raise ModelError("from_torch runs a module's own Python, which TorchScript no longer has; give the nn.Module")
    given = _make(source, 0) if fresh else source
    name = name or name_of(given)
    network = _Network(given, name, output, options)

    def build(key: Any) -> dict[str, Any]:
        if not fresh:
            return network.values(given)
        if isinstance(key, Tracer):  # shapes alone, or many keys at once: PyTorch makes its modules on the host
            return jax.pure_callback(
                lambda seed: jax.tree.map(np.asarray, network.values(_make(source, int(seed)))),
                jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), network.values(given)),
                jax.random.bits(key, (), jnp.uint32),
                vmap_method="sequential",
            )
        return network.values(_make(source, int(jax.random.bits(key, (), jnp.uint32))))

    def role(keys: Keys, leaf: Any) -> Role:
        return "parameter" if keys[0].key in network.parameters else "statistic"

    model = adapt(
        build,
        network.evaluate,
        name=name,
        role=role,
        trace=False,
        call_train=network.train,
        trains_apart=lambda tree: network.trains_apart,
    )
    inputs = inputs_of(example)
    for leaf in jax.tree.leaves(inputs):
        if leaf.dtype.kind not in "biufcV":
            raise ModelError(f"{name}: the example holds {leaf.dtype}, not numbers; give a tensor or an array")
    jax.eval_shape(model.apply, model.init(jax.random.key(0)), inputs)
    return model


def to_torch(params: Tree, module: Any) -> dict[str, Any]:
    """Returns a state dict of the module with these parameters, which `load_state_dict` takes strictly.

    What is no parameter or statistic (integer buffers) has the module's own value; dtypes are the module's; a tied
    weight stands under all of its names.

    Args:
        params: parameters as `from_torch(module, …)` has them: of a point, `posterior.mean`, one draw.
        module: the module, or one of the same architecture.

    Raises:
        ModelError: a parameter is missing, unknown, or of another shape.

    Example:
        >>> import torch
        >>> module = torch.nn.Linear(3, 2)
        >>> params = from_torch(module, torch.zeros(1, 3)).init(jax.random.key(0))
        >>> result = module.load_state_dict(to_torch(params, module))
        >>> module.weight.shape
        torch.Size([2, 3])
    """
    torch = _torch()
    if not isinstance(module, torch.nn.Module):
        raise ModelError(f"to_torch takes the nn.Module that the state dict is for, not {type(module).__name__}")
    tied = _tied_names(module)
    flat = {name: np.asarray(leaf) for name, leaf in flatten(params).items()}
    found = {}
    for name, tensor in module.state_dict().items():
        first = tied.get(name, name)
        if first in flat:
            array = flat[first]
            if array.shape != tuple(tensor.shape):
                raise ModelError(f"parameter '{name}' has shape {array.shape}, in the module {tuple(tensor.shape)}")
            found[name] = torch.as_tensor(np.array(array, np.float32)).to(tensor.dtype)
        elif tensor.is_floating_point():
            raise ModelError(f"parameter '{first}' is missing; model.init(key) shows what this module needs")
        else:
            found[name] = tensor.detach().clone()
    for name in flat.keys() - found.keys():
        raise ModelError(f"parameter '{name}' is unknown to this {type(module).__name__}")
    return found


def is_torch_module(value: Any) -> bool:
    """Whether a value is a PyTorch module; without importing PyTorch, since who has one has imported it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def inputs_of(example: Any) -> Any:
    """An example input as arrays: tensors become NumPy arrays, in tuples and dicts too."""
    if isinstance(example, Mapping):
        return {name: inputs_of(part) for name, part in example.items()}
    if isinstance(example, tuple):
        return tuple(inputs_of(part) for part in example)
    if isinstance(example, jax.ShapeDtypeStruct):
        return example
    return _to_numpy(example) if hasattr(example, "detach") else np.asarray(example)


class _Network:
    """A private copy of a module that runs on JAX arrays, and what of its state dict is what."""

    def __init__(self, module: Any, name: str, output: Callable[[Any], Any] | None, options: Mapping[str, Any]):
        torch = _torch()
        self.name, self.output, self.options = name, output, dict(options)
        self.tied = _tied_names(module)
        saved = {key for key in module.state_dict() if key not in self.tied}
        floating = {key for key, tensor in module.state_dict().items() if tensor.is_floating_point()}
        own = {key for key, _ in module.named_parameters()}
        self.parameters = frozenset(saved & floating & own)
        self.moving = sorted(saved & floating)  # parameters and statistics
        if not self.parameters:
            raise ModelError(f"{name} has no floating-point parameters")
        for key, tensor in module.state_dict().items():
            if tensor.is_meta:
                raise ModelError(f"{name}: '{key}' has no values (it is on the meta device); load its weights first")
        try:
            self.module = copy.deepcopy(module).cpu()
        except Exception as error:
            raise ModelError(f"{name} cannot be copied: {first_line(error)}") from error
        parts = list(self.module.modules())
        self.evaluating = [False] * len(parts)
        self.training = [part.training for part in parts] if self.module.training else [True] * len(parts)
        switches = (torch.nn.modules.dropout._DropoutNd, torch.nn.modules.batchnorm._NormBase)
        self.trains_apart = any(isinstance(part, switches) or _drops(part) for part in parts) or _own_training(parts)
        self.constants = _constants(self.module, self.moving)
        self.slots = _slots(self.module)
        self.places: list[str] = []
        for place, part in self.module.named_modules():
            part.register_forward_pre_hook(functools.partial(self._enter, place))
            part.register_forward_hook(self._leave)

    def values(self, module: Any) -> dict[str, Any]:
        """Parameters and statistics of a module of this architecture, as arrays."""
        state = module.state_dict()
        missing = [key for key in self.moving if key not in state]
        if missing:
            raise ModelError(f"{self.name} was made without '{missing[0]}' this time")
        return {key: jnp.asarray(_to_numpy(state[key])) for key in self.moving}

    def evaluate(self, tree: Mapping[str, Any], x: Any) -> Any:
        return self._call(tree, x, self.evaluating, jax.random.key(0))[0]

    def train(self, tree: Mapping[str, Any], x: Any, key: Any) -> tuple[Any, Any]:
        outputs, after = self._call(tree, x, self.training, key)
        self._check_collected(tree, after)
        return outputs, after

    def _call(self, tree: Mapping[str, Any], x: Any, modes: list[bool], key: Any) -> tuple[Any, dict[str, Any]]:
        torch, environment = _torch(), _environment()
        for part, mode in zip(self.module.modules(), modes, strict=True):
            part.training = mode
        self.places.clear()
        tensors = environment.j2t_iso({**self.constants, **{key: jnp.asarray(value) for key, value in tree.items()}})
        args, kwargs = self._arguments(environment, x)
        # Every slot once: of a part with two names PyTorch's own tying would put a tensor of this call back.
        held = {slot: tensors[self.tied.get(slot, slot)] for slot in self.slots}
        try:
            with _quiet(), environment.override_property(prng=key), environment:
                made = torch.func.functional_call(self.module, held, args, kwargs, tie_weights=False)
                outputs = self._chosen(made)
        except BayesinError:
            raise
        except Exception as error:
            raise ModelError(self._explain(error, x)) from error
        after = {key: _jax_of(tensors[key]) for key in self.moving}
        return _jax_of(outputs), after

    def _arguments(self, environment: Any, x: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if isinstance(x, Mapping):
            return (), {**self.options, **{key: environment.j2t_iso(jnp.asarray(part)) for key, part in x.items()}}
        parts = x if isinstance(x, tuple) else (x,)
        return tuple(environment.j2t_iso(jnp.asarray(part)) for part in parts), self.options

    def _chosen(self, made: Any) -> Any:
        torch = _torch()
        if self.output is not None:
            made = self.output(made)
        elif isinstance(made, Mapping) and "logits" in made:
            made = made["logits"]
        else:
            made = getattr(made, "logits", made)
        if not isinstance(made, torch.Tensor):
            raise ModelError(
                f"{self.name} returns {type(made).__name__}, not one tensor; choose: output=lambda out: out[0], say"
            )
        return made

    def _check_collected(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Raises where a norm in training mode has not moved its running statistics."""
        for place, part in self.module.named_modules():
            key = f"{place}.running_mean" if place else "running_mean"
            if part.training and key in after and key in self.moving and after[key] is before[key]:
                raise ModelError(
                    f"{self.name}: '{key}' of {type(part).__name__} is not collected in training; hold it as it is "
                    "with models.frozen(model), or give the module in training mode with this part in evaluation mode"
                )

    def _explain(self, error: Exception, x: Any) -> str:
        where = f"'{self.places[-1]}'" if self.places and self.places[-1] else "its forward"
        if type(error).__name__ == "OperatorNotFound":
            return f"{self.name} cannot be traced: torchax does not know an operator in {where}: {first_line(error)}"
        if isinstance(error, jax.errors.ConcretizationTypeError | jax.errors.NonConcreteBooleanIndexError):
            return f"{self.name} cannot be traced: in {where} a shape or a branch depends on the data"
        if isinstance(error, jax.errors.TracerArrayConversionError):
            return f"{self.name} cannot be traced: in {where} a tensor is taken to NumPy; compute with torch alone"
        shapes = ", ".join(str(tuple(np.shape(leaf))) for leaf in jax.tree.leaves(x))
        said = f"{type(error).__name__}: {first_line(error)}"
        return f"{self.name} failed in {where}, on an input of shape {shapes}: {said}"

    def _enter(self, place: str, part: Any, args: Any) -> None:
        self.places.append(place)

    def _leave(self, part: Any, args: Any, output: Any) -> None:
        self.places.pop()


def _torch() -> Any:
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ModelError(INSTALL) from None
    return torch


@functools.cache
def _environment() -> Any:
    """torchax's operators, with batch normalisation that collects its statistics, and `linear` by keywords."""
    torch = _torch()
    with _quiet(), _absent_overloads(torch):
        try:
            from torchax import tensor  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise ModelError(INSTALL) from None
        environment = tensor.Environment()
    environment.override_op_definition(torch.nn.functional.batch_norm, _batch_norm)
    environment.override_op_definition(torch.nn.functional.linear, _linear)
    return environment


@contextmanager
def _absent_overloads(torch: Any) -> Iterator[None]:
    """Lets torchax list overloads that this PyTorch does not have: nothing will ever ask for them."""
    packet = torch._ops.OpOverloadPacket
    original = packet.__getattr__

    def lenient(self: Any, key: str) -> Any:
        try:
            return original(self, key)
        except AttributeError:
            if key.startswith("__"):
                raise
            return object()

    packet.__getattr__ = lenient
    try:
        yield
    finally:
        packet.__getattr__ = original


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the remarks that 64-bit numbers become 32-bit ones, as everywhere in JAX."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*dtype (int64|float64|uint64).*")
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", category=FutureWarning)
        yield


def _batch_norm(
    x: Any,
    mean: Any,
    var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """`torch.nn.functional.batch_norm`: batch statistics in training, and the running ones moved in place.

    The running variance is an average of unbiased variances, the normalisation uses the biased one.
    """
    values, environment = _jax_of(x), x._env
    wide = values.astype(jnp.promote_types(values.dtype, jnp.float32))
    axes, shape = (0, *range(2, wide.ndim)), (1, -1, *(1,) * (wide.ndim - 2))
    if training:
        if wide.size == wide.shape[1]:
            raise ValueError("batch statistics of one value a channel; train on more examples at a time")
        centre, spread = wide.mean(axes), wide.var(axes)
        if mean is not None:
            count = wide.size // wide.shape[1]
            unbiased = spread * (count / (count - 1))
            mean._elem = _moved(_jax_of(mean), centre, momentum)
            var._elem = _moved(_jax_of(var), unbiased, momentum)
    else:
        centre, spread = (_jax_of(value).astype(wide.dtype) for value in (mean, var))
    normal = (wide - centre.reshape(shape)) * jax.lax.rsqrt(spread.reshape(shape) + jnp.asarray(eps, wide.dtype))
    if weight is not None:
        normal = normal * _jax_of(weight).astype(wide.dtype).reshape(shape)
    if bias is not None:
        normal = normal + _jax_of(bias).astype(wide.dtype).reshape(shape)
    return environment.j2t_iso(normal.astype(values.dtype))


def _linear(input: Any, weight: Any, bias: Any = None) -> Any:
    """`torch.nn.functional.linear` with PyTorch's names of its arguments, by which some modules call it."""
    values = jnp.einsum("...i,oi->...o", _jax_of(input), _jax_of(weight))
    if bias is not None:
        values = values + jnp.broadcast_to(_jax_of(bias), values.shape)
    return input._env.j2t_iso(values)


def _moved(running: jax.Array, batch: jax.Array, momentum: float) -> jax.Array:
    batch = jax.lax.stop_gradient(batch).astype(running.dtype)
    return running * np.asarray(1 - momentum, running.dtype) + batch * np.asarray(momentum, running.dtype)


def _constants(module: Any, moving: list[str]) -> dict[str, Any]:
    """Buffers that no one moves, as arrays; tensors kept as plain attributes go to torchax where they stand."""
    environment, kept = _environment(), set(moving)
    torch = _torch()
    for part in module.modules():
        for attribute, value in vars(part).items():
            if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
                setattr(part, attribute, environment.j2t_iso(jnp.asarray(_to_numpy(value))))
    return {key: jnp.asarray(_to_numpy(value)) for key, value in module.named_buffers() if key not in kept}


def _tied_names(module: Any) -> dict[str, str]:
    """The names of tied parameters and buffers after the first, with the first."""
    first: dict[int, str] = {}
    tied = {}
    for tensors in (module.named_parameters, module.named_buffers):
        for name, tensor in tensors(remove_duplicate=False):
            if first.setdefault(id(tensor), name) != name:
                tied[name] = first[id(tensor)]
    return tied


def _slots(module: Any) -> list[str]:
    """One name for every place that holds a parameter or a buffer, also where a part has several names."""
    return [
        f"{place}.{name}" if place else name
        for place, part in module.named_modules()
        for name, tensor in (part._parameters | part._buffers).items()
        if tensor is not None
    ]


def _own_training(parts: list[Any]) -> bool:
    """Whether a module's own forward asks for the mode; PyTorch's containers and layers do not."""
    for part in parts:
        code = getattr(type(part).forward, "__code__", None)
        if not type(part).__module__.startswith("torch.") and code is not None and "training" in code.co_names:
            return True
    return False


def _drops(part: Any) -> bool:
    """Whether a part has dropout as a number of its own, as recurrent layers and attention do."""
    share = getattr(part, "dropout", 0)
    return isinstance(share, int | float) and share > 0


def _make(source: Callable[[], Any], seed: int) -> Any:
    """A module made with this seed; PyTorch's own generator is left as it was."""
    torch = _torch()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = source()
    if not isinstance(made, torch.nn.Module):
        raise ModelError(f"{name_of(source)} should return an nn.Module, not {type(made).__name__}")
    return made


def _to_numpy(tensor: Any) -> np.ndarray:
    """A tensor's values; bfloat16, which NumPy does not know, goes through its bits."""
    torch = _torch()
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(jnp.bfloat16)
    return tensor.numpy()


def _jax_of(tensor: Any) -> jax.Array:
    return tensor.jax()
