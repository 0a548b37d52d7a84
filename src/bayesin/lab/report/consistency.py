"""Whether the parts of a report fit each other: what must agree in length, in order, or across sections."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any

from ...errors import ArtifactError

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
