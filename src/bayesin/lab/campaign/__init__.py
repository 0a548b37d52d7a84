"""Campaigns: many tasks, each done once, on one machine or on many."""

from .ledger import CampaignStatus as CampaignStatus
from .ledger import ledgers as ledgers
from .ledger import read_campaign as read_campaign
from .ledger import write_ledger as write_ledger
from .local_engine import Event as Event
from .local_engine import run_local as run_local
from .perform import TaskStatus as TaskStatus
from .perform import as_seconds as as_seconds
from .perform import perform as perform
from .perform import status_of as status_of
from .perform import task_status as task_status
from .ray_engine import run_ray as run_ray
from .run_folders import RunFolder as RunFolder
from .run_folders import run_folders as run_folders
from .run_tasks import PairTask as PairTask
from .run_tasks import RunTask as RunTask
from .run_tasks import TrainTask as TrainTask
from .run_tasks import neighbours as neighbours
from .run_tasks import packs as packs
from .run_tasks import seeded as seeded
from .task import Resources as Resources
from .task import Task as Task
from .task import TaskContext as TaskContext
from .task import topological_order as topological_order
