"""Print figures from saved numbers: SVG, PDF and PNG, with the numbers beside them.

Every figure is drawn from a section of `report.json`, so that it can be drawn again without a run. One style
file, `bayesin.mplstyle`, sets sizes and colours; the backend is a file writer, and no window opens.
"""

import csv
import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import ConfigError
from ...files import write_bytes
from ...json_files import plain, write_json
from .document import DIGITS

FORMATS = ("svg", "pdf", "png")
# One colour for each kind of path, in every figure and on the page (assets/page.css); nothing else is drawn in them.
KINDS = {
    "naive": {"color": "#D55E00", "linestyle": "--", "marker": "D", "label": "without alignment"},
    "aligned": {"color": "#0072B2", "linestyle": "-", "marker": "o", "label": "after alignment"},
    "rescaled": {"color": "#009E73", "linestyle": "-.", "marker": "^", "label": "aligned and rescaled"},
    "mixture": {"color": "#CC79A7", "linestyle": ":", "marker": "s", "label": "mixture, a control"},
}
MEASURES = (("nll", "loss (nats)", 1), ("accuracy", "accuracy (%)", 100), ("ece", "ECE (points)", 100))


@contextmanager
def style() -> Iterator[None]:
    """The style of all print figures, for as long as the block runs."""
    import matplotlib.style

    with (
        resources.as_file(resources.files("bayesin.lab.report") / "bayesin.mplstyle") as path,
        matplotlib.style.context(path),
        warnings.catch_warnings(),
    ):
        # Said of any legend where the machine is busy: that a second has passed, not that there is much to look at.
        warnings.filterwarnings("ignore", 'Creating legend with loc="best"')
        yield


@style()
def barrier_figure(section: Mapping[str, Any], stem: Path | str, *, part: str = "test") -> list[Path]:
    """Draws loss, accuracy and calibration error along τ, before and after alignment.

    Args:
        section: the `barrier` section of a report.
        stem: path without ending; `.svg`, `.pdf`, `.png`, `.json` and `.csv` are written.
        part: the data set, a name in `section["sets"]`.

    Returns:
        The paths that were written.
    """
    sets = section["sets"]
    if part not in sets:
        raise ConfigError(f"there is no set '{part}' in these curves; there is {', '.join(sets)}")
    curves = {kind: curve for kind, curve in plain(sets[part], DIGITS).items() if kind in KINDS}
    shown = [measure for measure in MEASURES if any(curve.get(measure[0]) for curve in curves.values())]
    figure, axes = _subplots(len(shown))
    for axis, (name, label, scale) in zip(axes, shown, strict=True):
        for kind, curve in curves.items():
            if curve.get(name):
                _line(axis, curve, name, scale, KINDS[kind])
        axis.set(xlabel="position on the path, τ", ylabel=label, xlim=(-0.02, 1.02), xticks=[0, 0.25, 0.5, 0.75, 1])
        axis.set_xticklabels(["0", "¼", "½", "¾", "1"])
    axes[0].set_ylim(bottom=0)
    handles, labels = axes[0].get_legend_handles_labels()
    heights = [f"{label}: barrier {_height(curve)}" for label, curve in zip(labels, curves.values(), strict=True)]
    figure.legend(handles, heights, loc="outside upper left", ncols=2)
    return [*save(figure, stem), write_json(f"{stem}.json", curves), _write_csv(f"{stem}.csv", curves)]


@style()
def plane_figure(section: Mapping[str, Any], stem: Path | str) -> list[Path]:
    """Draws the loss on the plane through two posteriors and the aligned copy, with contours.

    Args:
        section: the `plane` section of a report.
        stem: path without ending; `.svg`, `.pdf`, `.png` and `.json` are written.
    """
    from matplotlib.ticker import MaxNLocator

    section = plain(section, DIGITS)
    x, y, loss = (np.array(section[name], float) for name in ("x", "y", "nll"))
    top = min(float(np.nanmax(loss)), section.get("cut") or np.inf)
    figure, (axis,) = _subplots(1, size=(5.2, 3.95 * (y[-1] - y[0]) / (x[-1] - x[0]) + 0.6))
    levels = MaxNLocator(13, steps=[1, 2, 5, 10]).tick_values(float(np.nanmin(loss)), top)  # a round scale
    extend = "max" if float(np.nanmax(loss)) > levels[-1] else "neither"
    filled = axis.contourf(x, y, loss, levels=levels, cmap="cividis_r", extend=extend)
    axis.contour(x, y, loss, levels=levels, colors="0.4", linewidths=0.4)
    points = {point["role"]: point for point in section["points"]}
    for role, kind in (("source", "naive"), ("aligned", "aligned")):
        if "target" in points and role in points:
            ends = (points["target"], points[role])
            for colour, width, line in (("white", 3.6, "-"), (KINDS[kind]["color"], 1.8, KINDS[kind]["linestyle"])):
                axis.plot([p["x"] for p in ends], [p["y"] for p in ends], line, color=colour, linewidth=width)
    for point in points.values():
        axis.plot(point["x"], point["y"], "o", color="white", markeredgecolor="0.05", markersize=7, zorder=3)
        box = {"facecolor": "white", "alpha": 0.88, "edgecolor": "none", "pad": 1.5}
        above = point["y"] >= (y[0] + y[-1]) / 2
        axis.annotate(
            point["name"].replace("$", r"\$"),
            (point["x"], point["y"]),
            (0, 11 if above else -11),
            textcoords="offset points",
            ha="center",
            va="bottom" if above else "top",
            bbox=box,
        )
    axis.set(xlabel="distance between means, first axis", ylabel="second axis", aspect="equal")
    axis.grid(False)
    bar = figure.colorbar(
        filled, ax=axis, label="loss (nats)", format="%g", ticks=levels[::2], shrink=0.85, aspect=22
    )
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    return [*save(figure, stem), write_json(f"{stem}.json", section)]


@style()
def compact_figure(section: Mapping[str, Any], stem: Path | str) -> list[Path]:
    """Draws the transpositions of every sample, and the stds before and after.

    Args:
        section: the `compact` section of a report.
        stem: path without ending; `.svg`, `.pdf`, `.png` and `.json` are written.
    """
    section = plain(section, DIGITS)
    groups, stds = section.get("groups") or [], section.get("stds")
    figure, axes = _subplots(1 + bool(stds), size=(3.4 * (1 + bool(stds)), 2.4))
    counts = np.sum([group["transpositions"] for group in groups], 0) if groups else np.zeros(1)
    axes[0].hist(counts, bins=min(30, max(5, len(counts) // 3)), color=KINDS["aligned"]["color"], alpha=0.85)
    axes[0].set(xlabel="transpositions of a sample", ylabel="samples")
    if stds:
        for curve in stds["curves"]:
            look = KINDS.get(curve.get("role"), KINDS["naive"])
            shares = 100 * np.array(curve["shares"], float)
            axes[1].step(
                stds["centres"], shares, where="mid", label=curve["name"].replace("$", r"\$"),
                color=look["color"], linestyle=look["linestyle"],
            )  # fmt: skip
        axes[1].set(xlabel="standard deviation", ylabel="share of weights (%)", xscale=stds.get("scale") or "linear")
        axes[1].set_ylim(bottom=0)
        axes[1].legend()
    return [*save(figure, stem), write_json(f"{stem}.json", section)]


def _subplots(count: int, size: tuple[float, float] | None = None) -> tuple[Any, Any]:
    """A figure outside pyplot, so that no window, no global state and no backend of the user is touched."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size or (2.27 * count, 2.4))
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, count, squeeze=False)[0]


def _line(axis: Any, curve: Mapping[str, Any], name: str, scale: float, look: Mapping[str, Any]) -> None:
    taus = np.array(curve["taus"])
    values = scale * np.array(curve[name], float)
    errors = curve.get(f"{name}_error")
    if errors:
        half = 2 * scale * np.array(errors, float)
        axis.fill_between(taus, values - half, values + half, color=look["color"], alpha=0.2, linewidth=0)
    if name == "nll":
        axis.plot([0, 1], values[[0, -1]], ":", color=look["color"], linewidth=1)
    axis.plot(taus, values, **look)


def _height(curve: Mapping[str, Any]) -> str:
    return f"{curve['value']:.3f} ± {curve['error']:.3f} nats"


def page_files(*stems: str) -> tuple[str, ...]:
    """The names of a page, its numbers and its figures, in the folder of a result.

    Example:
        >>> page_files("plane")[:3]
        ('report.json', 'report.html', 'figures/plane.svg')
    """
    figures = (f"figures/{stem}.{ending}" for stem in stems for ending in (*FORMATS, "json", "csv"))
    return "report.json", "report.html", *figures


def save(figure: Any, stem: Path | str, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Writes a figure in these formats; the same numbers give the same files."""
    paths = []
    for kind in formats:
        buffer = io.BytesIO()
        dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
        figure.savefig(buffer, format=kind, metadata=dates)
        paths.append(write_bytes(f"{stem}.{kind}", buffer.getvalue()))
    return paths


def _write_csv(path: str, curves: Mapping[str, Any]) -> Path:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = ("nll", "nll_error", "accuracy", "accuracy_error", "ece", "ece_error", "brier")
    writer.writerow(["path", "tau", *names])
    for kind, curve in curves.items():
        for at, tau in enumerate(curve["taus"]):
            writer.writerow([kind, tau, *((curve.get(name) or [None] * (at + 1))[at] for name in names)])
    return write_bytes(path, text.getvalue().encode())
