"""Interpolation curves: the loss between posteriors, without and after alignment, on both sets.

Rossi et al. 2023, section 5.1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..experiments.campaign import Pair, Task, neighbours
from . import drawing
from .reproduction import Finding, Record, Reproduction, of_kind
from .scales import measured, posteriors
from .words import BARRIER_NATS, heights, spread, verdict_of_nearly_zero, verdict_of_zero

CASES = (
    ("mnist", "mlp", "MLP on MNIST"),
    ("fashion-mnist", "mlp", "MLP on Fashion-MNIST"),
    ("cifar10", "mlp", "MLP on CIFAR-10"),
    ("cifar10", "resnet20", "ResNet20 on CIFAR-10"),
)
NETWORKS = {"mlp": "MLP", "resnet20": "ResNet20"}
DATA = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
RESNET_WIDTH = 4  # times the base of 16 features
FEW = {"cpu": {"samples": 4, "taus": 5}, "paper": {"samples": 8, "taus": 9}}
SAID = {
    "MLP on MNIST": "zero after alignment",
    "MLP on Fashion-MNIST": "among the data sets; its result is not known to us",
    "MLP on CIFAR-10": "zero after alignment",
    "ResNet20 on CIFAR-10": "nearly zero after alignment",
}


def resnet(
    scale: str,
    data: str = "cifar10",
    *,
    width: float = RESNET_WIDTH,
    members: int = 4,
    run: Mapping[str, Any] | None = None,
    **changes: Any,
) -> list[Pair]:
    """Pairs of ResNet20 posteriors, from few draws, as each is a pass of a large network. None in smoke: they would
    spend the minute compiling. `run` changes the run, `changes` its training."""
    if scale == "smoke":
        return []
    precision = {"compute": "bfloat16"} if scale == "paper" else {}
    config = posteriors(scale, data, "resnet20", width=width, members=members, **precision | changes)
    on_both_sets = scale == "paper" and data == "cifar10" and width == RESNET_WIDTH
    return neighbours(replace(config, **run or {}), **FEW[scale], train_samples=4 if on_both_sets else 0)


def tasks(scale: str) -> list[Task]:
    found: list[Task] = []
    for data, model, _ in CASES:
        if model == "mlp" and (scale != "smoke" or data == "mnist"):
            found += neighbours(posteriors(scale, data), **measured(scale))
    return found + resnet(scale, members=3 if scale == "cpu" else 4)


def judge(records: Sequence[Record]) -> list[Finding]:
    findings, pairs = [], of_kind(records, "pair")
    all_naive = heights(pairs, "naive")
    if all_naive:
        least = min(all_naive)
        findings.append(
            Finding(
                "without alignment there is always a barrier",
                "a barrier always appears",
                f"{least:.3f} to {max(all_naive):.3f} nats over {len(all_naive)} pairs",
                "confirmed"
                if least > BARRIER_NATS
                else "partly"
                if max(all_naive) > BARRIER_NATS
                else "not confirmed",
            )
        )
    for title, found in by_case(pairs).items():
        for part in ("test", "train"):
            naive, aligned = heights(found, "naive", part), heights(found, "aligned", part)
            if not naive:
                continue
            judged = verdict_of_nearly_zero if "ResNet20" in title else verdict_of_zero
            findings.append(
                Finding(
                    f"{title}, {part} set: no barrier after alignment",
                    SAID.get(title, "zero after alignment"),
                    f"{spread(naive)} → {spread(aligned, 4)} nats",
                    *judged(naive, aligned),
                )
            )
    return findings


def draw(figure: Any, records: Sequence[Record]) -> None:
    cases = by_case(of_kind(records, "pair"))
    axes = figure.subplots(2, max(1, len(cases)), sharex=True, squeeze=False)
    for column, (title, pairs) in enumerate(cases.items()):
        for row, part in enumerate(("test", "train")):
            drawing.curves(axes[row, column], pairs, part)
            axes[row, column].set_xlabel("")
        axes[0, column].set_title(title)
        axes[1, column].set_xlabel("position on the path, τ")
        if not heights(pairs, "naive", "train"):
            axes[1, column].text(0.5, 0.5, "not measured", transform=axes[1, column].transAxes, ha="center")
    axes[0, 0].set_ylabel("test loss (nats)")
    axes[1, 0].set_ylabel("training loss (nats)")
    drawing.legend(figure, axes[0, 0])


def by_case(pairs: Sequence[Record]) -> dict[str, list[Record]]:
    """Records by network and data."""
    found: dict[str, list[Record]] = {}
    for pair in pairs:
        found.setdefault(case_of(pair), []).append(pair)
    return found


def case_of(record: Record) -> str:
    """Network and data of a record, in words."""
    config = record["settings"]["config"]
    data = config["data"]["name"]
    return f"{NETWORKS[config['model']['name']]} on {DATA.get(data, data)}"


BARRIERS = Reproduction(
    name="barriers",
    source="Rossi et al. 2023, interpolation curves (section 5.1)",
    claim="posteriors have a barrier between them, and none after alignment",
    tasks=tasks,
    judge=judge,
    draw=draw,
    minutes={"smoke": 0.3, "cpu": 19, "paper": 10},
    choices=(
        "gradient descent 0.05, momentum 0.9, cosine, 100 epochs (ResNet20: 40, warm-up, clipping, bfloat16)",
        "the paper states 1,000 epochs for MNIST, a rate that means 0.006 on the mean loss (after 500 epochs that is "
        "far from no barrier), and 128 draws for every network",
        "ResNet20 with 64 features (the paper's base is 16; `conditions` compares) and LayerNorm; the paper's norm "
        "is unknown",
        "ResNet20 barriers from 8 draws (training set 4) on 9 τ; MLPs 128 draws (training set 32) on 25 τ",
    ),
    size=(8.6, 4.2),
)
