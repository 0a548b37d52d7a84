"""Artifacts on disk: posteriors, permutations, alignments and checkpoints, whole or absent."""

from .artifacts import FIRST as FIRST
from .artifacts import Description as Description
from .artifacts import StoredAlignment as StoredAlignment
from .artifacts import card_is_ours as card_is_ours
from .artifacts import describe as describe
from .artifacts import load_alignment as load_alignment
from .artifacts import load_posterior as load_posterior
from .artifacts import posterior_files as posterior_files
from .artifacts import save_alignment as save_alignment
from .artifacts import save_permuted as save_permuted
from .artifacts import save_posterior as save_posterior
from .artifacts import write_card as write_card
from .card import CARD as CARD
from .checkpoints import Checkpoints as Checkpoints
from .checkpoints import Resumed as Resumed
from .checkpoints import checksum as checksum
from .checkpoints import key_numbers as key_numbers
from .file_alignment import align_files as align_files
from .hub import Pulled as Pulled
from .hub import Pushed as Pushed
from .hub import pull as pull
from .hub import push as push
from .tensors import library_open as library_open
from .tensors import read_header as read_header
from .tensors import read_tensors as read_tensors
from .tensors import write_tensors as write_tensors
