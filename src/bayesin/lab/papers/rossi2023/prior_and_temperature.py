"""Barriers against the prior variance, and against the temperature in both of its meanings: whether the conclusions
hold for every value of a setting. Rossi et al. 2023, section 5."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...campaign import Task
from .. import drawing
from ..reproduction import Finding, Record, Reproduction, grouped, of_kind
from ..verdicts import accuracies, barriers_of, format_mean_std, verdict_of_all, verdict_of_zero
from .variational_pairs import pairs, posteriors

VARIANCES = {
    "smoke": (0.01, 0.05, 0.2),
    "cpu": (0.001, 0.0025, 0.01, 0.04),
    "paper": (0.0005, 0.001, 0.0025, 0.01, 0.04, 0.1),
}
TEMPERATURES = {"smoke": (0.1, 1.0), "cpu": (0.01, 0.1, 0.3, 1.0), "paper": (0.001, 0.01, 0.1, 0.3, 1.0, 2.0)}
MEANINGS = {"kl": "T multiplies the KL", "posterior": "exp(−U/T)"}
SettingOf = Callable[[Record], float]
LOOKS = {"kl": {"color": drawing.PURPLE, "marker": "s"}}  # the others: grey circles


def tasks_of_prior(scale: str) -> list[Task]:
    return pairs(scale, [posteriors(scale, "mnist", prior_variance=variance) for variance in VARIANCES[scale]])


def judge_prior(records: Sequence[Record]) -> list[Finding]:
    return [_finding(of_kind(records, "pair"), _variance_of, "prior variance")]


def draw_prior(figure: Any, records: Sequence[Record]) -> None:
    _draw(figure, {"": of_kind(records, "pair")}, _variance_of, "prior variance", {})


def _variance_of(pair: Record) -> float:
    return float(pair["settings"]["config"]["training"]["prior_variance"])


PRIOR = Reproduction(
    name="prior",
    source="Rossi et al. 2023, prior variance (section 5)",
    claim="the conclusions hold for every prior variance",
    tasks=tasks_of_prior,
    judge=judge_prior,
    draw=draw_prior,
    minutes={"smoke": 0.3, "cpu": 9, "paper": 1.7},
    choices=("MLP on MNIST, variances 0.0005 to 0.1; the paper's grid is unknown",),
    size=(6.8, 2.8),
)


def tasks_of_temperature(scale: str) -> list[Task]:
    grid = [(meaning, temperature) for meaning in MEANINGS for temperature in TEMPERATURES[scale]]
    configs = [posteriors(scale, "mnist", temperature=t, temperature_meaning=meaning) for meaning, t in grid]
    return pairs(scale, configs)


def judge_temperature(records: Sequence[Record]) -> list[Finding]:
    return [
        _finding(of_meaning, _temperature_of, "temperature" + (f" ({meaning})" if meaning else ""))
        for meaning, of_meaning in _by_meaning(records).items()
    ]


def draw_temperature(figure: Any, records: Sequence[Record]) -> None:
    _draw(figure, _by_meaning(records), _temperature_of, "temperature", MEANINGS)


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
    tasks=tasks_of_temperature,
    judge=judge_temperature,
    draw=draw_temperature,
    minutes={"smoke": 0.3, "cpu": 14, "paper": 2.2},
    choices=("both meanings of temperature, 0.001 to 2; the paper's grid and meaning are unknown",),
    size=(8.0, 2.8),
)


def _finding(measured: Sequence[Record], setting_of: SettingOf, what: str) -> Finding:
    """Whether the barrier is zero after alignment at every value of a setting."""
    parts, verdicts = [], []
    for value, of_value in _by_setting(measured, setting_of).items():
        barriers = barriers_of(of_value)
        verdicts.append(verdict_of_zero(barriers)[0])
        parts.append(f"{value:g}: {format_mean_std(barriers.naive)} → {format_mean_std(barriers.aligned, 4)}")
    verdict, held = verdict_of_all(verdicts, "values")
    return Finding(
        f"the conclusions hold for every {what}",
        "conclusions hold across the grid; grid and numbers unknown to us",
        "; ".join(parts),
        verdict,
        f"zero after alignment at {held}",
    )


def _draw(
    figure: Any, panels: Mapping[str, Sequence[Record]], setting_of: SettingOf, label: str, titles: Mapping[str, str]
) -> None:
    """Barriers against a setting, a panel for each meaning of it, and test accuracy in the last panel."""
    axes = figure.subplots(1, len(panels) + 1, squeeze=False)[0]
    for axis, (meaning, measured) in zip(axes, panels.items(), strict=False):
        drawing.barriers_against(axis, _by_setting(measured, setting_of))
        axis.set(xlabel=label, title=titles.get(meaning, "barrier"))
    for meaning, measured in panels.items():
        groups = _by_setting(measured, setting_of)
        right = [np.mean(accuracies(of_value)) for of_value in groups.values()]
        look = LOOKS.get(meaning, {"color": drawing.GREY, "marker": "o"})
        axes[-1].plot(list(groups), right, label=titles.get(meaning), **look)
    axes[-1].set(xscale="log", xlabel=label, ylabel="test accuracy (%)", title="the posteriors")
    drawing.legend(figure, axes[0], axes[-1])


def _by_setting(measured: Sequence[Record], setting_of: SettingOf) -> dict[float, list[Record]]:
    return grouped(sorted(measured, key=setting_of), setting_of)
