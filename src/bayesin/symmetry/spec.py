"""The permutation spec: for every axis of every parameter, which units it counts.

An axis is an ordered product of factors, row-major: a flattened 7 × 7 × 64 feature map that feeds a dense
layer is written `7 * 7 * g0`. A factor belongs to a group, whose units may be permuted, or is fixed. An axis of
size 1 is the empty product.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from ..errors import ArtifactError, SpecError
from ..json_files import read_json, write_json
from ..randomness import generator
from ..trees import Tree, flatten

Perms = dict[str, Any]  # {group: integer array}; gather convention new[i] = old[perm[i]]

MOST_GROUPS = 1 << 12  # a file may name any number, and work grows with it; deep networks have hundreds
MOST_FACTORS = 32  # of one parameter; each becomes an axis of an array, of which numpy has no more

NEEDED = 'a spec needs "parameters" {path: [axis, …]} and "groups" {name: size}'


@dataclass(frozen=True)
class Factor:
    """A block of an axis: `size` units that move with `group`, or stay (`group` is None)."""

    size: int
    group: str | None = None
    reason: str = field(default="", compare=False)  # why it is fixed, for people

    def __str__(self) -> str:
        return self.group or str(self.size)


Axis = tuple[Factor, ...]


@dataclass(frozen=True)
class PermutationSpec:
    """Which axes of which parameters move together; frozen, hashable, and a readable JSON file.

    Example:
        >>> spec = PermutationSpec.parse({"w0": ["64", "g0"], "w1": ["g0", "10"]}, {"g0": 32})
        >>> spec.sizes
        {'g0': 32}
        >>> spec.shape("w1")
        (32, 10)
    """

    parameters: tuple[tuple[str, tuple[Axis, ...]], ...]  # (path, factors of each axis), sorted by path

    def __post_init__(self):
        names = [path for path, _ in self.parameters]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise SpecError(f"parameter '{twice}' is named twice in the spec")
        object.__setattr__(self, "parameters", tuple(sorted(self.parameters, key=lambda entry: entry[0])))
        sizes: dict[str, int] = {}
        for path, _, _, factor in self._factors():
            if factor.size < 1:
                raise SpecError(f"'{path}': a factor of size {factor.size}; sizes start at 1")
            if factor.group:
                _check_name(factor.group)
            if factor.group and sizes.setdefault(factor.group, factor.size) != factor.size:
                raise SpecError(
                    f"group '{factor.group}' has size {sizes[factor.group]} elsewhere and {factor.size} in '{path}'"
                )

    @property
    def sizes(self) -> dict[str, int]:
        """Number of units of each group, in _natural order of the names (g2 before g10)."""
        return dict(self._sizes)

    @property
    def axes(self) -> dict[str, tuple[Axis, ...]]:
        """The factors of each axis, by path."""
        return dict(self.parameters)

    def shape(self, path: str) -> tuple[int, ...]:
        """Shape that the spec expects of one parameter."""
        return self._shapes[path]

    def touched_by(self, group: str) -> tuple[tuple[str, int, int], ...]:
        """Every place of a group: (path, axis, position of the factor in the axis)."""
        return tuple((path, axis, place) for path, axis, place, f in self._factors() if f.group == group)

    def identity(self) -> Perms:
        """Permutations that move nothing, as a fresh dict."""
        return {group: np.arange(size) for group, size in self.sizes.items()}

    def random(self, key: jax.Array) -> Perms:
        """Uniformly random permutations, one stream for each group."""
        return {group: generator(key, group).permutation(size) for group, size in self.sizes.items()}

    def check(self, tree: Tree) -> int:
        """Returns the number of leading axes of a tree that has these parameters.

        Axes are counted from the right, so a stack of samples fits the spec of one of them; all
        parameters must then have the same number of leading axes.

        Raises:
            SpecError: a parameter is missing, unknown to the spec, or of another shape.
        """
        flat, axes = flatten(tree), self.axes
        for path in flat:
            if path not in axes:
                raise SpecError(f"parameter '{path}' is not in the spec; discover the spec of this model again")
        extra = None
        for path in axes:
            if path not in flat:
                raise SpecError(f"parameter '{path}' of the spec is missing from the tree")
            shape, expected = np.shape(flat[path]), self.shape(path)
            lead = len(shape) - len(expected)
            if lead < 0 or shape[lead:] != expected:
                raise SpecError(f"'{path}' has shape {shape}, but the spec says {expected}")
            extra = lead if extra is None else extra
            if lead != extra:
                raise SpecError(f"'{path}' has {lead} leading axes, other parameters have {extra}")
        return extra or 0

    def check_perms(self, perms: Mapping[str, Any]) -> None:
        """Raises `SpecError` unless `perms` has one permutation of the right size for each group."""
        sizes = self.sizes
        for group in perms:
            if group not in sizes:
                raise SpecError(f"there is no group '{group}'; the spec has {', '.join(sizes) or 'none'}")
        for group, size in sizes.items():
            if group not in perms:
                raise SpecError(f"group '{group}' has no permutation")
            check_permutation(perms[group], size, group)

    def save(self, path: Path | str) -> Path:
        """Writes the spec as a JSON file that a person can read and edit."""
        return write_json(path, self.to_json())

    @classmethod
    def load(cls, path: Path | str) -> "PermutationSpec":
        """Reads a spec file, written by `save` or by hand.

        Raises:
            SpecError: the file is not a spec, or does not hold together.
        """
        try:
            return cls.from_json(read_json(path))
        except ArtifactError as error:
            raise SpecError(str(error)) from None
        except SpecError as error:
            raise SpecError(f"{path}: {error}") from None

    def to_json(self) -> dict[str, Any]:
        """The spec as plain data, which `from_json` reads back."""
        parameters = {path: [write_axis(axis) for axis in axes] for path, axes in self.parameters}
        why = {path: [_reasons_of(axis) for axis in axes] for path, axes in self.parameters}
        return {
            "format": "bayesin-spec",
            "version": 1,
            "groups": self.sizes,
            "parameters": parameters,
            "why": {path: reasons for path, reasons in why.items() if any(reasons)},
        }

    @classmethod
    def from_json(cls, data: Any) -> "PermutationSpec":
        """Reads what `to_json` wrote, or what a person edited, and refuses what does not hold together."""
        if not isinstance(data, dict) or data.get("format") != "bayesin-spec":
            raise SpecError('this is not a permutation spec: it needs "format": "bayesin-spec"')
        if data.get("version") != 1:
            raise SpecError(f"spec version {data.get('version')!r} is not supported; this bayesin reads version 1")
        if "parameters" not in data or "groups" not in data:
            raise SpecError(NEEDED)
        return cls.parse(data["parameters"], data["groups"], data.get("why"))

    @classmethod
    def parse(
        cls, parameters: dict[str, list[str]], groups: dict[str, int], why: dict[str, list[str]] | None = None
    ) -> "PermutationSpec":
        """Builds a spec from axes written as products, such as `"7 * 7 * g0"`.

        Args:
            parameters: the axes of each parameter, by path.
            groups: the number of units of each group.
            why: for people, the reason why each axis of a parameter is fixed.

        Raises:
            SpecError: something is not of this form, or does not hold together.
        """
        if not isinstance(parameters, dict) or not isinstance(groups, dict):
            raise SpecError(NEEDED)
        for group, size in groups.items():
            _check_name(group)
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise SpecError(f"group '{group}' needs a positive whole size, not {size!r}")
        if len(groups) > MOST_GROUPS:
            raise SpecError(f"{len(groups):,} groups are more than the {MOST_GROUPS:,} that a network can have")
        read, used = [], set()
        for path, axes in parameters.items():
            if not isinstance(axes, list):
                raise SpecError(f"'{path}' needs a list with one entry an axis, not {axes!r}")
            factors = sum(axis.count("*") + 1 for axis in axes if isinstance(axis, str))
            if factors > MOST_FACTORS:
                raise SpecError(f"'{path}' has {factors:,} factors; an array has {MOST_FACTORS} at most")
            reasons = why.get(path) if isinstance(why, dict) else None
            reasons = reasons if isinstance(reasons, list) else []
            read.append((path, tuple(_read_axis(path, i, axis, groups, reasons) for i, axis in enumerate(axes))))
            used |= {f.group for axis in read[-1][1] for f in axis if f.group}
        for group in groups:
            if group not in used:
                raise SpecError(f"group '{group}' is declared but no parameter has it")
        return cls(tuple(read))

    @cached_property
    def _sizes(self) -> dict[str, int]:
        sizes = {f.group: f.size for _, _, _, f in self._factors() if f.group}
        return {group: sizes[group] for group in sorted(sizes, key=_natural)}

    @cached_property
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {path: tuple(map(_size, axes)) for path, axes in self.parameters}

    def _factors(self) -> Iterator[tuple[str, int, int, Factor]]:
        for path, axes in self.parameters:
            for number, axis in enumerate(axes):
                for place, factor in enumerate(axis):
                    yield path, number, place, factor


def check_permutation(perm: Any, size: int, group: str) -> None:
    """Raises `SpecError` unless `perm` is a permutation of `range(size)`; traced values pass unseen."""
    if isinstance(perm, Tracer):
        return
    array = np.asarray(perm)
    if array.shape != (size,):
        raise SpecError(f"the permutation of group '{group}' has shape {array.shape}, expected ({size},)")
    if not np.issubdtype(array.dtype, np.integer):
        raise SpecError(f"the permutation of group '{group}' holds {array.dtype}, expected integers")
    seen = np.zeros(size, bool)
    seen[array[(array >= 0) & (array < size)]] = True
    if not seen.all():
        raise SpecError(f"group '{group}': not a permutation, unit {int(np.argmin(seen))} is missing")


def _size(axis: Axis) -> int:
    return prod(factor.size for factor in axis)


def _natural(name: str) -> list[Any]:
    """A key that sorts g2 before g10."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]


def write_axis(axis: Axis) -> str:
    """The product as text; an axis of size 1 is `1`."""
    return " * ".join(str(factor) for factor in axis) or "1"


def _reasons_of(axis: Axis) -> str:
    """Why parts of an axis are fixed, each reason once."""
    return "; ".join(dict.fromkeys(factor.reason for factor in axis if factor.reason))


def _read_axis(path: str, number: int, text: Any, groups: dict[str, int], reasons: list[Any]) -> Axis:
    """The factors of an axis from its text; `path` and `number` say in an error where it stands."""
    if not isinstance(text, str):
        raise SpecError(f"'{path}', axis {number}: expected a product such as \"7 * g0\", not {text!r}")
    reason = reasons[number] if number < len(reasons) and isinstance(reasons[number], str) else ""
    factors = []
    for word in text.split("*"):
        word = word.strip()
        if word in groups:
            factors.append(Factor(groups[word], word))
        elif word.isascii() and word.isdigit() and len(word) < 19 and int(word) > 0:  # fits 64 bits
            factors.append(Factor(int(word), None, reason))
        else:
            raise SpecError(f"'{path}', axis {number}: '{word}' is neither a group of the spec nor a size")
    return tuple(f for f in factors if f.group or f.size > 1)


def _check_name(group: str) -> None:
    """Raises `SpecError` for a name that cannot be read back.

    A group is written between `*` and sizes, so that its name must be told from both.
    """
    if not re.fullmatch(r"[^\W\d][\w.-]*", group):
        raise SpecError(
            f"'{group}' cannot name a group; names start with a letter and hold letters, digits and _ . -"
        )
