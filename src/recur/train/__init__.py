"""Training: the configuration, the run folder, the loop."""

from recur.train.config import Config
from recur.train.data import Data, load_data
from recur.train.loop import Trainer
from recur.train.run import Run

__all__ = ["Config", "Data", "Run", "Trainer", "load_data"]
