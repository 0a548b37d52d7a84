"""Real data: found or fetched, checked by content, normalised with the training set's statistics."""

from .arrays import from_arrays as from_arrays
from .dataset import Dataset as Dataset
from .dataset import Normalise as Normalise
from .dataset import stratified as stratified
from .download import Fetched as Fetched
from .download import download as download
from .download import fetch as fetch
from .folders import Found as Found
from .folders import home as home
from .folders import locate as locate
from .formats import npz_shapes as npz_shapes
from .formats import read_npz as read_npz
from .loading import check as check
from .loading import data_file as data_file
from .loading import load as load
from .sources import NAMES as NAMES
from .sources import SOURCES as SOURCES
from .sources import Download as Download
from .sources import Source as Source
from .sources import is_data_file as is_data_file
from .sources import published_content as published_content
