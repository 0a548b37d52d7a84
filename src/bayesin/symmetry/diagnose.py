"""Which tensor makes a group fail: the smallest edit of the spec after which it holds."""

from collections.abc import Callable, Iterator
from itertools import combinations, islice

from .spec import Axis, Factor, Perms, PermutationSpec

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
    size = spec.sizes[group]
    for path, number, place in spec.touched_by(group):
        yield _with(spec, path, number, place, None), f"axis {number} of '{path}' does not belong to it"
    for path, axes in spec.parameters:
        for i, j in combinations(range(len(axes)), 2):
            if spec.shape(path)[i] == spec.shape(path)[j] and axes[i] != axes[j]:
                swapped = list(axes)
                swapped[i], swapped[j] = axes[j], axes[i]
                yield _replaced(spec, path, tuple(swapped)), f"axes {i} and {j} of '{path}' are swapped"
    for path, axes in spec.parameters:
        for number, axis in enumerate(axes):
            for place, factor in enumerate(axis):
                if factor.size == size and factor.group != group:
                    yield _with(spec, path, number, place, group), f"axis {number} of '{path}' should move with it"


def _with(spec: PermutationSpec, path: str, number: int, place: int, group: str | None) -> PermutationSpec:
    axes = list(spec.axes[path])
    axis = list(axes[number])
    axis[place] = Factor(axis[place].size, group)
    axes[number] = tuple(axis)
    return _replaced(spec, path, tuple(axes))


def _replaced(spec: PermutationSpec, path: str, axes: tuple[Axis, ...]) -> PermutationSpec:
    return PermutationSpec(tuple((name, axes if name == path else old) for name, old in spec.parameters))
