"""How many threads pay on this machine now."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable

import torch


def pick_threads(step: Callable[[], object]) -> int:
    """One thread or all cores, whichever takes a training step faster now: on a busy machine, where threads wait for
    each other, one can be many times as fast as two."""
    before = torch.get_num_threads()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    candidates = sorted({1, min(cores, before)})
    if len(candidates) == 1:
        return candidates[0]
    seconds: dict[int, list[float]] = {threads: [] for threads in candidates}
    try:
        for turn in range(5):
            for threads, times in seconds.items():
                torch.set_num_threads(threads)
                begun = time.perf_counter()
                step()
                if turn:  # the first one warms up
                    times.append(time.perf_counter() - begun)
    finally:
        torch.set_num_threads(before)
    return min(candidates, key=lambda threads: statistics.fmean(seconds[threads]))
