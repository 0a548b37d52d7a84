"""Networks as pairs of pure functions, and adapters from the libraries of the field."""

from .equinox import from_equinox as from_equinox
from .equinox import into_equinox as into_equinox
from .haiku import from_haiku as from_haiku
from .linen import from_linen as from_linen
from .model import ApplyTrain as ApplyTrain
from .model import Held as Held
from .model import Model as Model
from .model import from_functions as from_functions
from .model import frozen as frozen
from .model import has_training_mode as has_training_mode
from .model_address import Loaded as Loaded
from .model_address import example_input as example_input
from .model_address import load as load
from .model_address import load_model as load_model
from .networks import MLP as MLP
from .networks import WIDTHS as WIDTHS
from .networks import ResNet20 as ResNet20
from .networks import build as build
from .nnx import from_nnx as from_nnx
from .nnx import into_nnx as into_nnx
from .torch import from_torch as from_torch
from .torch import to_torch as to_torch
