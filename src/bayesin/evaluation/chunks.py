"""How much to compute at once, and how long it will take.

One draw of the weights passes over the data in chunks, sized so that its activations fit a budget. On a
CPU one draw at a time is fastest: matrix products of a thousand rows are efficient, and a batch of draws
turns convolutions into slow grouped ones. An accelerator with few examples gets several draws at once, unless the
network convolves.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..convolutions import has_convolution
from ..trees import Tree

ACTIVATION_BUDGET = {"cpu": 256 << 20, "other": 2 << 30}  # bytes
ALIVE = 4  # copies of the largest activation that are alive at once: input, output, workspace, and one to spare
ENOUGH_ROWS = 4096  # rows that keep an accelerator busy
WORTH_MEASURING = 10.0  # seconds; below this the rough estimate is good enough
ROUGH_RATE = {"cpu": 50e9, "other": 20e12}  # floating-point operations a second; a slow machine of each kind


class Plan(NamedTuple):
    """Examples and draws that are computed at once."""

    examples: int
    draws: int


def plan(apply: Callable[..., Any], params: Tree, x: Any, samples: int) -> Plan:
    """Chooses chunk sizes from the activations of the network and the kind of device."""
    kind = _kind()
    count = len(x)
    per_example = ALIVE * activation_bytes(apply, params, x)
    most = max(1, ACTIVATION_BUDGET[kind] // max(1, per_example))
    chunks = -(-count // min(count, most))
    examples = -(-count // chunks)  # chunks of nearly equal size: the last one is padded by less than `chunks` rows
    draws = 1 if kind == "cpu" else max(1, min(samples, ENOUGH_ROWS // examples))
    if draws > 1 and has_convolution(apply, params, x[:2]):
        draws = 1
    return Plan(examples, draws)


def activation_bytes(apply: Callable[..., Any], params: Tree, x: Any) -> int:
    """Bytes of the largest intermediate array of one example, its input included."""
    shape, dtype = tuple(x.shape[1:]), jnp.asarray(x[:1]).dtype
    sizes = [
        [_bytes(variable.aval) for variable in _variables(jax.make_jaxpr(apply)(params, batch).jaxpr)]
        for batch in (jax.ShapeDtypeStruct((1, *shape), dtype), jax.ShapeDtypeStruct((3, *shape), dtype))
    ]
    own = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if len(sizes[0]) != len(sizes[1]):  # the program depends on the batch size
        return max([own, *sizes[1]])
    return max([own, *((three - one) // 2 for one, three in zip(*sizes, strict=True))])


def estimate_seconds(
    apply: Callable[..., Any], params: Tree, x: Any, *, samples: int, taus: int, exact: bool = False
) -> float:
    """Returns how long a barrier over this data will take here, in seconds, compilation not counted.

    A rough count of operations where that is short; otherwise one chunk of data is run and timed, so that
    the answer knows this machine.

    Args:
        apply: the network.
        params: parameters of the right shapes.
        x: the inputs, batch first.
        samples: draws of the weights (1 for points).
        taus: posteriors along the path.
        exact: time a chunk in any case.

    Example:
        >>> params, x = {"w": np.ones((4, 2), np.float32)}, np.ones((10, 4), np.float32)
        >>> estimate_seconds(lambda p, x: x @ p["w"], params, x, samples=8, taus=3) < 1
        True
    """
    passes = len(x) * samples * taus
    function = jax.jit(apply)
    probe = x[: min(len(x), plan(apply, params, x, samples).examples)]
    lowered = function.lower(params, jax.ShapeDtypeStruct(probe.shape, jnp.asarray(probe[:1]).dtype))
    cost = lowered.cost_analysis() or {}
    rough = float(cost.get("flops", 0.0)) / len(probe) * passes / ROUGH_RATE[_kind()]  # pyright: ignore
    if rough < WORTH_MEASURING and not exact:
        return rough
    probe = jnp.asarray(probe)
    jax.block_until_ready(function(params, probe))
    start = time.perf_counter()
    jax.block_until_ready(function(params, probe))
    return (time.perf_counter() - start) / len(probe) * passes


def in_chunks(array: Any, size: int) -> jax.Array:
    """An array as (chunks, size, ...); the last chunk is filled up with rows from the start."""
    array = jnp.asarray(array)
    chunks = -(-len(array) // size)
    missing = chunks * size - len(array)
    if missing:
        array = jnp.concatenate([array, array[np.arange(missing) % len(array)]])
    return array.reshape(chunks, size, *array.shape[1:])


def _kind() -> str:
    return "cpu" if jax.default_backend() == "cpu" else "other"


def _variables(jaxpr: Any) -> Iterator[Any]:
    for equation in jaxpr.eqns:
        yield from equation.outvars
        for value in equation.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    yield from _variables(inner)


def _bytes(aval: Any) -> int:
    if not hasattr(aval, "shape") or not hasattr(aval, "dtype"):
        return 0
    return int(np.prod(aval.shape, dtype=np.int64)) * getattr(aval.dtype, "itemsize", 4)
