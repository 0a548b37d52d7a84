"""Settings that every trained posterior has, and their checks."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import ConfigError, nearest


@dataclass(frozen=True)
class Training:
    """What is trained, on what objective, how fast and for how long."""

    members: int = 1
    """How many independent posteriors (or networks) to train in one program."""
    prior_variance: float = 0.01
    """Variance of the isotropic Gaussian prior."""
    prior_centre: Literal["initial", "zero"] = "initial"
    """Where the prior sits for leaves whose initial value does not depend on the key (norm gains,
    thresholds): at that value, or at zero, which pulls gains that start at 1 towards 0."""
    likelihood: Literal["categorical", "gaussian"] = "categorical"
    """Labels, or real targets."""
    noise: float = 1.0
    """Standard deviation of the Gaussian likelihood; where it starts when learned."""
    learn_noise: bool = False
    """Learn that standard deviation by maximum likelihood."""
    epochs: int = 100
    """Passes over the training set."""
    batch: int = 500
    """Examples a step; more than there are means all of them. Every epoch is one permutation without
    replacement, and the remainder that fills no batch is left out of that epoch."""
    optimiser: Literal["adam", "sgd"] = "adam"
    """Adam, or gradient descent with momentum."""
    momentum: float = 0.9
    """Heavy-ball momentum of sgd."""
    learning_rate: float = 1e-3
    """Peak rate, on the loss per example."""
    schedule: Literal["constant", "cosine"] = "cosine"
    """How the rate goes on after warm-up."""
    warmup: int = 0
    """Steps over which the rate rises linearly."""
    clip: float = 0.0
    """Largest global norm of the gradient; 0 means no clipping."""
    compute: Literal["float32", "bfloat16"] = "float32"
    """What the network computes in; parameters, optimiser and loss stay float32."""
    parallel: Literal["auto", "vmap", "sequence"] = "auto"
    """Members side by side (vmap), or one after the other through one compiled program (sequence).
    In sequence a member has the same bits however many there are; side by side it agrees to rounding.
    auto: vmap for nets without convolutions on an accelerator, else sequence."""
    shard: Literal["auto", "members", "batch", "none"] = "auto"
    """What is spread over several devices. auto: the members if there are enough, else the batch."""
    log_every: int = 0
    """Steps between two rows of the trace, and between two checks for divergence; 0 means an epoch."""
    eval_every: int = 0
    """Epochs between two looks at the test set with the mean network; 0 means never."""
    explosion: float = 100.0
    """Stop when the loss per example exceeds this many times where it started."""
    checkpoint_epochs: int = 0
    """Epochs between two checkpoints; 0 means by time alone."""
    checkpoint_minutes: float = 2.0
    """Minutes between two checkpoints; 0 means by epochs alone."""

    def __new__(cls, *values: Any, **fields: Any):
        refuse_unknown(cls, fields)
        return super().__new__(cls)

    def __post_init__(self):
        for name in ("members", "epochs", "batch"):
            require(isinstance(getattr(self, name), int) and getattr(self, name) >= 1, self, name, "at least 1")
        for name in ("prior_variance", "noise", "explosion"):
            require(is_finite(getattr(self, name)) and getattr(self, name) > 0, self, name, "positive")
        for name in ("learning_rate", "clip", "checkpoint_minutes"):
            require(is_finite(getattr(self, name)) and getattr(self, name) >= 0, self, name, "zero or more")
        for name in ("warmup", "log_every", "eval_every", "checkpoint_epochs"):
            require(isinstance(getattr(self, name), int) and getattr(self, name) >= 0, self, name, "zero or more")
        require(0 <= self.momentum < 1, self, "momentum", "in [0, 1)")
        for name, choices in _CHOICES.items():
            require(getattr(self, name) in choices, self, name, f"one of {', '.join(choices)}")


_CHOICES = {
    "prior_centre": ("initial", "zero"),
    "likelihood": ("categorical", "gaussian"),
    "optimiser": ("adam", "sgd"),
    "schedule": ("constant", "cosine"),
    "compute": ("float32", "bfloat16"),
    "parallel": ("auto", "vmap", "sequence"),
    "shard": ("auto", "members", "batch", "none"),
}

# How often a run is saved does not change what it computes.
OPERATIONAL = ("checkpoint_epochs", "checkpoint_minutes")


def meaningful(settings: Training) -> dict[str, Any]:
    """The settings that decide the result, as plain data."""
    return {name: value for name, value in dataclasses.asdict(settings).items() if name not in OPERATIONAL}


def refuse_unknown(kind: Any, fields: dict[str, Any]) -> None:
    """Raises `ConfigError` with the nearest setting for a name that is none."""
    known = [field.name for field in dataclasses.fields(kind)]
    for name in fields:
        if name not in known:
            close = nearest(name, known, 0.6)
            hint = f"did you mean '{close}'?" if close else f"settings are {', '.join(known)}"
            raise ConfigError(f"{kind.__name__} has no setting '{name}'; {hint}")


def require(holds: bool, settings: Any, name: str, what: str) -> None:
    """Raises `ConfigError` unless a setting holds."""
    if not holds:
        raise ConfigError(f"{name} must be {what}, not {getattr(settings, name)!r}")


def is_finite(value: Any) -> bool:
    """Whether this is an ordinary number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
