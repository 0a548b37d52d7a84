"""Three sizes of every experiment.

`smoke`   the embedded digits and small networks, under a minute: the steps, not the claim
`cpu`     real data, smaller networks and sets, under half an hour on two cores
`paper`   the papers' sizes, for a GPU
"""

from dataclasses import dataclass
from typing import Any

from ..errors import ConfigError
from ..experiments import RunConfig, make_training, preset

SCALES = ("smoke", "cpu", "paper")


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


def size(scale: str) -> Size:
    """What a scale means."""
    if scale not in SIZES:
        raise ConfigError(f"there is no scale '{scale}'; choose {', '.join(SCALES)}")
    return SIZES[scale]


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
    found = size(scale)
    data = "digits" if scale == "smoke" else data
    base = found.mlp if model == "mlp" else found.resnet
    fields = preset(named, data, model) | dict(found.changes)
    limit, samples = None if scale == "smoke" else found.limit, found.samples
    if model == "resnet20" and scale == "cpu":  # two cores take a second for a step of a few hundred images
        fields, limit, samples = fields | {"epochs": 10, "batch": 100, "warmup": 20}, 2_000, 8
    elif model == "resnet20":
        fields |= {"epochs": 40}
    fields |= {"members": members or found.members} | changes
    return RunConfig(
        data=data,
        model=model,
        training=make_training("vi", fields),
        width=max(1, round(base * width)),
        limit=limit,
        test_samples=samples,
    )


def measured(scale: str, **changes: Any) -> dict[str, Any]:
    """How finely pairs are measured at a scale."""
    found = size(scale)
    return {"samples": found.samples, "taus": found.taus, "train_samples": found.train_samples} | changes
