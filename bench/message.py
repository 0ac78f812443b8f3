"""What one message of all processes takes, alone: `torchrun --nproc-per-node 2 -m bench.message BYTES`, as JSON."""

from __future__ import annotations

import json
import statistics
import sys
import time

import torch
import torch.distributed as dist

MESSAGES = 200


def main(size: int) -> None:
    """Milliseconds to add up so many bytes of float32, from a moment at which all are there."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    sent, times = torch.ones(size // 4), []
    for _ in range(MESSAGES):
        dist.barrier()
        begun = time.perf_counter()
        dist.all_reduce(sent)
        times.append(1e3 * (time.perf_counter() - begun))
        sent.fill_(1.0)
    if dist.get_rank() == 0:
        print(json.dumps({"bytes": size, "median_ms": statistics.median(times), "least_ms": min(times)}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]))
