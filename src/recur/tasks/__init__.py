"""Tasks: one folder per task; `common/` has what they share. To add a task, write its folder; nothing else names it.

1.  **Options**, `tasks/NAME/options.py`: a dataclass with the defaults of the task, named `OPTIONS` at the end of the
    file. It inherits `TaskOptions`, the options of its model (`recur/models/options.py`) and the groups that it shares
    with other tasks (`common/options.py`). The same fields are flags, TOML keys and arguments of `recur.fit`. The file
    does not import torch.

2.  **Task**, `tasks/NAME/task.py`: a subclass of `Task` (`common/contract.py`), named `TASK` at the end of the file. It
    reads files (`read`), builds the model (`new_model`, from `recur/models/`), makes the batches of an epoch
    (`batches`, which depend on (seed, epoch) alone, so that a run can resume in the middle of an epoch), computes the
    loss of a batch (`training_step`), evaluates the model (`validate`; lower scores are better) and fits its baselines
    (`baselines`).

    The trainer does the rest: device and threads, schedules, clipping, non-finite losses, patience, checkpoints, exact
    resume, metrics. A task draws random numbers only from torch's default generator or from one seeded by the options,
    and keeps no state between batches but what `training_step` returns as `state`.

3.  **Predictor**, `tasks/NAME/predictor.py`: a `Predictor` (`common/predictor.py`), named `PREDICTOR` at the end of the
    file. `recur.load`, `recur eval` and `recur predict` use it. A task that also reads sequences of numbers has a
    second `TASK` and `PREDICTOR` in `tasks/NAME/signals.py`.

4.  **Test**: the tests in `tests/tasks/` resume every task exactly; add a small configuration there.
"""

from recur.tasks.common.registry import (
    arguments_of,
    config_text,
    make_options,
    name_of,
    options_class,
    read_config,
    refusal,
    task_class,
    task_names,
    task_of,
)
from recur.tasks.common.runs import (
    open_predictor,
    options_of_run,
    predictor_of,
    task_of_run,
    text_fingerprints,
    with_carried_cell,
    with_run_texts,
)

__all__ = [
    "arguments_of",
    "config_text",
    "make_options",
    "name_of",
    "open_predictor",
    "options_class",
    "options_of_run",
    "predictor_of",
    "read_config",
    "refusal",
    "task_class",
    "task_names",
    "task_of",
    "task_of_run",
    "text_fingerprints",
    "with_carried_cell",
    "with_run_texts",
]
