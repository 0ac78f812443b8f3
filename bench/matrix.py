"""Cells with a matrix state: the chunkwise form compared with the step form, which the loop repeats.

Both take turns in one process, and what does not agree is not timed. The ratio is the median of the paired ratios.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from bench.side_by_side import Contest, machine, refuse_unequal
from bench.side_by_side import seconds as seconds_on_cpu
from recur.cells import MatrixCell, cell_names, make_cell
from recur.nn import Recurrent

SIZES = {"cpu": [(1, 256, 256, 4), (1, 2048, 256, 4)], "cuda": [(8, 2048, 1024, 16), (8, 4096, 1024, 8)]}
"""B, T, H and the number of heads."""


def rows(device: str, rounds: int, match: str = "") -> Iterator[dict[str, Any]]:
    torch.set_num_threads(1)
    for name in cell_names():
        if not isinstance(make_cell(name), MatrixCell):
            continue
        for B, T, H, heads in SIZES[device]:
            for backward in (False, True):
                what = f"{name} B {B} T {T} H {H} heads {heads}, {'forward + backward' if backward else 'forward'}"
                if match in what:
                    yield measure_row(what, f"{name}:num_heads={heads}", (B, T, H), device, backward, rounds)


def measure_row(
    what: str, spec: str, size: tuple[int, int, int], device: str, backward: bool, rounds: int
) -> dict[str, Any]:
    torch.manual_seed(0)
    B, T, H = size
    net = Recurrent(spec, H, H, device=device)
    x, arriving = (torch.randn(B, T, H, device=device) for _ in range(2))

    def side(backend: str) -> Callable[[], dict[str, Tensor]]:
        def run() -> dict[str, Tensor]:
            net.backend = backend
            with torch.set_grad_enabled(backward):
                outputs = net(x).outputs
            found = {"outputs": outputs.detach()}
            if backward:
                grads = torch.autograd.grad(outputs, list(net.parameters()), arriving, allow_unused=True)
                found |= {str(k): grad for k, grad in enumerate(grads) if grad is not None}
            if device == "cuda":
                torch.cuda.synchronize()
            return found

        return run

    chunk, loop = side("chunk"), side("loop")
    refuse_unequal(Contest(what, chunk, loop, 1e-2 if backward else 1e-3))
    pairs = [(seconds_on_cpu(chunk), seconds_on_cpu(loop)) for _ in range(rounds)]
    ratios = sorted(b / a for a, b in pairs)
    return {
        "what": what,
        "chunk_ms": 1e3 * min(a for a, _ in pairs),
        "loop_ms": 1e3 * min(b for _, b in pairs),
        "ratio": ratios[len(ratios) // 2],
    }


def measure(device: str, rounds: int, match: str = "") -> dict[str, Any]:
    found = []
    for row in rows(device, rounds, match):
        found.append(row)
        times = f"chunk {row['chunk_ms']:8.1f} ms   loop {row['loop_ms']:8.1f} ms"
        print(f"{row['what']:<72} {times}   {row['ratio']:.1f} times as fast", flush=True)
    return {"machine": machine() | {"device": device}, "results": found}
