"""Inference: every fit takes (key, model, data, settings) and returns a `Fit`."""

from .elbo import elbo_loss as elbo_loss
from .elbo import kl_divergence as kl_divergence
from .ensemble import Ensemble as Ensemble
from .ensemble import fit_ensemble as fit_ensemble
from .fit import Fit as Fit
from .fit import Memory as Memory
from .fit import Progress as Progress
from .hmc import HMC as HMC
from .hmc import Draws as Draws
from .hmc import effective_sample_size as effective_sample_size
from .hmc import fit_hmc as fit_hmc
from .hmc import split_rhat as split_rhat
from .laplace import Laplace as Laplace
from .laplace import fit_laplace as fit_laplace
from .priors import FanIn as FanIn
from .priors import Isotropic as Isotropic
from .priors import Prior as Prior
from .settings import Training as Training
from .settings import identity_fields as identity_fields
from .sgmcmc import SGMCMC as SGMCMC
from .sgmcmc import fit_sgmcmc as fit_sgmcmc
from .swag import SWAG as SWAG
from .swag import fit_swag as fit_swag
from .vi import VI as VI
from .vi import fit_vi as fit_vi
from .vi import fit_vi_grid as fit_vi_grid
