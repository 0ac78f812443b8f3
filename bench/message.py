"""What one message of all processes takes, alone: `torchrun --nproc-per-node 2 -m bench.message BYTES`, as JSON."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from recur.training import joined
from recur.training.ranks import SeveralRanks
from recur.training.shared_memory import SharedMemory
from recur.utils.launch import launch

MESSAGES = 200


def milliseconds(add_up: Callable[[Tensor], object], size: int) -> dict[str, float]:
    """To add up so many bytes of float32, one message behind the other."""
    sent, times = torch.zeros(size // 4), []
    for _ in range(MESSAGES):
        begun = time.perf_counter()
        add_up(sent)
        times.append(1e3 * (time.perf_counter() - begun))
    return {"median": statistics.median(times), "least": min(times)}


def main(size: int) -> None:
    torch.set_num_threads(1)
    with joined(launch()) as ranks:
        assert isinstance(ranks, SeveralRanks)
        shared = SharedMemory.of(ranks, size // 4, torch.float32)
        assert shared is not None
        found = {"shared memory": milliseconds(shared.add_up, size), "gloo": milliseconds(dist.all_reduce, size)}
        if ranks.writes:
            print(json.dumps({"bytes": size, **found}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
