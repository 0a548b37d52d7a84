"""Many samples folded into one Gaussian, and networks pruned by its spread."""

from .compact import Compact as Compact
from .compact import compact as compact
from .members import Foldable as Foldable
from .moments import Moments as Moments
from .moments import moments as moments
from .moments import rebase as rebase
from .pruning import keep_mask as keep_mask
from .pruning import prune as prune
from .scaling import SCALES as SCALES
from .scaling import best_scale as best_scale
from .scaling import fit_scale as fit_scale
from .scaling import scaled as scaled
from .scaling import shrunk as shrunk
from .scores import Score as Score
from .scores import class_scores as class_scores
from .scores import predictions as predictions
from .scores import scores as scores
