"""The report as plain data: `report.json` in a run folder, from which the page can be made again.

    {"format": "bayesin-report", "version": 1, "title": …, "lead": […], "summary": [card, …],
     "barrier": {"sets": {"test": {"naive": curve, "aligned": curve}, …}},
     "walk": …, "plane": …, "alignment": …, "compact": …, "posterior": …, "tables": […], "run": …, "files": […]}

Every section may be absent; the functions of `collect` make them. Numbers are rounded to six significant
digits and what is not finite is null.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ArtifactError
from ..files import read_json, write_json
from .consistency import check_consistency
from .convert import BARRIER, report_of_barrier

NAME, NUMBERS = "report.json", "barrier.json"
FORMAT, VERSION = "bayesin-report", 1


def write_report(folder: Path | str, report: Mapping[str, Any]) -> Path:
    """Writes `report.json` into a run folder and returns its path."""
    document = {"format": FORMAT, "version": VERSION, **{name: value for name, value in report.items() if value}}
    document = plain(document)
    check_report(document)
    return write_json(Path(folder) / NAME, document)


def read_report(place: Path | str) -> dict[str, Any]:
    """Reads the `report.json` of a run folder, or a file of `bayesin barrier`; refuses what no page could show."""
    path = Path(place) if Path(place).is_file() else Path(place) / NAME
    if not path.is_file() and (Path(place) / NUMBERS).is_file():  # of a barrier that was measured without a page
        path = Path(place) / NUMBERS
    if not path.is_file():
        raise ArtifactError(f"{place} has no {NAME}; give a folder that demo, barrier, compact or reproduce wrote")
    report = read_json(path)
    try:
        if isinstance(report, dict) and report.get("format") == BARRIER:
            report = report_of_barrier(report)
        check_report(report)
    except ArtifactError as error:
        raise ArtifactError(f"{path}: {error}") from None
    return report


def plain(value: Any) -> Any:
    """Returns the value as JSON data: arrays become lists, floats six digits, NaN and infinities null.

    Example:
        >>> plain({"loss": np.array([0.12345678, np.nan]), "steps": np.int64(3)})
        {'loss': [0.123457, None], 'steps': 3}
    """
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, str | bool | int | None):
        return value
    if isinstance(value, float | np.floating):
        return float(f"{value:.6g}") if np.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if hasattr(value, "tolist"):  # numpy and JAX arrays and scalars
        return plain(np.asarray(value).tolist())
    return str(value)


def check_report(report: Any) -> None:
    """Raises `ArtifactError` unless the value has the shape of a report, as far as the page relies on it."""
    _expect(report, _REPORT, "report")
    if report.get("format") != FORMAT:
        raise ArtifactError(f'not a report: it needs "format": "{FORMAT}"')
    if report.get("version") != VERSION:
        raise ArtifactError(
            f"report version {report.get('version')!r} is not supported; this bayesin reads {VERSION}"
        )
    check_consistency(report)


# A small grammar: a dict lists optional members, ("map", x) any names, ["x"] a list, a word a kind of value.
_NUMBERS = ["number?"]
_MATRIX = [_NUMBERS]
_CURVE = {
    **{
        name: _NUMBERS
        for name in ("taus", "nll", "nll_error", "accuracy", "accuracy_error", "ece", "ece_error", "brier")
    },
    **{name: "number?" for name in ("value", "error")},
}
_STEP = {
    **{name: "number?" for name in ("nll", "accuracy", "ece", "confidence")},
    "calibration": [{name: "number?" for name in ("confidence", "accuracy", "count")}],
    "confusion": _MATRIX,
    "probabilities": _MATRIX,
}
_STDS = {
    "scale": "text",
    "centres": _NUMBERS,
    "curves": [{"name": "text", "role": "text", "shares": _NUMBERS}],
    "says": "text",
}
_REPORT = {
    "title": "text",
    "name": "text",
    "lead": ["text"],
    "summary": [{name: "text" for name in ("label", "value", "unit", "note", "tone")}],
    "barrier": {"sets": ("map", ("map", _CURVE)), "says": "text"},
    "walk": {
        "classes": ["text"],
        "taus": _NUMBERS,
        "naive": [_STEP],
        "aligned": [_STEP],
        "images": {"shape": _NUMBERS, "pixels": _MATRIX, "labels": _NUMBERS, "says": "text"},
    },
    "plane": {
        **{name: _NUMBERS for name in ("x", "y")},
        **{name: _MATRIX for name in ("nll", "log_posterior", "accuracy")},
        "points": [{"name": "text", "role": "text", **{n: "number?" for n in ("x", "y", "nll", "distance")}}],
        "cut": "number?",
        "says": "text",
    },
    "alignment": {
        "says": ["text"],
        "history": _NUMBERS,
        "start": "text",
        "unaligned": "number?",
        "groups": [{"name": "text", "size": "number?", "moved": "number?", "transpositions": "number?"}],
        "similarity": ("map", {"before": _MATRIX, "after": _MATRIX}),
        "correlation": ("map", {"before": _NUMBERS, "after": _NUMBERS}),
        "stds": _STDS,
    },
    "compact": {
        "says": ["text"],
        "scores": [{"name": "text", **{name: "number?" for name in ("agreement", "total_variation", "accuracy")}}],
        "groups": [{"name": "text", "size": "number?", "transpositions": _NUMBERS}],
        "stds": _STDS,
    },
    "posterior": {
        "says": ["text"],
        "names": ["text"],
        "prior_std": "number?",
        "layers": [{"name": "text", "std": _MATRIX, "snr": _MATRIX}],
        "units": [{"name": "text", "size": "number?", "pruned": _NUMBERS}],
        "pruned_says": "text",
    },
    "claims": [{name: "text" for name in ("claim", "paper", "ours", "verdict", "reason")}],
    "pictures": [{"title": "text", "image": "text", "label": "text", "says": "text"}],
    "tables": [{"title": "text", "columns": ["text"], "rows": [["any"]], "says": "text"}],
    "run": {
        "config": ("map", "any"),
        "provenance": ("map", "any"),
        "seconds": [{"name": "text", "seconds": "number?"}],
    },
    "files": [{"name": "text", "bytes": "number?", "says": "text"}],
}


def _expect(value: Any, shape: Any, where: str) -> None:
    if isinstance(shape, dict):
        _require(isinstance(value, Mapping), where, "an object")
        for name, inner in shape.items():
            if name in value:
                _expect(value[name], inner, f"{where}.{name}")
    elif isinstance(shape, tuple):
        _require(isinstance(value, Mapping), where, "an object")
        for name, inner in value.items():
            _expect(inner, shape[1], f"{where}.{name}")
    elif isinstance(shape, list):
        _require(isinstance(value, list), where, "a list")
        for index, inner in enumerate(value):
            _expect(inner, shape[0], f"{where}[{index}]")
    elif shape == "text":
        _require(isinstance(value, str), where, "text")
    elif shape == "number?":
        _require(value is None or (isinstance(value, int | float) and not isinstance(value, bool)), where, "a number")


def _require(holds: bool, where: str, what: str) -> None:
    if not holds:
        raise ArtifactError(f"'{where}' must be {what}")
