"""The permutation spec: for every axis of every parameter, which units it counts.

An axis is an ordered product of factors, row-major: a flattened 7 × 7 × 64 feature map that feeds a dense
layer is `7 * 7 * g0`. A factor belongs to a group, whose units may be permuted, or is fixed. An axis of
size 1 is the empty product.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from ..errors import ArtifactError, SpecError
from ..files import read_json, write_json
from ..trees import Tree, flatten
from .notation import Axis, check_name, natural, read_axis, reasons_of, write_axis
from .notation import Factor as Factor
from .randomness import generator

Perms = dict[str, Any]  # {group: integer array}; gather convention new[i] = old[perm[i]]


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
                check_name(factor.group)
            if factor.group and sizes.setdefault(factor.group, factor.size) != factor.size:
                raise SpecError(
                    f"group '{factor.group}' has size {sizes[factor.group]} elsewhere and {factor.size} in '{path}'"
                )

    @property
    def sizes(self) -> dict[str, int]:
        """Number of units of each group, in natural order of the names (g2 before g10)."""
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
        """Raises `SpecError` unless the tree has these parameters; returns the number of leading axes.

        Axes are counted from the right, so a stack of samples fits the spec of one of them; all
        parameters must then have the same number of leading axes.
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
            SpecError: the file is no spec, or does not hold together.
        """
        try:
            return cls.from_json(read_json(path))
        except ArtifactError as error:
            raise SpecError(str(error)) from None
        except SpecError as error:
            raise SpecError(f"{path}: {error}") from None

    def to_json(self) -> dict[str, Any]:
        """The spec as plain data; `from_json` reads it back."""
        parameters = {path: [write_axis(axis) for axis in axes] for path, axes in self.parameters}
        why = {path: [reasons_of(axis) for axis in axes] for path, axes in self.parameters}
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
        return cls.parse(data.get("parameters"), data.get("groups"), data.get("why") or {})

    @classmethod
    def parse(cls, parameters: Any, groups: Any, why: Any = None) -> "PermutationSpec":
        """Builds a spec from axes written as products, such as `"7 * 7 * g0"`."""
        if not isinstance(parameters, dict) or not isinstance(groups, dict):
            raise SpecError('a spec needs "parameters" {path: [axis, …]} and "groups" {name: size}')
        for group, size in groups.items():
            check_name(group)
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise SpecError(f"group '{group}' needs a positive whole size, not {size!r}")
        read, used = [], set()
        for path, axes in parameters.items():
            if not isinstance(axes, list):
                raise SpecError(f"'{path}' needs a list with one entry an axis, not {axes!r}")
            reasons = why.get(path) if isinstance(why, dict) else None
            reasons = reasons if isinstance(reasons, list) else []
            read.append((path, tuple(read_axis(path, i, axis, groups, reasons) for i, axis in enumerate(axes))))
            used |= {f.group for axis in read[-1][1] for f in axis if f.group}
        for group in groups:
            if group not in used:
                raise SpecError(f"group '{group}' is declared but no parameter has it")
        return cls(tuple(read))

    @cached_property
    def _sizes(self) -> dict[str, int]:
        sizes = {f.group: f.size for _, _, _, f in self._factors() if f.group}
        return {group: sizes[group] for group in sorted(sizes, key=natural)}

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
