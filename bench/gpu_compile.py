"""The kernels that rows of the benchmark need, compiled several at a time before the first: one by one, as scans ask
for them, they would take longer than all that is timed."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import torch

from recur.cells import Cell
from recur.compiler import programs
from recur.compiler.programs import make_signature
from recur.ops.cuda import dispatch, persistent
from recur.ops.cuda.codegen import kernel_source
from recur.ops.cuda.driver import device_info
from recur.ops.cuda.layout import ScanLayout
from recur.ops.cuda.nvrtc import compile_cached as cubin

Row = tuple[Cell, torch.dtype, tuple[int, int, int]]


def compile_all(rows: Iterable[Row], seconds: float) -> int:
    """Into the cache on disk; how many there were. What is left after so many seconds is compiled when it is needed."""
    end, index = time.perf_counter() + seconds, torch.cuda.current_device()
    architecture = device_info(index).architecture

    def make(text: str) -> None:
        if time.perf_counter() < end:
            cubin(text, architecture)

    asked: set[str] = set()
    with ThreadPoolExecutor() as pool:
        for row in rows:
            new = texts_of(*row, index) - asked
            asked |= new
            for text in new:
                pool.submit(make, text)
            if time.perf_counter() > end:
                break
    return len(asked)


def texts_of(cell: Cell, dtype: torch.dtype, shape: tuple[int, int, int], index: int) -> set[str]:
    """Of a layer as wide as its input: a scan for use, one for training, and back."""
    B, T, H = shape
    if isinstance(programs.assembled(cell, True), str):
        return set()
    weights = {name: torch.empty(size, device="meta", dtype=dtype) for name, size in cell.shapes(H, H).items()}
    text, given, extras = programs.operands(cell, weights)
    data = torch.empty(B, T, H, device="meta", dtype=dtype)
    of, _ = make_signature(data, given, extras, (), None, None, None, 0.0, text, "")
    layout = ScanLayout(of)
    found = {kernel_source(text, dtype, (body,)) for body in ("pack", "reduce")}
    for backward, variant in ((False, False), (False, True), (True, False)):
        p = persistent.scan_shape(layout, backward)
        config = dispatch.order_by_table(layout.assembly, dtype, p, index)[0]
        found.add(
            kernel_source(text, dtype, ("step",))
            if config is None
            else persistent.kernel_text(text, dtype, p, config, variant)
        )
    return found
