"""Inference: every fit takes (key, model, data, config) and returns a `Fit`."""

from .engine import Memory as Memory
from .engine import Progress as Progress
from .ensemble import Ensemble as Ensemble
from .ensemble import fit_ensemble as fit_ensemble
from .fit import Fit as Fit
from .hmc import HMC as HMC
from .hmc import Draws as Draws
from .hmc import fit_hmc as fit_hmc
from .training import Training as Training
from .vi import VI as VI
from .vi import fit_vi as fit_vi
