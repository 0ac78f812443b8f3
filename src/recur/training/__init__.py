"""Training: a run from options, or on from a checkpoint. Tasks are known by their contract only (recur.tasks)."""

from recur.training.events import Callback, Event
from recur.training.joining import joined
from recur.training.ranks import Ranks
from recur.training.session import Outcome, resume, train
from recur.training.trainer import Trainer

__all__ = ["Callback", "Event", "Outcome", "Ranks", "Trainer", "joined", "resume", "train"]
