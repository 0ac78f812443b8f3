"""Why training steps cannot be recorded as CUDA graphs: reasons that tasks share, each empty where it does not hold."""

from __future__ import annotations

from collections.abc import Iterable

from recur.tasks.options import TaskOptions


def drawn_on_the_cpu(options: TaskOptions) -> str:
    """For tasks whose batches are all alike."""
    bptt = getattr(options, "bptt", "full")
    return "" if bptt == "full" else f"--bptt {bptt} draws on the CPU what crosses time"


def of_several_lengths(sizes: Iterable[int], options: TaskOptions) -> str:
    """For tasks whose sequences are padded: where all are as long, no step asks how long each is."""
    return "sequences are of several lengths" if len({*sizes}) > 1 else drawn_on_the_cpu(options)
