"""Options that are left to the machine on which a run is trained: its size, its threads, its precision."""

from __future__ import annotations

from typing import Any

import torch

from recur.errors import OptionError
from recur.i18n import Message
from recur.runs import check_precision, pick_precision
from recur.tasks.contract import Task
from recur.tasks.options import TaskOptions
from recur.training.events import Callback, Event
from recur.training.ranks import Ranks
from recur.training.speed import Speed, fastest_threads


def sized(
    asked: TaskOptions, task: Task[Any, Any, Any, Any], data: Any, callback: Callback, ranks: Ranks
) -> TaskOptions:
    """Options with what the task leaves to the speed of this machine; of several processes, of the first one's."""
    options: TaskOptions = task.options
    if not task.sizes_itself(asked):
        return options
    fields, words = ranks.first(lambda: task.sized(asked, data, Speed(task, data, ranks)))
    callback(Event("note", {"text": words}))
    return options.changed(**fields)


def with_threads(
    task: Task[Any, Any, Any, Any], data: Any, options: TaskOptions, callback: Callback, ranks: Ranks
) -> TaskOptions:
    """Options with a number of threads: the fastest now, which the run keeps, since another one rounds otherwise. Of
    several processes, as many as whoever started them has given each."""
    if options.threads or options.device != "cpu":
        return options
    if ranks.size > 1:
        return options.changed(threads=ranks.first(torch.get_num_threads))
    threads = fastest_threads(task, data)
    text = (
        Message("{n} threads, the fastest now; the same numbers again: --threads {n}", n=threads)
        if threads > 1
        else Message("1 thread, the fastest now; the same numbers again: --threads 1")
    )
    callback(Event("note", {"text": text}))
    return options.changed(threads=threads)


def on_device(options: TaskOptions, device: torch.device) -> TaskOptions:
    """Options for another device; one that has not their precision takes its own."""
    precision = options.precision
    try:
        check_precision(precision or "float32", device)
    except OptionError:
        precision = pick_precision(device, options.in_16_bits)
    return options.changed(device=str(device), precision=precision)
