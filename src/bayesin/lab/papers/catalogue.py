"""Everything that can be reproduced, in the order of the papers; each file below holds all about one figure."""

from ...errors import ConfigError, did_you_mean
from .reproduction import Reproduction
from .rossi2023.barriers import BARRIERS
from .rossi2023.cifar100 import CIFAR100
from .rossi2023.conditions import CONDITIONS
from .rossi2023.costs_compared import COSTS
from .rossi2023.initialisation import INITIALISATION
from .rossi2023.kl import KL
from .rossi2023.posterior_plane import PLANE
from .rossi2023.presets import PRESETS
from .rossi2023.prior_and_temperature import PRIOR, TEMPERATURE
from .rossi2023.recurrent import RECURRENT
from .rossi2023.regime import REGIME
from .rossi2023.remedies import REMEDIES
from .rossi2023.stated import STATED
from .rossi2023.timings import TIMINGS
from .rossi2023.width import WIDTH
from .xiao2023.chains import LONG_CHAINS
from .xiao2023.dynamics import DYNAMICS
from .xiao2023.stds_and_pruning import PRUNING, STDS
from .xiao2023.table1 import TABLE1
from .xiao2023.transpositions import TRANSPOSITIONS
from .xiao2023.weight_space import WEIGHT_SPACE

ROSSI2023 = (
    *(BARRIERS, WIDTH, PRIOR, TEMPERATURE, KL, TIMINGS, CIFAR100, PLANE, REGIME, PRESETS, CONDITIONS),
    *(INITIALISATION, COSTS, STATED),
    REMEDIES,
    RECURRENT,  # left to future work there
)
XIAO2023 = (TABLE1, TRANSPOSITIONS, DYNAMICS, STDS, PRUNING, WEIGHT_SPACE, LONG_CHAINS)
CATALOGUE = {reproduction.name: reproduction for reproduction in (*ROSSI2023, *XIAO2023)}


def find(name: str) -> Reproduction:
    """The reproduction of that name; a misspelt one is told the nearest."""
    if name not in CATALOGUE:
        hint = did_you_mean(name, CATALOGUE, 0.6) or ";"
        raise ConfigError(f"there is nothing named '{name}' to reproduce{hint} 'bayesin reproduce --list' shows all")
    return CATALOGUE[name]
