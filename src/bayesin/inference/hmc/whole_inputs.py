"""Inputs that are whole numbers, such as pixels: their products take fewer passes on tensor cores.

An image of bytes holds `scale · k + offset` with whole numbers k from 0 to 256, which bfloat16 has exactly. So of
a product of such inputs with weights only the weights are rounded: split into bfloat16 parts, W = W₁ + W₂ + …,

    x W = scale · (k W₁ + k W₂ + …) + offset · 1ᵀW,        ∂/∂W = scale · (kᵀδ₁ + …) + offset · 1ᵀδ,

every product exact and added up in float32. Two parts have the 16 bits for which a product of two split matrices
takes three passes, three the 24 bits of six; and the inputs are stored once, in two bytes, and never split again.
The slopes δ of the way back have a part fewer. A weight's rounding is the same for all examples and moves every
prediction one way, but those of slopes differ from example to example and average out in the sum: on MNIST one part
leaves the gradient 5·10⁻⁴ off, as three passes of split matrices do, where one part of weights leaves it 2·10⁻² off.

The network need not know: its program is followed from the inputs through reshapes to the products that they
stand in. Where they meet anything else they are made float32 again.
"""

from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import JaxprEqn

from ...inputs import Chunks
from ...jaxprs import Apply, evaluate, interpret, output_shapes, trace
from ...trees import Tree

# Of weights and of slopes, for the bits that the precision has.
PARTS = {"bf16x3": (2, 1), "bf16x6": (3, 2), "bf16x9": (3, 3)}
LARGEST = 256  # all whole numbers up to it are exact in bfloat16
LOOKED_AT = 1_000  # examples in which the spacing is looked for; all are checked


class WholeInputs(NamedTuple):
    """Inputs `scale · counts + offset`; leading axes as in `Chunks.x`, one scale and offset for each part."""

    counts: Any  # bfloat16
    scale: Any
    offset: Any

    def floats(self) -> jax.Array:
        """The inputs as they were, up to their last bits."""
        return self.counts.astype(jnp.float32) * self.scale + self.offset


def whole_chunks(chunks: Chunks, apply: Apply, params: Tree, precision: str) -> Chunks | None:
    """Returns the chunks with `WholeInputs`, or None where gradients have nothing to gain from them.

    That is: at another precision, for inputs of another kind, for networks that make no product of them, and on a
    CPU, which has no such passes.

    Args:
        chunks: the data.
        apply: the network.
        params: its parameters, or their shapes.
        precision: of the gradients, by our name for it.
    """
    if precision not in PARTS or not has_passes() or not isinstance(chunks.x, jax.Array | np.ndarray):
        return None
    found = find_whole(chunks.x)
    if found is None or not _makes_products(apply, params, found, precision):
        return None
    return chunks._replace(x=found)


def has_passes() -> bool:
    """Whether products of bfloat16 numbers are faster here than those of float32."""
    return jax.default_backend() != "cpu"


def find_whole(x: Any) -> WholeInputs | None:
    """Returns parts `(parts, length, ...)` of float32 inputs as whole numbers, if all of them are, to rounding.

    Example:
        >>> pixels = np.arange(256, dtype=np.float32).reshape(1, 16, 16)
        >>> find_whole(pixels / 255 - 0.5).counts.astype(int).max()
        Array(255, dtype=int32)
        >>> find_whole(np.sqrt(pixels)) is None
        True
    """
    x = np.asarray(x)
    if x.dtype != np.float32 or x.ndim < 3 or not np.isfinite(x).all():
        return None
    levels = np.unique(x.reshape(-1, *x.shape[2:])[:LOOKED_AT]).astype(np.float64)
    # Cheap and almost always decisive: inputs that are no pixels have about as many values as there are numbers.
    if not 2 <= len(levels) <= LARGEST + 1:
        return None
    low, high = float(x.min()), float(x.max())
    # Over the whole range rather than from the smallest gap, whose relative error is the largest.
    steps = round((levels[-1] - levels[0]) / np.diff(levels).min())
    scale = (levels[-1] - levels[0]) / steps
    counts = np.round((x - np.float32(low)) * np.float32(1 / scale))
    error = max(float(np.abs(counts[part] * scale + low - x[part]).max(initial=0.0)) for part in range(len(counts)))
    if counts.max() > LARGEST or error > 4 * np.finfo(np.float32).eps * max(abs(low), abs(high)):
        return None
    numbers = [jnp.full(len(x), number, jnp.float32) for number in (scale, low)]
    return WholeInputs(jnp.asarray(counts, jnp.bfloat16), *numbers)


def apply_to_whole(apply: Apply, params: Tree, x: WholeInputs, precision: str, met: list[str] | None = None) -> Any:
    """Returns `apply(params, x)`, differentiable in the parameters; notes in `met` each product of the inputs."""
    parts = PARTS[precision]

    def step(place: int, equation: JaxprEqn, inputs: list[Any]) -> list[Any]:
        name, told = equation.primitive.name, [isinstance(one, WholeInputs) for one in inputs]
        if name in ("jit", "pjit", "closed_call"):  # not custom derivatives: following would lose them
            inner = equation.params["jaxpr" if "jaxpr" in equation.params else "call_jaxpr"]
            return interpret(inner.jaxpr, inner.consts, inputs, step)
        if any(told) and (kept := _reshaped(equation, inputs[0])) is not None:
            return [kept]
        if name == "dot_general" and sum(told) == 1 and _is_product(equation):
            if met is not None:
                met.append(name)
            return [_product(equation, inputs, parts)]
        return evaluate(equation, [one.floats() if isinstance(one, WholeInputs) else one for one in inputs])

    like = jax.ShapeDtypeStruct(x.counts.shape, jnp.float32)
    closed = trace(apply, params, like)
    outputs = interpret(closed.jaxpr, closed.consts, [*jax.tree.leaves(params), x], step)
    shape = output_shapes(apply, params, like)
    return jax.tree.unflatten(jax.tree.structure(shape), outputs)


def _makes_products(apply: Apply, params: Tree, x: WholeInputs, precision: str) -> bool:
    """Whether a product of the inputs stands in the network, seen by following it without computing anything."""
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), x)
    met: list[str] = []
    jax.eval_shape(lambda params, x: apply_to_whole(apply, params, x, precision, met), params, one)
    return bool(met)


def _reshaped(equation: JaxprEqn, x: Any) -> WholeInputs | None:
    """The inputs in another shape, where an equation does nothing else."""
    name, out = equation.primitive.name, cast(Any, equation.outvars[0].aval)
    if name in ("reshape", "squeeze", "expand_dims"):
        return x._replace(counts=x.counts.reshape(out.shape))
    same = name in ("copy", "stop_gradient") or (name == "convert_element_type" and out.dtype == jnp.float32)
    return x if same else None


def _is_product(equation: JaxprEqn) -> bool:
    """Of float32 numbers, without batches."""
    _, (first, second) = equation.params["dimension_numbers"]
    kinds = {cast(Any, variable.aval).dtype for variable in (*equation.invars, *equation.outvars)}
    return not first and not second and kinds == {np.dtype(np.float32)}


def _product(equation: JaxprEqn, factors: list[Any], parts: tuple[int, int]) -> jax.Array:
    (first, second), _ = equation.params["dimension_numbers"]
    if isinstance(factors[0], WholeInputs):
        return cast(jax.Array, _times(*factors[0], factors[1], (tuple(first), tuple(second)), parts))
    swapped = cast(jax.Array, _times(*factors[1], factors[0], (tuple(second), tuple(first)), parts))
    own = factors[1].counts.ndim - len(second)  # axes of the inputs come first, and belong behind
    return jnp.moveaxis(swapped, range(own), range(swapped.ndim - own, swapped.ndim))


@partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def _times(counts: Any, scale: Any, offset: Any, weights: Any, axes: Any, parts: tuple[int, int]) -> jax.Array:
    """`(scale · counts + offset)` times the weights, summed along pairs of axes; their own axes come last."""
    exact = _summed(counts, weights, axes, parts[0])
    return scale * exact + _behind(offset * weights.sum(axes[1]), exact.ndim)


def _forward(
    counts: Any, scale: Any, offset: Any, weights: Any, axes: Any, parts: tuple[int, int]
) -> tuple[Any, Any]:
    return _times(counts, scale, offset, weights, axes, parts), (counts, scale, offset, weights)


def _backward(axes: Any, parts: tuple[int, int], kept: Any, slope: jax.Array) -> tuple[Any, ...]:
    counts, scale, offset, weights = kept
    own = [axis for axis in range(counts.ndim) if axis not in axes[0]]
    exact = _summed(counts, slope, (tuple(own), tuple(range(len(own)))), parts[1])
    total = slope.sum(range(len(own)))
    # its axes: the summed ones in the order of the inputs, then the weights' own
    gradient = scale * exact + _behind(offset * total, exact.ndim)
    paired = [second for _, second in sorted(zip(*axes, strict=True))]
    order = [*paired, *(axis for axis in range(weights.ndim) if axis not in paired)]
    return None, None, None, gradient.transpose(np.argsort(order))


_times.defvjp(_forward, _backward)


def _behind(values: jax.Array, axes: int) -> jax.Array:
    return values.reshape((1,) * (axes - values.ndim) + values.shape)


def _summed(counts: Any, values: jax.Array, axes: Any, parts: int) -> jax.Array:
    """Products of counts with the bfloat16 parts of values, in float32."""
    # a CPU cannot multiply all shapes of bfloat16; the same numbers in float32 have the same products
    kind = jnp.float32 if jax.default_backend() == "cpu" else jnp.bfloat16
    total: Any = 0.0
    for _ in range(parts):
        # not a cast there and back, which a compiler may leave out
        part = jax.lax.reduce_precision(values, exponent_bits=8, mantissa_bits=7)
        factors = counts.astype(kind), part.astype(kind)
        exact: dict[str, Any] = {"precision": jax.lax.Precision.DEFAULT, "preferred_element_type": jnp.float32}
        total, values = total + jax.lax.dot_general(*factors, (axes, ((), ())), **exact), values - part
    return total
