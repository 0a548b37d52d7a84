"""Bayesian posteriors in one basin."""

from .compact import Compact as Compact
from .compact import compact as compact
from .compact import prune as prune
from .evaluation import Barrier as Barrier
from .evaluation import barrier as barrier
from .evaluation import plane as plane
from .inference import HMC as HMC
from .inference import VI as VI
from .inference import Ensemble as Ensemble
from .inference import Fit as Fit
from .inference import fit_ensemble as fit_ensemble
from .inference import fit_hmc as fit_hmc
from .inference import fit_vi as fit_vi
from .matching import Alignment as Alignment
from .matching import AlignmentMany as AlignmentMany
from .matching import align as align
from .matching import align_many as align_many
from .paths import geodesic as geodesic
from .paths import mixture as mixture
from .posteriors import Gaussian as Gaussian
from .posteriors import LowRankGaussian as LowRankGaussian
from .posteriors import Samples as Samples
from .symmetry import PermutationSpec as PermutationSpec
from .symmetry import compose as compose
from .symmetry import discover as discover
from .symmetry import invert as invert
from .symmetry import permute as permute
from .symmetry import transpositions as transpositions
from .symmetry import verify as verify

__version__ = "0.1.0"
