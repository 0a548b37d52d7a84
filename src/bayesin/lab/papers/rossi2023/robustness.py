"""Whether the conclusions hold for every value of a setting: shared by `prior` and `temperature`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .. import drawing
from ..reproduction import Finding, Record, Verdict, grouped
from ..verdicts import accuracies, barriers_of, format_mean_std, verdict_of_zero

SettingOf = Callable[[Record], float]
LOOKS = {"kl": {"color": drawing.PURPLE, "marker": "s"}}  # the others: grey circles


def finding_of_robustness(pairs: Sequence[Record], setting_of: SettingOf, what: str) -> Finding:
    """Whether the barrier is zero after alignment at every value of a setting."""
    parts, verdicts = [], []
    for value, of_value in _by_setting(pairs, setting_of).items():
        barriers = barriers_of(of_value)
        verdicts.append(verdict_of_zero(barriers)[0])
        parts.append(f"{value:g}: {format_mean_std(barriers.naive)} → {format_mean_std(barriers.aligned, 4)}")
    held, open_ = verdicts.count("confirmed"), verdicts.count("not decided")
    verdict: Verdict = "confirmed" if held == len(verdicts) else "partly" if held else "not confirmed"
    if open_ and (not held or held + open_ == len(verdicts)):
        verdict = "not decided"
    return Finding(
        f"the conclusions hold for every {what}",
        "conclusions hold across the grid; grid and numbers unknown to us",
        "; ".join(parts),
        verdict if verdicts else "not measured",
        f"zero after alignment at {held} of {len(verdicts)} values" + (f", not decided at {open_}" if open_ else ""),
    )


def draw_robustness(
    figure: Any, panels: Mapping[str, Sequence[Record]], setting_of: SettingOf, label: str, titles: Mapping[str, str]
) -> None:
    """Barriers against a setting, a panel for each meaning of it, and test accuracy in the last panel."""
    axes = figure.subplots(1, len(panels) + 1, squeeze=False)[0]
    for axis, (meaning, pairs) in zip(axes, panels.items(), strict=False):
        drawing.barriers_against(axis, _by_setting(pairs, setting_of))
        axis.set(xlabel=label, title=titles.get(meaning, "barrier"))
    for meaning, pairs in panels.items():
        groups = _by_setting(pairs, setting_of)
        right = [np.mean(accuracies(of_value)) for of_value in groups.values()]
        look = LOOKS.get(meaning, {"color": drawing.GREY, "marker": "o"})
        axes[-1].plot(list(groups), right, label=titles.get(meaning), **look)
    axes[-1].set(xscale="log", xlabel=label, ylabel="test accuracy (%)", title="the posteriors")
    drawing.legend(figure, axes[0], axes[-1])


def _by_setting(pairs: Sequence[Record], setting_of: SettingOf) -> dict[float, list[Record]]:
    return grouped(sorted(pairs, key=setting_of), setting_of)
