"""Barriers against one setting: width, prior variance, temperature. Rossi et al. 2023, section 5."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..experiments.campaign import Pair, Task, neighbours
from . import drawing
from .barriers import RESNET_WIDTH, by_case, resnet
from .reproduction import Finding, Record, Reproduction, Verdict, of_kind
from .scales import measured, posteriors
from .words import (
    BARRIER_NATS,
    NO_BARRIER,
    accuracies,
    heights,
    rank_correlation,
    spread,
    verdict_of_no_rise,
    verdict_of_rise,
    verdict_of_zero,
)

MLP_WIDTHS = {"smoke": (0.25, 0.5, 1, 2), "cpu": (0.25, 0.5, 1, 2), "paper": (0.125, 0.25, 0.5, 1, 2, 4)}
RESNET_WIDTHS = {"smoke": (), "cpu": (1, 2, 4), "paper": (1, 2, 4, 8, 16)}
VARIANCES = {
    "smoke": (0.01, 0.05, 0.2),
    "cpu": (0.001, 0.0025, 0.01, 0.04),
    "paper": (0.0005, 0.001, 0.0025, 0.01, 0.04, 0.1),
}
TEMPERATURES = {"smoke": (0.1, 1.0), "cpu": (0.01, 0.1, 0.3, 1.0), "paper": (0.001, 0.01, 0.1, 0.3, 1.0, 2.0)}
MEANINGS = ("kl", "posterior")


def width_tasks(scale: str) -> list[Task]:
    found: list[Task] = []
    for data in ("mnist", "cifar10") if scale == "paper" else ("mnist",):
        for width in MLP_WIDTHS[scale]:
            found += neighbours(posteriors(scale, data, width=width), **measured(scale, train_samples=0))
    return found + [task for tasks in resnets(scale) for task in tasks]


def resnets(scale: str) -> list[list[Pair]]:
    """Pairs of ResNet20 at every width of a scale."""
    found = []
    for width in RESNET_WIDTHS[scale]:
        wide = scale == "paper" and width > RESNET_WIDTH
        members = 4 if scale == "paper" else 2
        found.append(resnet(scale, width=width, members=members, run={"test_samples": 16} if wide else None))
    return found


def prior_tasks(scale: str) -> list[Task]:
    options = measured(scale, train_samples=0)
    configs = [posteriors(scale, "mnist", prior_variance=variance) for variance in VARIANCES[scale]]
    return [pair for config in configs for pair in neighbours(config, **options)]


def temperature_tasks(scale: str) -> list[Task]:
    options = measured(scale, train_samples=0)
    configs = [
        posteriors(scale, "mnist", temperature=temperature, temperature_meaning=meaning)
        for meaning in MEANINGS
        for temperature in TEMPERATURES[scale]
    ]
    return [pair for config in configs for pair in neighbours(config, **options)]


def judge_width(records: Sequence[Record]) -> list[Finding]:
    findings = []
    for case, pairs in by_case(of_kind(records, "pair")).items():
        groups = by_setting(pairs, _width)
        untrained = max(heights(pairs, "naive"), default=0.0) < BARRIER_NATS
        for kind, words in (("naive", "without alignment"), ("aligned", "after alignment")):
            tops = {width: heights(found, kind) for width, found in groups.items()}
            ends = ", ".join(f"{width:g}: {spread(found, 3)}" for width, found in tops.items())
            trend = rank_correlation(list(tops), [float(np.mean(found)) for found in tops.values()])
            claimed = "MLP" in case or kind == "aligned"
            findings.append(
                Finding(
                    f"{case}: barriers fall with width {words}" if claimed else f"{case}: no fall {words}",
                    "wider means lower" if claimed else "for ResNet20 only after alignment",
                    ends,
                    *_trend(trend, claimed, untrained),
                )
            )
    return findings


def judge_robust(of: Callable[[Record], float], what: str) -> Callable[[Sequence[Record]], list[Finding]]:
    """A judge for "the conclusions hold for every …"."""

    def judge(records: Sequence[Record]) -> list[Finding]:
        findings = []
        for meaning, pairs in _by_meaning(of_kind(records, "pair")).items():
            groups = by_setting(pairs, of)
            parts, verdicts = [], []
            for value, found in groups.items():
                naive, aligned = heights(found, "naive"), heights(found, "aligned")
                verdicts.append(verdict_of_zero(naive, aligned)[0])
                parts.append(f"{value:g}: {spread(naive)} → {spread(aligned, 4)}")
            held = verdicts.count("confirmed")
            verdict: Verdict = "confirmed" if held == len(verdicts) else "partly" if held else "not confirmed"
            label = f" ({meaning})" if meaning else ""
            findings.append(
                Finding(
                    f"the conclusions hold for every {what}{label}",
                    "conclusions hold across the grid; grid and numbers unknown to us",
                    "; ".join(parts),
                    verdict if verdicts else "not measured",
                    f"zero after alignment at {held} of {len(verdicts)} values",
                )
            )
        return findings

    return judge


def draw_width(figure: Any, records: Sequence[Record]) -> None:
    cases = by_case(of_kind(records, "pair"))
    axes = figure.subplots(1, max(1, len(cases)), squeeze=False)[0]
    for axis, (title, pairs) in zip(axes, cases.items(), strict=False):
        groups = by_setting(pairs, _width)
        drawing.against(axis, groups)
        axis.set(title=title, xlabel="width", xticks=list(groups), xticklabels=[f"{w:g}" for w in groups])
        axis.minorticks_off()
    drawing.legend(figure, axes[0])


def draw_grid(of: Callable[[Record], float], label: str) -> Callable[[Any, Sequence[Record]], None]:
    """A drawing of barriers and of test accuracy against a setting."""

    def draw(figure: Any, records: Sequence[Record]) -> None:
        meanings = _by_meaning(of_kind(records, "pair"))
        axes = figure.subplots(1, len(meanings) + 1, squeeze=False)[0]
        for axis, (meaning, pairs) in zip(axes, meanings.items(), strict=False):
            drawing.against(axis, by_setting(pairs, of))
            axis.set(xlabel=label, title=_MEANING.get(meaning, "barrier"))
        for meaning, pairs in meanings.items():
            groups = by_setting(pairs, of)
            right = [np.mean(accuracies(found)) for found in groups.values()]
            look = {"kl": {"color": "#009E73", "marker": "s"}}.get(meaning, {"color": "#7a7a7a", "marker": "o"})
            axes[-1].plot(list(groups), right, label=_MEANING.get(meaning), **look)
        axes[-1].set(xscale="log", xlabel=label, ylabel="test accuracy (%)", title="the posteriors")
        drawing.legend(figure, axes[0], axes[-1])

    return draw


_MEANING = {"kl": "T multiplies the KL", "posterior": "exp(−U/T)"}


def by_setting(pairs: Sequence[Record], of: Callable[[Record], float]) -> dict[float, list[Record]]:
    """Pairs by a setting of their run, in ascending order."""
    found: dict[float, list[Record]] = {}
    for pair in sorted(pairs, key=of):
        found.setdefault(of(pair), []).append(pair)
    return found


def _by_meaning(pairs: Sequence[Record]) -> dict[str, list[Record]]:
    """Pairs by the meaning of temperature, where that is varied."""
    meanings = {one["settings"]["config"]["training"]["temperature_meaning"] for one in pairs}
    if len(meanings) < 2:
        return {"": list(pairs)}
    kinds = {meaning: [] for meaning in MEANINGS}
    for one in pairs:
        kinds[one["settings"]["config"]["training"]["temperature_meaning"]].append(one)
    return kinds


def _width(pair: Record) -> float:
    return float(pair["settings"]["config"]["model"]["width"])


def _variance(pair: Record) -> float:
    return float(pair["settings"]["config"]["training"]["prior_variance"])


def _temperature(pair: Record) -> float:
    return float(pair["settings"]["config"]["training"]["temperature"])


def _trend(correlation: float, claimed: bool, untrained: bool) -> tuple[Verdict, str]:
    """Whether barriers fall with width as `claimed`, and why."""
    if untrained:
        return "not measured", NO_BARRIER
    if np.isnan(correlation):
        return "not measured", "one width alone"
    reason = f"rank correlation of width and barrier {correlation:+.2f}"
    return (verdict_of_rise if claimed else verdict_of_no_rise)(-correlation), reason


WIDTH = Reproduction(
    name="width",
    source="Rossi et al. 2023, barriers against width (section 5.1)",
    claim="barriers fall with width: MLPs with and without alignment, ResNet20 only after alignment",
    tasks=width_tasks,
    judge=judge_width,
    draw=draw_width,
    minutes={"smoke": 0.4, "cpu": 17, "paper": 47},
    choices=(
        "MLP widths 64 to 2048, ResNet20 1 to 16 times 16 features; the paper's are unknown",
        "five pairs (ResNet20 three)",
    ),
    size=(7.6, 2.8),
)
PRIOR = Reproduction(
    name="prior",
    source="Rossi et al. 2023, prior variance (section 5)",
    claim="the conclusions hold for every prior variance",
    tasks=prior_tasks,
    judge=judge_robust(_variance, "prior variance"),
    draw=draw_grid(_variance, "prior variance"),
    minutes={"smoke": 0.3, "cpu": 9, "paper": 1.7},
    choices=("MLP on MNIST, variances 0.0005 to 0.1; the paper's grid is unknown",),
    size=(6.8, 2.8),
)
TEMPERATURE = Reproduction(
    name="temperature",
    source="Rossi et al. 2023, temperature (section 5)",
    claim="the conclusions hold for every temperature",
    tasks=temperature_tasks,
    judge=judge_robust(_temperature, "temperature"),
    draw=draw_grid(_temperature, "temperature"),
    minutes={"smoke": 0.3, "cpu": 14, "paper": 2.2},
    choices=("both meanings of temperature, 0.001 to 2; the paper's grid and meaning are unknown",),
    size=(8.0, 2.8),
)
