"""The report of predictions against targets: what `bayesin evaluate` shows of its numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...evaluation import ClassPredictive, Predictive, RealPredictive, metrics
from ..runs import provenance
from .document import card, percent, run_section
from .page import publish

SHOWN = 200  # points of a selective curve on the page
BINS = 30  # of an entropy histogram
LEVELS = np.linspace(0.05, 0.95, 19)  # of the intervals whose coverage is drawn
SCORE_NAMES = {
    "accuracy": "accuracy", "nll": "NLL", "ece": "ECE", "brier": "Brier", "selective_accuracy": "selective accuracy",
    "rmse": "RMSE", "crps": "CRPS", "coverage_90": "90 % coverage", "ood_auroc": "OOD AUROC",
}  # fmt: skip
PERCENT = ("accuracy", "selective_accuracy", "coverage_90")


@dataclass(frozen=True)
class EvaluationReport:
    """Predictions of one or several posteriors on one test set."""

    predictions: Mapping[str, Predictive]
    scores: Mapping[str, Mapping[str, float]]
    y: Any
    outside: Mapping[str, Predictive]  # on inputs of another kind; may be empty
    config: Mapping[str, Any]
    seconds: Mapping[str, float]


def write_evaluation_report(folder: Path | str, report: EvaluationReport, files: Mapping[str, str]) -> Path:
    """Writes `report.json` and `report.html` into a folder; returns the page."""
    best = min(report.scores, key=lambda name: report.scores[name]["nll"])
    scores = report.scores[best]
    cards = [card(SCORE_NAMES[name], shown(name, value)) for name, value in scores.items() if name in SCORE_NAMES]
    of = f"{len(next(iter(report.predictions.values()))):,} test examples"
    lowest = f", whose NLL is the lowest of {len(report.scores)}" if len(report.scores) > 1 else ""
    sections = {
        "title": _found(scores),
        "lead": [f"{of}. Headline and cards are of {best}{lowest}."],
        "summary": cards,
        "evaluation": evaluation_section(report.predictions, report.scores, report.y, report.outside),
        "run": run_section(report.config, provenance(), report.seconds),
    }
    return publish(folder, sections, {**files, "report.json": "every number on this page"})


def _found(scores: Mapping[str, float]) -> str:
    if "accuracy" in scores:
        return f"{shown('accuracy', scores['accuracy'])} right, with a calibration error of {scores['ece']:.3f}"
    return (
        f"RMSE {scores['rmse']:.3g}; the 90 % interval holds {shown('coverage_90', scores['coverage_90'])} of targets"
    )


def shown(name: str, value: float) -> str:
    """A score as people read it."""
    return percent(value) if name in PERCENT else f"{value:.4f}"


def evaluation_section(
    predictions: Mapping[str, Predictive],
    scores: Mapping[str, Mapping[str, float]],
    y: Any,
    outside: Mapping[str, Predictive],
    looks: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Scores and curves of every prediction: reliability, selective accuracy and entropies, or coverage.

    `looks` are the colours, with a dash where one follows, of predictions that have a colour all over the page.
    """
    names = [name for name in SCORE_NAMES if any(name in row for row in scores.values())]
    rows = [
        {"name": title, "values": [shown(n, row[n]) if n in row else "–" for n in names]}
        for title, row in scores.items()
    ]
    section: dict[str, Any] = {"columns": [SCORE_NAMES[name] for name in names], "rows": rows, "looks": looks or {}}
    classes = {name: one for name, one in predictions.items() if isinstance(one, ClassPredictive)}
    reals = {name: one for name, one in predictions.items() if isinstance(one, RealPredictive)}
    if classes:
        section["reliability"] = [_reliability(name, one, y) for name, one in classes.items()]
        section["selective"] = [_selective(name, one, y) for name, one in classes.items()]
        away = {f"{name}, outside": one for name, one in outside.items() if isinstance(one, ClassPredictive)}
        section["entropy"] = [_entropies(name, one) for name, one in (classes | away).items()]
    if reals:
        section["coverage"] = [
            {"name": name, "x": LEVELS, "y": [one.coverage(y, level) for level in LEVELS]}
            for name, one in reals.items()
        ]
    return section


def _reliability(name: str, predictive: ClassPredictive, y: Any) -> dict[str, Any]:
    found = metrics.calibration(predictive.probabilities, y)
    some = found.count > 0
    return {"name": name, "x": found.confidence[some], "y": found.accuracy[some], "count": found.count[some]}


def _selective(name: str, predictive: ClassPredictive, y: Any) -> dict[str, Any]:
    found = metrics.selective_accuracy(predictive.probabilities, y)
    few = np.unique(np.linspace(0, len(found.coverage) - 1, min(SHOWN, len(found.coverage))).astype(int))
    return {"name": name, "x": found.coverage[few], "y": found.accuracy[few]}


def _entropies(name: str, predictive: ClassPredictive) -> dict[str, Any]:
    """Shares of examples by total entropy, from none to that of a uniform guess."""
    most = np.log(predictive.log_probs.shape[1])
    counts, edges = np.histogram(np.clip(predictive.total_entropy, 0, most), BINS, (0, most))
    return {"name": name, "x": (edges[:-1] + edges[1:]) / 2, "y": counts / counts.sum()}
