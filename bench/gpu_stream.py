"""One step of many sessions on a GPU: microseconds, beside torch.nn.LSTMCell, all taking turns in one process.

Both ways to call it: eager, as Python launches, and as a CUDA graph, which is the GPU alone. torch's cell has its
states side by side in memory of its own; ours are in slots of a random order.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from recur.cells import make_cell
from recur.ops.cuda.config import StreamStep, choose_tile
from recur.ops.cuda.driver import device_info
from recur.ops.cuda.layout import uses_tf32
from recur.ops.cuda.streaming import SessionSlots

ROWS = (1, 16, 256, 4096)
SIZES = (256, 1024)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
Run = Callable[[], Any]


def ours(peer: nn.LSTMCell, x: Tensor) -> tuple[Run, SessionSlots]:
    n = len(x)
    weights = {name: w.detach() for name, w in peer.named_parameters()}
    pool = SessionSlots(make_cell("lstm"), [weights], n)
    index = torch.randperm(n, device=x.device)
    return lambda: pool.step(x, index), pool


def theirs(peer: nn.LSTMCell, x: Tensor) -> Run:
    h, c = (x.new_zeros(len(x), peer.hidden_size) for _ in range(2))

    @torch.no_grad()
    def step() -> Tensor:
        after = peer(x, (h, c))
        h.copy_(after[0])
        c.copy_(after[1])
        return h

    return step


def captured(step: Run, steps: int = 20) -> Run:
    """So many steps in one graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(steps):
            step()
    return graph.replay


def microseconds(runs: dict[str, tuple[Run, int]], rounds: int = 15) -> dict[str, float]:
    """Medians of a step. Each run takes so many steps a call, and all take turns."""
    seen: dict[str, list[float]] = {name: [] for name in runs}
    for k in range(rounds + 3):
        for name, (run, steps) in runs.items():
            calls = max(1, 100 // steps)
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(calls):
                run()
            end.record()
            end.synchronize()
            if k >= 3:
                seen[name].append(1e3 * begin.elapsed_time(end) / (calls * steps))
    return {name: statistics.median(times) for name, times in seen.items()}


def compare(n: int, H: int, dtype: torch.dtype) -> dict[str, float]:
    torch.manual_seed(0)
    peer = nn.LSTMCell(H, H, device="cuda", dtype=dtype)
    x = torch.randn(n, H, device="cuda").to(dtype)
    step, pool = ours(peer, x)
    mine, other = step(), theirs(peer, x)()
    if not torch.allclose(mine, other, atol=2e-2):
        raise SystemExit(f"gpu_stream: other numbers at n {n}, H {H}, {dtype}; what is wrong is not timed")
    pool.reset(range(n))
    return microseconds(
        {
            "recur": (step, 1),
            "recur, graph": (captured(step), 20),
            "LSTMCell": (theirs(peer, x), 1),
            "LSTMCell, graph": (captured(theirs(peer, x)), 20),
        }
    )


def main(match: str = "") -> None:
    print(torch.cuda.get_device_name())
    for dtype in DTYPES:
        for H in SIZES:
            for n in ROWS:
                what = f"LSTM {H}, {n} sessions, {str(dtype).removeprefix('torch.')}"
                if match not in what:
                    continue
                exact = dtype == torch.float32 and not uses_tf32()
                found = compare(n, H, dtype)
                tile = choose_tile(
                    StreamStep(4, 4, n, H, H, dtype.itemsize, exact), device_info(torch.cuda.current_device())
                )
                print(f"{what}: " + "   ".join(f"{name} {took:.1f} µs" for name, took in found.items()), f"  {tile}")


if __name__ == "__main__":
    main()
