"""Variational posteriors and their pairs at three scales, which every figure of the paper is made of.

`smoke`   the embedded digits and small networks, under a minute: the steps, not the claim
`cpu`     real data, smaller networks and sets, under half an hour on two cores
`paper`   the paper's sizes, for a GPU
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...campaign import PairTask, Task, neighbours
from ...runs import RunConfig, make_training, preset
from ..reproduction import Record

NETWORKS = {"mlp": "MLP", "resnet20": "ResNet20", "rnn": "tanh cell", "lstm": "LSTM", "vit": "transformer"}
PRESET_OF = {"sgd": "paper", "adam": "converged"}  # which is what tells them apart
DATA = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}


@dataclass(frozen=True)
class Size:
    """What a scale changes."""

    members: int  # posteriors of one setting; neighbours are paired
    mlp: int  # hidden units
    resnet: int  # features of the first stage
    samples: int
    taus: int
    train_samples: int
    limit: int | None = None
    changes: tuple[tuple[str, Any], ...] = ()


SIZES = {
    "smoke": Size(3, 48, 4, 16, 5, 8, None, (("epochs", 40), ("batch", 100))),
    "cpu": Size(4, 256, 2, 32, 9, 16, 10_000, (("epochs", 40),)),
    "paper": Size(6, 512, 16, 128, 25, 32),
}
MLP_WIDTHS = {"smoke": (0.25, 0.5, 1, 2), "cpu": (0.25, 0.5, 1, 2), "paper": (0.125, 0.25, 0.5, 1, 2, 4)}
RESNET_WIDTHS = {"smoke": (), "cpu": (1, 2, 4), "paper": (1, 2, 4, 8, 16)}
RESNET_WIDTH = 4  # times the base of 16 features
FEW = {"cpu": {"samples": 4, "taus": 5}, "paper": {"samples": 8, "taus": 9}}  # each is a pass of a large network


def posteriors(
    scale: str,
    data: str,
    model: str = "mlp",
    named: str = "paper",
    *,
    width: float = 1.0,
    members: int | None = None,
    **changes: Any,
) -> RunConfig:
    """Variational posteriors of a preset at a scale; `width` multiplies the width of the scale."""
    size = SIZES[scale]
    data = "digits" if scale == "smoke" else data
    fields = preset(named, data, model) | dict(size.changes)
    limit, samples = size.limit, size.samples
    if model == "resnet20" and scale == "cpu":  # two cores take a second for a step of a few hundred images
        fields, limit, samples = fields | {"epochs": 10, "batch": 100, "warmup": 20}, 2_000, 8
    elif model == "resnet20":
        fields |= {"epochs": 40}
    fields |= {"members": members or size.members} | changes
    return RunConfig(
        data=data,
        model=model,
        training=make_training("vi", fields),
        width=max(1, round((size.mlp if model == "mlp" else size.resnet) * width)),
        limit=limit,
        test_samples=samples,
    )


def pairs(scale: str, configs: Iterable[RunConfig], *, train_set: bool = False, **options: Any) -> list[Task]:
    """The neighbours of every run, measured as finely as the scale says; with `train_set` on both sets."""
    size = SIZES[scale]
    fineness = {"samples": size.samples, "taus": size.taus, "train_samples": size.train_samples if train_set else 0}
    return [pair for config in configs for pair in neighbours(config, **fineness, **options)]


def disjoint_pairs(scale: str, config: RunConfig, **options: Any) -> list[PairTask]:
    """Pairs (0, 1), (2, 3), … of a run, which share no posterior, measured as finely as the scale says."""
    size = SIZES[scale]
    fineness = {"samples": size.samples, "taus": size.taus} | options
    return [pair for pair in neighbours(config, **fineness) if pair.first % 2 == 0]


def resnet_disjoint_pairs(scale: str, data: str = "cifar10", **changes: Any) -> list[PairTask]:
    """Of `resnet_pairs` those that share no posterior."""
    return [pair for pair in resnet_pairs(scale, data, **changes) if pair.first % 2 == 0]


def resnet_pairs(
    scale: str,
    data: str = "cifar10",
    *,
    width: float = RESNET_WIDTH,
    members: int = 4,
    run: Mapping[str, Any] | None = None,
    **changes: Any,
) -> list[PairTask]:
    """Pairs of ResNet20 posteriors, from few draws. None in smoke: they would spend the minute compiling.

    `run` changes the run, `changes` its training.
    """
    if scale == "smoke":
        return []
    precision = {"compute": "bfloat16"} if scale == "paper" else {}
    config = posteriors(scale, data, "resnet20", width=width, members=members, **precision | changes)
    on_both_sets = scale == "paper" and data == "cifar10" and width == RESNET_WIDTH
    return neighbours(replace(config, **run or {}), **FEW[scale], train_samples=4 if on_both_sets else 0)


def resnet_pairs_by_width(scale: str) -> list[list[PairTask]]:
    """Pairs of ResNet20 at every width of a scale."""
    members = 4 if scale == "paper" else 2
    wide = {width: scale == "paper" and width > RESNET_WIDTH for width in RESNET_WIDTHS[scale]}
    return [
        resnet_pairs(scale, width=width, members=members, run={"test_samples": 16} if few else None)
        for width, few in wide.items()
    ]


def case_of(record: Record) -> str:
    """Network and data of a record, in words."""
    data = record["settings"]["config"]["data"]["name"]
    return f"{network_of(record)} on {DATA.get(data, data)}"


def network_of(record: Record) -> str:
    """The network of a record, in words."""
    return NETWORKS[record["settings"]["config"]["model"]["name"]]


def preset_of(record: Record) -> str:
    """The preset of a record's training."""
    return PRESET_OF[record["settings"]["config"]["training"]["optimiser"]]


def width_of(record: Record) -> float:
    """The width of a record's network."""
    return float(record["settings"]["config"]["model"]["width"])
