"""Words and numbers as people write them, shared by the reports of all verbs."""

from ..evaluation.barrier import Barrier

FIRST_IMAGES = (
    "The first test image of each class, chosen before any result was seen, and the probability that each "
    "path gives to every class. Strong colour: the true class."
)
PRUNED = (
    "A unit counts as pruned when no weight into or out of it has a mean larger than its standard "
    "deviation: it adds little but noise. The fit was free to use it and did not."
)


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


def half_way(one: Barrier) -> float:
    """Accuracy in the middle of a path; NaN where there is none."""
    return float("nan") if one.accuracy is None else float(one.accuracy[len(one.taus) // 2])
