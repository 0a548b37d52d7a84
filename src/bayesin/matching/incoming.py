"""What enters the layers of a network: second moments of the inputs of every contraction with a parameter.

A contraction (`dot_general`, `conv_general_dilated`) of a value h with a kernel W changes, when W changes by Δ, by

    E|Δ h|² = Σ_outputs δᵀ C δ,    C = E[h hᵀ] over examples and places,

with δ the numbers of Δ that belong to one output and, of a convolution, h the patch under the kernel. C is measured
in any `apply`: its jaxpr is followed with every parameter as the positions of its numbers, through what only moves
numbers about, so that the kernel of a contraction is known number by number. As with activations, what the network
computes and the products of it are programs of their own, and data are streamed.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import JaxprEqn
from jaxtyping import Array, Float

from ..inputs import Inputs, count_of, cut, shapes_of, take
from ..jaxprs import Apply, evaluate, follow, hashable
from ..trees import Flat, Tree, flatten
from .activation_similarity import CHUNK_BYTES

MOVING = ("reshape", "transpose", "squeeze", "copy", "expand_dims", "slice")  # what leaves every number what it is


class Contraction(NamedTuple):
    """A kernel and how its value's numbers meet it."""

    path: str  # of the parameter
    places: np.ndarray  # (inputs, outputs): where each number of the kernel stands in the parameter
    value: int  # which operand, in the order of evaluation
    window: "Window | None"  # of a convolution
    contracted: tuple[int, ...]  # axes of the value, where it is no convolution


class Window(NamedTuple):
    """How a convolution cuts its input into patches."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    lhs_dilation: tuple[int, ...]
    rhs_dilation: tuple[int, ...]
    dimensions: Any


class Moments(NamedTuple):
    """E[h hᵀ] at one contraction."""

    contraction: Contraction
    matrix: Float[np.ndarray, "inputs inputs"]


def incoming_moments(apply: Apply, draws: Sequence[Tree], x: Inputs) -> list[Moments]:
    """Returns the second moments of what enters every contraction with a parameter, over inputs, places and draws."""
    apply = hashable(apply)
    found: list[Contraction] = []
    one = jax.eval_shape(lambda params, x: _operands(apply, params, x, found), draws[0], shapes_of(x, 1))
    size = sum(4 * value.size for value in one)
    parts = cut(x, np.zeros(count_of(x), np.int32), max(1, CHUNK_BYTES // max(size, 1)))
    run, sums, rows = jax.jit(lambda params, x: _operands(apply, params, x, [])), None, [0.0] * len(found)
    for params in draws:
        for at in range(len(parts.weight)):
            values, weight = run(params, take(parts.x, at)), parts.weight[at]
            more = [_products(value, weight, c.window, c.contracted) for value, c in zip(values, found, strict=True)]
            wide = [np.asarray(product, np.float64) for product, _ in more]
            rows = [total + float(count) for total, (_, count) in zip(rows, more, strict=True)]
            sums = wide if sums is None else [a + b for a, b in zip(sums, wide, strict=True)]
    return [Moments(c, matrix / count) for c, matrix, count in zip(found, sums or (), rows, strict=True)]


def weighted(moments: Sequence[Moments], flat: Flat, *, std: bool = False) -> dict[str, np.ndarray]:
    """Returns C W for every parameter W, of stds diag(C) S; what enters no contraction counts as it is."""
    total: dict[str, np.ndarray] = {}
    for (path, places, *_), matrix in moments:
        numbers = np.asarray(flat[path], np.float64).reshape(-1)
        into = total.setdefault(path, np.zeros(numbers.size))
        into[places] += np.diag(matrix)[:, None] * numbers[places] if std else matrix @ numbers[places]
    return {
        path: total[path].reshape(np.shape(leaf)) if path in total else np.asarray(leaf, np.float64)
        for path, leaf in flat.items()
    }


def _operands(apply: Apply, params: Tree, x: Any, found: list[Contraction]) -> list[Array]:
    """The values that meet a parameter; fills `found` with how."""
    operands: list[Array] = []

    def step(equation: JaxprEqn, inputs: list[_Carried]) -> list[_Carried]:
        name, outputs = equation.primitive.name, evaluate(equation, [carried.value for carried in inputs])
        if name == "convert_element_type":
            return [inputs[0]._replace(value=outputs[0])]
        if name in MOVING and inputs[0].places is not None:
            with jax.ensure_compile_time_eval():
                (moved,) = evaluate(equation, [jnp.asarray(inputs[0].places)])
            return [_Carried(outputs[0], inputs[0].path, np.asarray(moved), False)]
        contraction = _contraction(name, equation.params, inputs, len(operands))
        if contraction is not None:
            found.append(contraction[0])
            operands.append(contraction[1])
        return [_Carried(value, None, None, any(carried.is_data for carried in inputs)) for value in outputs]

    paths = list(flatten(params))
    leaves = [
        _Carried(leaf, path, np.arange(np.size(leaf), dtype=np.int32).reshape(np.shape(leaf)), False)
        for path, leaf in zip(paths, jax.tree.leaves(params), strict=True)
    ]
    data = [_Carried(leaf, None, None, True) for leaf in jax.tree.leaves(x)]
    follow(apply, params, x, [*leaves, *data], step, lambda value: _Carried(value, None, None, False))
    return operands


class _Carried(NamedTuple):
    """A value, and of one that is a parameter in another shape the positions of its numbers."""

    value: Any
    path: str | None
    places: np.ndarray | None
    is_data: bool


def _contraction(
    name: str, given: dict[str, Any], inputs: list[_Carried], number: int
) -> tuple[Contraction, Array] | None:
    if name not in ("dot_general", "conv_general_dilated"):
        return None
    sides = [(inputs[0], inputs[1]), (inputs[1], inputs[0])] if name == "dot_general" else [tuple(inputs)]
    for turned, (data, kernel) in enumerate(sides):
        if not data.is_data or kernel.places is None or kernel.path is None:
            continue
        if name == "conv_general_dilated":
            if given["feature_group_count"] != 1 or given["batch_group_count"] != 1:
                return None
            dimensions = given["dimension_numbers"]
            out, into, *space = dimensions.rhs_spec
            shape = tuple(kernel.places.shape[axis] for axis in space)
            places = kernel.places.transpose(into, *space, out).reshape(-1, kernel.places.shape[out])
            strides, padding, before, after = (
                tuple(given[what]) for what in ("window_strides", "padding", "lhs_dilation", "rhs_dilation")
            )
            window = Window(shape, strides, padding, before, after, dimensions)
            return Contraction(kernel.path, places, number, window, ()), data.value
        contracted, batched = given["dimension_numbers"]
        if any(batched):
            return None
        own, theirs = (contracted[turned], contracted[1 - turned])
        places = np.moveaxis(kernel.places, theirs, range(len(theirs)))
        size = int(np.prod(places.shape[: len(theirs)], dtype=np.int64))
        return Contraction(kernel.path, places.reshape(size, -1), number, None, tuple(own)), data.value
    return None


@partial(jax.jit, static_argnums=(2, 3))
def _products(value: Array, weight: Array, window: Window | None, contracted: tuple[int, ...]) -> tuple[Array, Array]:
    """Σ h hᵀ over examples and places, and over how many."""
    value = value.astype(jnp.float32)
    if window is None:
        rows = jnp.moveaxis(value, contracted, range(-len(contracted), 0))
        rows = rows.reshape(*rows.shape[: rows.ndim - len(contracted)], -1)
    else:
        options = dict(zip(("lhs_dilation", "rhs_dilation"), window[3:5], strict=True))
        rows = jax.lax.conv_general_dilated_patches(
            value, window.shape, window.strides, window.padding, dimension_numbers=window.dimensions, **options
        )
        rows = jnp.moveaxis(rows, window.dimensions.out_spec[:2], (0, rows.ndim - 1))
    rows = rows.reshape(len(weight), -1, rows.shape[-1])
    product = jnp.einsum("epi,epj,e->ij", rows, rows, weight, precision="highest")
    return product, jnp.sum(weight) * rows.shape[1]
