"""Campaigns: many tasks, each done once, on one machine or on many."""

from .bench import Desk as Desk
from .ledger import CampaignStatus as CampaignStatus
from .ledger import read_campaigns as read_campaigns
from .ledger import write_ledger as write_ledger
from .local import Event as Event
from .local import run_local as run_local
from .pair import Pair as Pair
from .pair import neighbours as neighbours
from .perform import Standing as Standing
from .perform import perform as perform
from .perform import standing as standing
from .task import Bench as Bench
from .task import Resources as Resources
from .task import Task as Task
from .task import everything as everything
from .training import OfRun as OfRun
from .training import Train as Train
from .training import seeded as seeded
