"""Paths on which every unit keeps its mean and spread, and posteriors in the middle of many that do."""

from .path import Rescaled as Rescaled
from .path import rescale as rescale
from .path import rescale_middle as rescale_middle
