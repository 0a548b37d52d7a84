"""Permutation symmetry: found in the jaxpr, verified numerically, acting on trees."""

from ..jaxprs import Apply as Apply
from .activations import Activations as Activations
from .activations import Site as Site
from .activations import Sites as Sites
from .activations import find_sites as find_sites
from .activations import hidden_activations as hidden_activations
from .discover import discover as discover
from .explain import Explanation as Explanation
from .explain import explain as explain
from .permute import Layout as Layout
from .permute import compose as compose
from .permute import gather as gather
from .permute import identity_groups as identity_groups
from .permute import invert as invert
from .permute import layouts as layouts
from .permute import permute as permute
from .permute import transpositions as transpositions
from .spec import Factor as Factor
from .spec import Perms as Perms
from .spec import PermutationSpec as PermutationSpec
from .unit_maps import UnitMap as UnitMap
from .unit_maps import apply_unit_maps as apply_unit_maps
from .unit_maps import find_unit_maps as find_unit_maps
from .verify import check_same_function as check_same_function
from .verify import verify as verify
