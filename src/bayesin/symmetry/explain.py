"""A spec for people: what moves together, and why the rest does not."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from .spec import Axis, PermutationSpec, factors_of, is_product, write_axis


@dataclass(frozen=True)
class GroupLine:
    """One group: its size and where it stands."""

    group: str
    size: int
    tensors: tuple[str, ...]  # such as "dense/kernel[1]"; an axis of several factors shows them all
    outer: tuple[str, ...] = ()  # factors that it has one permutation for each position of
    permutations: int = 1  # how many that are
    remark: str = ""  # what may be missing of its symmetry


@dataclass(frozen=True)
class FixedLine:
    """One axis, or a factor of it, that may not move."""

    tensor: str
    size: int
    reason: str


@dataclass(frozen=True)
class Explanation:
    """What a spec says, in the order of its groups and parameters.

    Example:
        >>> found = explain(PermutationSpec.parse({"w": ["2", "g0"]}, {"g0": 3}))
        >>> [(line.group, line.size) for line in found.groups]
        [('g0', 3)]
    """

    groups: tuple[GroupLine, ...]
    fixed: tuple[FixedLine, ...]


def explain(spec: PermutationSpec) -> Explanation:
    """Returns the groups with the tensors they touch, and every fixed axis with its reason.

    Example:
        >>> spec = PermutationSpec.parse({"w": ["49 * g0", "10"]}, {"g0": 64}, {"w": ["position", "output"]})
        >>> explain(spec).groups
        (GroupLine(group='g0', size=64, tensors=('w[0] = 49 * g0',), outer=(), permutations=1, remark=''),)
        >>> explain(spec).fixed[1]
        FixedLine(tensor='w[1]', size=10, reason='output')
        >>> explain(PermutationSpec.parse({"b": ["±g0"], "w": ["g0{-s0}"]}, {"g0": 4})).groups[0].tensors
        ('b[0] = ±g0', 'w[0] = g0{-s0}')
    """
    axes_of = spec.axes
    factors = [factor for axes in axes_of.values() for axis in axes for factor in factors_of(axis)]
    remarks = {factor.group: factor.reason for factor in factors if factor.group and factor.reason}
    groups = [
        GroupLine(
            group,
            size,
            tuple(dict.fromkeys(_name(axes_of[p][i], p, i) for p, i, _ in spec.touched_by(group))),
            spec.outer(group),
            prod(spec.perm_shape(group)[:-1]),
            remarks.get(group, ""),
        )
        for group, size in spec.sizes.items()
    ]
    fixed = [
        FixedLine(_name(axis, path, number), factor.size, factor.reason)
        for path, axes in spec.parameters
        for number, axis in enumerate(axes)
        for factor in factors_of(axis)
        if not factor.group
    ]
    return Explanation(tuple(groups), tuple(fixed))


def _name(axis: Axis, path: str, number: int) -> str:
    factors = list(factors_of(axis))
    plain = is_product(axis) and len(factors) < 2 and not any(f.outer or f.flips or f.scales for f in factors)
    return f"{path}[{number}]" + ("" if plain else f" = {write_axis(axis)}")


def fold_names(names: Iterable[str], most: int | None = None) -> str:
    """Names in one line; those that differ in one number, as of a layer, are one name with all the numbers."""
    left = list(dict.fromkeys(name.replace("%2F", "/") for name in names))
    while folded := _fold(left):
        left = folded
    more = f" and {len(left) - most} more" if most and len(left) > most else ""
    return ", ".join(left[:most]) + more


def _fold(names: list[str]) -> list[str]:
    """Puts the largest family of names that differ in one number into one; empty where there is none."""
    families: dict[tuple[str, str], dict[str, str]] = {}  # (before, after the number) -> {number: name}
    for name in names:
        for number in re.finditer(r"(?<![\d\[{,-])\d+(?![\d},-])", name):
            families.setdefault((name[: number.start()], name[number.end() :]), {})[number[0]] = name
    (before, after), members = max(families.items(), key=lambda family: len(family[1]), default=(("", ""), {}))
    if len(members) < 2:
        return []
    place = names.index(next(iter(members.values())))
    folded = set(members.values())
    left = [name for name in names if name not in folded]
    return [*left[:place], f"{before}{{{_ranges(list(members))}}}{after}", *left[place:]]


def _ranges(numbers: list[str]) -> str:
    """Whole numbers in order, runs of three and more by their ends: 0-8, 12."""
    runs: list[list[int]] = []
    for number in sorted(map(int, numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs)
