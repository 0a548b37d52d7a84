"""Which units may have permutations of their own for every position of another factor.

The dimensions of each head, the units of each layer under one `lax.scan`, of each expert, of each group of a
convolution: where units always stand beside an outer factor, and wherever they are summed over, that factor is
matched too, each of its positions may permute them in its own way. The walk has found which units move together; here
the equations it met are looked at again. Units may be indexed by an outer factor if

- in every array that holds the units, the outer factor stands exactly once: in the same product, or in all of another
  axis; or the array is one step of a scan over it;
- a contraction over the units matches the outer factor too, as a batch axis or by contracting it at once, and where
  arrays meet that are not matched axis by axis, units that come out of it do so beside the very same factor.

All else follows. An operation on single entries, or along axes that hold neither, sees one position of the outer
factor at a time; one that sums, sorts or drops the outer factor makes an array that holds the units without it.
"""

from collections.abc import Iterable, Iterator
from itertools import permutations, product
from math import lgamma, prod
from typing import Any, NamedTuple

from .factors import Array, Axis, Choice, Sum, Units, alternatives, cut, resolve, size_of, units_of

MOST_PRODUCTS = 512  # of one axis; beyond that its units stay plain


class Meeting(NamedTuple):
    """One equation as the walk saw it: the arrays it read and made, and the scans it stands in."""

    name: str
    params: dict[str, Any]
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    steps: tuple[Axis, ...] = ()  # of the scans around it


Outer = dict[Units, tuple[Units, ...]]
Link = tuple[Axis, list[Axis]]  # an axis, and others of the same array whose factors may index its units


def outer_factors(parameters: Iterable[Array], met: Iterable[Meeting]) -> Outer:
    """Returns the factors that free units of the parameters may be indexed by, the outermost first."""
    allowed: dict[Units, set[Units]] = {}
    seen: set[Any] = set()
    for array, steps in _arrays(parameters, met):
        for part in alternatives(array):
            if (part, steps) not in seen:
                seen.add((part, steps))
                _restrict(allowed, _beside(part, steps))
    for meeting in met:
        steps = {units for axis in meeting.steps for units in units_of(axis)}
        for axis, others in LINKS[meeting.name](meeting) if meeting.name in LINKS else ():
            linked = {units for other in others for units in units_of(other)} | steps
            for factors in _products(resolve(axis)):
                _restrict(allowed, [(units, linked | set(factors)) for units in factors])
    return _ordered({units: others for units, others in allowed.items() if not units.reason})


def _arrays(parameters: Iterable[Array], met: Iterable[Meeting]) -> Iterator[tuple[Array, tuple[Units, ...]]]:
    for array in parameters:
        yield array, ()
    for meeting in met:
        steps = tuple(units for axis in meeting.steps for units in units_of(axis))
        for array in (*meeting.inputs, *meeting.outputs):
            yield array, steps


def _restrict(allowed: dict[Units, set[Units]], found: Iterable[tuple[Units, set[Units]]]) -> None:
    for inner, others in found:
        if inner in allowed:
            allowed[inner] &= others
        else:
            allowed[inner] = set(others)


def _beside(array: Array, steps: tuple[Units, ...]) -> Iterator[tuple[Units, set[Units]]]:
    """For every place of units in an array, the other factors that stand beside it exactly once."""
    products = [_products(axis) for axis in array]
    once = [_once_in_all(axis) for axis in products]
    present = [{units for factors in axis for units in factors} for axis in products]
    for number, axis in enumerate(products):
        elsewhere = [i for i in range(len(array)) if i != number]
        beside = {
            units for i in elsewhere for units in once[i] if not any(units in present[j] for j in elsewhere if j != i)
        }
        for factors in axis:
            own = {units for units in factors if factors.count(units) == 1}
            everywhere = {units for axis in present for units in axis}
            others = own | (beside - set(factors)) | (set(steps) - everywhere)
            for units in factors:
                yield units, others - {units}


def _once_in_all(products: list[tuple[Units, ...]]) -> set[Units]:
    """Units that stand exactly once in each product of an axis."""
    first = set(products[0]) if products else set()
    return {units for units in first if all(factors.count(units) == 1 for factors in products)}


def _products(axis: Axis) -> list[tuple[Units, ...]]:
    """The units of every part of an axis, one term chosen of each sum, one option of each choice."""
    parts: list[list[tuple[Units, ...]]] = []
    for factor in axis:
        if isinstance(factor, Units):
            parts.append([(factor,)])
        elif isinstance(factor, Sum | Choice):
            terms = factor.terms if isinstance(factor, Sum) else factor.options
            parts.append([factors for term in terms for factors in _products(term)])
    if prod(map(len, parts)) > MOST_PRODUCTS:  # one product that holds every factor twice allows none of them
        every = tuple(units for part in parts for factors in part for units in factors)
        return [(*every, *every)]
    return [tuple(units for factors in choice for units in factors) for choice in product(*parts)]


def _dot_general(meeting: Meeting) -> Iterator[Link]:
    """What is contracted is matched by all that is contracted or a batch; what is left stands beside what is left."""
    (left_contracted, right_contracted), (left_batch, right_batch) = meeting.params["dimension_numbers"]
    dimensions = ((left_contracted, left_batch), (right_contracted, right_batch))
    for array, (contracted, batch) in zip(meeting.inputs, dimensions, strict=True):
        left = [i for i in range(len(array)) if i not in contracted]
        for i in range(len(array)):
            matched = (*contracted, *batch) if i in contracted else left
            yield array[i], [array[j] for j in matched if j != i]


def _convolution(meeting: Meeting) -> Iterator[Link]:
    """Groups of features are matched between image and kernel; all that is in the kernel's window is summed."""
    numbers = meeting.params["dimension_numbers"]
    image, kernel = meeting.inputs
    out, features, *_ = numbers.rhs_spec
    groups, _ = cut(image[numbers.lhs_spec[1]], size_of(kernel[features]))
    yield kernel[features], [groups]
    yield kernel[out], []
    yield image[numbers.lhs_spec[1]], []
    for axis in numbers.lhs_spec:
        if axis != numbers.lhs_spec[1]:
            yield image[axis], [groups]


def _gather(meeting: Meeting) -> Iterator[Link]:
    """Axes that an index reaches into do not come out; those of the indices are others, whatever their units."""
    array, indices = meeting.inputs[:2]
    numbers, sizes = meeting.params["dimension_numbers"], meeting.params["slice_sizes"]
    into = (*numbers.operand_batching_dims, *(i for i, axis in enumerate(array) if size_of(axis) == sizes[i]))
    yield from _among(array, into)
    yield from _among(indices, range(len(indices) - 1))


def _scatter(meeting: Meeting) -> Iterator[Link]:
    array, indices, updates = meeting.inputs[:3]
    numbers = meeting.params["dimension_numbers"]
    window = [i for i in range(len(array)) if i not in numbers.inserted_window_dims]
    yield from _among(array, window)
    yield from _among(indices, range(len(indices) - 1))
    rows = [j for j in range(len(updates)) if j not in numbers.update_window_dims]
    matched = [rows[number] for number in numbers.scatter_indices_batching_dims]
    yield from _among(updates, (*numbers.update_window_dims, *matched))


def _best(meeting: Meeting) -> Iterator[Link]:
    """The number of the best unit is one for all that it is used for, so that its units have one order there."""
    for number in meeting.params.get("axes", (meeting.params.get("axis", -1),)):
        yield meeting.inputs[0][number], []


def _among(array: Array, left: Iterable[int]) -> Iterator[Link]:
    """Every axis of an array, with those beside it that come out of the operation."""
    left = tuple(left)
    for i, axis in enumerate(array):
        yield axis, [array[j] for j in left if j != i]


# Where arrays meet that are not matched axis by axis, what may index the units of which axis.
LINKS = {"dot_general": _dot_general, "conv_general_dilated": _convolution, "gather": _gather}
LINKS |= dict.fromkeys(("argmax", "argmin", "top_k"), _best)
LINKS |= dict.fromkeys(
    ("scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max"), _scatter
)


def _ordered(allowed: dict[Units, set[Units]]) -> Outer:
    """Chains without a circle: units that may index one another are ordered so that most settings are left."""
    rank: dict[Units, int] = {}
    for units in allowed:
        circle = [other for other in allowed if other in allowed[units] and units in allowed[other]]
        if circle and units not in rank:
            rank.update((other, place) for place, other in enumerate(_best_order([units, *circle])))
    outer = {}
    for units, others in allowed.items():
        kept = [o for o in others if not (o in allowed and units in allowed[o]) or rank[o] < rank[units]]
        outer[units] = tuple(kept)
    depth = {units: len(others) for units, others in outer.items()}
    return {units: tuple(sorted(kept, key=lambda o: depth.get(o, 0))) for units, kept in outer.items() if kept}


def _best_order(circle: list[Units]) -> list[Units]:
    """Small ones outside: n! grows so fast that its power counts more than that of a smaller m!."""
    if len(circle) > 4:
        return sorted(circle, key=lambda units: units.size)

    def settings(order: tuple[Units, ...]) -> float:
        return sum(prod(u.size for u in order[:place]) * lgamma(units.size + 1) for place, units in enumerate(order))

    return list(max(permutations(circle), key=settings))
