"""Inference: every fit takes (key, model, data, settings) and returns a `Fit`."""

from .chain_diagnostics import ChainDiagnostics as ChainDiagnostics
from .chain_diagnostics import chains_of as chains_of
from .chain_diagnostics import compare_chains as compare_chains
from .chain_diagnostics import diagnose_chains as diagnose_chains
from .chain_diagnostics import predictions_of as predictions_of
from .chain_diagnostics import warn_unmixed as warn_unmixed
from .elbo import elbo_loss as elbo_loss
from .elbo import kl_divergence as kl_divergence
from .ensemble import Ensemble as Ensemble
from .ensemble import fit_ensemble as fit_ensemble
from .fit import Fit as Fit
from .fit import Memory as Memory
from .fit import Progress as Progress
from .hmc import HMC as HMC
from .hmc import Draws as Draws
from .hmc import fit_hmc as fit_hmc
from .laplace import Laplace as Laplace
from .laplace import fit_laplace as fit_laplace
from .mixing import Mixing as Mixing
from .mixing import effective_sample_size as effective_sample_size
from .mixing import iid_rhats as iid_rhats
from .mixing import mixing_of as mixing_of
from .mixing import rhat_bound as rhat_bound
from .mixing import split_rhat as split_rhat
from .priors import FanIn as FanIn
from .priors import Isotropic as Isotropic
from .priors import Prior as Prior
from .recalibrate import recalibrate as recalibrate
from .settings import Training as Training
from .settings import identity_fields as identity_fields
from .settings import likelihood_of as likelihood_of
from .sgmcmc import SGMCMC as SGMCMC
from .sgmcmc import fit_sgmcmc as fit_sgmcmc
from .swag import SWAG as SWAG
from .swag import fit_swag as fit_swag
<<<<<<< HEAD
from .training_problem import check_network as check_network
=======
from .training_problem import initialise as initialise
>>>>>>> main
from .vi import VI as VI
from .vi import fit_vi as fit_vi
from .vi import fit_vi_grid as fit_vi_grid
