"""The report of a measurement between two posteriors: what `bayesin barrier` shows of its numbers."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data import Dataset
from ..evaluation.barrier import Barrier
from ..evaluation.plane import Plane
from ..matching import Alignment
from ..models import Model
from ..paths import as_gaussian, is_point
from ..posteriors import Gaussian
from ..symmetry import PermutationSpec
from .collect import alignment_section, barrier_section, plane_section, posterior_section, walk_section
from .figures import barrier_figure, plane_figure
from .page import publish
from .words import FIRST_IMAGES, PRUNED, card, half_way, percent, power

NAMES = ("first", "second", "second, aligned")
SETS = {"test": "test set", "train": "training set"}
OF_POINTS = (
    "The path runs from the first network (τ = 0) to the second (τ = 1) in a straight line of all weights. These are "
    "points without spread, so the loss at each τ is exact. The bands of accuracy and calibration error show how "
    "well that many examples can determine them."
)


@dataclass(frozen=True)
class Crossing:
    """Two posteriors, the way between them, and how it was measured."""

    target: Any
    source: Any
    data: Dataset
    model: Model
    spec: PermutationSpec
    barriers: Mapping[str, Mapping[str, Barrier]]  # {"test": {"naive": …, "aligned": …}, "train": …}
    config: Mapping[str, Any]
    provenance: Mapping[str, Any]
    seconds: Mapping[str, float]
    alignment: Alignment | None = None
    function_change: float | None = None
    plane: Plane | None = None
    plane_examples: int = 0
    prior_variance: float | None = None


def write_crossing_report(folder: Path | str, crossing: Crossing, files: Mapping[str, str]) -> Path:
    """Writes print figures, `report.json` and `report.html` into a folder; returns the page.

    Args:
        folder: where they go; `files` are looked for there.
        crossing: what was measured.
        files: further files of the folder that the page links to, with a word on each.
    """
    folder, report = Path(folder), crossing_report(crossing)
    files = dict(files) | {"report.json": "every number on this page"}
    for name in crossing.barriers:
        stem = "barrier" if name == "test" else f"barrier-{name}"
        barrier_figure(report["barrier"], folder / "figures" / stem, part=name)
        files[f"figures/{stem}.pdf"] = f"the curves for print, {SETS[name]} (also .svg, .png, .csv and .json)"
    if report["plane"]:
        plane_figure(report["plane"], folder / "figures" / "plane")
        files["figures/plane.pdf"] = "the plane for print (also .svg, .png and .json)"
    return publish(folder, report, files)


def crossing_report(crossing: Crossing) -> dict[str, Any]:
    """Returns the report as a dict of sections; those that do not apply are empty."""
    first, second = as_gaussian(crossing.target), as_gaussian(crossing.source)
    points = is_point(first) and is_point(second)
    barrier = barrier_section(crossing.barriers)
    return {
        "title": "From one network to another" if points else "From one posterior to another",
        "lead": _lead(crossing),
        "summary": _summary(crossing),
        "barrier": barrier | ({"says": OF_POINTS} if points else {}),
        "walk": _walk(crossing),
        "plane": _plane(crossing),
        "alignment": _alignment(crossing, first, second),
        "posterior": {} if points else _posterior(crossing, first, second),
        "run": {
            "config": crossing.config,
            "provenance": {
                **crossing.provenance,
                "seconds in all": f"{sum(crossing.seconds.values()):.0f}",
            },
            "seconds": [{"name": name, "seconds": seconds} for name, seconds in crossing.seconds.items()],
        },
    }


def _shown(crossing: Crossing) -> tuple[str, dict[str, Barrier]]:
    """The set whose numbers are the headline, and the paths that need no explanation: no controls."""
    name = "test" if "test" in crossing.barriers else next(iter(crossing.barriers))
    kinds = {kind: one for kind, one in crossing.barriers[name].items() if kind in ("naive", "aligned")}
    return SETS[name], kinds


def _lead(crossing: Crossing) -> list[str]:
    where, kinds = _shown(crossing)
    naive, ends = kinds["naive"], kinds["naive"].nll[[0, -1]]
    text = (
        f"On the straight way from the first to the second the loss of the {where} goes from {ends[0]:.3f} to "
        f"{ends[1]:.3f} nats per example, and in between rises up to {naive.value:.3f} above the chord of both ends."
    )
    if "aligned" not in kinds:
        return [f"{text} The units of the second stand in the order in which it was trained; --align moves them."]
    aligned = kinds["aligned"]
    share = f", {100 * aligned.value / naive.value:.1f} % of that" if naive.value > 0 else ""
    return [
        f"{text} With the units of the second in the order that best fits the first, which changes nothing about "
        f"what it computes, {aligned.value:.3f} nats are left{share}."
    ]


def _summary(crossing: Crossing) -> list[dict[str, str]]:
    where, kinds = _shown(crossing)
    labels = {"naive": "Barrier, not aligned", "aligned": "Barrier, aligned"}
    cards = [
        card(labels[kind], f"{one.value:.3f}", "nats", f"± {one.standard_error:.3f}, {where}", kind)
        for kind, one in kinds.items()
    ]
    naive, best = kinds["naive"], kinds.get("aligned", kinds["naive"])
    if naive.accuracy is not None:
        first, last = (percent(float(naive.accuracy[at])) for at in (0, -1))
        cards.append(card("Accuracy", first, "", f"of the first, {where}; the second: {last}"))
        note = f"aligned; without: {percent(half_way(naive))}" if "aligned" in kinds else "not aligned"
        cards.append(card("Accuracy half way", percent(half_way(best)), "", note))
    if crossing.alignment is not None:
        moved, units = sum(crossing.alignment.moved.values()), sum(crossing.spec.sizes.values())
        gap = crossing.function_change
        note = "" if gap is None else f"outputs change by at most {power(gap)} of the largest"
        cards.append(card("Units moved", f"{moved:,}", f"of {units:,}", note))
    return cards


def _walk(crossing: Crossing) -> dict[str, Any] | None:
    if "test" not in crossing.barriers:
        return None
    walk = walk_section(_shown(crossing)[1], crossing.data)
    if walk and "images" in walk:
        walk["images"]["says"] = FIRST_IMAGES
    return walk


def _plane(crossing: Crossing) -> dict[str, Any] | None:
    if crossing.plane is None:
        return None
    kinds = _shown(crossing)[1]
    losses = [kinds["naive"].nll[0], kinds["naive"].nll[-1], kinds["aligned"].nll[-1]]
    return plane_section(crossing.plane, crossing.plane_examples, losses, NAMES)


def _alignment(crossing: Crossing, first: Gaussian, second: Gaussian) -> dict[str, Any] | None:
    if crossing.alignment is None or not crossing.spec.sizes:
        return None
    found = dataclasses.replace(crossing.alignment, posterior=as_gaussian(crossing.alignment.posterior))
    section = alignment_section(first, second, found, crossing.spec, exclude=crossing.model.statistics)
    ended = "converged" if found.converged else "not converged"
    says = (
        f"{len(crossing.spec.sizes)} groups of interchangeable units. The search visits one after the other and "
        f"solves each step exactly, as an assignment problem; the best start was '{found.start}': {found.sweeps} "
        f"sweeps, {ended}."
    )
    return section | {"says": [says]}


def _posterior(crossing: Crossing, first: Gaussian, second: Gaussian) -> dict[str, Any]:
    section = posterior_section(
        {"first": first, "second": second},
        crossing.spec,
        prior_variance=crossing.prior_variance,
        exclude=crossing.model.statistics,
    )
    return section | {"pruned_says": PRUNED}
