"""How many threads pay on this machine now."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable

import torch

ROUNDS, LONG = 5, 1.0
"""Steps that are timed with each number of threads, and the seconds after which no further round begins."""


def pick_threads(step: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> int:
    """Return one thread or all cores, whichever takes a training step faster now: on a busy machine, where threads wait
    for each other, one can be many times as fast as two."""
    before = torch.get_num_threads()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    candidates = sorted({1, min(cores, before)})
    if len(candidates) == 1:
        return candidates[0]
    seconds: dict[int, list[float]] = {threads: [] for threads in candidates}
    try:
        first = clock()
        for _ in range(ROUNDS):
            for threads, times in seconds.items():
                torch.set_num_threads(threads)
                begun = clock()
                step()
                times.append(clock() - begun)
            if clock() - first > LONG:
                break
    finally:
        torch.set_num_threads(before)
    # The first step of each warms up; of a step as long as that, it is all there is.
    return min(candidates, key=lambda threads: statistics.fmean(seconds[threads][1:] or seconds[threads]))
