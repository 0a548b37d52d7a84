"""The report of what lies between two posteriors: what `bayesin barrier` measured, drawn and said in words."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ...data import Dataset
from ...errors import ConfigError, PosteriorError
from ...evaluation import Barrier, Plane, plane
from ...inputs import take
from ...jaxprs import order_of_use
from ...models import Model
from ...paths import is_point
from ...posteriors import Gaussian
from ...symmetry import drawing
from ..runs import AlignedPair, PosteriorPair, provenance
from .document import LABELS, card, percent, power, run_section
from .figures import barrier_figure, plane_figure
from .page import publish
from .sections import alignment_section, barrier_section, marginal, plane_section, posterior_section, walk_section

ENDS = ("first", "second", "second, aligned")
SETS = {"test": "test set", "train": "training set"}
# The plane is a picture: few draws and examples, and never more work than the curves.
PLANE_SAMPLES, PLANE_EXAMPLES, PLANE_SIDES = 4, 1000, (9, 21)

OF_POINTS = (
    "The path runs from the first network (τ = 0) to the second (τ = 1) in a straight line of all weights. These are "
    "points without spread, so the loss at each τ is exact. The bands of accuracy and calibration error show how "
    "well that many examples can determine them."
)
FIRST_IMAGES = (
    "The first test image of each class, chosen before any result was seen, and the probability that each "
    "path gives to every class. Strong colour: the true class."
)
PRUNED = (
    "A unit counts as pruned when no weight into or out of it has a mean larger than its standard "
    "deviation: it adds little but noise. The fit was free to use it and did not."
)


@dataclass(frozen=True)
class MeasuredPair:
    """Two posteriors and the loss on the way between them, as it is and after alignment."""

    pair: PosteriorPair
    barriers: Mapping[str, Mapping[str, Barrier]]  # {"test": {"naive": …, "aligned": …}, "train": …}
    aligned: AlignedPair | None = None
    plane: Plane | None = None  # through both, and the second as it was moved
    plane_examples: int = 0
    prior_variance: float | None = None

    @property
    def model(self) -> Model:
        """The network, without which nothing could be measured."""
        if self.pair.model is None:
            raise ConfigError("a report needs the network of the pair")
        return self.pair.model

    @property
    def data(self) -> Dataset:
        """The data that were measured on."""
        if self.pair.data is None:
            raise ConfigError("a report needs the data of the pair")
        return self.pair.data

    @property
    def ends(self) -> tuple[Gaussian, Gaussian]:
        """Both posteriors as a page shows them."""
        return marginal(self.pair.target), marginal(self.pair.source)

    @property
    def points(self) -> bool:
        """Whether these are two networks without spread."""
        return all(is_point(end) for end in self.ends)

    @property
    def headline(self) -> tuple[str, dict[str, Barrier]]:
        """The set whose numbers are shown first, in words, and its paths that are no control."""
        name = "test" if "test" in self.barriers else next(iter(self.barriers))
        return SETS[name], {
            kind: curve for kind, curve in self.barriers[name].items() if kind in ("naive", "aligned", "rescaled")
        }


def with_plane(
    measured: MeasuredPair,
    *,
    key: jax.Array,
    work: int,
    on_point: Callable[[int, int], Any] | None = None,
    **options: Any,
) -> MeasuredPair:
    """Adds the loss on the plane through both posteriors and the aligned copy.

    Nothing is added where there is no aligned copy, or where the three lie on one line, as when nothing had to move.

    Args:
        work: forward passes that the curves took; the plane takes about as many, within `PLANE_SIDES`.
        options: passed on to `plane`, such as the likelihood.
    """
    if measured.aligned is None:
        return measured
    pair, data, model = measured.pair, measured.data, measured.model
    count = min(len(data.y_test), PLANE_EXAMPLES)
    side = int(np.clip(np.sqrt(work / (PLANE_SAMPLES * count)), *PLANE_SIDES))
    try:
        landscape = plane(
            [pair.target, pair.source, measured.aligned.alignment.posterior],
            model.apply,
            take((data.x_test, data.y_test), slice(count)),
            key=key,
            prior_variance=1.0,  # the page shows the likelihood alone
            resolution=side,
            samples=PLANE_SAMPLES,
            exclude=model.statistics,
            on_point=on_point,
            **options,
        )
    except PosteriorError:
        return measured
    return dataclasses.replace(measured, plane=landscape, plane_examples=count)


def write_barrier_report(
    folder: Path | str,
    measured: MeasuredPair,
    *,
    config: Mapping[str, Any],
    seconds: Mapping[str, float],
    files: Mapping[str, str],
) -> Path:
    """Writes print figures, `report.json` and `report.html` into a folder; returns the page.

    Args:
        folder: where they go; `files` are looked for there.
        measured: what was measured.
        config: settings that the page names.
        seconds: where the time went.
        files: further files of the folder that the page links to, with a word on each.
    """
    report = {
        "title": title_of(measured),
        "lead": _lead(measured),
        "summary": _summary(measured),
        **pair_sections(measured, _how(measured)),
        "run": run_section(config, provenance(), seconds),
    }
    return publish(folder, report, dict(files) | draw_figures(folder, report))


def title_of(measured: MeasuredPair) -> str:
    """What was found between the two, in one line."""
    between, kinds = f"between two {'networks' if measured.points else 'posteriors'}", measured.headline[1]
    naive, aligned = kinds["naive"], kinds.get("aligned")
    if naive.value <= 2 * naive.standard_error:
        return f"No barrier {between}"
    if aligned is None:
        return f"A barrier of {naive.value:.2f} nats {between}"
    if aligned.value >= naive.value:
        return f"Alignment does not lower the barrier {between}"
    share = np.floor(1000 * (1 - aligned.value / naive.value)) / 10  # rounded down: 100 % is only for all of it
    return f"Alignment takes away {share:.1f}\u00a0% of the barrier {between}"


def pair_sections(measured: MeasuredPair, how: str) -> dict[str, Any]:
    """The sections that every report of a pair has; those that do not apply are empty.

    Args:
        how: how the alignment was found, in words.
    """
    (first, second), kinds, exclude = measured.ends, measured.headline[1], measured.model.statistics
    spec, sections = measured.pair.spec, {"barrier": barrier_section(measured.barriers)}
    if measured.points:
        sections["barrier"]["says"] = OF_POINTS
    else:
        ends = {"first": first, "second": second}
        posterior = posterior_section(ends, spec, prior_variance=measured.prior_variance, exclude=exclude)
        sections["posterior"] = posterior | {"pruned_says": PRUNED}
    walk = walk_section(kinds, measured.data) if "test" in measured.barriers else None
    if walk is not None:
        sections["walk"] = walk | ({"images": walk["images"] | {"says": FIRST_IMAGES}} if "images" in walk else {})
    if measured.plane is not None:
        losses = [kinds["naive"].nll[0], kinds["naive"].nll[-1], kinds["aligned"].nll[-1]]
        sections["plane"] = plane_section(measured.plane, measured.plane_examples, losses, ENDS)
    if measured.aligned is not None and spec.sizes:
        moved = marginal(measured.aligned.alignment.posterior)
        found = measured.aligned
        section = alignment_section(first, second, moved, found.alignment, spec, sweeps=found.sweeps, exclude=exclude)
        sections["alignment"] = section | {"says": [how]}
    if spec.sizes and measured.pair.inputs is not None:
        order = order_of_use(measured.model.apply, first.mean, measured.pair.inputs)
        sections["graph"] = drawing(spec, order)
    return sections


def draw_figures(folder: Path | str, report: Mapping[str, Any]) -> dict[str, str]:
    """Draws the curves and the plane of a report for print; returns the files, with a word on each."""
    files = {"report.json": "every number on this page"}
    for name in report["barrier"]["sets"]:
        stem = "barrier" if name == "test" else f"barrier-{name}"
        barrier_figure(report["barrier"], Path(folder) / "figures" / stem, part=name)
        files[f"figures/{stem}.pdf"] = f"the curves for print, {SETS[name]} (also .svg, .png, .csv and .json)"
    if report.get("plane"):
        plane_figure(report["plane"], Path(folder) / "figures" / "plane")
        files["figures/plane.pdf"] = "the plane for print (also .svg, .png and .json)"
    return files


def _lead(measured: MeasuredPair) -> list[str]:
    where, kinds = measured.headline
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
        f"what it computes, {aligned.value:.3f} nats are left{share}.{about_rescaled(kinds)}"
    ]


def _summary(measured: MeasuredPair) -> list[dict[str, str]]:
    where, kinds = measured.headline
    cards = barrier_cards(kinds, where)
    if kinds["naive"].accuracy is not None:
        first, last = (percent(float(kinds["naive"].accuracy[at])) for at in (0, -1))
        cards.append(card("Accuracy", first, "", f"of the first, {where}; the second: {last}"))
        cards.append(half_way_card(kinds))
    return cards if measured.aligned is None else [*cards, moved_card(measured.aligned)]


def about_rescaled(kinds: Mapping[str, Barrier]) -> str:
    """A sentence on the third path, where it was measured."""
    if "rescaled" not in kinds:
        return ""
    return (
        " Half-way, units vary less than at either end; on the path that gives each its spread back "
        f"{kinds['rescaled'].value:.3f} nats are left."
    )


def barrier_cards(kinds: Mapping[str, Barrier], where: str) -> list[dict[str, str]]:
    """The heights of both barriers, with their errors."""
    return [
        card(LABELS[kind], f"{curve.value:.3f}", "nats", f"± {error:.3f}, {where}" if error else where, kind)
        for kind, curve in kinds.items()
        for error in [curve.standard_error]  # zero where both ends are points, which have no draws
    ]


def half_way_card(kinds: Mapping[str, Barrier]) -> dict[str, str]:
    """The accuracy in the middle of the best path, and of the other."""
    naive, best = (_half_way(curve) for curve in (kinds["naive"], kinds.get("aligned", kinds["naive"])))
    return card("Accuracy half way", best, "", f"aligned; without: {naive}" if "aligned" in kinds else "not aligned")


def moved_card(aligned: AlignedPair) -> dict[str, str]:
    """How many units changed place, and what that did to the function."""
    moved, units = sum(aligned.alignment.moved.values()), sum(aligned.pair.spec.sizes.values())
    change = aligned.function_change
    note = "" if change is None else f"outputs change by at most {power(change)} of the largest"
    flipped = sum(aligned.alignment.flipped.values())
    turned = f", {flipped:,} turned" if aligned.alignment.signs else ""
    return card("Units moved", f"{moved:,}", f"of {units:,}{turned}", note)


def _half_way(curve: Barrier) -> str:
    accuracy = curve.accuracy
    return percent(float("nan") if accuracy is None else float(accuracy[len(curve.taus) // 2]))


def _how(measured: MeasuredPair) -> str:
    if measured.aligned is None:
        return ""
    search = measured.aligned.alignment
    groups = len(measured.pair.spec.sizes)
    return (
        f"{groups} group{'s' * (groups != 1)} of interchangeable units. The search visits one after the other and "
        f"solves each step exactly, as an assignment problem; the best start was '{search.start}': {search.sweeps} "
        f"sweep{'s' * (search.sweeps != 1)}, {search.ended}."
    )
