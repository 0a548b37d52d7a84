"""Tensors laid out for the products of a similarity, on the host and on an accelerator.

Tensors are grouped by how many units they touch. All of one kind become one array (rest, units, …), their features
one behind the other, each contiguous: one product then serves all of them, and a gather of units copies whole rows.
On an accelerator tensors are sent once and stay there; a visit sends permutations and brings back one
(units × units) matrix, in full float32: reduced-precision products would decide near-ties by their own rounding.
Tensors too many to stay there are sent again at every visit, in the precision that they have.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..symmetry import Layout, PermutationSpec
from .families import Structure, structure_of
from .problem import Problem, TensorPair

# Multiplications of a sweep from which an accelerator is used. Measured on an H200: its programs take some twenty
# seconds to compile, and at widths 512 and 1024 the host is faster even after that.
WORTH = 2e11


class TensorsByArity(NamedTuple):
    """The tensors of one unit, by how many units they touch."""

    fixed: list[TensorPair]  # this one alone
    coupled: dict[str, list[TensorPair]]  # this one and one of another family, by that other
    general: list[TensorPair]  # more, or one family on several axes


class Arity(NamedTuple):
    """The same by the numbers that the pairs have among the features."""

    fixed: tuple[int, ...]
    coupled: dict[str, tuple[int, ...]]
    general: tuple[int, ...]


def kinds_of(problem: Problem) -> dict[str, Arity]:
    """Returns which features of each unit that there is any evidence for are of what kind."""
    if problem.left_out is None:
        known = _arities(problem.structure, [pair.layout for pair in problem.features])
    else:
        known = arities_of(problem.spec, problem.left_out)
    if not problem.given:
        return dict(known)
    units = (unit for unit in problem.structure.units if unit in known or unit in problem.given)
    return {unit: known.get(unit, Arity((), {}, ())) for unit in units}


def group_tensors(problem: Problem) -> dict[str, TensorsByArity]:
    """Returns these features."""
    pair = problem.features.__getitem__
    tensors = {}
    for unit, (fixed, coupled, general) in kinds_of(problem).items():
        between = {other: [*map(pair, pairs)] for other, pairs in coupled.items()}
        tensors[unit] = TensorsByArity([*map(pair, fixed)], between, [*map(pair, general)])
    return tensors


@lru_cache(maxsize=16)
def arities_of(spec: PermutationSpec, left_out: frozenset[str]) -> Mapping[str, Arity]:
    """Returns, for each unit that some tensor has, which tensors of a spec without these paths are of what kind."""
    structure = structure_of(spec)
    return _arities(structure, [part.layout for part in structure.pieces if part.layout.path not in left_out])


def _arities(structure: Structure, layouts: Sequence[Layout]) -> dict[str, Arity]:
    units = structure.units
    present = {unit for layout in layouts for unit in layout.present}
    found: dict[str, tuple[list[int], dict[str, list[int]], list[int]]] = {
        unit: ([], {}, []) for unit in units if unit in present
    }
    for number, layout in enumerate(layouts):
        here = layout.present
        for unit in set(here):
            fixed, coupled, general = found[unit]
            if len(here) == 1:
                fixed.append(number)
            elif len(here) == 2 and len({units[name].family for name in here}) == 2:
                coupled.setdefault(here[1 - here.index(unit)], []).append(number)
            else:
                general.append(number)
    return {
        unit: Arity(tuple(fixed), {other: tuple(pairs) for other, pairs in coupled.items()}, tuple(general))
        for unit, (fixed, coupled, general) in found.items()
    }


def is_worth_a_device(problem: Problem, tensors: dict[str, TensorsByArity]) -> bool:
    """Whether JAX computes on an accelerator by default and a sweep, all products anew, is large enough for one."""
    multiplications = sum(
        problem.structure.units[unit].size
        * sum(array.size for pairs in kinds.coupled.values() for pair in pairs for array in pair.source)
        for unit, kinds in tensors.items()
    )
    return multiplications >= WORTH and jax.default_backend() != "cpu"


def stack(side: str, pairs: list[TensorPair], groups: tuple[str, ...], block: "Block") -> np.ndarray:
    """Returns all features of one side as one array, one behind the other on the axis of the rest.

    Its axes are (rest, places) for one unit and (places of the first, rest, places of the last) for two. Features are
    centred over the units, except where signs turn them.
    """
    seen = []
    for pair in pairs:
        for array in getattr(pair, side):
            merged, order, shape = _rest_between(pair.layout.groups, array.shape, groups)
            seen.append(array.reshape(merged).transpose(order).reshape(shape))
    *first, _, last = seen[0].shape
    out = block.array((*first, sum(array.shape[-2] for array in seen), last))
    np.concatenate(seen, -2, out=out, casting="same_kind")
    # The mean of each row of the rest over all units: one axis after the other is several times as fast as both.
    sums = np.add.reduce(np.add.reduce(out, 0) if first else out, -1, keepdims=True)
    if pairs[0].odd:
        at = 0
        kept = (pair.keeps_constants(number) for pair in pairs for number in range(len(pair.odd)))
        for array, is_kept in zip(seen, kept, strict=True):
            sums[at : at + array.shape[-2]] *= is_kept
            at += array.shape[-2]
    sums *= sums.dtype.type(1 / math.prod((*first, last)))
    out -= sums
    return out


@lru_cache(maxsize=4096)
def _rest_between(
    factors: tuple[str | None, ...], shape: tuple[int, ...], groups: tuple[str, ...]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """How an array becomes (first group, rest, last group), or (rest, group) for one: a shape in which axes of the
    rest that stand together are one, the order of these axes, and the shape in the end; a view where there is one."""
    *first, last = (factors.index(group) for group in groups)
    merged: list[int] = []
    place: dict[int, int] = {}
    rest: list[int] = []
    for axis, size in enumerate(shape):
        if axis == last or axis in first:
            place[axis] = len(merged)
            merged.append(size)
        elif rest and rest[-1] == len(merged) - 1:
            merged[-1] *= size
        else:
            rest.append(len(merged))
            merged.append(size)
    order = (*(place[axis] for axis in first), *rest, place[last])
    return tuple(merged), order, (*(shape[axis] for axis in first), -1, shape[last])


class Block:
    """Memory for many arrays, asked for at once: freed and asked for again, the system need not clear it anew."""

    def __init__(self, numbers: int, dtype: np.dtype):
        self._free = np.empty(numbers, dtype)

    def array(self, shape: tuple[int, ...]) -> np.ndarray:
        """The next part of it, with arbitrary contents."""
        size = math.prod(shape)
        part, self._free = self._free[:size], self._free[size:]
        return part.reshape(shape)


def rest_first(array: np.ndarray, block: Block) -> np.ndarray:
    """Returns an array (first, rest, last) as (rest, last, first).

    A large one goes in strips one cache line wide, which is three times as fast as numpy's own order.
    """
    out = block.array((*array.shape[1:], array.shape[0]))
    strip = 16 if array.shape[2] >= 128 else array.shape[0]
    for at in range(0, array.shape[0], strip):
        out[:, :, at : at + strip] = array[at : at + strip].transpose(1, 2, 0)
    return out


def add_on_device(
    total: Any, target: Any, source: Any, perms: tuple[np.ndarray | None, ...], place: int, is_free: bool
) -> Any:
    """Returns `total` plus the product of one tensor along one axis, the source moved along all others.

    Both are centred over that axis where that is free. The result stays on the accelerator, which takes the memory of
    `total` for it.
    """
    small = tuple(None if perm is None else perm.astype(np.int32) for perm in perms)
    return _with_product(total, target, source, small, place=place, is_free=is_free)


@partial(jax.jit, static_argnames=("place", "is_free"), donate_argnames="total")
def _with_product(total, target, source, perms, place, is_free):
    for axis, perm in enumerate(perms):
        if perm is not None:
            source = jnp.take(source, perm, axis=axis, mode="clip")
    left, right = (array.astype(total.dtype) for array in (target, source))
    if is_free:
        left, right = (array - array.mean(place, keepdims=True) for array in (left, right))
    rest = tuple(axis for axis in range(left.ndim) if axis != place)
    return total + jax.lax.dot_general(left, right, ((rest, rest), ((), ())), precision=jax.lax.Precision.HIGHEST)


def device_products(
    total: Any, targets: list[Any], sources: list[Any], perms: list[np.ndarray], last: tuple[bool, ...]
) -> np.ndarray:
    """Returns `total` plus the products of targets and moved sources, computed on the accelerator.

    Where `last` says so, both are (other units, rest, units); else they are (units, rest, other units) and
    (rest, other units, units).
    """
    small = [perm.astype(np.int32) for perm in perms]
    return np.asarray(_sum_of_products(total, targets, sources, small, last=last))


@partial(jax.jit, static_argnames="last")
def _sum_of_products(total, targets, sources, perms, last):
    for target, source, perm, is_last in zip(targets, sources, perms, last, strict=True):
        moved = jnp.take(source, perm, axis=0 if is_last else 1, mode="clip")
        axes = "uri,urj->ij" if is_last else "iru,ruj->ij"
        total += jnp.einsum(axes, target, moved, precision=jax.lax.Precision.HIGHEST)
    return total
