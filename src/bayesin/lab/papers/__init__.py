"""Figures and tables of the papers, regenerated from nothing, with a verdict on each claim."""

from .catalogue import CATALOGUE as CATALOGUE
from .catalogue import find as find
from .reproduce import choose_tasks as choose_tasks
from .reproduce import reproduce as reproduce
from .reproduction import SCALES as SCALES
from .reproduction import Finding as Finding
from .reproduction import Reproduction as Reproduction
from .result_file import as_text as as_text
from .result_file import draw as draw
from .result_file import judged as judged
from .result_file import read_reproduction as read_reproduction
from .result_file import write_reproduction as write_reproduction
