"""Axes as sums of products of factors: the algebra that discovery runs on.

An axis is an ordered, row-major product of factors, and an axis of size 1 is the empty product. A factor is

- `Units`: units that move together wherever they stand. A node of a union-find: `join` merges two of them,
  `cut` refines one into an outer and an inner part, `split` into parts that stand one behind the other, and all of
  them reach every axis that holds the node. With a `reason` the units are fixed: they must not move.
- `Constant`: nothing changes along it (a broadcast axis), so that every permutation leaves it as it is. It
  joins anything, and never refines or fixes what it joins.
- `Sum`: axes that stand one behind the other (`concatenate`).
- `Choice`: one axis for each term of a `Sum` that stands on the same array. A fused kernel `q + k + v`, seen as an
  array (3, units), has the sum `1 + 1 + 1` on one axis and the choice of q, k or v on the other.

What is left of these factors in the parameters when a walk ends becomes the spec's own (`spec.Factor`).

What an axis says is a claim: if the parameters move as their axes say, so does this array. Merging, refining
and fixing all shrink the set of permutations that are left, so that a claim once made stays true.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import accumulate, pairwise
from math import gcd, prod

FINER = "a finer symmetry may exist"
ACROSS = f"cut where no product of factors can follow; {FINER}"
TIED = f"tied by a slice; {FINER}"
POSITION = "position of a slice"
MOST_SPLITS = 32  # splits of a split of a … before units are fixed: an array added to itself, shifted, never ends


class Units:
    """Units that move together; compared by identity."""

    __slots__ = ("beside", "is_sum", "merged_into", "parts", "reason", "size", "splits", "tied")

    def __init__(self, size: int, reason: str = "", splits: int = 0, beside: str = "", tied: bool = False):
        self.size = size
        self.reason = reason  # why they are fixed; empty while they are free
        self.beside = beside  # a closed-over value that they met and that is constant only as its numbers are
        self.tied = tied  # whether parts of an axis share them that might each have their own
        self.splits = splits  # how many splits of larger units made these
        self.merged_into: Units | None = None
        self.parts: tuple[Axis, ...] = ()  # once refined: (outer, inner), or parts one behind the other
        self.is_sum = False


@dataclass(frozen=True)
class Constant:
    """A factor along which an array does not change."""

    size: int
    value: str = field(default="", compare=False)  # names a closed-over value whose numbers happen to be equal


class Tag:
    """Ties a `Choice` to the `Sum` whose terms it follows; merged where two such sums are joined."""

    __slots__ = ("merged_into",)

    def __init__(self):
        self.merged_into: Tag | None = None


@dataclass(frozen=True)
class Sum:
    """Axes one behind the other; a tag where another axis of the same array chooses by them."""

    terms: tuple["Axis", ...]
    tag: Tag | None = None

    @property
    def size(self) -> int:
        return sum(map(size_of, self.terms))

    @property
    def borders(self) -> list[int]:
        """Where one term ends and the next begins."""
        return list(accumulate(map(size_of, self.terms)))[:-1]


@dataclass(frozen=True)
class Choice:
    """What stands here depends on the term of a sum on this array; all options have one size."""

    options: tuple["Axis", ...]
    tag: Tag

    @property
    def size(self) -> int:
        return size_of(self.options[0])


Factor = Units | Constant | Sum | Choice
Axis = tuple[Factor, ...]
Array = tuple[Axis, ...]


def free(size: int) -> Axis:
    """An axis of fresh units that may move."""
    return (Units(size),) if size != 1 else ()


def fixed(size: int, reason: str) -> Axis:
    """An axis of units that must not move."""
    return (Units(size, reason),) if size != 1 else ()


def constant(size: int, value: str = "") -> Axis:
    """An axis along which nothing changes; `value` names a closed-over one that could be another."""
    return (Constant(size, value),) if size != 1 else ()


def plus(axes: Sequence[Axis], tag: Tag | None = None) -> Axis:
    """The axis on which these stand one behind the other."""
    axes = [axis for axis in axes if size_of(axis)] if tag is None else list(axes)
    return (Sum(tuple(axes), tag),) if len(axes) > 1 else axes[0] if axes else constant(0)


def size_of(axis: Axis) -> int:
    """Number of entries along an axis."""
    return prod(factor.size for factor in axis)


def is_constant(axis: Axis) -> bool:
    """Whether nothing changes along an axis."""
    return all(isinstance(factor, Constant) for factor in axis)


def resolve(axis: Iterable[Factor]) -> Axis:
    """The axis as it stands now: merged units by their root, refined ones by their parts."""
    leaves: list[Factor] = []
    for factor in axis:
        _collect(factor, leaves)
    return _distributed(tuple(leaves))


def settled(array: Array) -> Array:
    """The array as it stands now; a choice whose sum is no longer on it must be the same for all terms."""
    array = tuple(map(resolve, array))
    if not any(isinstance(factor, Choice) for axis in array for factor in leaves_of(axis, choices=True)):
        return array
    tags = [root_tag(f.tag) for axis in array for f in axis if isinstance(f, Sum) and f.tag]
    known = frozenset(tag for tag in tags if tags.count(tag) == 1)
    return tuple(resolve(_collapsed(axis, known)) for axis in array)


def chooser(array: Array) -> tuple[int, Sum, Tag] | None:
    """The one axis of an array that is a sum by which others choose: its number, the sum and its tag."""
    tags = {root_tag(factor.tag) for axis in array for factor in axis if isinstance(factor, Choice)}
    found = []
    for number, axis in enumerate(array):
        first = axis[0] if len(axis) == 1 else None
        if isinstance(first, Sum) and first.tag and root_tag(first.tag) in tags:
            found.append((number, first, root_tag(first.tag)))
    return found[0] if len(found) == 1 else None


def alternatives(array: Array) -> list[Array]:
    """The array once for each term of a sum that other axes of it choose by, if there is one; as it stands now."""
    array = tuple(map(resolve, array))
    if (by := chooser(array)) is None:
        return [array]
    place, total, tag = by
    return [
        tuple(
            term if number == place else chosen_terms(axis, tag, slice(at, at + 1), tag)
            for number, axis in enumerate(array)
        )
        for at, term in enumerate(total.terms)
    ]


def without_choices(array: Array) -> Array:
    """The array with every choice made the same for all terms, for operations that do not follow them."""
    array = tuple(map(resolve, array))
    plain = tuple(resolve(_collapsed(axis, frozenset())) for axis in array)
    choices = (factor for axis in array for factor in leaves_of(axis, choices=True) if isinstance(factor, Choice))
    for units in (units for choice in choices for units in units_of(choice.options[0])):
        units.tied = True
    return plain


def leaves_of(axis: Iterable[Factor], choices: bool = False) -> Iterator[Factor]:
    """Units and constants of an axis, inside of sums and choices too; with `choices`, these as well."""
    for factor in axis:
        if isinstance(factor, Sum | Choice):
            if choices and isinstance(factor, Choice):
                yield factor
            for part in factor.terms if isinstance(factor, Sum) else factor.options:
                yield from leaves_of(part, choices)
        else:
            yield factor


def units_of(axis: Axis) -> list[Units]:
    """The units of an axis as they stand now, without what is constant."""
    return [factor for factor in leaves_of(resolve(axis)) if isinstance(factor, Units)]


def fix(axis: Axis, reason: str) -> None:
    """Fixes the units of an axis; the first reason given stays."""
    for units in units_of(axis):
        units.reason = units.reason or reason


def join(left: Axis, right: Axis) -> Axis:
    """Makes two axes move together and returns what both are now; size 1 broadcasts.

    From the innermost factor outwards, one axis is cut to the size of each factor of the other. Sums are split at the
    borders of both, and joined term by term.
    """
    left, right = resolve(left), resolve(right)
    if not left or not right:
        return left or right
    for one, other in ((left, right), (right, left)):
        if is_constant(one):
            _note(other, next((factor.value for factor in one if isinstance(factor, Constant)), ""))
            return other
    if not (_has_sum(left) and _has_sum(right)):
        for one, other in ((left, right), (right, left)):
            if _is_fixed(one) and _is_one_factor(one) and _is_one_factor(other):
                return (_merge(one[0], other[0]),)
            if _is_fixed(one):
                fix(other, next((units.reason for units in units_of(one)), POSITION))
                other = resolve(other)
                return other if _has_sum(other) and _is_fixed(other) else one
    joined: Axis = ()
    while left and right:
        if _cuts(left, right[-1]):
            left, right = right, left
        *rest, last = right
        left, inner = cut(left, last.size)
        joined = _match(inner, last) + joined
        left, right = resolve(left), resolve(rest)
    return resolve(joined)


def cut(axis: Axis, inner: int) -> tuple[Axis, Axis]:
    """Splits an axis into an outer and an inner part, the inner one of size `inner`, refining what it cuts.

    A factor that does not divide keeps its greatest common part; the least segment that straddles the cut
    is fixed, since no product of factors can say how it moves.
    """
    outer, taken, missing = resolve(axis), (), inner
    while missing > 1:
        common = gcd(outer[-1].size, missing)
        if common == 1 or not _divides(outer[-1], common):
            return _cut_across(outer, taken, missing)
        outer, part = _divide_last(outer, common)
        taken, missing = part + taken, missing // common
    return resolve(outer), resolve(taken)


def split(axis: Axis, borders: Sequence[int]) -> list[Axis]:
    """Splits an axis at given positions into axes that stand one behind the other, refining what it splits."""
    axis = resolve(axis)
    if not borders:
        return [axis]
    (first, *rest), inner = axis, size_of(axis[1:])
    if not any(border % inner for border in borders):
        parts = _split_factor(first, [border // inner for border in borders])
        return [resolve(part + tuple(rest)) for part in parts]
    border, *others = borders  # at least one of them is inside of an entry of the first factor
    entry, within = divmod(border, inner)
    around = [place for place in ({entry, entry + 1} if within else {entry}) if 0 < place < first.size]
    parts = dict(zip([0, *around], _split_factor(first, around), strict=True))
    if within:
        head, tail = split(tuple(rest), [within])
        left = plus([parts[0] + tuple(rest), head]) if entry else head
        right = plus([tail, parts[entry + 1] + tuple(rest)]) if entry + 1 < first.size else tail
    else:
        left, right = (parts[place] + tuple(rest) for place in (0, entry))
    return [resolve(left), *split(right, [other - border for other in others])]


def select(array: Array, number: int, start: int, stop: int) -> Array:
    """The entries from `start` to `stop` along one axis of an array, taken at their positions."""
    size = size_of(array[number])
    if (start, stop) == (0, size):
        return array
    axis = resolve(array[number])
    if len(axis) == 1 and isinstance(axis[0], Sum) and axis[0].tag:
        borders = [0, *axis[0].borders, size]
        if start in borders and stop in borders:
            chosen, tag = slice(borders.index(start), borders.index(stop)), Tag()
            old = root_tag(axis[0].tag)
            others = tuple(chosen_terms(resolve(other), old, chosen, tag) for other in array)
            return (*others[:number], resolve(plus(axis[0].terms[chosen], tag)), *others[number + 1 :])
    parts = split(axis, sorted({start, stop} - {0, size})) if not is_constant(axis) else [constant(stop - start)]
    part = parts[min(1, len(parts) - 1)] if start else parts[0]
    return (*array[:number], part, *array[number + 1 :])


def _split_factor(factor: Factor, borders: list[int]) -> list[Axis]:
    """One factor, split at positions inside of it."""
    if not borders:
        return [(factor,)]
    sizes = [stop - start for start, stop in pairwise([0, *borders, factor.size])]
    if isinstance(factor, Constant):
        return [constant(size) for size in sizes]
    if isinstance(factor, Sum):
        return _split_sum(factor, borders)
    if isinstance(factor, Choice):
        parts = [split(option, borders) for option in factor.options]
        return [(Choice(options, factor.tag),) for options in zip(*parts, strict=True)]
    if not factor.reason and factor.splits >= MOST_SPLITS:
        factor.reason = TIED
    if factor.reason:
        return [fixed(size, factor.reason) for size in sizes]
    factor.is_sum = True
    factor.parts = tuple(
        # An entry alone has nothing to be permuted with: an axis of size 1 is the empty product.
        (Units(size, splits=factor.splits + 1, beside=factor.beside, tied=factor.tied),) if size != 1 else ()
        for size in sizes
    )
    return list(factor.parts)


def _split_sum(factor: Sum, borders: list[int]) -> list[Axis]:
    ends = [0, *factor.borders, factor.size]
    pieces: list[tuple[int, Axis]] = []  # (start, axis), in order
    for term, (start, stop) in zip(factor.terms, pairwise(ends), strict=True):
        inside = [border for border in borders if start < border < stop]
        parts = split(term, [border - start for border in inside])
        pieces += zip([start, *inside], parts, strict=True)
    return [
        plus([piece for place, piece in pieces if start <= place < stop])
        for start, stop in pairwise([0, *borders, factor.size])
    ]


def chosen_terms(axis: Axis, tag: Tag, chosen: slice, new: Tag) -> Axis:
    """The axis after only some terms of a tagged sum are left."""

    def choose(factor: Factor) -> Axis:
        if not isinstance(factor, Choice) or root_tag(factor.tag) is not tag:
            return (factor,)
        options = factor.options[chosen]
        return options[0] if len(options) == 1 else (Choice(options, new),)

    return tuple(part for factor in axis for part in choose(factor))


def _collapsed(axis: Axis, known: frozenset[Tag]) -> Axis:
    """The axis with the options joined of every choice whose tag is not known, and of all inside of sums."""
    result: list[Factor] = []
    for factor in axis:
        if isinstance(factor, Sum):
            result.append(Sum(tuple(_collapsed(term, frozenset()) for term in factor.terms), factor.tag))
        elif isinstance(factor, Choice):
            options = tuple(_collapsed(option, frozenset()) for option in factor.options)
            is_known = root_tag(factor.tag) in known
            result.extend([Choice(options, factor.tag)] if is_known else reduce(join, options))
        else:
            result.append(factor)
    return tuple(result)


def _distributed(axis: Axis) -> Axis:
    """`(a + b) * choice of c or d`, on one axis, is `a * c + b * d`."""
    for place, factor in enumerate(axis):
        if isinstance(factor, Sum) and factor.tag:
            tag = root_tag(factor.tag)
            followers = [i for i in range(place + 1, len(axis)) if _follows(axis[i], tag)]
            if followers:
                end = followers[-1] + 1
                terms = [
                    term + chosen_terms(axis[place + 1 : end], tag, slice(number, number + 1), tag)
                    for number, term in enumerate(factor.terms)
                ]
                return resolve((*axis[:place], Sum(tuple(terms), tag), *axis[end:]))
    return axis


def _follows(factor: Factor, tag: Tag) -> bool:
    return isinstance(factor, Choice) and root_tag(factor.tag) is tag


def _cut_across(outer: Axis, taken: Axis, missing: int) -> tuple[Axis, Axis]:
    segment = 1
    straddling: Axis = ()
    while segment % missing:
        last = outer[-1]
        common = gcd(last.size, missing // gcd(missing, segment))
        whole = common == 1 or isinstance(last, Sum | Choice)
        outer, part = _divide_last(outer, last.size if whole else common)
        straddling, segment = part + straddling, segment * size_of(part)
    fix(straddling, ACROSS)
    return resolve(outer + fixed(segment // missing, ACROSS)), resolve(fixed(missing, ACROSS) + taken)


def _divides(factor: Factor, inner: int) -> bool:
    """Whether units of a factor can be cut into blocks of `inner`: of a sum, those of every term."""
    if isinstance(factor, Sum) and inner != factor.size:
        return all(size_of(term) % inner == 0 for term in factor.terms)
    return True


def _divide_last(axis: Axis, inner: int) -> tuple[Axis, Axis]:
    """Takes the innermost `inner` units off an axis."""
    *rest, last = axis
    if last.size == inner:
        return tuple(rest), (last,)
    outer, part = _divide(last, inner)
    return resolve((*rest, *outer)), part


def _divide(factor: Factor, inner: int) -> tuple[Axis, Axis]:
    if isinstance(factor, Constant):
        return constant(factor.size // inner), constant(inner)
    if isinstance(factor, Sum | Choice):
        parts = factor.terms if isinstance(factor, Sum) else factor.options
        outers, inners = zip(*[cut(part, inner) for part in parts], strict=True)
        tag = factor.tag or Tag()
        outer = Sum(outers, tag) if isinstance(factor, Sum) else Choice(outers, tag)
        return resolve((outer,)), resolve((Choice(inners, tag),))
    factor.is_sum = False
    sizes = (factor.size // inner, inner)
    outer, part = (Units(size, factor.reason, factor.splits, factor.beside, factor.tied) for size in sizes)
    factor.parts = ((outer,), (part,))
    return factor.parts


def _match(axis: Axis, factor: Factor) -> Axis:
    """Joins an axis with one factor of its size."""
    if isinstance(factor, Constant):
        return axis
    axis = resolve(axis)
    if isinstance(factor, Sum):
        return _match_sum(axis, factor)
    if isinstance(factor, Choice):
        return _match_choice(axis, factor)
    current = resolve([factor])
    if current != (factor,):  # refined while its partner was cut: it stands on both sides
        return join(axis, current)
    if any(isinstance(other, Sum | Choice) for other in axis):
        return join(axis, current)
    matched: Axis = ()
    rest: Axis = current
    for other in reversed(axis):
        rest, part = _divide_last(rest, other.size)
        matched = (_merge(part[0], other), *matched)
    return matched


def _match_sum(axis: Axis, factor: Sum) -> Axis:
    """Joins an axis with a sum, term by term; both are split at the borders of both."""
    ours = axis[0] if len(axis) == 1 and isinstance(axis[0], Sum) else None
    borders = sorted({*factor.borders, *(ours.borders if ours else ())})
    tags = [side.tag for side in (ours, factor) if side and side.tag and side.borders == borders]
    pairs = zip(split(axis, borders), split((factor,), borders), strict=True)
    terms = [join(left, right) for left, right in pairs]
    tag = _merge_tags(tags) if tags else None
    return plus(terms, tag)


def _match_choice(axis: Axis, factor: Choice) -> Axis:
    """Joins an axis with a choice: option by option where it is one by the same sum, else with every option."""
    if len(axis) == 1 and isinstance(axis[0], Choice):
        other = axis[0]
        if root_tag(other.tag) is root_tag(factor.tag):
            return (Choice(tuple(map(join, other.options, factor.options)), factor.tag),)
        axis = _collapsed(axis, frozenset())
    for option in factor.options:
        axis = join(axis, option)
    return axis


def _merge(left: Factor, right: Factor) -> Factor:
    """Makes two factors one. Fixed units stay apart: both count positions, but not always the same ones."""
    if isinstance(left, Units) and isinstance(right, Units):
        left, right = _root(left), _root(right)
        if left is not right and not (left.reason and right.reason):
            right.merged_into, left.reason = left, left.reason or right.reason
            left.splits, left.beside = max(left.splits, right.splits), left.beside or right.beside
            left.tied = left.tied or right.tied
        return left
    return right if isinstance(left, Constant) else left


def _merge_tags(tags: list[Tag]) -> Tag:
    first, *others = map(root_tag, tags)
    for other in others:
        if other is not first:
            other.merged_into = first
    return first


def _note(axis: Axis, value: str) -> None:
    """Remembers that units met a value that is constant by its numbers."""
    for units in units_of(axis) if value else ():
        units.beside = units.beside or value


def _cuts(axis: Axis, last: Factor) -> bool:
    """Whether the other axis, which ends in `last`, is cut to the end of this one, rather than the reverse.

    Sums and choices are kept whole where they can be, so that the plain side is cut.
    """
    if isinstance(last, Sum):
        return False
    if isinstance(axis[-1], Sum | Choice):
        return True
    return any(isinstance(factor, Sum | Choice) for factor in axis) and last.size > axis[-1].size


def _is_one_factor(axis: Axis) -> bool:
    return len(axis) == 1 and isinstance(axis[0], Units)


def _has_sum(axis: Axis) -> bool:
    return any(isinstance(factor, Sum) for factor in axis)


def _is_fixed(axis: Axis) -> bool:
    """Whether all of an axis is known not to move."""
    return all(isinstance(factor, Units) and factor.reason for factor in leaves_of(axis))


def _collect(factor: Factor, leaves: list[Factor]) -> None:
    if isinstance(factor, Units):
        units = _root(factor)
        if not units.parts:
            leaves.append(units)
        elif units.is_sum:
            _collect(Sum(units.parts), leaves)
        else:
            for part in (part for axis in units.parts for part in axis):
                _collect(part, leaves)
    elif isinstance(factor, Sum):
        terms = [resolve(term) for term in factor.terms]
        if factor.tag is None:  # a sum of sums is one sum
            terms = [part for term in terms for part in _terms_of(term)]
        leaves.extend((Sum(tuple(terms), factor.tag),) if len(terms) > 1 else terms[0])
    elif isinstance(factor, Choice):
        options = tuple(resolve(option) for option in factor.options)
        same = all(option == options[0] for option in options)
        leaves.extend(options[0] if same else (Choice(options, factor.tag),))
    elif leaves and isinstance(leaves[-1], Constant):
        leaves[-1] = Constant(leaves[-1].size * factor.size, leaves[-1].value or factor.value)
    else:
        leaves.append(factor)


def _terms_of(axis: Axis) -> tuple[Axis, ...]:
    """The terms of an axis that is nothing but a sum, else the axis itself."""
    return axis[0].terms if len(axis) == 1 and isinstance(axis[0], Sum) else (axis,)


def _root(units: Units) -> Units:
    while units.merged_into:
        if units.merged_into.merged_into:
            units.merged_into = units.merged_into.merged_into  # halve the path
        units = units.merged_into
    return units


def root_tag(tag: Tag) -> Tag:
    while tag.merged_into:
        tag = tag.merged_into
    return tag
