"""Figures and tables of the papers, regenerated from nothing, with a verdict on each claim."""

from .catalogue import CATALOGUE as CATALOGUE
from .reproduce import draw as draw
from .reproduce import judged as judged
from .reproduce import read_reproduction as read_reproduction
from .reproduce import reproduce as reproduce
from .reproduce import write_reproduction as write_reproduction
from .reproduction import Finding as Finding
from .reproduction import Reproduction as Reproduction
from .scales import SCALES as SCALES
