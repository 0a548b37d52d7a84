"""Barriers against the temperature, in both of its meanings. Rossi et al. 2023, section 5."""

from collections.abc import Sequence
from typing import Any

from ...campaign import Task
from ..reproduction import Finding, Record, Reproduction, of_kind
from .robustness import draw_robustness, finding_of_robustness
from .variational_pairs import pairs, posteriors

TEMPERATURES = {"smoke": (0.1, 1.0), "cpu": (0.01, 0.1, 0.3, 1.0), "paper": (0.001, 0.01, 0.1, 0.3, 1.0, 2.0)}
MEANINGS = {"kl": "T multiplies the KL", "posterior": "exp(−U/T)"}


def tasks(scale: str) -> list[Task]:
    grid = [(meaning, temperature) for meaning in MEANINGS for temperature in TEMPERATURES[scale]]
    configs = [posteriors(scale, "mnist", temperature=t, temperature_meaning=meaning) for meaning, t in grid]
    return pairs(scale, configs)


def judge(records: Sequence[Record]) -> list[Finding]:
    return [
        finding_of_robustness(of_meaning, _temperature_of, "temperature" + (f" ({meaning})" if meaning else ""))
        for meaning, of_meaning in _by_meaning(records).items()
    ]


def draw(figure: Any, records: Sequence[Record]) -> None:
    draw_robustness(figure, _by_meaning(records), _temperature_of, "temperature", MEANINGS)


def _by_meaning(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Pairs by the meaning of temperature; under no name where only one meaning was measured."""
    measured = of_kind(records, "pair")
    kinds = {meaning: [pair for pair in measured if _meaning_of(pair) == meaning] for meaning in MEANINGS}
    return kinds if all(kinds.values()) else {"": measured}


def _meaning_of(pair: Record) -> str:
    return pair["settings"]["config"]["training"]["temperature_meaning"]


def _temperature_of(pair: Record) -> float:
    return float(pair["settings"]["config"]["training"]["temperature"])


TEMPERATURE = Reproduction(
    name="temperature",
    source="Rossi et al. 2023, temperature (section 5)",
    claim="the conclusions hold for every temperature",
    tasks=tasks,
    judge=judge,
    draw=draw,
    minutes={"smoke": 0.3, "cpu": 14, "paper": 2.2},
    choices=("both meanings of temperature, 0.001 to 2; the paper's grid and meaning are unknown",),
    size=(8.0, 2.8),
)
