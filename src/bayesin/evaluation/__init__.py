"""How good a posterior is, alone and along a path: streaming prediction, scores, barrier, plane."""

from .barrier import Barrier as Barrier
from .barrier import barrier as barrier
from .chunks import Plan as Plan
from .chunks import estimate_seconds as estimate_seconds
from .plane import Plane as Plane
from .plane import plane as plane
from .predict import Predictive as Predictive
from .predict import evaluate as evaluate
from .predict import predict as predict
from .stream import Normal as Normal
from .stream import categorical as categorical
