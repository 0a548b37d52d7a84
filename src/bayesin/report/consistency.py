"""Whether the parts of a report fit each other: lengths that must agree, members that a section cannot do without."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any

from ..errors import ArtifactError


def check_consistency(report: Mapping[str, Any]) -> None:
    """Raises `ArtifactError` naming the first part that does not fit; kinds of values are checked before."""
    for name, kinds in _members(report, "barrier", "sets").items():
        for kind, curve in kinds.items():
            _check_curve(curve, f"barrier.sets.{name}.{kind}")
    for section, check in (("walk", _check_walk), ("plane", _check_plane), ("alignment", _check_alignment)):
        if report.get(section):
            check(report[section])
    if report.get("compact"):
        _check_compact(report["compact"])
    if report.get("posterior"):
        _check_posterior(report["posterior"])
    for number, table in enumerate(report.get("tables") or []):
        _need({"columns", "rows"} <= set(table), f"tables[{number}]", "needs columns and rows")
        fits = all(len(row) == len(table["columns"]) for row in table["rows"])
        _need(fits, f"tables[{number}]", "has rows that are not as long as its columns")


def _check_curve(curve: Mapping[str, Any], where: str) -> None:
    taus = curve.get("taus") or []
    _need(len(taus) >= 2 and all(tau is not None for tau in taus), where, "needs two or more taus")
    _need(bool(curve.get("nll")), where, "needs nll")
    for name, values in curve.items():
        if isinstance(values, list) and values:
            _need(len(values) == len(taus), f"{where}.{name}", f"needs one value for each of {len(taus)} taus")


def _check_walk(walk: Mapping[str, Any]) -> None:
    taus, classes = walk.get("taus") or [], len(walk.get("classes") or [])
    kinds = [kind for kind in ("naive", "aligned") if walk.get(kind)]
    _need(len(taus) >= 1 and classes > 0 and bool(kinds), "walk", "needs taus, classes and at least one path")
    images = walk.get("images") or {}
    shown = len(images.get("labels") or [])
    for kind in kinds:
        _need(len(walk[kind]) == len(taus), f"walk.{kind}", f"needs one step for each of {len(taus)} taus")
        for number, step in enumerate(walk[kind]):
            where = f"walk.{kind}[{number}]"
            _need({"calibration", "confusion"} <= set(step), where, "needs calibration and confusion")
            _need(_is_matrix(step["confusion"], classes, classes), f"{where}.confusion", f"must be {classes} squared")
            if shown:
                _need(
                    _is_matrix(step.get("probabilities"), shown, classes), where, "needs probabilities of all images"
                )
            bins = [bin for bin in step["calibration"] if bin.get("count")]
            known = all(None not in (bin.get("confidence"), bin.get("accuracy")) for bin in bins)
            _need(known, f"{where}.calibration", "needs confidence and accuracy where count is not zero")
    if images:
        _check_images(images, shown, classes)


def _check_images(images: Mapping[str, Any], shown: int, classes: int) -> None:
    shape = images.get("shape") or []
    fits = len(shape) == 3 and all(isinstance(size, int) and 0 < size <= 4096 for size in shape)
    _need(fits and shape[2] in (1, 3), "walk.images.shape", "must be height, width and 1 or 3 channels")
    _need(_is_matrix(images.get("pixels"), shown, prod(shape)), "walk.images.pixels", "must fit labels and shape")
    labels = all(isinstance(label, int) and 0 <= label < classes for label in images["labels"])
    _need(labels, "walk.images.labels", f"must be whole numbers below {classes}")


def _check_plane(plane: Mapping[str, Any]) -> None:
    x, y = (plane.get(name) or [] for name in ("x", "y"))
    rising = all(_rising(values) for values in (x, y))
    _need(len(x) >= 2 and len(y) >= 2 and rising, "plane", "needs x and y with two or more rising values")
    fields = [name for name in ("nll", "log_posterior", "accuracy") if plane.get(name)]
    _need(bool(fields), "plane", "needs nll, log_posterior or accuracy")
    for name in fields:
        _need(_is_matrix(plane[name], len(y), len(x)), f"plane.{name}", f"must be {len(y)} by {len(x)}")
        known = any(value is not None for row in plane[name] for value in row)
        _need(known, f"plane.{name}", "holds no number")
    for number, point in enumerate(plane.get("points") or []):
        known = {"name", "x", "y"} <= set(point) and None not in (point["x"], point["y"])
        _need(known, f"plane.points[{number}]", "needs name, x and y")
    _need("points" in plane, "plane", "needs points")


def _check_alignment(alignment: Mapping[str, Any]) -> None:
    similarity, correlation = (alignment.get(name) or {} for name in ("similarity", "correlation"))
    for name, pairs in (("similarity", similarity), ("correlation", correlation)):
        for group, pair in pairs.items():
            _need({"before", "after"} <= set(pair), f"alignment.{name}.{group}", "needs before and after")
    _need(not similarity or not correlation or set(similarity) == set(correlation), "alignment", "names other groups")
    known = all({"name", "size", "moved", "transpositions"} <= set(group) for group in alignment.get("groups") or [])
    _need(known, "alignment.groups", "needs name, size, moved and transpositions of every group")
    _check_stds(alignment.get("stds"), "alignment.stds")


def _check_compact(section: Mapping[str, Any]) -> None:
    _need(
        all("name" in score for score in section.get("scores") or []), "compact.scores", "needs a name in every row"
    )
    groups = section.get("groups") or []
    known = all({"name", "size", "transpositions"} <= set(group) for group in groups)
    _need(known, "compact.groups", "needs name, size and transpositions of every group")
    _need(len({len(group["transpositions"]) for group in groups}) <= 1, "compact.groups", "counts other samples")
    _check_stds(section.get("stds"), "compact.stds")


def _check_stds(stds: Mapping[str, Any] | None, where: str) -> None:
    if not stds:
        return
    centres = stds.get("centres") or []
    positive = all(value is not None and value > 0 for value in centres)
    _need(len(centres) > 0 and positive, f"{where}.centres", "must be positive numbers")
    for number, curve in enumerate(stds.get("curves") or []):
        fits = len(curve.get("shares") or []) == len(centres) and "name" in curve
        _need(fits, f"{where}.curves[{number}]", "needs a name and one share for each centre")
    _need("curves" in stds, where, "needs curves")


def _check_posterior(posterior: Mapping[str, Any]) -> None:
    names = posterior.get("names") or []
    for number, layer in enumerate(posterior.get("layers") or []):
        fits = "name" in layer and all(_is_matrix(layer.get(kind), len(names), 5) for kind in ("std", "snr"))
        _need(
            fits, f"posterior.layers[{number}]", f"needs a name, and five quantiles of std and snr for {len(names)}"
        )
        rows = [row for kind in ("std", "snr") for row in layer[kind]]
        _need(all(_quantiles(row) for row in rows), f"posterior.layers[{number}]", "has quantiles that fall")
    for number, group in enumerate(posterior.get("units") or []):
        fits = {"name", "size"} <= set(group) and len(group.get("pruned") or []) == len(names)
        _need(fits, f"posterior.units[{number}]", f"needs name, size and {len(names)} counts")


def _members(report: Mapping[str, Any], section: str, member: str) -> Mapping[str, Any]:
    return (report.get(section) or {}).get(member) or {}


def _is_matrix(value: Any, rows: int, columns: int) -> bool:
    return isinstance(value, Sequence) and len(value) == rows and all(len(row) == columns for row in value)


def _rising(values: Sequence[Any]) -> bool:
    if any(value is None for value in values):
        return False
    return all(one < other for one, other in pairwise(values))


def _quantiles(row: Sequence[Any]) -> bool:
    """Five numbers that do not fall, or nothing at all (a point has no signal-to-noise ratio)."""
    if all(value is None for value in row):
        return True
    return None not in row and all(one <= other for one, other in pairwise(row))


def _need(holds: bool, where: str, what: str) -> None:
    if not holds:
        raise ArtifactError(f"'report.{where}' {what}")
