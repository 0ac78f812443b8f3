"""Time of one all-reduce over gloo: `torchrun --nproc-per-node 2 -m bench.message BYTES` prints JSON."""

from __future__ import annotations

import json
import statistics
import sys
import time

import torch
import torch.distributed as dist

from recur.training import process_group
from recur.utils.processes import launch

MESSAGES = 200


def milliseconds(size: int) -> dict[str, float]:
    """Return the milliseconds of an all-reduce of `size` bytes of float32."""
    sent, times = torch.zeros(size // 4), []
    for _ in range(MESSAGES):
        begun = time.perf_counter()
        dist.all_reduce(sent)
        times.append(1e3 * (time.perf_counter() - begun))
    return {"median": statistics.median(times), "least": min(times)}


def main(size: int) -> None:
    torch.set_num_threads(1)
    with process_group(launch()) as group:
        found = milliseconds(size)
        if group.is_main:
            print(json.dumps({"bytes": size, **found}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
