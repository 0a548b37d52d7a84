"""Matching: which permutation brings one posterior closest to another."""

from . import costs as costs
from .activation_similarity import activation_similarity as activation_similarity
from .activation_similarity import draws_of as draws_of
from .activation_similarity import inner_products as inner_products
from .activation_similarity import site_chunks as site_chunks
from .align import Alignment as Alignment
from .align import align as align
from .assignment import assign as assign
from .assignment import solver_name as solver_name
from .each_sample import ManySamples as ManySamples
from .each_sample import MatchedSamples as MatchedSamples
from .each_sample import OnRound as OnRound
from .each_sample import batches as batches
from .each_sample import identity_of_each as identity_of_each
from .each_sample import match_activations as match_activations
from .many import AlignmentMany as AlignmentMany
from .many import align_many as align_many
from .many import barycentre as barycentre
from .problem import pose as pose
from .problem import pose_given as pose_given
from .search import Sweep as Sweep
from .search import descend as descend
from .similarity import Similarities as Similarities
