"""What can be trained. To add a task, write one file here, add its name to TASKS, and give it a model.

1.  **The model**, in `recur/models/`: an `nn.Module`.

2.  **The task**, in `recur/train/tasks/NAME.py`: a subclass of `Task` (task.py), named `TASK` at the end of the file.
    It says how files become data (`read`), which model they train (`new_model`), what an epoch's batches are
    (`batches`, drawn from (seed, epoch) alone, so that a run can be resumed in the middle of one), what the loss of a
    batch is (`learn`), how good the model is (`measure`; lower scores are better), and what a trained model can do
    (`open`, an `Opened`: `recur.load`, `recur eval` and `recur predict` all go through it).

    Everything else is the Trainer's: device and threads, schedules, clipping, batches whose loss is not a number,
    patience, checkpoints, exact resumption, metrics, the screen. A task must only draw its random numbers from torch's
    default generator, or from one seeded by the configuration, and keep no state of its own between batches but what
    `learn` returns as `state`.

3.  **Its options**, in `recur/train/config.py` (or a group of fields beside it, as in fields.py): the same fields are
    flags, TOML keys and arguments of `recur.fit`. `reads` names those that the task reads beyond `COMMON`; an option
    that was set and is not read is refused by name, so that nothing is ignored in silence.

4.  **Tests**: `tests/train/test_tasks.py` resumes every task exactly; give it a small configuration there.
"""

from __future__ import annotations

import dataclasses
import importlib

from recur.errors import OptionError, unknown
from recur.train.config import COMMON, Config
from recur.train.tasks.task import Learned, Measured, Moment, Opened, Task, Vocabs

TASKS = ("language", "seq2seq", "classify", "tag", "tree", "forecast", "adding", "copy")


def task_of(config: Config) -> Task:
    """The task that a configuration asks for; what it sets and the task does not read is refused."""
    if config.task not in TASKS:
        raise OptionError(unknown("task", config.task, TASKS))
    module = importlib.import_module(f"recur.train.tasks.{config.task}")
    task: Task = module.TASK.of(config)
    for field in dataclasses.fields(config):
        if field.name in COMMON or field.name in task.reads or getattr(config, field.name) == field.default:
            continue
        flag = "--" + field.name.replace("_", "-")
        own = ", ".join(sorted(task.reads))
        raise OptionError(f"{flag} is not read by {task.title}, whose own options are: {own}")
    return task


__all__ = ["TASKS", "Learned", "Measured", "Moment", "Opened", "Task", "Vocabs", "task_of"]
