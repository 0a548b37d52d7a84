"""Saved numbers as pictures: print figures, and one page that works offline."""

from .document import read_report as read_report
from .document import write_report as write_report
from .page import render as render
from .page import write_page as write_page
