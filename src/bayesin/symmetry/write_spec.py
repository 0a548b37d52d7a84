"""What discovery found, as a spec: names for the groups, and every axis in its simplest form."""

from collections.abc import Callable, Collection, Mapping
from itertools import count, groupby
from types import MappingProxyType
from typing import Any

from .exponents import Place, Scale
from .factors import (
    POSITION,
    TIED,
    Array,
    Axis,
    Choice,
    Sum,
    Units,
    chooser,
    chosen_terms,
    leaves_of,
    settled,
    units_of,
)
from .indexed import Outer
from .spec import Axis as SpecAxis
from .spec import Choice as SpecChoice
from .spec import Factor, PermutationSpec, Term, factors_of, size_of_axis, size_of_term


def write_spec(
    parameters: dict[str, Array],
    order_met: dict[Units, int],
    outer: Outer,
    flips: Collection[Place] = (),
    powers: Mapping[Place, Mapping[Scale, int]] = MappingProxyType({}),
) -> PermutationSpec:
    """Returns the spec, with the groups named in the order in which the computation meets them.

    `flips` and `powers` say by what entries are multiplied, by place of units (`multipliers.py`).
    """
    axes = [axis for array in parameters.values() for axis in array]
    axes.sort(key=lambda axis: _first_met(axis, order_met))
    met = list(dict.fromkeys(units for axis in axes for units in units_of(axis)))
    free = [units for units in met if not units.reason]
    named = {units for others in outer.values() for units in others}
    names = {units: f"g{number}" for number, units in enumerate(free)}
    names |= {u: f"f{number}" for number, u in enumerate(units for units in met if units.reason and units in named)}

    scales = dict.fromkeys(
        scale for units in free for found in powers.values() for scale in found if scale[0] is units
    )
    scale_names = {scale: f"s{number}" for number, scale in enumerate(scales)}

    def factor(units: Units, place: Place) -> Factor:
        if units.reason:
            return Factor(units.size, None, units.reason, name=names.get(units, ""))
        return Factor(
            units.size,
            names[units],
            TIED if units.tied else "",
            outer=tuple(names[other] for other in outer.get(units, ())),
            flips=place in flips,
            scales=tuple(sorted((scale_names[scale], power) for scale, power in powers.get(place, {}).items())),
        )

    def mapped(path: str, number: int, axis: Axis) -> tuple[Any, ...]:
        leaves = count()
        return _mapped(axis, lambda units: factor(units, (path, number, next(leaves))))

    def written(path: str, array: Array) -> tuple[SpecAxis, ...]:
        return _written([mapped(path, number, axis) for number, axis in enumerate(settled(array))])

    return PermutationSpec(tuple((path, written(path, array)) for path, array in parameters.items()))


def _written(axes: list[tuple[Any, ...]]) -> tuple[SpecAxis, ...]:
    """The axes of one parameter; where some choose, the sum that they choose by keeps one term for each option."""
    if (by := chooser(tuple(axes))) is None:
        return tuple(_simplest(_terms(axis)) for axis in axes)
    place, total, tag = by
    written: list[SpecAxis] = []
    for axis in axes:
        chosen = [chosen_terms(axis, tag, slice(at, at + 1), tag) for at in range(len(total.terms))]
        options = tuple(_simplest(_terms(option)) for option in chosen)
        factors = [factor for option in options for factor in factors_of(option)]
        if len(set(options)) == 1:
            written.append(options[0])
        elif any(factor.called for factor in factors):
            written.append(SpecChoice(options))
        else:  # fixed in all options, for whatever reasons
            written.append(((Factor(size_of_axis(options[0]), None, _together([f.reason for f in factors])),),))
    if any(isinstance(axis, SpecChoice) for axis in written):
        terms = tuple(_one_term(_simplest(_terms(term))) for term in total.terms)
        # No other axis has as many terms: a sum in parentheses is one.
        written = [
            ((axis,),) if not isinstance(axis, SpecChoice) and len(axis) == len(terms) else axis for axis in written
        ]
        written[place] = terms
    return tuple(written)


def _one_term(terms: tuple[Term, ...]) -> Term:
    """A sum as one term of another."""
    return terms[0] if len(terms) == 1 else (terms,)


def _first_met(axis: Axis, order_met: dict[Units, int]) -> int:
    return min((order_met.get(f, len(order_met)) for f in leaves_of(axis) if isinstance(f, Units)), default=0)


def _mapped(axis: Axis, factor: Callable[[Any], Factor]) -> tuple[Any, ...]:
    """The axis with the spec's own factors in place of its leaves, in their order."""
    return tuple(
        Sum(tuple(_mapped(term, factor) for term in part.terms), part.tag)
        if isinstance(part, Sum)
        else Choice(tuple(_mapped(option, factor) for option in part.options), part.tag)
        if isinstance(part, Choice)
        else factor(part)
        for part in axis
    )


def _terms(axis: tuple[Any, ...]) -> list[Term]:
    """The terms of an axis; a sum in front of other factors is distributed over them."""
    if axis and isinstance(axis[0], Sum):
        return [term for part in axis[0].terms for term in _terms(part + axis[1:])]
    parts: list[Any] = []
    for factor in axis:
        if isinstance(factor, Sum):
            inner = _simplest([term for part in factor.terms for term in _terms(part)])
            parts.extend(inner[0] if len(inner) == 1 else (inner,))
        else:
            parts.append(factor)
    return [_with_fixed_merged(parts)]


def _simplest(terms: list[Term]) -> tuple[Term, ...]:
    """The sum with neighbours put together: fixed ones are one, and equal ones a multiple."""
    merged: list[Term] = []
    for is_fixed, run in groupby(terms, key=lambda term: all(not f.called for f in factors_of((term,)))):
        run = list(run)
        if is_fixed:
            reasons = [f.reason for f in factors_of(tuple(run))] if any(run) else [POSITION]
            size = sum(map(size_of_term, run))
            merged.append((Factor(size, None, _together(reasons)),) if size > 1 else ())
            continue
        for term, equal in groupby(run):
            repeats = len(list(equal))
            merged.append(_with_fixed_merged([Factor(repeats, None, POSITION), *term]) if repeats > 1 else term)
    return tuple(merged)


def _with_fixed_merged(parts: list[Any]) -> Term:
    """Neighbours that are both fixed are one factor."""
    factors: list[Any] = []
    for part in parts:
        if factors and _is_fixed(part) and _is_fixed(factors[-1]):
            last = factors[-1]
            factors[-1] = Factor(last.size * part.size, None, _together([last.reason, part.reason]))
        else:
            factors.append(part)
    return tuple(factors)


def _is_fixed(part: Any) -> bool:
    return isinstance(part, Factor) and not part.called


def _together(reasons: list[str]) -> str:
    return "; ".join(dict.fromkeys(word for reason in reasons for word in reason.split("; ") if word))
