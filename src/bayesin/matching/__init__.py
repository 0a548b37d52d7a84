"""Matching: which permutation brings one posterior closest to another."""

from .align import Alignment as Alignment
from .align import align as align
from .barycentre import barycentre as barycentre
from .descent import Sweep as Sweep
from .many import AlignmentMany as AlignmentMany
from .many import align_many as align_many
from .move import move as move
