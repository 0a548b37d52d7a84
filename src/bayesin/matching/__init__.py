"""Matching: which permutation brings one posterior closest to another."""

from .align import Alignment as Alignment
from .align import align as align
from .descent import Sweep as Sweep
from .move import move as move
