"""How much to compute at once, and how long it will take.

One draw of the weights passes over the data in chunks, sized so that its activations fit a budget. On a
CPU one draw at a time is fastest: matrix products of a thousand rows are efficient, and a batch of draws
turns convolutions into slow grouped ones. An accelerator with few examples gets several draws at once, unless the
network convolves.
"""

import time
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ..inputs import Inputs, count_of, shapes_of, take
from ..jaxprs import Apply, activation_bytes, has_convolution, jitted
from ..trees import Tree

ACTIVATION_BUDGET = {"cpu": 256 << 20, "other": 2 << 30}  # bytes
ALIVE = 4  # copies of the largest activation that are alive at once: input, output, workspace, and one to spare
ENOUGH_ROWS = 4096  # rows that keep an accelerator busy
WORTH_MEASURING = 10.0  # seconds; below this the rough estimate is good enough
ROUGH_RATE = {"cpu": 50e9, "other": 20e12}  # floating-point operations a second; a slow machine of each kind


class ChunkSizes(NamedTuple):
    """Examples and draws that are computed at once."""

    examples: int
    draws: int


def choose_sizes(apply: Apply, params: Tree, x: Inputs, samples: int) -> ChunkSizes:
    """Returns chunk sizes chosen from the activations of the network and the kind of device."""
    kind = _kind()
    count = count_of(x)
    per_example = ALIVE * activation_bytes(apply, params, x)
    most = max(1, ACTIVATION_BUDGET[kind] // max(1, per_example))
    chunks = -(-count // min(count, most))
    examples = -(-count // chunks)  # chunks of nearly equal size: the last one is padded by less than `chunks` rows
    draws = 1 if kind == "cpu" else max(1, min(samples, ENOUGH_ROWS // examples))
    if draws > 1 and has_convolution(apply, params, shapes_of(x, 2)):
        draws = 1
    return ChunkSizes(examples, draws)


def estimate_seconds(apply: Apply, params: Tree, x: Inputs, *, samples: int, taus: int, exact: bool = False) -> float:
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
        >>> import numpy as np
        >>> params, x = {"w": np.ones((4, 2), np.float32)}, np.ones((10, 4), np.float32)
        >>> estimate_seconds(lambda p, x: x @ p["w"], params, x, samples=8, taus=3) < 1
        True
    """
    passes = count_of(x) * samples * taus
    function = jitted(apply)
    size = min(count_of(x), choose_sizes(apply, params, x, samples).examples)
    cost = function.lower(params, shapes_of(x, size)).cost_analysis() or {}
    rough = float(cost.get("flops", 0.0)) / size * passes / ROUGH_RATE[_kind()]  # pyright: ignore
    if rough < WORTH_MEASURING and not exact:
        return rough
    probe = jax.tree.map(jnp.asarray, take(x, slice(size)))
    jax.block_until_ready(function(params, probe))
    start = time.perf_counter()
    jax.block_until_ready(function(params, probe))
    return (time.perf_counter() - start) / size * passes


def _kind() -> str:
    return "cpu" if jax.default_backend() == "cpu" else "other"
