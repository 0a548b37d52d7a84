"""Permutation symmetry: found in the jaxpr, verified numerically, acting on trees."""

from .discover import discover as discover
from .explain import Explanation as Explanation
from .explain import explain as explain
from .permutations import compose as compose
from .permutations import invert as invert
from .permutations import transpositions as transpositions
from .permute import axis_index as axis_index
from .permute import permute as permute
from .spec import Factor as Factor
from .spec import Perms as Perms
from .spec import PermutationSpec as PermutationSpec
from .verify import verify as verify
