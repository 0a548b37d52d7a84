"""The report as plain data: `report.json` in a run folder, from which the page can be made again.

    {"format": "bayesin-report", "version": 1, "title": …, "lead": […], "summary": [card, …],
     "barrier": {"sets": {"test": {"naive": curve, "aligned": curve}, …}},
     "walk": …, "plane": …, "alignment": …, "graph": …, "compact": …, "evaluation": …, "posterior": …,
     "tables": […], "run": …, "files": […]}

Every section may be absent; the functions of `sections` make them. Numbers are rounded to six significant
digits and what is not finite is null. A file may hold anything: before a page is made of it, its sections must have
their parts, and these must fit each other, in length, in order, and across sections.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

from ...errors import ArtifactError
from ...file_sets import check_one_making
from ...json_files import expect, plain, read_json, write_json

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


LARGEST_IMAGE = 4096  # pixels a side, which a file may claim to any number


def check_consistency(report: Mapping[str, Any]) -> None:
    """Raises `ArtifactError` naming the first part that does not fit; members and kinds are checked before."""
    for name, kinds in (report.get("barrier", {}).get("sets") or {}).items():
        for kind, curve in kinds.items():
            _check_curve(curve, f"barrier.sets.{name}.{kind}")
    checks = {"walk": _check_walk, "plane": _check_plane, "alignment": _check_alignment}
    checks |= {"compact": _check_compact, "evaluation": _check_evaluation}
    checks |= {"posterior": _check_posterior, "panels": _check_panels}
    for section, check in checks.items():
        if report.get(section):
            check(report[section])
    for number, table in enumerate(report.get("tables") or []):
        fits = all(len(row) == len(table["columns"]) for row in table["rows"])
        _need(fits, f"tables[{number}]", "has rows that are not as long as its columns")


def _check_curve(curve: Mapping[str, Any], where: str) -> None:
    count = len(curve["taus"])
    _need(count >= 2 and bool(curve["nll"]), where, "needs nll at two or more taus")
    for name, values in curve.items():
        if isinstance(values, list) and values:
            _need(len(values) == count, f"{where}.{name}", f"needs one value for each of {count} taus")


def _check_walk(walk: Mapping[str, Any]) -> None:
    taus, classes = len(walk["taus"]), len(walk["classes"])
    kinds = [kind for kind in ("naive", "aligned", "rescaled") if walk.get(kind)]
    _need(taus > 0 and classes > 0 and bool(kinds), "walk", "needs taus, classes and at least one path")
    images = walk.get("images") or {}
    shown = len(images.get("labels", []))
    for kind in kinds:
        _need(len(walk[kind]) == taus, f"walk.{kind}", f"needs one step for each of {taus} taus")
        for number, step in enumerate(walk[kind]):
            where = f"walk.{kind}[{number}]"
            _need(_is_matrix(step["confusion"], classes, classes), f"{where}.confusion", f"must be {classes} squared")
            fits = not shown or _is_matrix(step.get("probabilities"), shown, classes)
            _need(fits, f"{where}.probabilities", "must be those of all images")
            bins = [bin for bin in step["calibration"] if bin.get("count")]
            known = all(None not in (bin.get("confidence"), bin.get("accuracy")) for bin in bins)
            _need(known, f"{where}.calibration", "needs confidence and accuracy where count is not zero")
    if images:
        shape = images["shape"]
        fits = len(shape) == 3 and all(0 < size <= LARGEST_IMAGE for size in shape) and shape[2] in (1, 3)
        _need(fits, "walk.images.shape", "must be height, width and 1 or 3 channels")
        _need(_is_matrix(images["pixels"], shown, prod(shape)), "walk.images.pixels", "must fit labels and shape")
        labels = all(0 <= label < classes for label in images["labels"])
        _need(labels, "walk.images.labels", f"must be whole numbers below {classes}")


def _check_plane(plane: Mapping[str, Any]) -> None:
    x, y = plane["x"], plane["y"]
    rising = all(len(axis) >= 2 and all(low < high for low, high in pairwise(axis)) for axis in (x, y))
    _need(rising, "plane", "needs x and y with two or more rising values")
    fields = [name for name in ("nll", "log_posterior", "accuracy") if plane.get(name)]
    _need(bool(fields), "plane", "needs nll, log_posterior or accuracy")
    for name in fields:
        _need(_is_matrix(plane[name], len(y), len(x)), f"plane.{name}", f"must be {len(y)} by {len(x)}")
        known = any(value is not None for row in plane[name] for value in row)
        _need(known, f"plane.{name}", "holds no number")


def _check_alignment(alignment: Mapping[str, Any]) -> None:
    similarity, correlation = (alignment.get(name) or {} for name in ("similarity", "correlation"))
    agree = not similarity or not correlation or set(similarity) == set(correlation)
    _need(agree, "alignment.correlation", "names other groups than similarity")
    for group, matrices in similarity.items():
        rows, where = len(matrices["before"]), f"alignment.similarity.{group}"
        every = [matrices["before"], matrices["after"], *matrices.get("between", [])]
        _need(all(_is_matrix(matrix, rows, rows) for matrix in every), where, "needs square matrices of one size")
    _check_stds(alignment.get("stds"), "alignment.stds")


def _check_compact(section: Mapping[str, Any]) -> None:
    counts = {len(group["transpositions"]) for group in section.get("groups") or []}
    _need(len(counts) <= 1, "compact.groups", "must count as many samples each")
    _check_stds(section.get("stds"), "compact.stds")


def _check_evaluation(section: Mapping[str, Any]) -> None:
    fits = all(len(row["values"]) == len(section["columns"]) for row in section["rows"])
    _need(fits, "evaluation.rows", "must be as long as columns")
    for name in ("reliability", "selective", "entropy", "coverage"):
        lines = section.get(name) or []
        _need(all(len(line["x"]) == len(line["y"]) for line in lines), f"evaluation.{name}", "needs as many x as y")


def _check_stds(stds: Mapping[str, Any] | None, where: str) -> None:
    if not stds:
        return
    centres = stds["centres"]
    _need(bool(centres) and min(centres) > 0, f"{where}.centres", "must be positive numbers")
    for number, curve in enumerate(stds["curves"]):
        _need(len(curve["shares"]) == len(centres), f"{where}.curves[{number}]", "needs one share for each centre")


def _check_posterior(posterior: Mapping[str, Any]) -> None:
    count = len(posterior.get("names") or [])
    for number, layer in enumerate(posterior.get("layers") or []):
        where = f"posterior.layers[{number}]"
        fits = all(_is_matrix(layer[kind], count, 5) for kind in ("std", "snr"))
        _need(fits, where, f"needs five quantiles of std and snr for {count}")
        _need(all(map(_are_quantiles, layer["std"] + layer["snr"])), where, "has quantiles that fall")
    for number, group in enumerate(posterior.get("units") or []):
        _need(len(group["pruned"]) == count, f"posterior.units[{number}]", f"needs {count} counts")


def _check_panels(section: Mapping[str, Any]) -> None:
    for number, panel in enumerate(section["panels"]):
        where = f"panels.panels[{number}]"
        for name in ("x", "y"):
            ends, log = panel[name]["range"], panel[name]["scale"] == "log"
            _need(
                len(ends) == 2 and (not log or min(ends) > 0), f"{where}.{name}.range", "must be two numbers that fit"
            )
            pairs = all(
                len(tick) == 2 and isinstance(tick[0], int | float) for tick in panel[name].get("ticks") or []
            )
            _need(pairs, f"{where}.{name}.ticks", "must be pairs of a number and a text")
        for mark in panel["marks"]:
            x, y = (mark.get(name) or [] for name in ("x", "y"))
            fits = bool(x or y) if mark["kind"] == "rule" else bool(x) and bool(y)
            if mark["kind"] == "image":
                fits = fits and _is_matrix(mark.get("z"), len(y), len(x))
            elif mark["kind"] != "rule":
                fits = fits and len(x) == len(y)
            _need(fits, f"{where}.marks", "needs coordinates that fit each other")


def _is_matrix(value: Any, rows: int, columns: int) -> bool:
    return isinstance(value, Sequence) and len(value) == rows and all(len(row) == columns for row in value)


def _are_quantiles(row: Sequence[Any]) -> bool:
    """Five numbers that do not fall, or nothing at all (a point has no signal-to-noise ratio)."""
    if all(value is None for value in row):
        return True
    return None not in row and all(low <= high for low, high in pairwise(row))


def _need(holds: bool, where: str, what: str) -> None:
    if not holds:
        raise ArtifactError(f"'{where}' {what}")
