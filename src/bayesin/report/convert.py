"""Reports of results that other verbs wrote: a file of `bayesin barrier` becomes a page too."""

from collections.abc import Mapping
from typing import Any

from ..errors import ArtifactError

BARRIER = "bayesin-barrier"
KEPT = ("taus", "nll", "accuracy", "ece", "brier", "value", "value_over_mean", "samples", "examples")


def report_of_barrier(result: Mapping[str, Any], title: str = "The loss between two posteriors") -> dict[str, Any]:
    """Returns the report of what `bayesin barrier` writes: the curves, and how they were measured.

    Example:
        >>> curve = {"taus": [0, 0.5, 1], "nll": [1, 2, 1], "value": 1.0, "standard_error": 0.1, "samples": 8}
        >>> report = report_of_barrier({"format": "bayesin-barrier", "sets": {"test": {"naive": curve}}})
        >>> report["summary"][0]["label"], report["summary"][0]["value"]
        ('Barrier without alignment', '1.000')
    """
    sets = result.get("sets")
    if not isinstance(sets, Mapping) or not all(isinstance(kinds, Mapping) for kinds in sets.values()):
        raise ArtifactError('a barrier file needs "sets": {name: {path: curve}}')
    curves = {name: {kind: _curve(one) for kind, one in kinds.items()} for name, kinds in sets.items()}
    first = next(iter(curves.values()), {})
    settings = {name: result[name] for name in ("first", "second", "samples", "taus", "key") if name in result}
    report = {"format": "bayesin-report", "version": 1, "title": title, "barrier": {"sets": curves}}
    return report | {"summary": _summary(first), "run": {"config": settings}}


def _curve(one: Any) -> dict[str, Any]:
    if not isinstance(one, Mapping):
        raise ArtifactError("a curve of a barrier file must be an object")
    curve = {name: one[name] for name in KEPT if one.get(name) is not None}
    for name, source in (("nll_error", "standard_errors"), ("error", "standard_error"), ("at", "argmax")):
        if one.get(source) is not None:
            curve[name] = one[source]
    if isinstance(curve.get("accuracy"), list) and isinstance(curve.get("examples"), int) and curve["examples"] > 0:
        shares = [share if isinstance(share, int | float) and 0 <= share <= 1 else 0.0 for share in curve["accuracy"]]
        curve["accuracy_error"] = [(share * (1 - share) / curve["examples"]) ** 0.5 for share in shares]
    return curve


def _summary(curves: Mapping[str, Any]) -> list[dict[str, str]]:
    labels = {
        "naive": "Barrier without alignment",
        "aligned": "Barrier after alignment",
        "mixture": "Mixture, control",
    }
    cards = []
    for kind, curve in curves.items():
        if kind in labels and isinstance(curve.get("value"), int | float):
            card = {"label": labels[kind], "value": f"{curve['value']:.3f}", "unit": "nats", "tone": kind}
            error = curve.get("error")
            cards.append(card | ({"note": f"± {error:.3f}"} if isinstance(error, int | float) else {}))
    return cards
