"""Real data: found or fetched, checked by content, normalised with the training set's statistics."""

from .arrays import from_arrays as from_arrays
from .dataset import Dataset as Dataset
from .fetching import Fetched as Fetched
from .fetching import fetch as fetch
from .loading import check as check
from .loading import load as load
from .sources import NAMES as NAMES
from .sources import SOURCES as SOURCES
