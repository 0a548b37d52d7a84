"""Pieces that several figures share: curves along τ, and barriers against a setting."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..report.figures import KINDS
from .reproduction import Record
from .words import heights


def curves(axis: Any, pairs: Sequence[Record], part: str = "test") -> None:
    """Loss along τ, without and after alignment: the mean of all pairs, and every pair as a thin line."""
    for kind in ("naive", "aligned"):
        look = {"color": KINDS[kind]["color"], "marker": ""}
        found = [pair["numbers"][kind][part] for pair in pairs if part in pair["numbers"][kind]]
        for one in found:
            axis.plot(one["taus"], one["nll"], **look, lw=0.7, alpha=0.5)
        if found:
            mean = np.mean([one["nll"] for one in found], axis=0)
            axis.plot(found[0]["taus"], mean, **look, linestyle=KINDS[kind]["linestyle"], label=KINDS[kind]["label"])
    axis.set(xlabel="position on the path, τ", xlim=(0, 1))
    axis.set_ylim(bottom=0)


def against(
    axis: Any,
    groups: Mapping[float, Sequence[Record]],
    *,
    kinds: Sequence[str] = ("naive", "aligned"),
    log: bool = True,
) -> None:
    """Barriers against a setting: the mean of all pairs, with every pair as a point."""
    xs, tallest = sorted(groups), 0.0
    for kind in kinds:
        look = KINDS[kind]
        values = [heights(groups[x], kind) for x in xs]
        tallest = max([tallest, *(height for found in values for height in found)])
        for x, found in zip(xs, values, strict=True):
            axis.plot([x] * len(found), found, linestyle="", marker=".", color=look["color"], alpha=0.35)
        shown = [(x, np.mean(found)) for x, found in zip(xs, values, strict=True) if found]
        if shown:
            axis.plot(
                *zip(*shown, strict=True),
                color=look["color"],
                linestyle=look["linestyle"],
                marker=look["marker"],
                label=look["label"],
            )
    if log:
        axis.set_xscale("log")
    barrier_scale(axis, tallest)
    axis.set_ylabel("barrier (nats)")


def barrier_scale(axis: Any, tallest: float) -> None:
    """Barriers of very different heights and of none on one axis, with room above the tallest."""
    axis.set_yscale("symlog", linthresh=1e-2)
    axis.set_ylim(0, 1.5 * tallest or None)


def legend(figure: Any, *axes: Any) -> None:
    """One legend for all panels, above them, with what these name."""
    named = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    if named:
        figure.legend(list(named.values()), list(named), loc="outside upper left", ncols=4)


def inside(axis: Any, **options: Any) -> None:
    """A legend inside a panel, where there is anything to name."""
    if axis.get_legend_handles_labels()[0]:
        axis.legend(**options)


def failures(figure: Any, records: Sequence[Record]) -> None:
    """Names what failed, in the figure itself."""
    failed = [one for one in records if one["state"] == "failed"]
    if failed:
        text = f"failed: {failed[0]['title']}" + (f" and {len(failed) - 1} more" if len(failed) > 1 else "")
        figure.text(0.99, 0.005, text, ha="right", va="bottom", fontsize=6, color="#D55E00")
