"""A spec as a graph: layers in the order of the computation, and a rail of one colour along all that a group moves.

Every line is a layer, that is, the parameters that have all but the last part of their names in common. A rail
begins at the first layer that has the units of its group and ends at the last, with a dot at each: a long rail is a
stream with skip connections, a short one joins two layers. Layers that repeat, each with groups of its own, are drawn
once.

`drawing` makes shapes of it, which `picture` writes as SVG and the report page draws in its own colours.
"""

import colorsys
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from .explain import fold_names
from .spec import Axis, Choice, Factor, PermutationSpec, Term, factors_of, write_axis

LINE, CHARACTER = 24, 7.25  # height of a line, width of a letter, in pixels
RAIL = 18  # from one rail to the next
MARGIN, GAP = 14, 20
MOST_LAYERS = 2000  # lines of which repetitions are looked for


@dataclass(frozen=True)
class _Layer:
    """One line: a layer, or several that repeat."""

    name: str
    parameters: tuple[tuple[str, tuple[Axis, ...]], ...]  # last parts of their names, and axes

    @property
    def factors(self) -> list[Factor]:
        return [factor for _, axes in self.parameters for axis in axes for factor in factors_of(axis)]

    @property
    def groups(self) -> list[str]:
        return [factor.group for factor in self.factors if factor.group]

    @property
    def kind(self) -> Any:
        """What layers that repeat have in common: everything but numbers in names, and which groups they are."""
        sizes = tuple((factor.size, bool(factor.group), len(factor.outer)) for factor in self.factors)
        shapes = tuple((name, len(axes)) for name, axes in self.parameters)
        return re.sub(r"\d+", "#", self.name), shapes, sizes


@dataclass(frozen=True)
class _Block:
    """Layers, and how often they stand behind each other."""

    layers: tuple[_Layer, ...]
    names: tuple[tuple[str, ...], ...] = ()  # for each layer, the names in all repetitions
    alike: tuple[dict[str, str], ...] = ({},)  # for each repetition, the group in the place of one of the first

    @property
    def times(self) -> int:
        return len(self.alike)


def picture(spec: PermutationSpec, order: Sequence[str] = ()) -> str:
    """Returns the spec as an SVG document: a line for each layer, a coloured rail for each group.

    Args:
        spec: what to draw.
        order: paths of parameters as the network uses them, see `order_of_use`; else they stand as in the spec.

    Example:
        >>> spec = PermutationSpec.parse({"w0": ["4", "g0"], "w1": ["g0", "3"]}, {"g0": 8})
        >>> picture(spec).count('class="rail"')
        1
    """
    drawn = drawing(spec, order)
    width, height = drawn["width"], drawn["height"]
    body = "\n".join(map(_written, drawn["shapes"]))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="ui-monospace, monospace" font-size="12" fill="#1b2430">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


def drawing(spec: PermutationSpec, order: Sequence[str] = ()) -> dict[str, Any]:
    """Returns the graph as its size and shapes, each with a kind, a place, and the hue of its group.

    Kinds are "line" (from a layer's name to its axes), "rail", "dot", "chip" (a factor of an axis; grey without a
    hue), "frame" (around layers that repeat) and the texts "name", "leaf" and "times".
    """
    blocks = list(_folded(_layers(spec, order)))
    lines = [(block, at) for block in blocks for at in range(len(block.layers))]
    labels = [_label(block, at) for block, at in lines]
    hues = {group: round(number * 137.508 % 360) for number, group in enumerate(_shown(blocks))}
    rails = _rails([block.layers[at].groups for block, at in lines])
    left = MARGIN + max(map(len, labels), default=0) * CHARACTER + GAP
    right = left + RAIL * max((lane + 1 for lane, _, _ in rails.values()), default=0) + GAP / 2
    others = {first: [one[first] for one in block.alike] for block in blocks for first in block.alike[0]}
    titles = {group: _title(spec, group, others.get(group, [group])) for group in hues}

    def middle(line: int) -> float:
        return MARGIN + LINE * (line + 0.5)

    shapes, widest, line = [], right, 0
    for number, (block, at) in enumerate(lines):
        y, layer = middle(number), block.layers[at]
        name = {"kind": "name", "x": MARGIN, "y": y, "text": labels[number]}
        start = MARGIN + len(labels[number]) * CHARACTER + 6
        shapes += [name, {"kind": "line", "x": start, "y": y, "width": right - start, "height": 0}]
        chips, end = _chips(layer, right + 6, y, hues, titles)
        shapes, widest = shapes + chips, max(widest, end)
    for block in blocks:
        if block.times > 1:
            y, height = MARGIN + LINE * line, LINE * len(block.layers)
            frame = {"x": MARGIN - 8, "y": y + 1, "width": widest - MARGIN + 16 + 5 * CHARACTER, "height": height - 2}
            times = {"x": widest + 12, "y": y + LINE / 2, "text": f"× {block.times}"}
            shapes += [{"kind": "frame", **frame}, {"kind": "times", **times}]
        line += len(block.layers)
    for group, (lane, first, last) in rails.items():
        x, colour = left + RAIL * lane, {"hue": hues[group], "title": titles[group]}
        place = {"x": x, "y": middle(first), "width": 0, "height": middle(last) - middle(first)}
        shapes.append({"kind": "rail", **place, **colour})
        touched = (number for number, (block, at) in enumerate(lines) if group in block.layers[at].groups)
        shapes += [{"kind": "dot", "x": x, "y": middle(number), **colour} for number in touched]
    width = widest + MARGIN + 6 * CHARACTER * any(block.times > 1 for block in blocks)
    return {"width": round(width), "height": round(2 * MARGIN + LINE * len(lines)), "shapes": shapes}


def _layers(spec: PermutationSpec, order: Sequence[str]) -> list[_Layer]:
    """Parameters with all but the last part of their names in common, in order of use."""
    axes = spec.axes
    layers: dict[str, list[tuple[str, tuple[Axis, ...]]]] = {}
    for path in dict.fromkeys([path for path in order if path in axes] + list(axes)):
        readable = path.replace("%2F", "/")
        name, _, leaf = readable.rpartition("/" if "/" in readable else ".")
        layers.setdefault(name or readable, []).append((leaf if name else "", axes[path]))
    return [_Layer(name, tuple(parameters)) for name, parameters in layers.items()]


def _folded(layers: list[_Layer]) -> Iterator[_Block]:
    """Puts layers that repeat into one block, always the longest stretch of them."""
    lines: dict[str, list[int]] = {}
    for number, layer in enumerate(layers):
        for group in layer.groups:
            lines.setdefault(group, []).append(number)
    kinds, start = [layer.kind for layer in layers], 0
    while start < len(layers):
        best = _Block((layers[start],))
        for length in range(1, (len(layers) - start) // 2 + 1) if len(layers) <= MOST_LAYERS else ():
            if kinds[start] != kinds[start + length]:
                continue
            alike = []
            while (found := _matched(layers, kinds, lines, start, length, len(alike))) is not None:
                alike.append(found)
            if len(alike) * length > best.times * len(best.layers) and len(alike) > 1:
                stretch = range(start, start + len(alike) * length, length)
                names = tuple(tuple(layers[at + one].name for one in stretch) for at in range(length))
                best = _Block(tuple(layers[start : start + length]), names, tuple(alike))
        yield best
        start += best.times * len(best.layers)


def _matched(
    layers: list[_Layer], kinds: list[Any], lines: dict[str, list[int]], start: int, length: int, times: int
) -> dict[str, str] | None:
    """The groups of a repetition by those of the first; None where it is none.

    A group is the same in every repetition, or stands nowhere but in one of them.
    """
    begin = start + times * length
    if begin + length > len(layers) or kinds[begin : begin + length] != kinds[start : start + length]:
        return None
    found: dict[str, str] = {}
    for first, other in zip(layers[start : start + length], layers[begin : begin + length], strict=True):
        for ours, theirs in zip(first.groups, other.groups, strict=True):
            if found.setdefault(ours, theirs) != theirs:
                return None
    for ours, theirs in found.items():
        places = ((start, ours), (begin, theirs))
        if ours != theirs and not all(at <= line < at + length for at, group in places for line in lines[group]):
            return None
    return found if len(set(found.values())) == len(found) else None


def _shown(blocks: Iterable[_Block]) -> list[str]:
    return list(dict.fromkeys(group for block in blocks for layer in block.layers for group in layer.groups))


def _rails(groups: list[list[str]]) -> dict[str, tuple[int, int, int]]:
    """For each group its lane, and the first and the last line that it touches; lanes are used again."""
    ends: dict[str, tuple[int, int]] = {}
    for line, touched in enumerate(groups):
        for group in touched:
            ends[group] = (ends.get(group, (line, line))[0], line)
    free: list[int] = []  # for each lane, the first line at which it may be used again
    rails = {}
    for group, (first, last) in sorted(ends.items(), key=lambda one: (one[1][0], -one[1][1])):
        lane = next((lane for lane, until in enumerate(free) if until <= first), len(free))
        free[lane : lane + 1] = [last + 1]
        rails[group] = (lane, first, last)
    return rails


def _label(block: _Block, at: int) -> str:
    return fold_names(block.names[at]) if block.names else block.layers[at].name


def _title(spec: PermutationSpec, group: str, alike: list[str]) -> str:
    shape = " × ".join(map(str, spec.perm_shape(group)))
    names = fold_names(dict.fromkeys(alike))
    return f"{names}: {shape}" + (f", {len(set(alike))} groups" if len(set(alike)) > 1 else "")


def _chips(
    layer: _Layer, x: float, y: float, hues: dict[str, int], titles: dict[str, str]
) -> tuple[list[dict[str, Any]], float]:
    """The factors of one layer's axes, and where they end."""
    shapes: list[dict[str, Any]] = []
    for leaf, axes in layer.parameters:
        if leaf:
            shapes.append({"kind": "leaf", "x": x, "y": y, "text": leaf})
            x += len(leaf) * CHARACTER + 6
        for axis, sign, term in _written_terms(axes):
            if sign:
                shapes.append({"kind": "leaf", "x": x - 4, "y": y, "text": sign})
                x += CHARACTER
            for factor in list(factors_of((term,))) or [Factor(1)]:
                text, group = str(factor), factor.group or ""
                chip = {"kind": "chip", "x": x, "y": y - 9, "width": len(text) * CHARACTER + 8, "height": 18}
                title = titles.get(group) or factor.reason or write_axis(axis)
                shapes.append({**chip, "text": text, "title": title, "hue": hues.get(group)})
                x += chip["width"] + 2
            x += 5
        x += 8
    return shapes, x


def _written_terms(axes: tuple[Axis, ...]) -> Iterator[tuple[Axis, str, Term]]:
    """The terms of every axis, each with the sign in front of it."""
    for axis in axes:
        for option, terms in enumerate(axis.options if isinstance(axis, Choice) else (axis,)):
            for number, term in enumerate(terms or [()]):
                yield axis, "+" if number else "|" if option else "", term


def _written(shape: dict[str, Any]) -> str:
    """One shape as SVG."""
    kind, x, y, hue = shape["kind"], round(shape["x"], 1), round(shape["y"], 1), shape.get("hue")
    width, height = round(shape.get("width", 0), 1), round(shape.get("height", 0), 1)
    text, title = escape(shape.get("text", "")), f"<title>{escape(shape.get('title', ''))}</title>"
    if kind in ("name", "leaf", "times"):
        fill = "" if kind == "name" else ' fill="#566273"'
        return f'<text x="{x}" y="{y + 4}"{fill}>{text}</text>'
    if kind == "line":
        return f'<path d="M {x} {y} h {width}" stroke="#e1e5ea"/>'
    if kind == "frame":
        place = f'x="{x}" y="{y}" width="{width}" height="{height}"'
        return f'<rect class="frame" {place} rx="6" fill="none" stroke="#b9c2ce" stroke-dasharray="4 3"/>'
    if kind == "chip":
        fill = "#eceef1" if hue is None else _colour(hue, 0.85)
        place = f'x="{x}" y="{y}" width="{width}" height="{height}"'
        return f'<g>{title}<rect {place} rx="4" fill="{fill}"/><text x="{x + 4}" y="{y + 13}">{text}</text></g>'
    colour = _colour(hue or 0, 0.45)
    if kind == "rail":
        return f'<path class="rail" d="M {x} {y} v {height}" stroke="{colour}" stroke-width="4">{title}</path>'
    return f'<circle cx="{x}" cy="{y}" r="5" fill="{colour}" stroke="white" stroke-width="1.5">{title}</circle>'


def _colour(hue: int, lightness: float) -> str:
    parts = colorsys.hls_to_rgb(hue / 360, lightness, 0.62)
    return "#" + "".join(f"{round(255 * part):02x}" for part in parts)
