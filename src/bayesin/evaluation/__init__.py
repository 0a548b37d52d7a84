"""How good a posterior is, alone and along a path: prediction, marginal loss, scores, barrier, plane."""

from . import metrics as metrics
from .barrier import Barrier as Barrier
from .barrier import barrier as barrier
from .linearised import linearised as linearised
from .marginal import Data as Data
from .marginal import marginal_loss as marginal_loss
from .plane import Plane as Plane
from .plane import plane as plane
from .predict import Evaluation as Evaluation
from .predict import Predictor as Predictor
from .predict import evaluate as evaluate
from .predict import predict as predict
from .predictive import ClassPredictive as ClassPredictive
from .predictive import Predictive as Predictive
from .predictive import RealPredictive as RealPredictive
from .predictive import fit_temperature as fit_temperature
from .predictive import pooled as pooled
from .sizes import ChunkSizes as ChunkSizes
from .sizes import choose_sizes as choose_sizes
from .sizes import estimate_seconds as estimate_seconds
