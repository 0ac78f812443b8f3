"""Search for good options: `recur sweep FILE --trials 30`, and `recur.sweep` from Python. Each trial is a run.

`record` is the content of a sweep's folder, `search` the search space and the Optuna study, `trials` trains the runs,
and `results` is what `sweep` returns.
"""

from recur.training.sweeps.results import Sweep
from recur.training.sweeps.trials import open_sweep, resume_sweep, sweep

__all__ = ["Sweep", "open_sweep", "resume_sweep", "sweep"]
