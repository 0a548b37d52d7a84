"""One value of a program, as discovery sees it: its axes, what its entries are, and what they name."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .factors import Array, Axis

Axes = frozenset[int]


@dataclass(frozen=True)
class Own:
    """Axes along which entries are made of entries of their own of one parameter."""

    axes: Axes
    degree: int | None = None  # where every entry is a homogeneous polynomial of these


@dataclass(frozen=True)
class Entries:
    """What is known of the entries of one array."""

    made_of: frozenset[int] | None = None  # all parameters and inputs that it depends on; None where that is unknown
    filled: bool = False
    own: Mapping[int, Own] = field(default_factory=dict)  # by parameter
    apart: Axes = frozenset()


NOTHING = Entries()


class Positions:
    """Numbers of the units along an axis, as `argmax` finds them: where those units move, the numbers follow."""

    __slots__ = ("apart", "axis", "reason")

    def __init__(self, axis: Axis, reason: str, apart: bool):
        self.axis = axis
        self.reason = reason  # to fix the units with, where the numbers are used otherwise
        self.apart = apart  # whether no two units can have been equally good


class Value(tuple):
    """The axes of one value of a program: an object of its own, even without axes, that tells values apart."""

    entries: Entries = NOTHING
    counted: int | None = None  # the axis that a counter counts along
    positions: Positions | None = None  # what its entries name
    columns: tuple[Positions | None, ...] = ()  # the same where each position along the last axis names others
    role: str = ""  # "index"; on the way of a negative one "negative" (whether it is) and "beyond" (plus the size)

    def like(self, other: Array) -> "Value":
        """This value, with what is known of the entries of another."""
        self.__dict__.update({k: v for k, v in getattr(other, "__dict__", {}).items() if k != "value"})
        return self


class Known(Value):
    """The axes of a value that is written in the program."""

    value: Any

    @classmethod
    def of(cls, axes: Array, value: Any, entries: Entries = NOTHING) -> "Known":
        """The axes, with the value that they belong to."""
        known = cls(axes)
        known.value, known.entries = value, entries
        return known
