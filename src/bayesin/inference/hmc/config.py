"""Settings of Hamiltonian Monte Carlo, and their checks."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal

from ...errors import ConfigError
from .precision import check_precision

# Leapfrog by its field name -> what blackjax calls it; gradients a step: 1, 2, 3.
INTEGRATORS = {"leapfrog": "velocity_verlet", "mclachlan": "mclachlan", "yoshida": "yoshida"}
# How many draws are wanted and how they are kept does not change the chain.
OPERATIONAL = ("samples", "draws_per_file", "probe")


@dataclass(frozen=True)
class HMC:
    """Full-batch HMC with a unit mass matrix and a prior N(0, prior_variance) on every weight."""

    samples: int = 100
    """Draws kept of each chain."""
    chains: int = 1
    """Independent chains, run side by side."""
    burn_in: int = 100
    """Iterations before the first draw."""
    thin: int = 1
    """Iterations from one draw to the next."""
    step_size: float = 1e-3
    """Integration step; where it starts when adapted."""
    steps: int = 500
    """Integration steps of one iteration."""
    jitter: float = 0.0
    """Each iteration's step is multiplied by a random number within 1 ± jitter, which breaks orbits that close."""
    adapt: bool = False
    """Adapt the step size of each chain during burn-in by dual averaging."""
    target_acceptance: float = 0.8
    """Mean acceptance probability that adaptation aims at."""
    integrator: Literal["leapfrog", "mclachlan", "yoshida"] = "leapfrog"
    """Leapfrog, or a composition of two (mclachlan) or three (yoshida) gradients a step."""
    prior_variance: float = 1.0
    """Variance of the prior."""
    temperature: float = 1.0
    """Samples are drawn from exp(-U/T); 1 is the Bayes posterior."""
    likelihood: Literal["categorical", "gaussian"] = "categorical"
    """Labels, or real targets."""
    noise: float = 1.0
    """Standard deviation of the Gaussian likelihood."""
    precision: str = "highest"
    """Matrix products of the gradients along a trajectory: float32, bf16x3, bf16x6, tf32x3, tf32, or a name of JAX
    such as highest. A coarse one costs acceptance, not exactness: energies always have the full precision."""
    chunk: int = 20_000
    """Examples of one gradient pass; bounds memory, and changes nothing but rounding."""
    draws_per_file: int = 50
    """Draws of one file, and between two checkpoints."""
    probe: int = 64
    """Inputs whose predictions are followed for R-hat and effective sample size."""

    def __post_init__(self):
        for name in ("samples", "chains", "thin", "steps", "chunk", "draws_per_file"):
            _require(_whole(getattr(self, name)) and getattr(self, name) >= 1, self, name, "at least 1")
        for name in ("burn_in", "probe"):
            _require(_whole(getattr(self, name)) and getattr(self, name) >= 0, self, name, "zero or more")
        for name in ("step_size", "prior_variance", "temperature", "noise"):
            _require(_finite(getattr(self, name)) and getattr(self, name) > 0, self, name, "positive")
        _require(
            _finite(self.target_acceptance) and 0 < self.target_acceptance < 1, self, "target_acceptance", "in (0, 1)"
        )
        _require(_finite(self.jitter) and 0 <= self.jitter < 1, self, "jitter", "in [0, 1)")
        _require(self.integrator in INTEGRATORS, self, "integrator", f"one of {', '.join(INTEGRATORS)}")
        _require(self.likelihood in ("categorical", "gaussian"), self, "likelihood", "categorical or gaussian")
        _require(not self.adapt or self.burn_in > 0, self, "burn_in", "at least 1 to adapt the step size in")
        check_precision(self.precision)

    @property
    def iterations(self) -> int:
        """Iterations of a chain from its start to its last draw."""
        return self.burn_in + self.samples * self.thin


def meaningful(config: HMC) -> dict[str, Any]:
    """The settings that decide the chain, as plain data; a run may be prolonged, but not altered."""
    return {name: value for name, value in dataclasses.asdict(config).items() if name not in OPERATIONAL}


def _require(holds: bool, settings: HMC, name: str, what: str) -> None:
    if not holds:
        raise ConfigError(f"{name} must be {what}, not {getattr(settings, name)!r}")


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
