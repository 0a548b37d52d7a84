"""Bayesian posteriors in one basin."""

import typing as _typing

from .compact import Compact as Compact
from .compact import compact as compact
from .compact import prune as prune
from .evaluation import Barrier as Barrier
from .evaluation import ClassPredictive as ClassPredictive
from .evaluation import Evaluation as Evaluation
from .evaluation import Plane as Plane
from .evaluation import Predictive as Predictive
from .evaluation import RealPredictive as RealPredictive
from .evaluation import barrier as barrier
from .evaluation import evaluate as evaluate
from .evaluation import fit_temperature as fit_temperature
from .evaluation import marginal_loss as marginal_loss
from .evaluation import plane as plane
from .evaluation import predict as predict
from .inference import HMC as HMC
from .inference import SGMCMC as SGMCMC
from .inference import SWAG as SWAG
from .inference import VI as VI
from .inference import ChainDiagnostics as ChainDiagnostics
from .inference import Ensemble as Ensemble
from .inference import FanIn as FanIn
from .inference import Fit as Fit
from .inference import Isotropic as Isotropic
from .inference import Laplace as Laplace
from .inference import Prior as Prior
from .inference import diagnose_chains as diagnose_chains
from .inference import elbo_loss as elbo_loss
from .inference import fit_ensemble as fit_ensemble
from .inference import fit_hmc as fit_hmc
from .inference import fit_laplace as fit_laplace
from .inference import fit_sgmcmc as fit_sgmcmc
from .inference import fit_swag as fit_swag
from .inference import fit_vi as fit_vi
from .inference import fit_vi_grid as fit_vi_grid
from .inference import recalibrate as recalibrate
from .likelihoods import Categorical as Categorical
from .likelihoods import Likelihood as Likelihood
from .likelihoods import Normal as Normal
from .likelihoods import NormalHead as NormalHead
from .matching import Alignment as Alignment
from .matching import AlignmentMany as AlignmentMany
from .matching import align as align
from .matching import align_many as align_many
from .matching import costs as costs
from .merging import Merged as Merged
from .merging import merge as merge
from .paths import geodesic as geodesic
from .paths import mixture as mixture
from .paths import wasserstein as wasserstein
from .posteriors import FactorGaussian as FactorGaussian
from .posteriors import Gaussian as Gaussian
from .posteriors import GaussianMixture as GaussianMixture
from .posteriors import LowRankGaussian as LowRankGaussian
from .posteriors import Posterior as Posterior
from .posteriors import Samples as Samples
from .rescaling import rescale as rescale
from .store import load_posterior as load_posterior
from .store import save_posterior as save_posterior
from .symmetry import PermutationSpec as PermutationSpec
from .symmetry import compose as compose
from .symmetry import discover as discover
from .symmetry import invert as invert
from .symmetry import permute as permute
from .symmetry import transpositions as transpositions
from .symmetry import verify as verify

if _typing.TYPE_CHECKING:
    from .lab.report import report as report

__version__ = "0.1.0"


def __getattr__(name: str) -> _typing.Any:
    """`bayesin.report` stands on the laboratory, which the library does not import before it is asked for."""
    if name == "report":
        from .lab.report import report

        return report
    raise AttributeError(f"module 'bayesin' has no attribute '{name}'")
