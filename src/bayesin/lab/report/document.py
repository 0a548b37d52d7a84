"""The report as plain data: `report.json` in a run folder, from which the page can be made again.

    {"format": "bayesin-report", "version": 1, "title": …, "lead": […], "summary": [card, …],
     "barrier": {"sets": {"test": {"naive": curve, "aligned": curve}, …}},
     "walk": …, "plane": …, "alignment": …, "graph": …, "compact": …, "evaluation": …, "posterior": …,
     "tables": […], "run": …, "files": […]}

Every section may be absent; the functions of `sections` make them. Numbers are rounded to six significant
digits and what is not finite is null.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import ArtifactError
from ...file_sets import check_one_making
from ...json_files import expect, plain, read_json, write_json
from .consistency import check_consistency

NAME, BARRIER_NAME = "report.json", "barrier.json"
FORMAT, VERSION = "bayesin-report", 1
BARRIER_FORMAT = "bayesin-barrier"  # of the file that `bayesin barrier` writes
LABELS = {
    "naive": "Barrier, not aligned",
    "aligned": "Barrier, aligned",
    "rescaled": "Barrier, aligned and rescaled",
    "mixture": "Mixture, control",
}
DIGITS = 6

# What the page relies on (see `files.expect`): the members that a section cannot do without, and the kinds of all.
_NUMBER, _NUMBERS, _MATRIX = float | None, [float | None], [[float | None]]


def _optional(schema: Any, *names: str) -> dict[str, Any]:
    return {f"{name}?": schema for name in names}


_CURVE = {
    "taus": [float],
    "nll": _NUMBERS,
    **_optional(_NUMBERS, "nll_error", "accuracy", "accuracy_error", "ece", "ece_error", "brier"),
    **_optional(_NUMBER, "value", "error"),
}
_STEP = {
    "calibration": [_optional(_NUMBER, "confidence", "accuracy", "count")],
    "confusion": _MATRIX,
    "probabilities?": _MATRIX,
    **_optional(_NUMBER, "nll", "accuracy", "ece", "confidence"),
}
_STDS = {
    "centres": [float],
    "curves": [{"name": str, "role?": str, "shares": _NUMBERS}],
    **_optional(str, "scale", "says"),
}
_POINT = {"name": str, "role?": str, "x": float, "y": float, **_optional(_NUMBER, "nll", "distance")}
_LINE = {"name": str, "x": _NUMBERS, "y": _NUMBERS, "count?": _NUMBERS}
_GROUP = {"name": str, "size": _NUMBER}
_AXIS = {"label": str, "scale": str, "range": [float], "ticks?": [[object]]}
_MARK = {
    "kind": str,
    **_optional(str, "colour", "label", "dash", "symbol", "mode"),
    **_optional(_NUMBERS, "x", "y"),
    "z?": _MATRIX,
    "lying?": bool,
    **_optional(_NUMBER, "thick", "width"),
}
_REPORT = {
    **_optional(str, "title", "name"),
    "lead?": [str],
    "summary?": [_optional(str, "label", "value", "unit", "note", "tone")],
    "barrier?": {"sets?": {str: {str: _CURVE}}, "says?": str},
    "walk?": {
        "classes": [str],
        "taus": _NUMBERS,
        **_optional([_STEP], "naive", "aligned", "rescaled"),
        "images?": {"shape": [int], "labels": [int], "pixels": _MATRIX, "says?": str},
    },
    "plane?": {
        **{"x": [float], "y": [float], "points": [_POINT], "cut?": _NUMBER, "says?": str},
        **_optional(_MATRIX, "nll", "log_posterior", "accuracy"),
    },
    "alignment?": {
        "says?": [str],
        "history?": _NUMBERS,
        "start?": str,
        "unaligned?": _NUMBER,
        "groups?": [_GROUP | {"moved": _NUMBER, "transpositions": _NUMBER}],
        "similarity?": {str: {"before": _MATRIX, "after": _MATRIX, "between?": [_MATRIX]}},
        "correlation?": {str: {"before": _NUMBERS, "after": _NUMBERS}},
        "stds?": _STDS,
    },
    "graph?": {
        **{"width": float, "height": float},
        "shapes": [
            {"kind": str, "x": float, "y": float, **_optional(_NUMBER, "width", "height", "hue")}
            | _optional(str, "text", "title")
        ],
    },
    "compact?": {
        "says?": [str],
        "scores?": [{"name": str, **_optional(_NUMBER, "agreement", "total_variation", "accuracy", "nll", "ece")}],
        "groups?": [_GROUP | {"transpositions": _NUMBERS}],
        "stds?": _STDS,
    },
    "evaluation?": {
        "columns": [str],
        "rows": [{"name": str, "values": [str]}],
        **_optional([_LINE], "reliability", "selective", "entropy", "coverage"),
    },
    "posterior?": {
        "says?": [str],
        "names?": [str],
        "prior_std?": _NUMBER,
        "layers?": [{"name": str, "std": _MATRIX, "snr": _MATRIX}],
        "units?": [_GROUP | {"pruned": _NUMBERS}],
        "pruned_says?": str,
    },
    "claims?": [_optional(str, "claim", "paper", "ours", "verdict", "reason")],
    "panels?": {"says?": str, "panels": [{"title": str, "x": _AXIS, "y": _AXIS, "marks": [_MARK]}]},
    "pictures?": [_optional(str, "title", "image", "label", "says")],
    "tables?": [{**_optional(str, "title", "says"), "columns": [str], "rows": [[object]]}],
    "run?": {**_optional({str: object}, "config", "provenance"), "seconds?": [{"name?": str, "seconds?": _NUMBER}]},
    "files?": [{"name?": str, "bytes?": _NUMBER, "says?": str}],
}


def write_report(folder: Path | str, report: Mapping[str, Any]) -> Path:
    """Writes `report.json` into a run folder and returns its path."""
    sections = {name: section for name, section in report.items() if section}
    document = plain({"format": FORMAT, "version": VERSION, **sections}, DIGITS)
    check_report(document)
    return write_json(Path(folder) / NAME, document)


def read_report(place: Path | str) -> dict[str, Any]:
    """Reads the `report.json` of a run folder, or a file of `bayesin barrier`; refuses what no page could show."""
    path = Path(place) if Path(place).is_file() else Path(place) / NAME
    check_one_making(path.parent)
    if not path.is_file() and (Path(place) / BARRIER_NAME).is_file():  # measured without a page
        path = Path(place) / BARRIER_NAME
    if not path.is_file():
        raise ArtifactError(f"{place} has no {NAME}; give a folder that demo, barrier, compact or reproduce wrote")
    report = read_json(path)
    if isinstance(report, dict) and report.get("format") == BARRIER_FORMAT:
        report = report_of_barrier(report, str(path))
    check_report(report, str(path))
    return report


def check_report(report: Any, what: str = "report") -> None:
    """Raises `ArtifactError` unless the value has the shape of a report, as far as the page relies on it."""
    expect(report, {"format": FORMAT, "version": VERSION} | _REPORT, what)
    try:
        check_consistency(report)
    except ArtifactError as error:
        raise ArtifactError(f"{what}: {error}") from None


def report_of_barrier(result: Any, what: str = "barrier file") -> dict[str, Any]:
    """Returns the report of a file that `bayesin barrier` wrote: the curves, and how they were measured.

    Raises:
        ArtifactError: it has no curves, or something else in their place.

    Example:
        >>> curve = {"taus": [0, 0.5, 1], "nll": [1, 2, 1], "value": 1.0, "standard_error": 0.1, "samples": 8}
        >>> report = report_of_barrier({"format": "bayesin-barrier", "sets": {"test": {"naive": curve}}})
        >>> report["summary"][0]["label"], report["summary"][0]["value"]
        ('Barrier, not aligned', '1.000')
    """
    expect(result, {"format": BARRIER_FORMAT, "sets": {str: {str: dict}}}, what)
    sets = result["sets"]
    curves = {name: {kind: _curve_of_file(curve) for kind, curve in kinds.items()} for name, kinds in sets.items()}
    cards = []
    for kind, curve in next(iter(curves.values()), {}).items():
        value, error = curve.get("value"), curve.get("error")
        if kind in LABELS and isinstance(value, int | float):
            note = f"± {error:.3f}" if isinstance(error, int | float) else ""
            cards.append(card(LABELS[kind], f"{value:.3f}", "nats", note, kind))
    settings = {name: result[name] for name in ("first", "second", "samples", "taus", "key") if name in result}
    document = {"format": FORMAT, "version": VERSION, "title": "The loss between two posteriors"}
    return document | {"summary": cards, "barrier": {"sets": curves}, "run": {"config": settings}}


def _curve_of_file(stored: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("taus", "nll", "accuracy", "ece", "brier", "value", "value_over_mean", "samples", "examples")
    renamed = {"standard_errors": "nll_error", "standard_error": "error", "argmax": "at"}
    names = dict(zip(kept, kept, strict=True)) | renamed
    curve = {ours: stored[theirs] for theirs, ours in names.items() if stored.get(theirs) is not None}
    examples = curve.get("examples")
    if isinstance(curve.get("accuracy"), list) and isinstance(examples, int) and examples > 0:
        shares = [share if isinstance(share, int | float) and 0 <= share <= 1 else 0.0 for share in curve["accuracy"]]
        curve["accuracy_error"] = [(share * (1 - share) / examples) ** 0.5 for share in shares]
    return curve


def run_section(config: Mapping[str, Any], provenance: Mapping[str, Any], seconds: Mapping[str, float]) -> dict:
    """How it was done: settings, versions and machine, and where the time went."""
    steps = [{"name": name, "seconds": taken} for name, taken in seconds.items()]
    whole = {"seconds in all": f"{sum(seconds.values()):.0f}"}
    return {"config": config, "provenance": {**provenance, **whole}, "seconds": steps}


def card(label: str, value: str, unit: str = "", note: str = "", tone: str = "") -> dict[str, str]:
    """One headline number; what is empty is left out."""
    whole = {"label": label, "value": value, "unit": unit, "note": note, "tone": tone}
    return {name: text for name, text in whole.items() if text}


def percent(share: float) -> str:
    """A share in per cent; number and sign stay on one line."""
    return f"{100 * share:.1f}\u00a0%"


def power(value: float) -> str:
    """A small number as people write it.

    Example:
        >>> power(3.2e-6)
        '3 × 10⁻⁶'
    """
    if value == 0:
        return "0"
    digits, exponent = f"{value:.0e}".split("e")
    return f"{digits} × 10" + str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
