"""The permutation spec: for every axis of every parameter, which units it counts.

An axis is an ordered *sum of products*. A product is read row-major: a flattened 7 × 7 × 64 feature map that feeds a
dense layer is written `7 * 7 * g0`. A sum is parts that stand one behind the other: query, key and value in one fused
kernel are `2 * g0 * g1[g0] + g0 * g2[g0]`, and `g0 * (2 * g1[g0] + g2[g0])` where every head has its own three. A
factor belongs to a group, whose units may be permuted, or is fixed. An axis of size 1 is the empty product.

A group may be *indexed* by other factors: `g1[g0]` has one permutation of its units for every unit of `g0`, such as
the dimensions of every head. An outer factor is a group itself, or a fixed factor that has a name, such as the layers
under one `lax.scan`.

Where the units of one axis are other ones for every term of a sum on another, as in keys and values that are stacked
on a leading axis of 2, the axis has one option for each: `4 | g2[g1]` beside `1 + 1`.

Units may have more freedom than their order. `±g0` says that the entries here change their sign where a unit of `g0`
does, as behind tanh; `g0{s0}` that they are multiplied by the positive number that `s0` has for the unit, `g0{-s0}`
that they are divided by it, as before and behind a ReLU.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from math import lgamma, log, prod
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jaxtyping import ArrayLike, Integer, Num

from ..errors import ArtifactError, SpecError
from ..json_files import read_json, write_json
from ..randomness import generator
from ..trees import Tree, flatten
from .factors import TIED

# {group: whole numbers, of the shape `spec.perm_shape(group)`}; gather convention new[i] = old[perm[i]]
Perms = Mapping[str, Integer[jax.Array | np.ndarray, "..."]]
# {group of `spec.signed`: 1 and −1, of the same shape}; new[i] = sign[i] old[perm[i]]
Signs = Mapping[str, Num[jax.Array | np.ndarray, "..."]]

MOST_GROUPS = 1 << 12  # a file may name any number, and work grows with it; deep networks have hundreds
MOST_FACTORS = 32  # of one piece of a parameter; each becomes an axis of an array, of which numpy has no more
MOST_PIECES = 1 << 12  # of one parameter; a DenseNet has hundreds

SHOWN = 6  # groups in a repr

NEEDED = 'a spec needs "parameters" {path: [axis, …]} and "groups" {name: size}'
NAME = r"[^\W\d][\w.-]*"


@dataclass(frozen=True)
class Factor:
    """A block of an axis: `size` units that move with `group`, or stay (`group` is None).

    Example:
        >>> str(Factor(64, "g1", outer=("g0",))), str(Factor(12, name="layer")), str(Factor(7))
        ('g1[g0]', 'layer', '7')
        >>> Factor(64, "g1", flips=True, scales=(("s0", 1), ("s1", -2))).written
        '±g1{s0, -2 s1}'
    """

    size: int
    group: str | None = None
    reason: str = field(default="", compare=False)  # why it is fixed, or a group has no finer parts, for people
    outer: tuple[str, ...] = ()  # factors that the group is indexed by, each after those that index it
    name: str = ""  # of a fixed factor that indexes a group
    flips: bool = False  # whether entries change their sign with the units of the group
    scales: tuple[tuple[str, int], ...] = ()  # (name, power) of the positive numbers that they are multiplied by

    @property
    def written(self) -> str:
        """The factor as it stands in an axis, with the freedom that its units have beside their order."""
        powers = ", ".join(_write_power(*scale) for scale in self.scales)
        return f"{'±' * self.flips}{self}{f'{{{powers}}}' if powers else ''}"

    @property
    def bare(self) -> "Factor":
        """The factor without what its units are multiplied by."""
        return replace(self, flips=False, scales=()) if self.flips or self.scales else self

    @property
    def called(self) -> str:
        """The name of the group, or of the fixed factor; empty for a mere size."""
        return self.group or self.name

    def __str__(self) -> str:
        return _indexed(self.called, self.outer) or str(self.size)


Term = tuple[Any, ...]  # a product, of factors or again of sums


@dataclass(frozen=True)
class Choice:
    """An axis that is another one for each term of the sum on another axis of the parameter."""

    options: tuple[tuple[Term, ...], ...]


Axis = tuple[Term, ...] | Choice  # a sum of products; an ordinary axis has one term, of factors

PARTS = 4096  # most parts, over all ways to choose one term of every sum, that one axis may have


@dataclass(frozen=True)
class PermutationSpec:
    """Which axes of which parameters move together; frozen, hashable, and a readable JSON file.

    Example:
        >>> spec = PermutationSpec.parse({"w0": ["64", "g0"], "w1": ["g0", "10"]}, {"g0": 32})
        >>> spec
        PermutationSpec(1 group of units: g0 32; 2 parameters)
        >>> spec.shape("w1")
        (32, 10)
        >>> heads = PermutationSpec.parse({"qkv": ["5", "2 * h * q[h] + h * v[h]"]}, {"h": 4, "q[h]": 3, "v[h]": 2})
        >>> heads.shape("qkv"), heads.outer("q"), heads.perm_shape("q")
        ((5, 32), ('h',), (4, 3))
    """

    parameters: tuple[tuple[str, tuple[Axis, ...]], ...]  # (path, terms of each axis), sorted by path

    def __post_init__(self):
        names = [path for path, _ in self.parameters]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise SpecError(f"parameter '{twice}' is named twice in the spec")
        object.__setattr__(self, "parameters", tuple(sorted(self.parameters, key=lambda entry: entry[0])))
        known: dict[str, Factor] = {}
        for path, axes in self.parameters:
            for number, axis in enumerate(axes):
                _check_sum(path, number, axis)
                for factor in factors_of(axis):
                    _check_factor(path, factor, known)
            _chosen_by(path, axes)
        _check_outer(known)
        _check_scales(self._factors())
        for path, axes in self.parameters:
            if any(factor.outer for axis in axes for factor in factors_of(axis)):
                for _, parts in alternatives(path, axes):
                    _check_beside(path, parts)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        sizes = [f"{group} {size}" for group, size in self.sizes.items()]
        shown = ", ".join(sizes[:SHOWN] + ["…"] * (len(sizes) > SHOWN))
        groups = f"{len(sizes)} group{'' if len(sizes) == 1 else 's'} of units"
        return f"PermutationSpec({groups}{': ' * bool(sizes)}{shown}; {len(self.parameters)} parameters)"

    def __getstate__(self) -> dict[str, Any]:
        return {"parameters": self.parameters}  # without the hash: that of a text is another in each process

    @property
    def sizes(self) -> dict[str, int]:
        """Number of units of each group, in natural order of the names (g2 before g10)."""
        return {group: factor.size for group, factor in self._groups.items()}

    @property
    def fixed_factors(self) -> dict[str, int]:
        """Sizes of the fixed factors that have a name."""
        return dict(self._fixed)

    @cached_property
    def signed(self) -> tuple[str, ...]:
        """The groups whose units may also change their sign."""
        found = {factor.group for _, _, _, factor in self._factors() if factor.flips}
        return tuple(group for group in self._groups if group in found)

    @cached_property
    def scaled(self) -> dict[str, str]:
        """The positive numbers that units may be multiplied by: the group that each has one number a unit of."""
        found = {name: f.group or "" for _, _, _, f in self._factors() for name, _ in f.scales}
        return {name: found[name] for name in sorted(found, key=_natural)}

    @cached_property
    def without_signs(self) -> "PermutationSpec":
        """The spec of the permutations alone, in which no unit changes its sign."""
        return self if not self.signed else self._with_factors(lambda factor: replace(factor, flips=False))

    @property
    def axes(self) -> dict[str, tuple[Axis, ...]]:
        """The terms of each axis, by path."""
        return dict(self.parameters)

    @cached_property
    def log10_order(self) -> float:
        """Logarithm, to the base of ten, of the number of settings that all groups together have, signs included.

        Example:
            >>> PermutationSpec.parse({"w": ["h * q[h]"]}, {"h": 2, "q[h]": 5}).log10_order  # log10(2! · 5!²)
            4.459...
        """
        shapes = [self.perm_shape(group) for group in self._groups]
        orders = sum(prod(outer) * lgamma(size + 1) for *outer, size in shapes)
        return (orders + sum(prod(self.perm_shape(group)) for group in self.signed) * log(2)) / log(10)

    def shape(self, path: str) -> tuple[int, ...]:
        """Shape that the spec expects of one parameter."""
        return self._shapes[path]

    def outer(self, group: str) -> tuple[str, ...]:
        """Names of the factors that a group is indexed by; none for a plain group."""
        return self._groups[group].outer

    def perm_shape(self, group: str) -> tuple[int, ...]:
        """Shape of the permutations of a group: the sizes of its outer factors, then its units."""
        factor = self._groups[group]
        return (*(self._size_of_name(name) for name in factor.outer), factor.size)

    def touched_by(self, group: str) -> tuple[tuple[str, int, int], ...]:
        """Every place of a group: (path, axis, position of the factor among all those of the axis)."""
        return tuple((path, axis, place) for path, axis, place, f in self._factors() if f.group == group)

    def identity(self) -> Perms:
        """Permutations that move nothing, as a fresh dict."""
        return {group: _identity(self.perm_shape(group)) for group in self._groups}

    def random(self, key: jax.Array) -> Perms:
        """Uniformly random permutations, one stream for each group."""
        perms = {}
        for group in self._groups:
            shape, draws = self.perm_shape(group), generator(key, group)
            plain = len(shape) == 1
            perms[group] = draws.permutation(shape[0]) if plain else draws.permuted(_identity(shape), axis=-1)
        return perms

    def identity_signs(self) -> Signs:
        """Signs that change nothing, as a fresh dict."""
        return {group: np.ones(self.perm_shape(group), np.int8) for group in self.signed}

    def random_signs(self, key: jax.Array) -> Signs:
        """Uniformly random signs, one stream for each group."""
        return {
            group: generator(key, "signs", group).choice(np.array([1, -1], np.int8), self.perm_shape(group))
            for group in self.signed
        }

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

    def check_perms(self, perms: Mapping[str, ArrayLike]) -> None:
        """Raises `SpecError` unless `perms` has permutations of the right shape for each group."""
        for group in perms:
            if group not in self._groups:
                raise SpecError(f"there is no group '{group}'; the spec has {', '.join(self._groups) or 'none'}")
        for group in self._groups:
            if group not in perms:
                raise SpecError(f"group '{group}' has no permutation")
            check_permutations(perms[group], self.perm_shape(group), group)

    def check_signs(self, signs: Mapping[str, ArrayLike]) -> None:
        """Raises `SpecError` unless `signs` has 1 or −1 for every unit of groups that may flip; others stay 1."""
        for group, sign in signs.items():
            if group not in self.signed:
                raise SpecError(
                    f"group '{group}' has no signs; of this spec {', '.join(self.signed) or 'none'} may flip"
                )
            if np.shape(sign) != self.perm_shape(group):
                raise SpecError(
                    f"the signs of group '{group}' have shape {np.shape(sign)}, expected {self.perm_shape(group)}"
                )
            if not isinstance(sign, Tracer) and not np.isin(np.asarray(sign), (1, -1)).all():
                raise SpecError(f"the signs of group '{group}' hold other numbers than 1 and -1")

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
        """The spec as plain data, which `from_json` reads back.

        Signs, scales and choices need version 3; sums, indexed groups and named factors version 2; without them the
        file is of version 1.
        """
        parameters = {path: [write_axis(axis) for axis in axes] for path, axes in self.parameters}
        why = {path: [_reasons_of(axis) for axis in axes] for path, axes in self.parameters}
        sums = any(not is_product(axis) for _, axes in self.parameters for axis in axes)
        indexed = any(factor.outer for factor in self._groups.values())
        chosen = any(isinstance(axis, Choice) for _, axes in self.parameters for axis in axes)
        return {
            "format": "bayesin-spec",
            "version": 3 if self.signed or self.scaled or chosen else 2 if sums or indexed or self._fixed else 1,
            "groups": {str(factor): factor.size for factor in self._groups.values()},
            **({"fixed": self.fixed_factors} if self._fixed else {}),
            "parameters": parameters,
            "why": {path: reasons for path, reasons in why.items() if any(reasons)},
        }

    @classmethod
    def from_json(cls, data: Any) -> "PermutationSpec":
        """Reads what `to_json` wrote, or what a person edited, and refuses what does not hold together."""
        if not isinstance(data, dict) or data.get("format") != "bayesin-spec":
            raise SpecError('this is not a permutation spec: it needs "format": "bayesin-spec"')
        if data.get("version") not in (1, 2, 3):
            raise SpecError(
                f"spec version {data.get('version')!r} is not supported; this bayesin reads versions 1, 2 and 3"
            )
        if "parameters" not in data or "groups" not in data:
            raise SpecError(NEEDED)
        return cls.parse(data["parameters"], data["groups"], data.get("why"), data.get("fixed"))

    @classmethod
    def parse(
        cls,
        parameters: dict[str, list[str]],
        groups: dict[str, int],
        why: dict[str, list[str]] | None = None,
        fixed: dict[str, int] | None = None,
    ) -> "PermutationSpec":
        """Builds a spec from axes written as sums of products, such as `"7 * 7 * g0"` or `"g0 + 2 * g1"`.

        Args:
            parameters: the axes of each parameter, by path.
            groups: the number of units of each group; one that is indexed is written with its outer factors, here
                and in the axes: `"g1[g0]"`.
            why: for people, the reason why each axis of a parameter is fixed.
            fixed: sizes of the fixed factors that index a group, by name.

        Raises:
            SpecError: something is not of this form, or does not hold together.
        """
        fixed = {} if fixed is None else fixed
        if not all(isinstance(part, dict) for part in (parameters, groups, fixed)):
            raise SpecError(NEEDED)
        if len(groups) > MOST_GROUPS:
            raise SpecError(f"{len(groups):,} groups are more than the {MOST_GROUPS:,} that a network can have")
        words = _read_declarations(groups, fixed)
        read, used = [], set()
        for path, axes in parameters.items():
            if not isinstance(axes, list):
                raise SpecError(f"'{path}' needs a list with one entry an axis, not {axes!r}")
            _check_cost(path, [axis for axis in axes if isinstance(axis, str)])
            reasons = why.get(path) if isinstance(why, dict) else None
            reasons = reasons if isinstance(reasons, list) else []
            read.append((path, tuple(_read_axis(path, i, axis, words, reasons) for i, axis in enumerate(axes))))
            used |= {factor.called for axis in read[-1][1] for factor in factors_of(axis)}
        for factor in words.values():
            if factor.called not in used:
                what = "group" if factor.group else "fixed factor"
                raise SpecError(f"{what} '{factor.called}' is declared but no parameter has it")
        return cls(tuple(read))

    @cached_property
    def _hash(self) -> int:
        return hash(self.parameters)  # once: what depends on the spec alone is looked up by it in every call

    @cached_property
    def _groups(self) -> dict[str, Factor]:
        found = {f.group: f for _, _, _, f in self._factors() if f.group}
        return {group: found[group] for group in sorted(found, key=_natural)}

    @cached_property
    def _fixed(self) -> dict[str, int]:
        found = {f.name: f.size for _, _, _, f in self._factors() if f.name}
        return {name: found[name] for name in sorted(found, key=_natural)}

    @cached_property
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {path: tuple(map(size_of_axis, axes)) for path, axes in self.parameters}

    def _with_factors(self, change: Callable[[Factor], Factor]) -> "PermutationSpec":
        """The spec with every factor changed."""

        def changed(axis: Axis) -> Any:
            if isinstance(axis, Choice):
                return Choice(tuple(map(changed, axis.options)))
            return tuple(
                tuple(change(part) if isinstance(part, Factor) else changed(part) for part in term) for term in axis
            )

        return PermutationSpec(tuple((path, tuple(map(changed, axes))) for path, axes in self.parameters))

    def _size_of_name(self, name: str) -> int:
        return self._groups[name].size if name in self._groups else self._fixed[name]

    def _factors(self) -> Iterator[tuple[str, int, int, Factor]]:
        for path, axes in self.parameters:
            for number, axis in enumerate(axes):
                for place, factor in enumerate(factors_of(axis)):
                    yield path, number, place, factor


def check_permutations(perm: Any, shape: tuple[int, ...], group: str) -> None:
    """Raises `SpecError` unless `perm` has this shape and permutes its last axis; traced values pass unseen."""
    if isinstance(perm, Tracer):
        return
    array = np.asarray(perm)
    if array.shape != shape:
        raise SpecError(f"the permutation of group '{group}' has shape {array.shape}, expected {shape}")
    if array.dtype.kind not in "iu":
        raise SpecError(f"the permutation of group '{group}' holds {array.dtype}, expected integers")
    wrong = np.sort(array, -1) != np.arange(shape[-1])
    if wrong.any():
        wrong = wrong.any(-1)
        where = np.argwhere(wrong)[0]
        missing = np.setdiff1d(np.arange(shape[-1]), array[tuple(where)])[0]
        at = f" for {', '.join(map(str, where))}" if len(where) else ""
        raise SpecError(f"group '{group}': not a permutation{at}, unit {missing} is missing")


def factors_of(axis: Axis) -> Iterator[Factor]:
    """All factors of an axis in order, those inside of sums and of all options too."""
    if isinstance(axis, Choice):
        for option in axis.options:
            yield from factors_of(option)
        return
    for part in (part for term in axis for part in term):
        if isinstance(part, Factor):
            yield part
        else:
            yield from factors_of(part)


def is_product(axis: Axis) -> bool:
    """Whether an axis has no sum in it, and is the same in all of the parameter."""
    return not isinstance(axis, Choice) and len(axis) == 1 and all(isinstance(part, Factor) for part in axis[0])


def size_of_part(part: Any) -> int:
    """Number of entries of a factor, or of a sum in the place of one."""
    return part.size if isinstance(part, Factor) else size_of_axis(part)


def size_of_term(term: Term) -> int:
    """Number of entries of one product."""
    return prod(map(size_of_part, term))


def size_of_axis(axis: Axis) -> int:
    """Number of entries along an axis."""
    return sum(map(size_of_term, _sum_of(axis)))


def alternatives(path: str, axes: tuple[Axis, ...]) -> Iterator[tuple[tuple[int, int], tuple[tuple[Term, ...], ...]]]:
    """The axes of a parameter once for each term of the sum that others choose by; with the axis of that sum, and
    where the term starts."""
    by = _chosen_by(path, axes)
    if by is None:
        yield (0, 0), tuple(axis for axis in axes if not isinstance(axis, Choice))
        return
    start = 0
    for number, term in enumerate(_sum_of(axes[by])):
        chosen = [axis.options[number] if isinstance(axis, Choice) else axis for axis in axes]
        yield (by, start), (*chosen[:by], (term,), *chosen[by + 1 :])
        start += size_of_term(term)


def _chosen_by(path: str, axes: tuple[Axis, ...]) -> int | None:
    """The axis by the terms of which others of a parameter choose; None where none does.

    Raises:
        SpecError: there is no axis, or more than one, with as many terms as others have options.
    """
    counts = {len(axis.options) for axis in axes if isinstance(axis, Choice)}
    if not counts:
        return None
    fits = [number for number, axis in enumerate(axes) if not isinstance(axis, Choice) and {len(axis)} == counts]
    if len(fits) != 1 or min(counts) < 2:
        few = "no axis" if not fits else "more than one axis"
        options = " and ".join(map(str, sorted(counts)))
        raise SpecError(f"'{path}' has axes with {options} options, and {few} with as many terms to choose by")
    return fits[0]


def _sum_of(axis: Axis) -> tuple[Term, ...]:
    """The terms of an axis, in its first option where it has some."""
    return axis.options[0] if isinstance(axis, Choice) else axis


def write_axis(axis: Axis) -> str:
    """The sum of products as text; a term of size 1 is `1`, and options stand between bars."""
    if isinstance(axis, Choice):
        return " | ".join(map(write_axis, axis.options))
    return " + ".join(" * ".join(map(_write_part, term)) or "1" for term in axis)


def _write_part(part: Any) -> str:
    return part.written if isinstance(part, Factor) else f"({write_axis(part)})"


def _write_power(name: str, power: int) -> str:
    return {1: name, -1: f"-{name}"}.get(power, f"{power} {name}")


def _identity(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(shape[0]) if len(shape) == 1 else np.broadcast_to(np.arange(shape[-1]), shape).copy()


def _natural(name: str) -> list[Any]:
    """A key that sorts g2 before g10."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]


def _indexed(name: str, outer: tuple[str, ...]) -> str:
    return f"{name}[{', '.join(outer)}]" if outer else name


def _reasons_of(axis: Axis) -> str:
    """Why parts of an axis are fixed, each reason once."""
    return "; ".join(dict.fromkeys(factor.reason for factor in factors_of(axis) if factor.reason))


def _read_declarations(groups: dict[str, int], fixed: dict[str, int]) -> dict[str, Factor]:
    """The factors that have a name, by how they are written in an axis."""
    words: dict[str, Factor] = {}
    for what, declared in (("group", groups), ("fixed factor", fixed)):
        for text, size in declared.items():
            match = re.fullmatch(r"([^\[\]]*)\[([^\[\]]*)\]", text)
            name, outer = (match[1].strip(), match[2].split(",")) if match else (text, ())
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise SpecError(f"{what} '{text}' needs a positive whole size, not {size!r}")
            _check_name(name)
            if any(factor.called == name for factor in words.values()):
                raise SpecError(f"'{name}' is declared twice")
            if what != "group" and outer:
                raise SpecError(f"fixed factor '{text}' cannot be indexed")
            indices = tuple(word.strip() for word in outer)
            factor = Factor(size, name, outer=indices) if what == "group" else Factor(size, name=name)
            words[str(factor)] = factor
    return words


def _check_cost(path: str, axes: list[str]) -> None:
    """Raises `SpecError` where axes ask for more than any network needs, before they are read."""
    factors = sum(max(term.count("*") + 1 for term in re.split(r"[+|]", axis)) for axis in axes)
    if factors > MOST_FACTORS:
        raise SpecError(f"'{path}' has {factors:,} factors; an array has {MOST_FACTORS} at most")
    pieces = prod(axis.count("+") + axis.count("|") + 1 for axis in axes)
    if pieces > MOST_PIECES:
        raise SpecError(f"the sums of '{path}' make {pieces:,} pieces, at most {MOST_PIECES:,} are allowed")


def _read_axis(path: str, number: int, text: Any, words: dict[str, Factor], reasons: list[Any]) -> Axis:
    """The terms of an axis from its text; `path` and `number` say in an error where it stands."""
    if not isinstance(text, str):
        raise SpecError(f"'{path}', axis {number}: expected a product such as \"7 * g0\", not {text!r}")
    reason = reasons[number] if number < len(reasons) and isinstance(reasons[number], str) else ""
    if text.count("(") > 99:
        raise SpecError(f"'{path}', axis {number}: more parentheses than an axis can need")
    options = [_read_sum(option, words, reason, f"'{path}', axis {number}") for option in _parted(text, "|")]
    return options[0] if len(options) == 1 else Choice(tuple(options))


def _read_sum(text: str, words: dict[str, Factor], reason: str, where: str) -> tuple[Term, ...]:
    terms = []
    for term in _parted(text, "+"):
        parts = [_read_part(word.strip(), words, reason, where) for word in _parted(term, "*")]
        terms.append(tuple(part for part in parts if not isinstance(part, Factor) or part.called or part.size > 1))
    return tuple(terms)


def _read_part(word: str, words: dict[str, Factor], reason: str, where: str) -> Any:
    if word.startswith("(") and word.endswith(")"):
        return _read_sum(word[1:-1], words, reason, where)
    whole, word, flips = word, word.removeprefix("±").strip(), word.startswith("±")
    braces = re.fullmatch(r"([^{}]*)\{([^{}]*)\}", word)
    word, powers = (braces[1].strip(), braces[2]) if braces else (word, "")
    word = re.sub(r"\s*,\s*", ", ", word)
    if word in words and words[word].group:
        scales = tuple(_read_power(text.strip(), where) for text in powers.split(",")) if braces else ()
        tied = TIED if TIED in reason else ""
        return (
            replace(words[word], reason=tied, flips=flips, scales=scales) if flips or braces or tied else words[word]
        )
    if flips or braces:
        raise SpecError(f"{where}: '{whole}' needs a group; only its units have signs and scales")
    if word in words:
        return Factor(words[word].size, None, reason, name=word)
    if word.isascii() and word.isdigit() and len(word) < 19 and int(word) > 0:  # fits 64 bits
        return Factor(int(word), None, reason)
    raise SpecError(f"{where}: '{word}' is neither a group of the spec nor a size")


def _read_power(text: str, where: str) -> tuple[str, int]:
    match = re.fullmatch(rf"(-?)\s*(\d{{0,3}})\s*({NAME})", text)
    if match is None or (match[2] and int(match[2]) == 0):
        raise SpecError(f"{where}: '{text}' is not a scale with its power, such as 's0' or '-2 s1'")
    return match[3], (-1 if match[1] else 1) * int(match[2] or 1)


def _parted(text: str, sign: str) -> list[str]:
    """The text between signs that stand outside of all parentheses."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == sign and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _check_sum(path: str, number: int, axis: Any) -> None:
    """Raises `SpecError` unless an axis is a tuple of terms, each a tuple of factors or of sums."""

    def is_sum(axis: Any) -> bool:
        return isinstance(axis, tuple) and bool(axis) and all(isinstance(term, tuple) for term in axis)

    def is_axis(axis: Any) -> bool:
        return is_sum(axis) and all(isinstance(part, Factor) or is_axis(part) for term in axis for part in term)

    options = axis.options if isinstance(axis, Choice) else (axis,)
    if not all(map(is_axis, options)):
        raise SpecError(f"'{path}', axis {number}: an axis is a sum of at least one product of factors, not {axis!r}")
    if len(sizes := set(map(size_of_axis, options))) > 1:
        raise SpecError(f"'{path}', axis {number}: its options have sizes {', '.join(map(str, sorted(sizes)))}")
    if _count_parts(axis) > PARTS:
        raise SpecError(f"'{path}', axis {number}: its sums have more than {PARTS} parts")


def _check_factor(path: str, factor: Factor, known: dict[str, Factor]) -> None:
    """Raises `SpecError` unless a factor makes sense and is the same wherever its name stands."""
    if factor.size < 1:
        raise SpecError(f"'{path}': a factor of size {factor.size}; sizes start at 1")
    if not factor.group and (factor.flips or factor.scales):
        raise SpecError(f"'{path}': '{factor}' is fixed; only the units of a group have signs and scales")
    if not factor.called:
        return
    _check_name(factor.called)
    factor = factor.bare
    other = known.setdefault(factor.called, factor)
    if other.size != factor.size:
        raise SpecError(f"group '{factor.called}' has size {other.size} elsewhere and {factor.size} in '{path}'")
    if other != factor:
        raise SpecError(f"'{path}': '{factor}' is written '{other}' elsewhere, or is fixed in one of the two places")


def _check_outer(known: dict[str, Factor]) -> None:
    """Raises `SpecError` unless outer factors exist, each after those that it is indexed by itself.

    Were a group indexed by heads that are indexed by layers, and not by the layers, its permutations would not be
    closed under composition.
    """
    for factor in known.values():
        if factor.outer and not factor.group:
            raise SpecError(f"fixed factor '{factor.name}' cannot be indexed")
        for place, name in enumerate(factor.outer):
            if name not in known or name == factor.called or name in factor.outer[:place]:
                raise SpecError(f"'{factor}': there is no other factor '{name}' that could index it")
            missing = [o for o in known[name].outer if o not in factor.outer[:place]]
            if missing:
                raise SpecError(f"'{factor}' needs '{missing[0]}' before '{name}', which is indexed by it")


def _check_scales(factors: Iterable[tuple[str, int, int, Factor]]) -> None:
    """Raises `SpecError` unless every scale belongs to one group and has a power wherever it stands."""
    known: dict[str, str | None] = {}
    for path, _, _, factor in factors:
        names = [name for name, _ in factor.scales]
        for name, power in factor.scales:
            _check_name(name)
            if names.count(name) > 1 or power == 0:
                raise SpecError(f"'{path}': '{factor.written}' has the scale '{name}' twice, or with the power 0")
            if known.setdefault(name, factor.group) != factor.group:
                raise SpecError(
                    f"'{path}': the scale '{name}' belongs to group '{known[name]}', not '{factor.group}'"
                )


def _check_beside(path: str, axes: tuple[tuple[Term, ...], ...]) -> None:
    """Raises `SpecError` unless every indexed factor stands beside exactly one of each of its outer factors.

    Every combination of terms is a piece of its own; a name that is to stand once in each of them stands in the
    product of the factor itself, or once in all of one other axis.
    """
    chosen = [[Counter(f.called for f in factors) for factors in chosen_factors(axis)] for axis in axes]
    for number, axis in enumerate(axes):
        others = chosen[:number] + chosen[number + 1 :]
        for own in chosen_factors(axis):
            for factor in own:
                for name in factor.outer:
                    here = sum(other.called == name for other in own)
                    elsewhere = [counts for other in others if (counts := {each[name] for each in other}) != {0}]
                    if here != 1 and (here or elsewhere != [{1}]):
                        raise SpecError(
                            f"'{path}', axis {number}: '{factor}' needs exactly one factor '{name}' beside it, in "
                            "the same product or in all parts of one other axis"
                        )


def chosen_factors(axis: tuple[Term, ...]) -> Iterator[tuple[Factor, ...]]:
    """The factors of every part of an axis, one term chosen of each sum."""
    for term in axis:
        parts = [[(part,)] if isinstance(part, Factor) else list(chosen_factors(part)) for part in term]
        for choice in product(*parts):
            yield tuple(factor for factors in choice for factor in factors)


def _count_parts(axis: Axis) -> int:
    if isinstance(axis, Choice):
        return sum(map(_count_parts, axis.options))
    return sum(prod(1 if isinstance(part, Factor) else _count_parts(part) for part in term) for term in axis)


def _check_name(name: str) -> None:
    """Raises `SpecError` for a name that cannot be read back.

    A group is written between `*`, `+` and sizes, so that its name must be told from all of them.
    """
    if not re.fullmatch(NAME, name):
        raise SpecError(f"'{name}' cannot name a group; names start with a letter and hold letters, digits and _ . -")
