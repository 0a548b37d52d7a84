"""How an axis is written: a product of groups and sizes, such as `7 * 7 * g0`."""

import re
from dataclasses import dataclass, field
from typing import Any

from ..errors import SpecError


@dataclass(frozen=True)
class Factor:
    """A block of an axis: `size` units that move with `group`, or stay (`group` is None)."""

    size: int
    group: str | None = None
    reason: str = field(default="", compare=False)  # why it is fixed, for people

    def __str__(self) -> str:
        return self.group or str(self.size)


Axis = tuple[Factor, ...]


def natural(name: str) -> list[Any]:
    """A key that sorts g2 before g10."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]


def write_axis(axis: Axis) -> str:
    """The product as text; an axis of size 1 is `1`."""
    return " * ".join(str(factor) for factor in axis) or "1"


def reasons_of(axis: Axis) -> str:
    """Why parts of an axis are fixed, each reason once."""
    return "; ".join(dict.fromkeys(factor.reason for factor in axis if factor.reason))


def read_axis(path: str, number: int, text: Any, groups: dict[str, int], reasons: list[Any]) -> Axis:
    """The factors of an axis from its text; `path` and `number` say in an error where it stands."""
    if not isinstance(text, str):
        raise SpecError(f"'{path}', axis {number}: expected a product such as \"7 * g0\", not {text!r}")
    reason = reasons[number] if number < len(reasons) and isinstance(reasons[number], str) else ""
    factors = []
    for word in text.split("*"):
        word = word.strip()
        if word in groups:
            factors.append(Factor(groups[word], word))
        elif word.isascii() and word.isdigit() and len(word) < 19 and int(word) > 0:
            factors.append(Factor(int(word), None, reason))
        else:
            raise SpecError(f"'{path}', axis {number}: '{word}' is neither a group of the spec nor a size")
    return tuple(f for f in factors if f.group or f.size > 1)


def check_name(group: str) -> None:
    """Raises `SpecError` for a name that cannot be read back.

    A group is written between `*` and sizes, so that its name must be told from both.
    """
    if not re.fullmatch(r"[^\W\d][\w.-]*", group):
        raise SpecError(
            f"'{group}' cannot name a group; names start with a letter and hold letters, digits and _ . -"
        )
