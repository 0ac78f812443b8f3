"""What a training run tells its callback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from recur.utils.types import JsonObject


class Event(NamedTuple):
    """One thing that happened.

    data        what is learned from, in words: `text`
    note        something worth knowing: `text`
    baseline    the plain thing to beat: `name`, `metric`, `value`
    started     `run`, and the names of the metric and unit of this task: `curve`, `unit`
    progress    twice a second: step, epoch, seconds, progress (0 … 1), train_loss, grad_norm, clipped, rate …
    measured    the same and the metrics of the validation part, with a `summary` and a `sample` in words
    diverged    `step`: an error follows
    finished    what `recur train --json` prints
    """

    kind: Literal["data", "note", "baseline", "started", "progress", "measured", "diverged", "finished"]
    content: JsonObject


Callback = Callable[[Event], object]
