"""Where training runs: the device, and how many threads pay on this machine now."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from recur.errors import OptionError


def pick_device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise OptionError(f"device must be cpu, cuda or auto, got {name!r}") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise OptionError(f"device {name!r} was asked for, and torch sees no GPU; recur doctor says more")
    return device


def pick_threads(step: Callable[[], object]) -> int:
    """One thread or all cores, whichever takes a training step faster now: on a busy machine, where threads wait for
    each other, one can be many times as fast as two."""
    was = torch.get_num_threads()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    candidates = sorted({1, min(cores, was)})
    if len(candidates) == 1:
        return candidates[0]
    seconds: dict[int, list[float]] = {threads: [] for threads in candidates}
    for turn in range(5):
        for threads, times in seconds.items():
            torch.set_num_threads(threads)
            begun = time.perf_counter()
            step()
            if turn:  # the first one warms up
                times.append(time.perf_counter() - begun)
    torch.set_num_threads(was)
    return min(candidates, key=lambda threads: statistics.fmean(seconds[threads]))


def each_tensor(state: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same nest of tuples, plain ones, so that a checkpoint names no class, with each tensor changed."""
    if state is None:
        return None
    return change(state) if isinstance(state, Tensor) else tuple(each_tensor(part, change) for part in state)
