"""A spec as a picture: every parameter with its axes, and an arc of one colour through all that a group moves."""

from html import escape
from itertools import pairwise

from .spec import Axis, Factor, PermutationSpec, factors_of, write_axis

ROW, CHARACTER = 22, 7.2  # height of a line, width of a letter, in pixels
ARC = 9  # how much further right the arc of a longer way goes, for each line that it spans
WIDEST = 260
FIXED = "#d8dade"


def picture(spec: PermutationSpec) -> str:
    """Returns the spec as an SVG document.

    Every line is a parameter, with a box for each factor of its axes: coloured by its group, grey where it is fixed.
    Arcs on the right join neighbouring parameters of one group, so that a long arc is a skip connection.

    Example:
        >>> spec = PermutationSpec.parse({"w0": ["4", "g0"], "w1": ["g0", "3"]}, {"g0": 8})
        >>> picture(spec).count("<path")
        1
    """
    colours = {group: _colour(number) for number, group in enumerate(spec.sizes)}
    left = max((len(path) for path, _ in spec.parameters), default=0) * CHARACTER + 20
    lines, ends = [], {}
    for number, (path, axes) in enumerate(spec.parameters):
        y = (number + 1) * ROW
        boxes, ends[path] = _boxes(axes, left, y, colours)
        lines += [f'<text x="10" y="{y + 15}">{escape(path)}</text>', *boxes]
    right = max(ends.values(), default=left)
    paths = [path for path, _ in spec.parameters]
    for group, colour in colours.items():
        touched = list(dict.fromkeys(path for path, _, _ in spec.touched_by(group)))
        for first, second in pairwise(touched):
            lines.append(_arc(paths.index(first), paths.index(second), right + 8, colour, spec, group))
    width, height = right + WIDEST / 2 + 30, (len(paths) + 2) * ROW
    body = "\n".join(lines)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        f'viewBox="0 0 {width:.0f} {height}" font-family="ui-monospace, monospace" font-size="12">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


def _boxes(axes: tuple[Axis, ...], x: float, y: int, colours: dict[str, str]) -> tuple[list[str], float]:
    """The boxes of one parameter, and where they end."""
    boxes = []
    for axis in axes:
        title = f"<title>{escape(write_axis(axis))}</title>"
        for factor in list(factors_of(axis)) or [Factor(1)]:
            text = str(factor)
            width, fill = len(text) * CHARACTER + 8, colours.get(factor.group or "", FIXED)
            boxes.append(
                f'<g>{title}<rect x="{x:.0f}" y="{y + 3}" width="{width:.0f}" height="{ROW - 5}" rx="3" '
                f'fill="{fill}"/><text x="{x + 4:.0f}" y="{y + 15}">{escape(text)}</text></g>'
            )
            x += width + 2
        x += 8
    return boxes, x


def _arc(first: int, second: int, x: float, colour: str, spec: PermutationSpec, group: str) -> str:
    start, stop = ((number + 1) * ROW + ROW / 2 for number in (first, second))
    reach = x + min(WIDEST, 14 + ARC * (second - first))
    title = escape(f"{group}: {' × '.join(map(str, spec.perm_shape(group)))}")
    return (
        f'<path d="M {x:.0f} {start} C {reach:.0f} {start}, {reach:.0f} {stop}, {x:.0f} {stop}" fill="none" '
        f'stroke="{colour}" stroke-width="2"><title>{title}</title></path>'
    )


def _colour(number: int) -> str:
    """Neighbours differ by the golden angle, so that no two of a few are alike."""
    return f"hsl({number * 137.508 % 360:.0f} 70% {72 - 12 * (number // 7 % 2)}%)"
