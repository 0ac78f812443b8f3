"""What can be trained: a folder a task. To add one, write its folder; nothing else names it.

1.  **Its options**, `tasks/NAME/options.py`: a dataclass of what the task reads, with its own defaults, named `OPTIONS`
    at the end of the file. It inherits `TaskOptions`, the options of its model (`recur/models/options.py`) and the
    groups it shares with other tasks (options.py here). The same fields are flags, TOML keys and arguments of
    `recur.fit`; an option of another task is refused by name. No torch is imported there.

2.  **The task**, `tasks/NAME/task.py`: a subclass of `Task` (contract.py), named `TASK` at the end of the file. It says
    how files become data (`read`), which model they train (`new_model`, from `recur/models/`), what an epoch's batches
    are (`batches`, drawn from (seed, epoch) alone, so that a run can be resumed in the middle of one), what the loss of
    a batch is (`training_step`), how good the model is (`validate`; lower scores are better), and what it has to beat
    (`baseline`).

    Everything else is the trainer's: device and threads, schedules, clipping, batches whose loss is not a number,
    patience, checkpoints, exact resumption, metrics. A task must only draw its random numbers from torch's default
    generator, or from one seeded by the options, and keep no state of its own between batches but what
    `training_step` returns as `state`.

3.  **What a trained model can do**, `tasks/NAME/predictor.py`: a `Predictor`, named `PREDICTOR` at the end of the file.
    `recur.load`, `recur eval` and `recur predict` all go through it.

4.  **Its test**: the tests in `tests/tasks/` resume every task exactly; give it a small configuration there.
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
