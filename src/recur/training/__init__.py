"""Training: start a run from options, or resume one. Tasks are used through their contract only (recur.tasks)."""

from recur.training.distributed import ProcessGroup, process_group
from recur.training.events import Callback, Event
from recur.training.session import Outcome, resume, train
from recur.training.trackers import Tracker
from recur.training.trainer import Trainer

__all__ = ["Callback", "Event", "Outcome", "ProcessGroup", "Tracker", "Trainer", "process_group", "resume", "train"]
