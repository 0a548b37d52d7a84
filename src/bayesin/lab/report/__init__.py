"""Saved numbers as pictures: print figures, and one page that works offline."""

from .barrier_report import MeasuredPair as MeasuredPair
from .barrier_report import with_plane as with_plane
from .barrier_report import write_barrier_report as write_barrier_report
from .compact_report import PREDICTIONS as PREDICTIONS
from .compact_report import CompactReport as CompactReport
from .compact_report import write_compact_report as write_compact_report
from .demo_report import write_demo_report as write_demo_report
from .document import BARRIER_FORMAT as BARRIER_FORMAT
from .document import card as card
from .document import read_report as read_report
from .document import write_report as write_report
from .evaluation_report import EvaluationReport as EvaluationReport
from .evaluation_report import shown as shown
from .evaluation_report import write_evaluation_report as write_evaluation_report
from .figures import FORMATS as FORMATS
from .figures import KINDS as KINDS
from .figures import barrier_figure as barrier_figure
from .figures import page_files as page_files
from .figures import save as save
from .figures import style as style
from .page import publish as publish
from .page import render as render
from .page import write_page as write_page
from .pair_report import report as report
from .panels import panels_of as panels_of
from .sections import barrier_section as barrier_section
