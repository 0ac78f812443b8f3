"""Training: a run from options, or on from a checkpoint. Tasks are known by their contract only (recur.tasks)."""

from recur.train.events import Callback, Event
from recur.train.joining import joined
from recur.train.ranks import Ranks
from recur.train.session import Outcome, resume, train
from recur.train.trainer import Trainer

__all__ = ["Callback", "Event", "Outcome", "Ranks", "Trainer", "joined", "resume", "train"]
