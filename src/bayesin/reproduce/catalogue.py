"""Everything that can be reproduced, in the order of the papers."""

from ..errors import ConfigError, did_you_mean
from .barriers import BARRIERS
from .cifar100 import CIFAR100
from .conditions import CONDITIONS
from .grids import PRIOR, TEMPERATURE, WIDTH
from .kl import KL
from .plane import PLANE
from .presets import PRESETS
from .regime import REGIME
from .reproduction import Reproduction
from .spread import PRUNING, STDS
from .table1 import TABLE1
from .timings import TIMINGS
from .transpositions import DYNAMICS, TRANSPOSITIONS

FIRST = (BARRIERS, WIDTH, PRIOR, TEMPERATURE, KL, TIMINGS, CIFAR100, PLANE, REGIME, PRESETS, CONDITIONS)
SECOND = (TABLE1, TRANSPOSITIONS, DYNAMICS, STDS, PRUNING)
CATALOGUE = {one.name: one for one in (*FIRST, *SECOND)}


def find(name: str) -> Reproduction:
    """The reproduction of that name; a misspelt one is told the nearest."""
    if name not in CATALOGUE:
        hint = did_you_mean(name, CATALOGUE, 0.6) or ";"
        raise ConfigError(f"there is nothing named '{name}' to reproduce{hint} 'bayesin reproduce --list' shows all")
    return CATALOGUE[name]
