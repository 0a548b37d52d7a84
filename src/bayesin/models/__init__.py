"""Networks as pairs of pure functions, and adapters from the libraries of the field."""

from .build import build as build
from .equinox import from_equinox as from_equinox
from .equinox import into_equinox as into_equinox
from .functions import from_functions as from_functions
from .haiku import from_haiku as from_haiku
from .linen import from_linen as from_linen
from .mlp import MLP as MLP
from .model import Model as Model
from .nnx import from_nnx as from_nnx
from .nnx import into_nnx as into_nnx
from .resnet import ResNet20 as ResNet20
