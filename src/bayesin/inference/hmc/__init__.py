"""Full-batch Hamiltonian Monte Carlo on blackjax."""

from .draws import Draws as Draws
from .sampling import HMC as HMC
from .sampling import fit_hmc as fit_hmc
