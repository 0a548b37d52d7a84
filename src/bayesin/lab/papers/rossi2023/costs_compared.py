"""What posteriors are matched by: W2, means, KL, activations, on trained posteriors of both presets. Ours.

The first paper argues for W2 on a toy of two units (`kl` draws it) and matches trained posteriors by nothing else.
Here every pair of posteriors is matched by each cost in turn, with the same start and the same draws on the path. In
the preset `paper` all stds are alike and W2 is the matching of means; in `converged` they differ, and KL divides by
them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...campaign import Task
from ...runs import CostName
from .. import drawing
from ..reproduction import Finding, Record, Reproduction, Verdict, grouped, of_kind
from ..verdicts import (
    BARRIER_NATS,
    NO_BARRIER,
    barrier_values,
    barriers_of,
    format_mean_std,
    mean_above,
    standard_error,
)
from .variational_pairs import PRESET_OF, case_of, disjoint_pairs, posteriors, preset_of

COSTS_COMPARED: dict[CostName, str] = {
    "wasserstein": "W2",
    "means": "means",
    "kl": "KL",
    "activations": "activations",
}
IN_WEIGHT_SPACE: tuple[CostName, ...] = ("wasserstein", "means", "kl")
DATA_SETS = {
    "smoke": ("mnist",),
    "cpu": ("mnist", "cifar10"),
    "paper": ("mnist", "cifar10", "fashion-mnist", "cifar100"),
}
FINENESS = {"smoke": {}, "cpu": {}, "paper": {"samples": 32, "taus": 9}}
LOOKS = {
    "wasserstein": {"color": drawing.BLUE, "marker": "o"},
    "means": {"color": drawing.SLATE, "marker": "s"},
    "kl": {"color": drawing.OCHRE, "marker": "^"},
    "activations": {"color": drawing.PURPLE, "marker": "D"},
}


def tasks(scale: str) -> list[Task]:
    configs = [posteriors(scale, data, named=named) for data in DATA_SETS[scale] for named in PRESET_OF.values()]
    return [
        pair
        for config in configs
        for cost in COSTS_COMPARED
        for pair in disjoint_pairs(scale, config, cost=cost, **FINENESS[scale])
    ]


def judge(records: Sequence[Record]) -> list[Finding]:
    findings = []
    for case, by_cost in _cases(records).items():
        found = {cost: _shares(pairs) for cost, pairs in by_cost.items()}
        if len(found) < len(COSTS_COMPARED):
            continue
        naive = barrier_values(by_cost["wasserstein"], "naive")
        of_weights = ", ".join(_said(cost, found[cost]) for cost in IN_WEIGHT_SPACE)
        others = {COSTS_COMPARED[cost]: _less(found["wasserstein"], found[cost]) for cost in IN_WEIGHT_SPACE[1:]}
        ours = f"of {format_mean_std(naive)} nats: {of_weights} left"
        findings.append(
            Finding(
                f"{case}: of the costs in weight space W2 leaves least",
                "argued on a toy; its appendix has KL return the identity",
                ours,
                *_verdict(others, naive),
            )
        )
        by_function = (
            f"{_said('activations', found['activations'])} left, {_said('wasserstein', found['wasserstein'])}"
        )
        less = {"W2": _less(found["activations"], found["wasserstein"])}
        claim = f"{case}: activations leave less than W2"
        findings.append(Finding(claim, "not in the paper", by_function, *_verdict(less, naive)))
    return findings


def _cases(records: Sequence[Record]) -> dict[str, dict[str, list[Record]]]:
    """Pairs of every data set and preset by their cost, those alone that were matched by all."""
    found = {}
    for case, of_case in grouped(of_kind(records, "pair"), _case_of).items():
        by_cost = grouped(of_case, lambda pair: str(pair["settings"]["cost"]))
        whole = set.intersection(*({pair["settings"]["first"] for pair in pairs} for pairs in by_cost.values()))
        if whole:
            found[case] = {
                cost: sorted(
                    (pair for pair in by_cost[cost] if pair["settings"]["first"] in whole),
                    key=lambda pair: pair["settings"]["first"],
                )
                for cost in COSTS_COMPARED
                if cost in by_cost
            }
    return found


def _case_of(pair: Record) -> str:
    return f"{case_of(pair)}, {preset_of(pair)}"


def _shares(pairs: Sequence[Record], path: str = "aligned") -> np.ndarray:
    """What is left of the naive barrier of every pair."""
    barriers = barriers_of(pairs, path=path)
    return np.asarray(barriers.aligned) / np.maximum(barriers.naive, 1e-12)


def _said(cost: str, shares: np.ndarray) -> str:
    return f"{COSTS_COMPARED[cost]} {format_mean_std(100 * shares, 1)} %"  # pyright: ignore[reportArgumentType]


def _less(shares: np.ndarray, others: np.ndarray) -> tuple[bool | None, float, float]:
    """Whether the first cost leaves less, pair by pair; the mean difference and its standard error."""
    differences = others - shares
    if len(differences) < 2:
        return None, float(np.mean(differences)), float("inf")
    same = not np.any(differences)  # the same permutations: neither leaves less
    return (None if same else mean_above(differences)), float(np.mean(differences)), standard_error(differences)


def _verdict(against: Mapping[str, tuple[bool | None, float, float]], naive: Sequence[float]) -> tuple[Verdict, str]:
    """Confirmed where less is left than by each of the others, by two standard errors over pairs."""
    if max(naive, default=0.0) < BARRIER_NATS:
        return "not measured", NO_BARRIER
    less = [outcome for outcome, _, _ in against.values()]
    reason = "; ".join(
        f"{name} leaves {100 * difference:+.2f} ± {100 * error:.2f} points" if np.isfinite(error) else
        f"{name} leaves {100 * difference:+.2f} points, one pair has no spread"
        for name, (_, difference, error) in against.items()
    )  # fmt: skip
    if False in less:
        return "not confirmed", reason
    return ("confirmed" if all(less) else "not decided"), reason


def table(records: Sequence[Record]) -> list[list[str]]:
    head = ["posteriors", "cost", "pairs", "left (%)", "nats", "points lost", "calibrated nats", "left, rescaled (%)"]
    rows = [[*head, "units moved (%)", "seconds to align"]]
    for case, by_cost in _cases(records).items():
        for cost, pairs in by_cost.items():
            curves = [pair["numbers"]["aligned"]["test"] for pair in pairs]
            calibrated = [curve["calibrated_value"] for curve in curves if "calibrated_value" in curve]
            columns = (
                (100 * _shares(pairs), 1),
                ([curve["value"] for curve in curves], 4),
                ([100 * curve["accuracy_drop"] for curve in curves], 2),
                (calibrated, 4),
                (100 * _shares(pairs, "rescaled"), 1),
                ([100 * pair["numbers"]["moved"] / pair["numbers"]["units"] for pair in pairs], 1),
                ([pair["numbers"]["align_seconds"] for pair in pairs], 2),
            )
            cells = [format_mean_std(values, digits, count=False) for values, digits in columns]
            rows.append([case, COSTS_COMPARED[cost], str(len(pairs)), *cells])  # pyright: ignore[reportArgumentType]
    return rows if len(rows) > 1 else []


def draw(figure: Any, records: Sequence[Record]) -> None:
    cases = _cases(records)
    axes = figure.subplots(1, 2, sharey=True)
    for axis, (path, title) in zip(axes, (("aligned", "geodesic"), ("rescaled", "rescaled path")), strict=True):
        for step, (cost, look) in enumerate(LOOKS.items()):
            places, means = [], []
            for row, by_cost in enumerate(cases.values()):
                shares = 100 * _shares(by_cost[cost], path) if cost in by_cost else np.array([])
                if len(shares):
                    place = row + 0.18 * (step - 1.5)
                    axis.plot(shares, [place] * len(shares), linestyle="", markersize=2.5, alpha=0.5, **look)
                    places, means = [*places, place], [*means, shares.mean()]
            label = COSTS_COMPARED[cost]  # pyright: ignore[reportArgumentType]
            axis.plot(means, places, linestyle="", markersize=5, label=label, **look)
        axis.set(xlabel="left of the naive barrier (%)", title=title)
        drawing.log_scale(axis.xaxis)
    drawing.bar_labels(axes[0], list(cases))
    drawing.legend(figure, axes[0])


COSTS = Reproduction(
    name="costs",
    source="Ours; after Rossi et al. 2023, appendix A",
    claim="W2 leaves least of the costs in weight space, activations less than W2",
    tasks=tasks,
    judge=judge,
    draw=draw,
    minutes={"smoke": 0.5, "cpu": 20, "paper": 6},
    choices=(
        "MLPs of 512 units, both presets, three pairs that share no posterior; one start, 32 draws on 9 τ",
        "activations on 2,000 unlabelled training images, 2 draws",
        "KL is the correct one, with its trace; differences are judged pair by pair",
    ),
    size=(8.6, 4.4),
    table=table,
)
