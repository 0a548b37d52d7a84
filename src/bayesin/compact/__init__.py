"""Many samples folded into one Gaussian, and networks pruned by its spread."""

from .activations import hidden_activations as hidden_activations
from .folding import Compact as Compact
from .folding import compact as compact
from .moments import Moments as Moments
from .moments import moments as moments
from .moments import rebase as rebase
from .pruning import keep_mask as keep_mask
from .pruning import prune as prune
from .scores import Score as Score
from .scores import scores as scores
