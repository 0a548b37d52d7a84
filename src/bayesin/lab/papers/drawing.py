"""Pieces that several figures share: curves along τ, barriers against a setting, bars of means, legends."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..report import KINDS
from .reproduction import Record
from .verdicts import barrier_values

# The colours of paths are those of every figure and page; what is no path has one of the others.
ORANGE, BLUE = (str(KINDS[kind]["color"]) for kind in ("naive", "aligned"))
SLATE, DARK_SLATE, PURPLE, OCHRE, GREY = "#5b6b82", "#2c3848", "#6a51a3", "#a8761b", "#7a7a7a"


def curves(axis: Any, pairs: Sequence[Record], part: str = "test", column: str = "nll", scale: float = 1.0) -> None:
    """A column along τ, without and after alignment and rescaled: the mean of all pairs, each pair as a thin line."""
    for kind in ("naive", "aligned", "rescaled"):
        look = {"color": KINDS[kind]["color"], "marker": ""}
        measured = [pair["numbers"][kind][part] for pair in pairs if part in pair["numbers"].get(kind, {})]
        measured = [curve for curve in measured if curve.get(column) is not None]
        for curve in measured:
            axis.plot(curve["taus"], scale * np.asarray(curve[column]), **look, lw=0.7, alpha=0.5)
        if measured:
            mean = scale * np.mean([curve[column] for curve in measured], axis=0)
            look |= {"linestyle": KINDS[kind]["linestyle"], "label": KINDS[kind]["label"]}
            axis.plot(measured[0]["taus"], mean, **look)
    axis.set(xlabel="position on the path, τ", xlim=(0, 1))
    axis.set_ylim(bottom=0)


def panels(
    figure: Any, cases: Mapping[str, Sequence[Record]], **options: Any
) -> Iterator[tuple[Any, Sequence[Record]]]:
    """Panels side by side, one for each case under its name; an empty one where there is none."""
    axes = figure.subplots(1, max(1, len(cases)), squeeze=False, **options)[0]
    for axis, (title, records) in zip(axes, cases.items(), strict=False):
        axis.set_title(title)
        yield axis, records


def curves_of_cases(figure: Any, cases: Mapping[str, Sequence[Record]], *, one_scale: bool) -> None:
    """A panel of `curves` for each case under its name, side by side; on one scale of losses if so asked."""
    for axis, pairs in panels(figure, cases, sharey=one_scale):
        curves(axis, pairs)
    figure.axes[0].set_ylabel("test loss (nats)")
    legend(figure, figure.axes[0])


def barriers_against(axis: Any, groups: Mapping[float, Sequence[Record]]) -> None:
    """Barriers against a setting, on a logarithmic scale: the mean of all pairs, with every pair as a point.

    What a temperature of its own at every τ leaves of them is dotted, where it was measured.
    """
    settings, tallest = sorted(groups), 0.0
    for kind in ("naive", "aligned", "rescaled"):
        look = KINDS[kind]
        values = [barrier_values(groups[setting], kind) for setting in settings]
        tallest = max([tallest, *(value for of_setting in values for value in of_setting)])
        points(axis, settings, values, look["color"])
        _means(axis, settings, values, **look)
        calibrated = [_calibrated(groups[setting], kind) for setting in settings]
        label = f"{look['label']}, calibrated"
        _means(axis, settings, calibrated, color=look["color"], linestyle=":", marker="", lw=1, label=label)
    axis.set_xscale("log")
    barrier_scale(axis, tallest)
    axis.set_ylabel("barrier (nats)")


def _means(axis: Any, places: Sequence[float], values: Sequence[Sequence[float]], **look: Any) -> None:
    known = [(place, np.mean(of_place)) for place, of_place in zip(places, values, strict=True) if of_place]
    if known:
        axis.plot(*zip(*known, strict=True), **look)


def _calibrated(pairs: Sequence[Record], kind: str) -> list[float]:
    curves = [pair["numbers"].get(kind, {}).get("test", {}) for pair in pairs]
    return [curve["calibrated_value"] for curve in curves if curve.get("calibrated_value") is not None]


def points(axis: Any, places: Sequence[float], values: Sequence[Sequence[float]], colour: str) -> None:
    """Every value as a faint point above its place."""
    for place, of_place in zip(places, values, strict=True):
        if of_place:
            axis.plot([place] * len(of_place), of_place, linestyle="", marker=".", color=colour, alpha=0.35)


def barrier_scale(axis: Any, tallest: float) -> None:
    """Barriers of very different heights and of none on one axis, with room above the tallest."""
    axis.set_yscale("symlog", linthresh=1e-2)
    axis.set_ylim(0, 1.5 * tallest or None)


def log_scale(axis: Any) -> None:
    """A logarithmic x or y axis whose ticks are plain numbers: 0.5, 1, 2, 5, 10, …"""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def bars(axis: Any, means: Sequence[Any], values: Sequence[Any], **options: Any) -> None:
    """Horizontal bars for means, with every value as a point."""
    axis.barh(range(len(means)), means, color=SLATE, height=0.66, alpha=0.6)
    for place, of_place in enumerate(values):
        axis.plot(of_place, [place] * len(of_place), linestyle="", marker=".", color=DARK_SLATE, **options)


def bar_labels(axis: Any, labels: Sequence[str]) -> None:
    """Names of horizontal bars, the first on top."""
    axis.set_yticks(range(len(labels)), labels)
    axis.invert_yaxis()


def legend(figure: Any, *axes: Any) -> None:
    """One legend for all panels, above them, with what these name."""
    named = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    if named:
        figure.legend(list(named.values()), list(named), loc="outside upper left", ncols=4)


def legend_inside(axis: Any, **options: Any) -> None:
    """A legend inside a panel, where there is anything to name."""
    if axis.get_legend_handles_labels()[0]:
        axis.legend(**options)


def failures(figure: Any, records: Sequence[Record]) -> None:
    """Names what failed, in the figure itself."""
    failed = [record for record in records if record["state"] == "failed"]
    if failed:
        text = f"failed: {failed[0]['title']}" + (f" and {len(failed) - 1} more" if len(failed) > 1 else "")
        figure.text(0.99, 0.005, text, ha="right", va="bottom", fontsize=6, color=ORANGE)
