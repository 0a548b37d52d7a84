"""Full-batch Hamiltonian Monte Carlo on blackjax."""

from .diagnostics import Mixing as Mixing
from .diagnostics import effective_sample_size as effective_sample_size
from .diagnostics import iid_rhats as iid_rhats
from .diagnostics import mixing_of as mixing_of
from .diagnostics import split_rhat as split_rhat
from .draws import Draws as Draws
from .sampling import HMC as HMC
from .sampling import fit_hmc as fit_hmc
