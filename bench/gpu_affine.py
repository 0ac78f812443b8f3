"""Cells without a recurrent product on a GPU: the rate at which their kernels move memory, and whole scans beside
backend `parallel`.

A kernel's bytes are those that it cannot avoid: each number that its steps read and write, once. The rate that they are
compared with is that of a copy, measured here.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from recur.cells import Cell, make_cell
from recur.cells.sru import SRU
from recur.compiler import programs
from recur.compiler.programs import make_signature
from recur.errors import BackendError
from recur.ops import scan
from recur.ops.cuda import persistent
from recur.ops.cuda.codegen import written_indices
from recur.ops.cuda.config import ElementwiseConfig, active_overrides, override
from recur.ops.cuda.driver import device_info
from recur.ops.cuda.layout import ScanLayout
from recur.ops.cuda.passes import STEPS, BackwardPass, BackwardRequest, ForwardPass

SIZES = [(8, 16384, 1024), (1, 16384, 512), (64, 1024, 512), (64, 16384, 1024)]
DTYPES = (torch.float32, torch.bfloat16)


def cells() -> dict[str, Cell]:
    return {"mingru": make_cell("mingru"), "lru": make_cell("lru"), "sru": SRU(peephole=False), "sru + v": SRU()}


def milliseconds(run: Callable[[], Any], rounds: int = 9) -> float:
    run()
    times = []
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return float(statistics.median(times))


def copy_rate() -> float:
    """Bytes a millisecond."""
    a = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    b = torch.empty_like(a)
    return 2 * a.numel() / milliseconds(lambda: b.copy_(a))


def weights_of(cell: Cell, H: int, dtype: torch.dtype) -> dict[str, Tensor]:
    shapes = cell.shapes(H, H, True, 0)
    return {name: (torch.randn(shape, device="cuda") * H**-0.5).to(dtype) for name, shape in shapes.items()}


def kernels(
    cell: Cell, B: int, T: int, H: int, dtype: torch.dtype
) -> Iterator[tuple[str, float, float, ElementwiseConfig]]:
    """What each kernel is, its milliseconds, its bytes, and its plan."""
    weights = weights_of(cell, H, dtype)
    assert not isinstance(programs.assembled(cell, True), str)
    text, given, extras = programs.operands(cell, weights)
    of, _ = make_signature(
        torch.empty(B, T, 1, device="cuda", dtype=dtype), given, extras, (), None, None, None, 0.0, text, ""
    )
    layout = ScanLayout(of)
    a, numbers = layout.assembly, layout.N * layout.H * dtype.itemsize
    given = [torch.empty(B, T, 1, device="cuda", dtype=dtype).normal_(), *given, *extras]
    written = {"use": len(a.outputs), "train": a.states + a.saved + len(written_indices(a.train, "share"))}
    for name, train in (("use", False), ("train", True)):
        todo = persistent.describe_work(layout, False, train, True)
        going = ForwardPass(layout, train, 0, True, None)
        bound = going.bind(given)
        bound.made[-1 if not train or "share" not in layout.saved else len(layout.outputs) + a.states].normal_()
        took = milliseconds(functools.partial(going.launches(bound.addresses, STEPS), bound.addresses))
        yield (
            name,
            took,
            numbers * (todo.loads + written[name]),
            ElementwiseConfig.of(todo, device_info(0), active_overrides().slices),
        )
    n, made = len(layout.outputs), bound.made
    kept = [*given, *map(layout.by_row, made[:n]), *made[n + a.states : n + a.states + len(layout.saved)]]
    asked = BackwardRequest((True,) * n + (False,) * a.states, False, False, False, True)
    back, arriving = (
        BackwardPass(layout, asked, 0, True, None),
        [layout.by_row(torch.randn_like(part)) for part in made[:n]],
    )
    returning = back.bind(kept, [*arriving, *[None] * a.states])
    todo = persistent.describe_work(layout, True, False, True)
    took = milliseconds(functools.partial(back.launches(returning.addresses, STEPS), returning.addresses))
    yield (
        "back",
        took,
        numbers * (todo.loads + a.gates),
        ElementwiseConfig.of(todo, device_info(0), active_overrides().slices),
    )


def scans(cell: Cell, B: int, T: int, H: int, dtype: torch.dtype) -> Iterator[tuple[str, str, float | None]]:
    """What, by which backend, milliseconds."""
    weights = {name: w.requires_grad_() for name, w in weights_of(cell, H, dtype).items()}
    x = torch.randn(B, T, H, device="cuda", dtype=dtype)

    def run(backend: str, backward: bool) -> None:
        with torch.set_grad_enabled(backward):
            outputs = scan(cell, weights, x, backend=backend)[0]
        if backward:
            torch.autograd.grad(outputs.sum(), list(weights.values()))

    for backward in (False, True):
        for backend in ("cuda", "parallel"):
            took: float | None = None
            with contextlib.suppress(torch.OutOfMemoryError, BackendError):  # no room, or not affine
                took = milliseconds(functools.partial(run, backend, backward), 5)
            yield "forward + backward" if backward else "forward", backend, took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("match", nargs="?", default="", help="only rows whose name contains this")
    parser.add_argument("--slices", type=int, nargs="*", help="slices of time to try beside the plan's; kernels alone")
    options = parser.parse_args()
    rate = copy_rate()
    print(f"{torch.cuda.get_device_name()}: a copy moves {rate / 1e6:,.0f} GB/s")
    for (B, T, H), dtype, (name, cell) in itertools.product(SIZES, DTYPES, cells().items()):
        what = f"{name} B {B} T {T} H {H} {str(dtype).removeprefix('torch.')}"
        if options.match not in what:
            continue
        print(what)
        for slices in (None, *(options.slices or ())):
            with override(slices=slices):
                for kernel, took, size, plan in kernels(cell, B, T, H, dtype):
                    share = size / took / rate
                    print(f"  {kernel:6} {took:8.3f} ms {size / took / 1e6:7,.0f} GB/s {share:5.0%}  {tuple(plan)}")
        if B * T * H <= 1 << 28 and options.slices is None:
            for pass_, backend, needed in scans(cell, B, T, H, dtype):
                print(f"  {pass_:18} {backend:8} {'—' if needed is None else f'{needed:8.3f} ms'}")


if __name__ == "__main__":
    main()
