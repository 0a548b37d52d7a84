"""Which tensor makes a group fail: the smallest edit of the spec after which it holds."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import combinations, count, islice
from typing import Any

from ..errors import SpecError
from .spec import Axis, Choice, Factor, Perms, PermutationSpec, factors_of

ATTEMPTS = 64  # edits tried, each of which costs one evaluation of the model
CURED = 1e-2  # share of the change that may be left after the edit that cures it


def diagnose(gap: Callable[[PermutationSpec, Perms], float], spec: PermutationSpec, perms: Perms, group: str) -> str:
    """Returns a clause that names the tensor at fault, or all that the group touches.

    Args:
        gap: change of the output under permutations of a spec.
        spec: the spec that fails.
        perms: permutations that show it; only `group` moves.
        group: the group that fails.
    """
    before = gap(spec, perms)
    for edited, diagnosis in islice(_edits(spec, group), ATTEMPTS):
        if gap(edited, {name: perms[name] for name in edited.sizes}) <= CURED * before:
            return diagnosis
    touched = list(dict.fromkeys(f"'{path}'" for path, _, _ in spec.touched_by(group)))
    more = f" and {len(touched) - 5} more" if len(touched) > 5 else ""
    return f"it touches {', '.join(touched[:5])}{more}"


def _edits(spec: PermutationSpec, group: str) -> Iterator[tuple[PermutationSpec, str]]:
    """Specs with one change that concerns the group, and the diagnosis if it is the cure."""
    for path, axes, diagnosis in _edited_axes(spec, group):
        with suppress(SpecError):  # an indexed group that lost its outer factor
            edited = tuple((name, axes if name == path else old) for name, old in spec.parameters)
            yield PermutationSpec(edited), diagnosis


def _edited_axes(spec: PermutationSpec, group: str) -> Iterator[tuple[str, tuple[Axis, ...], str]]:
    size, outer = spec.sizes[group], spec.outer(group)
    for path, number, place in spec.touched_by(group):
        axes = with_factor(spec.axes[path], number, place, None)
        yield path, axes, f"axis {number} of '{path}' does not belong to it"
    for path, axes in spec.parameters:
        for i, j in combinations(range(len(axes)), 2):
            if spec.shape(path)[i] == spec.shape(path)[j] and axes[i] != axes[j]:
                swapped = list(axes)
                swapped[i], swapped[j] = axes[j], axes[i]
                yield path, tuple(swapped), f"axes {i} and {j} of '{path}' are swapped"
    for path, axes in spec.parameters:
        for number, axis in enumerate(axes):
            for place, factor in enumerate(factors_of(axis)):
                if factor.size == size and factor.group != group and not factor.name:
                    joined = with_factor(axes, number, place, Factor(size, group, outer=outer))
                    yield path, joined, f"axis {number} of '{path}' should move with it"


def with_factor(axes: tuple[Axis, ...], number: int, place: int, new: Factor | None) -> tuple[Axis, ...]:
    """The axes with another factor, or a fixed one, at a place counted through all terms of one axis."""
    places = count()

    def chosen(part: Any) -> Any:
        if not isinstance(part, Factor):
            return changed(part)
        return (new or Factor(part.size)) if next(places) == place else part

    def changed(axis: Axis) -> Any:
        if isinstance(axis, Choice):
            return Choice(tuple(map(changed, axis.options)))
        return tuple(tuple(map(chosen, term)) for term in axis)

    return (*axes[:number], changed(axes[number]), *axes[number + 1 :])
