"""Artifacts on disk: posteriors, permutations, alignments and checkpoints, whole or absent."""

from .artifacts import Description as Description
from .artifacts import StoredAlignment as StoredAlignment
from .artifacts import describe as describe
from .artifacts import load_alignment as load_alignment
from .artifacts import load_posterior as load_posterior
from .artifacts import save_alignment as save_alignment
from .artifacts import save_permuted as save_permuted
from .artifacts import save_posterior as save_posterior
from .checkpoints import Checkpoints as Checkpoints
from .checkpoints import Resumed as Resumed
from .checkpoints import checksum as checksum
from .checkpoints import key_numbers as key_numbers
from .file_alignment import align_files as align_files
from .tensors import read_header as read_header
from .tensors import read_tensors as read_tensors
from .tensors import write_tensors as write_tensors
