"""A drawn figure as plain data, from which the page makes interactive panels.

Figures of papers are drawn once, by matplotlib, on whatever axes they like. What was drawn is then read back: lines,
bars, bands, steps, images. So a figure is interactive on the page without a second drawing of it. A figure with
anything that is not known here has no panels, and the page shows it as a picture.

    {"title": …, "x": axis, "y": axis, "marks": [mark, …]}
    axis  {"label", "scale": "linear" | "log", "range": [a, b], "ticks": [[value, text], …]}
    mark  {"kind": "line" | "area" | "bars" | "image" | "rule", "colour", "label", …}
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from .figures import KINDS

# A colour of the page in place of one of print, so that it means the same and is seen in the dark.
ROLES = {look["color"].lower(): kind for kind, look in KINDS.items()}
DASHES = {"-": "solid", "--": "dash", ":": "dot", "-.": "dashdot"}
SYMBOLS = {
    "o": "circle",
    ".": "circle",
    "D": "diamond",
    "s": "square",
    "^": "triangle-up",
    "x": "x",
    "v": "triangle-down",
}
MOST_POINTS = 20_000  # of a figure; more would make a slow page
FRAME = ("Spine", "XAxis", "YAxis", "Text", "Annotation", "Legend")  # drawn around what is shown


class _Unknown(Exception):
    """Something was drawn that has no counterpart on the page."""


def panels_of(figure: Any) -> list[dict[str, Any]] | None:
    """Returns the panels of a matplotlib figure, or None where something in it is not known here.

    Example:
        >>> from matplotlib.figure import Figure
        >>> figure = Figure()
        >>> axes = figure.subplots()
        >>> _ = axes.plot([0, 1], [2, 3], "--", label="loss")
        >>> panels_of(figure)[0]["marks"][0]["dash"], panels_of(figure)[0]["marks"][0]["y"]
        ('dash', [2.0, 3.0])
    """
    figure.canvas.draw()  # limits and ticks are settled when a figure is drawn
    try:
        panels = [_panel(axes) for axes in figure.axes if axes.get_label() != "<colorbar>"]
    except _Unknown:
        return None
    points = sum(len(mark.get("x") or ()) for panel in panels for mark in panel["marks"])
    return panels if points <= MOST_POINTS else None


def _panel(axes: Any) -> dict[str, Any]:
    marks = [*_bars(axes), *(mark for artist in axes.get_children() for mark in _marks(artist, axes))]
    title = axes.get_title() or axes.get_title(loc="left")
    return {"title": title, "x": _axis(axes, "x"), "y": _axis(axes, "y"), "marks": marks}


def _axis(axes: Any, which: str) -> dict[str, Any]:
    axis = getattr(axes, f"{which}axis")
    limits = getattr(axes, f"get_{which}lim")()
    found = {"label": axis.get_label_text(), "scale": "log" if axis.get_scale() == "log" else "linear"}
    found["range"] = [float(value) for value in _placed(axes, which, limits)]
    low, high = sorted(limits)
    inside = [value for value in axis.get_majorticklocs() if low <= value <= high]
    if axis.get_scale() not in (
        "linear",
        "log",
    ):  # symlog and the like: coordinates are transformed, ticks say values
        found["ticks"] = [[float(_placed(axes, which, value)), f"{value:g}"] for value in inside]
    elif type(axis.get_major_locator()).__name__ == "FixedLocator":  # places that the figure itself chose and named
        labels = axis.get_major_formatter().format_ticks(inside)
        found["ticks"] = [[float(value), text] for value, text in zip(inside, labels, strict=True)]
    return found


def _placed(axes: Any, which: str, values: Any) -> Any:
    """Coordinates as the page draws them: as they are, but for scales that the page does not have."""
    axis = getattr(axes, f"{which}axis")
    values = np.asarray(values, float)
    return values if axis.get_scale() in ("linear", "log") else axis.get_transform().transform(values)


def _marks(artist: Any, axes: Any) -> Iterator[dict[str, Any]]:
    kind = type(artist).__name__
    if kind in FRAME or artist is axes.patch or kind == "Rectangle" or not artist.get_visible():
        return
    if kind == "Line2D":
        yield from _line(artist, axes)
    elif kind in ("FillBetweenPolyCollection", "PolyCollection"):
        look = {"kind": "area", "colour": _colour(artist.get_facecolor()[0]), "label": _label(artist)}
        for path in artist.get_paths():
            yield look | _points(axes, *path.vertices.T)
    elif kind == "StepPatch":
        values, edges, _ = artist.get_data()
        x, y = np.repeat(edges, 2)[1:-1], np.repeat(values, 2)
        look = {
            "kind": "line",
            "colour": _colour(artist.get_edgecolor()),
            "dash": _dash(artist),
            "label": _label(artist),
        }
        yield look | _points(axes, x, y)
    elif kind == "Ellipse":
        angles = np.linspace(0, 2 * np.pi, 65)  # its path is made of Bézier curves, whose corners are no outline
        outline = artist.get_patch_transform().transform(np.stack((np.cos(angles), np.sin(angles)), -1))
        yield {"kind": "line", "colour": _colour(artist.get_edgecolor()), "dash": "solid"} | _points(axes, *outline.T)
    elif kind == "AxesImage":
        left, right, bottom, top = artist.get_extent()
        values = np.asarray(np.ma.filled(artist.get_array(), np.nan), float)
        if values.ndim != 2:
            raise _Unknown
        rows, columns = values.shape
        x = left + (np.arange(columns) + 0.5) * (right - left) / columns
        y = top + (np.arange(rows) + 0.5) * (bottom - top) / rows
        y = y if artist.origin == "upper" else y[::-1]
        yield {"kind": "image", "x": x.tolist(), "y": y.tolist(), "z": np.round(values, 4).tolist()}
    else:
        raise _Unknown


def _line(line: Any, axes: Any) -> Iterator[dict[str, Any]]:
    x, y = (np.atleast_1d(np.asarray(values, float)) for values in line.get_data(orig=False))
    look = {"colour": _colour(line.get_color(), line.get_alpha()), "dash": _dash(line), "label": _label(line)}
    across = axes.get_xaxis_transform(), axes.get_yaxis_transform()
    if line.get_transform() in across:  # axvline and axhline: one coordinate runs over the whole panel
        which = "x" if line.get_transform() == across[0] else "y"
        place = x[0] if which == "x" else y[0]
        yield look | {"kind": "rule", which: [float(_placed(axes, which, place))]}
        return
    symbol = SYMBOLS.get(line.get_marker(), "")
    mode = [
        part for part, drawn in (("lines", line.get_linestyle() not in ("None", "")), ("markers", symbol)) if drawn
    ]
    width = {"symbol": symbol, "mode": "+".join(mode), "width": float(line.get_linewidth())}
    if mode and x.size:
        yield look | width | {"kind": "line"} | _points(axes, x, y)


def _bars(axes: Any) -> Iterator[dict[str, Any]]:
    """Bars of one colour together; which way they lie is told by what they share."""
    boxes = [patch for patch in axes.patches if type(patch).__name__ == "Rectangle"]
    lying = len({round(box.get_x(), 9) for box in boxes}) == 1 and len(boxes) > 1
    for colour in dict.fromkeys(_colour(box.get_facecolor()) for box in boxes):
        those = [box for box in boxes if _colour(box.get_facecolor()) == colour]
        places = [
            float(box.get_y() + box.get_height() / 2 if lying else box.get_x() + box.get_width() / 2) for box in those
        ]
        lengths = [float(box.get_width() if lying else box.get_y() + box.get_height()) for box in those]
        thick = float(those[0].get_height() if lying else those[0].get_width())
        label = next((handle for handle in map(_label, those) if handle), _container_label(axes, those[0]))
        ends = {"x": lengths, "y": places} if lying else {"x": places, "y": lengths}
        yield {"kind": "bars", "lying": lying, "colour": colour, "thick": thick, "label": label} | ends


def _container_label(axes: Any, box: Any) -> str:
    for container in axes.containers:
        if box in list(container):
            return _label(container)
    return ""


def _points(axes: Any, x: Any, y: Any) -> dict[str, Any]:
    return {"x": _placed(axes, "x", x).tolist(), "y": _placed(axes, "y", y).tolist()}


def _label(artist: Any) -> str:
    label = str(artist.get_label() or "")
    return "" if label.startswith("_") else label


def _dash(artist: Any) -> str:
    return DASHES.get(artist.get_linestyle(), "solid")


def _colour(colour: Any, alpha: float | None = None) -> str:
    """A role of the page where the colour has one, else its hexadecimal; transparency as a third part."""
    from matplotlib.colors import to_hex, to_rgba

    red, green, blue, own = to_rgba(colour)
    name = to_hex((red, green, blue)).lower()
    seen = own if alpha is None else alpha
    return f"{ROLES.get(name, name)}" + (f"/{seen:.2f}" if seen < 1 else "")
