"""Search for good options: `recur sweep FILE --trials 30`, and `recur.sweep` from Python. Each trial is a run.

folder.py is what a sweep keeps, space.py what it draws from, study.py how, with Optuna, trials.py runs them, and
outcome.py says what came out.
"""

from recur.training.sweeps.results import Sweep
from recur.training.sweeps.trials import resume_sweep, sweep

__all__ = ["Sweep", "resume_sweep", "sweep"]
