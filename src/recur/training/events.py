"""Events of a training, which its callback receives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from recur.utils.types import JsonObject


class Event(NamedTuple):
    """One event of a training.

    data        description of the data: `text`
    note        note for the user: `text`
    warning     damage that the run lost something to: `text`; shown even with --quiet and --json
    baseline    a baseline: `name`, `metric`, `value`
    started     `run`, and the names of the metric and unit of this task: `curve`, `unit`
    progress    twice a second: step, epoch, seconds, progress (0 … 1), train_loss, grad_norm, clipped, rate …
    measured    the same with the metrics of the validation set, a `summary` and a `sample` as text
    diverged    `step`: an error follows
    finished    what `recur train --json` prints
    """

    kind: Literal["data", "note", "warning", "baseline", "started", "progress", "measured", "diverged", "finished"]
    content: JsonObject


Callback = Callable[[Event], object]
