"""Experiments: runs that are done once, presets, figures."""

from .config import RunConfig as RunConfig
from .config import make_training as make_training
from .lock import LockedError as LockedError
from .presets import preset as preset
from .run import Outcome as Outcome
from .run import run as run
