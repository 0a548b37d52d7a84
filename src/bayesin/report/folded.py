"""The report of samples folded into one Gaussian: what `bayesin compact` shows of its numbers."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..compact import Compact, Score
from ..posteriors import Gaussian, LowRankGaussian
from ..symmetry import PermutationSpec
from .collect import posterior_section, std_histograms
from .figures import compact_figure
from .page import publish
from .words import card, percent

PREDICTIONS = {
    "samples": "the samples",
    "direct": "Gaussian, samples as they came",
    "compact": "Gaussian in a common order",
    "direct mean": "mean network, as they came",
    "compact mean": "mean network in a common order",
}
STDS = (
    "Share of weights by standard deviation over the samples. As they came, a weight stands for another unit in "
    "every sample; in a common order what is left is what the samples disagree about."
)

UNSETTLED = (
    "A unit counts as pruned when no weight into or out of it has a mean larger than its standard deviation over the "
    "samples: in the Gaussian it adds little but noise."
)


@dataclass(frozen=True)
class Folded:
    """What was folded, into what, and how it was done."""

    samples: int
    found: Compact
    scores: Mapping[str, Score]  # of "samples", "direct", "compact", …; empty where nothing was compared
    spec: PermutationSpec
    config: Mapping[str, Any]
    provenance: Mapping[str, Any]
    seconds: Mapping[str, float]
    exclude: Collection[str] = ()


def write_folded_report(folder: Path | str, folded: Folded, files: Mapping[str, str]) -> Path:
    """Writes the print figure, `report.json` and `report.html` into a folder; returns the page.

    Args:
        folder: where they go; `files` are looked for there.
        folded: what was done.
        files: further files of the folder that the page links to, with a word on each.
    """
    folder, report = Path(folder), folded_report(folded)
    files = dict(files) | {"report.json": "every number on this page"}
    compact_figure(report["compact"], folder / "figures" / "compact")
    files["figures/compact.pdf"] = "both plots for print (also .svg, .png and .json)"
    return publish(folder, report, files)


def folded_report(folded: Folded) -> dict[str, Any]:
    """Returns the report as a dict of sections."""
    direct, one = folded.found.direct, _diagonal(folded.found.posterior)
    stds = std_histograms(("as they came", "in a common order"), ("naive", "aligned"), (direct, one), folded.exclude)
    section: dict[str, Any] = {
        "says": [_how(folded)],
        "scores": [{"name": PREDICTIONS[name], **score._asdict()} for name, score in folded.scores.items()],
        "groups": [
            {"name": group, "size": folded.spec.sizes[group], "transpositions": counts}
            for group, counts in folded.found.transpositions.items()
        ],
    }
    if stds is not None:
        section["stds"] = stds | {"says": STDS}
    posteriors = {"as they came": direct, "in a common order": one}
    posterior = posterior_section(posteriors, folded.spec, exclude=folded.exclude)
    return {
        "title": f"{folded.samples:,} samples, one Gaussian",
        "lead": _lead(folded),
        "summary": _summary(folded),
        "compact": section,
        "posterior": posterior | {"pruned_says": UNSETTLED},
        "run": {
            "config": folded.config,
            "provenance": folded.provenance,
            "seconds": [{"name": name, "seconds": seconds} for name, seconds in folded.seconds.items()],
        },
    }


def _lead(folded: Folded) -> list[str]:
    found = folded.found
    less = f", {100 * found.spread_after / found.spread_before:.0f} % of it" if found.spread_before > 0 else ""
    text = (
        f"{folded.samples:,} samples of a network's weights look spread out, in part because their hidden units "
        f"stand in different orders: the root mean square standard deviation is {found.spread_before:.3g}. Put in "
        f"a common order, which changes nothing about what each computes, it is {found.spread_after:.3g}{less}."
    )
    if "compact" not in folded.scores:
        return [text]
    direct, one = folded.scores["direct"], folded.scores["compact"]
    return [
        f"{text} One Gaussian around them predicts the class of the samples for {percent(one.agreement)} of the test "
        f"examples; fitted to the samples as they came it does so for {percent(direct.agreement)}."
    ]


def _summary(folded: Folded) -> list[dict[str, str]]:
    found, scores = folded.found, folded.scores
    cards = [
        card("Spread as they came", f"{found.spread_before:.3g}", "", "root mean square std", "naive"),
        card("Spread in a common order", f"{found.spread_after:.3g}", "", "root mean square std", "aligned"),
    ]
    if "compact" in scores:
        direct, one, samples = (scores[name] for name in ("direct", "compact", "samples"))
        note = f"with the samples; as they came: {percent(direct.agreement)}"
        cards.append(card("Agreement", percent(one.agreement), "", note))
        note = f"of the Gaussian; the samples: {percent(samples.accuracy)}"
        cards.append(card("Test accuracy", percent(one.accuracy), "", note))
    total = found.total
    cards.append(card("Transpositions", f"{total.mean():.1f}", "a sample", f"from {total.min()} to {total.max()}"))
    return cards


def _how(folded: Folded) -> str:
    found = folded.found
    passes = "one pass" if found.rounds == 1 else f"{found.rounds} passes"
    ended = "converged" if found.converged else "stopped before it converged"
    return (
        "Every sample was moved onto one reference by permuting its units; mean and standard deviations were taken "
        f"afterwards. The search took {passes} over the samples and {ended}."
    )


def _diagonal(posterior: Gaussian | LowRankGaussian) -> Gaussian:
    return posterior if isinstance(posterior, Gaussian) else posterior.marginal
