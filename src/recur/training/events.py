"""Events of a training, which its callback receives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

from recur.utils.progress import ProgressLine
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


@contextmanager
def shown_progress(callback: Callback | None, show: bool) -> Iterator[Callback | None]:
    """Yield a callback that also shows a line of progress on standard error, if `show`."""
    if not show:
        yield callback
        return
    line, last = ProgressLine("training"), {"summary": ""}

    def watch(event: Event) -> None:
        if callback is not None:
            callback(event)
        content = event.content
        if event.kind == "measured":
            last["summary"] = " ".join(str(content["summary"]).split())
        if event.kind in ("progress", "measured"):
            loss = f"train loss {content['train_loss']:.3f}  " if "train_loss" in content else ""
            line(f"step {content['step']}  {loss}{last['summary']}", float(content.get("progress", 0.0)))

    try:
        yield watch
    finally:
        line.close()
