"""What the GPU does in a training call of one layer: each kernel's microseconds, as torch's profiler has them; and the
steps alone, for sequences whose shares of the gates fit into L2 and for longer ones.

    python -m bench.gpu_kernels [B,T,H …]
"""

from __future__ import annotations

import sys
import time

import torch

from bench.gpu import shape_of
from bench.gpu_sides import Data, Ours, Side, cudnn
from recur.cells import make_cell
from recur.compiler.programs import text_of
from recur.ops.cuda import dispatch, persistent
from recur.ops.cuda.report import KernelTimer

CELLS = ("lstm", "gru")
DTYPES = (torch.bfloat16, torch.float32)
CALLS = 10


def profiled(name: str, B: int, T: int, H: int, dtype: torch.dtype) -> None:
    """Ours, kernel by kernel, and how long Python takes for a call of each side."""
    data = Data(name, B, T, H, dtype)
    sides: dict[str, Side] = {"ours": Ours(data, "cuda"), "cuDNN": cudnn(data)}
    host = {}
    for side, call in sides.items():
        for _ in range(3):
            call(True)
        torch.cuda.synchronize()
        times = []
        for _ in range(CALLS):
            begin = time.perf_counter()
            call(True)
            times.append(time.perf_counter() - begin)
            torch.cuda.synchronize()
        host[side] = min(times) * 1e6
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        for _ in range(CALLS):
            sides["ours"](True)
        torch.cuda.synchronize()
    print(f"{name} {dtype} B {B} T {T} H {H}: Python " + ", ".join(f"{side} {us:.0f} µs" for side, us in host.items()))
    for event in sorted(found.key_averages(), key=lambda event: -event.self_device_time_total)[:9]:
        print(f"  {event.self_device_time_total / CALLS:9.1f} µs  {event.count / CALLS:4.1f} times  {event.key[:90]}")


def steps_alone(name: str, B: int, H: int, dtype: torch.dtype) -> None:
    cell = text_of(make_cell(name), True)
    line = f"  steps alone, {name} {dtype} B {B} H {H}:"
    for T in (64, 256, 512):
        measured = KernelTimer(cell, dtype, B, T, H)
        for backward in (False, True):
            p = persistent.scan_shape(measured.layout, backward)
            config = dispatch.order_by_table(measured.layout.assembly, dtype, p, torch.cuda.current_device())[0]
            took = measured.microseconds(p, config)
            line += f"  T {T} {'back' if backward else 'forward'} {0.0 if took is None else took:.2f}"
    print(line, flush=True)


def main() -> None:
    shapes = [shape_of(text) for text in sys.argv[1:]] or [(64, 256, 512), (20, 35, 200)]
    for dtype in DTYPES:
        for name in CELLS:
            for B, T, H in shapes:
                profiled(name, B, T, H, dtype)
                if T > 100:
                    steps_alone(name, B, H, dtype)


if __name__ == "__main__":
    main()
