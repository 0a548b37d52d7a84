"""The report of samples folded into one Gaussian: what `bayesin compact` shows of its numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...compact import Compact, Score
from ...evaluation import Predictive
from ...inference import ChainDiagnostics
from ...symmetry import PermutationSpec
from ..runs import mixing_numbers, mixing_table, provenance
from .document import card, percent, read_report, run_section
from .evaluation_report import evaluation_section
from .figures import compact_figure
from .page import page_of, write_numbers
from .sections import marginal, posterior_section, std_histograms

PREDICTIONS = {
    "samples": "the samples",
    "direct": "Gaussian, samples as they came",
    "compact": "Gaussian in a common order",
    "direct mean": "mean network, as they came",
    "compact mean": "mean network in a common order",
}
LOOKS = {"samples": "third", "direct": "naive", "compact": "aligned", "direct mean": "naive dash",
         "compact mean": "aligned dash"}  # fmt: skip
STDS = (
    "Share of weights by standard deviation over the samples. As they came, a weight stands for another unit in "
    "every sample; in a common order what is left is what the samples disagree about."
)

CHAINS = (
    "R-hat compares halves of all chains; 1 means that nothing tells them apart. In one order the weights of every "
    "draw were moved onto those of the first. In brackets stands what as many independent draws exceed one "
    "time in twenty. ESS: the number of independent draws with the same error of the mean."
)
UNSETTLED = (
    "A unit counts as pruned when no weight into or out of it has a mean larger than its standard deviation over the "
    "samples: in the Gaussian it adds little but noise."
)


@dataclass(frozen=True)
class CompactReport:
    """Samples that became one Gaussian, and how that was done."""

    samples: int
    compacted: Compact
    scores: Mapping[str, Score]  # of "samples", "direct", "compact", …; empty where nothing was compared
    spec: PermutationSpec
    config: Mapping[str, Any]  # settings that the page names
    seconds: Mapping[str, float]
    predictions: Mapping[str, Predictive] = field(default_factory=dict)  # behind the scores, or of real targets
    y: Any = None  # the targets of the test set


def write_compact_report(folder: Path | str, report: CompactReport, files: Mapping[str, str]) -> Path:
    """Writes `report.json`, then the print figure and `report.html`, into a folder; returns the page.

    Args:
        folder: where they go; `files` are looked for there.
        report: what was done.
        files: further files of the folder that the page links to, with a word on each.
    """
    direct, compacted = report.compacted.direct, marginal(report.compacted.posterior)
    posteriors = {"as they came": direct, "in a common order": compacted}
    section: dict[str, Any] = {
        "says": [_how(report.compacted)],
        "scores": [{"name": PREDICTIONS[name], **score._asdict()} for name, score in report.scores.items()],
        "groups": [
            {"name": group, "size": report.spec.sizes[group], "transpositions": counts}
            for group, counts in report.compacted.transpositions.items()
        ],
    }
    stds = std_histograms(tuple(posteriors), ("naive", "aligned"), tuple(posteriors.values()))
    if stds is not None:
        section["stds"] = stds | {"says": STDS}
    written = {
        "report.json": "every number on this page",
        "figures/compact.pdf": "both plots for print (also .svg, .png and .json)",
    }
    sections = {
        "title": _title(report),
        "lead": [*_lead(report), *_unmixed(report.compacted.mixing)],
        "summary": _summary(report),
        "compact": section,
        "evaluation": _evaluation(report),
        "posterior": posterior_section(posteriors, report.spec) | {"pruned_says": UNSETTLED},
        "tables": [_chains(report.compacted.mixing)] if report.compacted.mixing is not None else [],
        "run": run_section(report.config, provenance(), report.seconds),
    }
    write_numbers(folder, sections, {**files, **written})
    return draw_compact_page(folder)


def draw_compact_page(folder: Path | str) -> Path:
    """Draws the figure and the page of a folder from its `report.json`."""
    compact_figure(read_report(folder)["compact"], Path(folder) / "figures" / "compact")
    return page_of(folder)


def _title(report: CompactReport) -> str:
    """What was found, where predictions of classes were compared."""
    if "compact" not in report.scores:
        return f"{report.samples:,} samples, one Gaussian"
    agreement = report.scores["compact"].agreement
    return f"One Gaussian agrees with {report.samples:,} samples on {percent(agreement)} of the test set"


def _evaluation(report: CompactReport) -> dict[str, Any]:
    """Scores and curves of every prediction that is compared: agreement alone does not say how sure each may be."""
    named = {PREDICTIONS[name]: one for name, one in report.predictions.items()}
    if not named:
        return {}
    scores = {name: one.metrics(report.y) for name, one in named.items()}
    return evaluation_section(named, scores, report.y, {}, {PREDICTIONS[name]: look for name, look in LOOKS.items()})


def _chains(mixing: ChainDiagnostics) -> dict[str, Any]:
    title, columns, rows = mixing_table(mixing_numbers(mixing))
    return {"title": title, "columns": columns, "rows": rows, "says": CHAINS}


def _lead(report: CompactReport) -> list[str]:
    before, after = report.compacted.spread_before, report.compacted.spread_after
    less = f", {100 * after / before:.0f} % of it" if before > 0 else ""
    text = (
        f"{report.samples:,} samples of a network's weights look spread out, in part because their hidden units "
        f"stand in different orders: the root mean square standard deviation is {before:.3g}. Put in "
        f"a common order, which changes nothing about what each computes, it is {after:.3g}{less}."
    )
    if "compact" not in report.scores:
        return [text]
    samples, direct, compact = (report.scores[name] for name in ("samples", "direct", "compact"))
    return [
        f"{text} One Gaussian around them predicts the class of the samples for {percent(compact.agreement)} of the "
        f"test examples; fitted to the samples as they came it does so for {percent(direct.agreement)}. Its NLL is "
        f"{compact.nll:.3f} nats and its calibration error {compact.ece:.3f}, those of the samples "
        f"{samples.nll:.3f} and {samples.ece:.3f}."
    ]


def _unmixed(mixing: ChainDiagnostics | None) -> list[str]:
    if mixing is None or mixing.one_basin:
        return []
    return [
        "The chains have not mixed, even modulo symmetry: what is folded here comes from several basins (see Tables)."
    ]


def _summary(report: CompactReport) -> list[dict[str, str]]:
    compacted, scores = report.compacted, report.scores
    cards = [
        card("Spread as they came", f"{compacted.spread_before:.3g}", "", "root mean square std", "naive"),
        card("Spread in a common order", f"{compacted.spread_after:.3g}", "", "root mean square std", "aligned"),
    ]
    if "compact" in scores:
        direct, compact, samples = (scores[name] for name in ("direct", "compact", "samples"))
        note = f"with the samples; as they came: {percent(direct.agreement)}"
        cards.append(card("Agreement", percent(compact.agreement), "", note))
        note = f"of the Gaussian; the samples: {percent(samples.accuracy)}"
        cards.append(card("Test accuracy", percent(compact.accuracy), "", note))
        note = f"of the Gaussian; the samples: {samples.nll:.3f}"
        cards.append(card("Test NLL", f"{compact.nll:.3f}", "nats", note))
    total = compacted.total
    cards.append(card("Transpositions", f"{total.mean():.1f}", "a sample", f"from {total.min()} to {total.max()}"))
    return cards


def _how(compacted: Compact) -> str:
    passes = "one pass" if compacted.rounds == 1 else f"{compacted.rounds} passes"
    ended = "ended where no sample moves alone" if compacted.converged else "stopped while samples still moved"
    return (
        "Every sample was moved onto one reference by permuting its units; mean and standard deviations were taken "
        f"afterwards. The search took {passes} over the samples and {ended}."
    )
