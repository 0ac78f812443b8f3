"""Whether the C++ core can run a cell."""

from __future__ import annotations

import torch
from torch import Tensor

from recur.cells.cell import Cell
from recur.compiler.program_text import constant_when_compiled, not_compiled
from recur.ops.cpu import library


def unsupported_reason(cell: Cell, x: Tensor, dtype: torch.dtype, biased: bool) -> str | None:
    """Why the core cannot run a cell on inputs such as x in a dtype, or None if it can."""
    if missing := _missing():
        return f"its C++ core is missing: {missing} (recur doctor says more)"
    if x.device.type != "cpu":
        return f"it runs on the CPU, and x is on {x.device}"
    if dtype not in (torch.float32, torch.float64):
        return f"it knows float32 and float64, and x is {str(dtype).removeprefix('torch.')}"
    return not_compiled(cell, x, biased)


@constant_when_compiled
def _missing() -> str | None:
    return library.missing()


@constant_when_compiled
def instruction_set() -> int | None:
    """The index of the one that the core uses now."""
    core = library.core()
    return None if core is None else core.isa
