"""Bayesian posteriors in one basin.

Names are imported from their modules when they are first asked for, so that `import bayesin` and `bayesin --help` are
quick; type checkers read the imports below.
"""

import importlib as _importlib
import sys as _sys
import types as _types
import typing as _typing
from importlib.util import find_spec as _find_spec

if _typing.TYPE_CHECKING:
    from .compact import Compact as Compact
    from .compact import compact as compact
    from .compact import fit_scale as fit_scale
    from .compact import prune as prune
    from .compact import scaled as scaled
    from .evaluation import Barrier as Barrier
    from .evaluation import ClassPredictive as ClassPredictive
    from .evaluation import Evaluation as Evaluation
    from .evaluation import Plane as Plane
    from .evaluation import Predictive as Predictive
    from .evaluation import RealPredictive as RealPredictive
    from .evaluation import barrier as barrier
    from .evaluation import evaluate as evaluate
    from .evaluation import fit_temperature as fit_temperature
    from .evaluation import linearised as linearised
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
    from .lab.report import report as report
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
    from .posteriors import canonical as canonical
    from .rescaling import rescale as rescale
    from .store import align_files as align_files
    from .store import load_posterior as load_posterior
    from .store import save_posterior as save_posterior
    from .symmetry import PermutationSpec as PermutationSpec
    from .symmetry import compose as compose
    from .symmetry import discover as discover
    from .symmetry import invert as invert
    from .symmetry import permute as permute
    from .symmetry import transpositions as transpositions
    from .symmetry import verify as verify

__version__ = "0.1.0"

_HOMES = {
    "compact": "Compact compact fit_scale prune scaled",
    "evaluation": "Barrier ClassPredictive Evaluation Plane Predictive RealPredictive barrier evaluate "
    "fit_temperature linearised marginal_loss plane predict",
    "inference": "HMC SGMCMC SWAG VI ChainDiagnostics Ensemble FanIn Fit Isotropic Laplace Prior diagnose_chains "
    "elbo_loss fit_ensemble fit_hmc "
    "fit_laplace fit_sgmcmc fit_swag fit_vi fit_vi_grid recalibrate",
    "likelihoods": "Categorical Likelihood Normal NormalHead",
    "matching": "Alignment AlignmentMany align align_many costs",
    "merging": "Merged merge",
    "paths": "geodesic mixture wasserstein",
    "posteriors": "FactorGaussian Gaussian GaussianMixture LowRankGaussian Posterior Samples canonical",
    "rescaling": "rescale",
    "store": "align_files load_posterior save_posterior",
    "symmetry": "PermutationSpec compose discover invert permute transpositions verify",
    "lab.report": "report",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> _typing.Any:
    if name in _HOME_OF:
        value = getattr(_importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
        globals()[name] = value
        return value
    if not name.startswith("_") and _find_spec(f"{__name__}.{name}") is not None:  # bayesin.data, bayesin.models, …
        return _importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'bayesin' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})


class _Package(_types.ModuleType):
    """The package, in which `compact` is the function: Python would put the folder of that name in its place."""

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _HOME_OF or not isinstance(value, _types.ModuleType):
            super().__setattr__(name, value)


_sys.modules[__name__].__class__ = _Package
