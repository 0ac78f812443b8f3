"""Any pointwise cell on the CPU at the speed of a hand-written kernel: the C++ core."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from recur.cells.cell import GATE_WEIGHTS, Cell, Weights
from recur.native import library
from recur.scan.assembly import assemble
from recur.scan.call import Call
from recur.scan.program import NotPointwiseError, Step, read_step

name = "native"


def refuses(call: Call) -> str | None:
    return cannot(call.cell, call.x, "bias_ih" in call.weights)


def cannot(cell: Cell, x: Tensor, biased: bool) -> str | None:
    """Why this backend cannot run a cell on inputs such as x, or None if it can."""
    if library.core() is None:
        return "its C++ core was not built when recur was installed (recur doctor says more)"
    if x.device.type != "cpu":
        return f"it runs on the CPU, and x is on {x.device}"
    if x.dtype not in (torch.float32, torch.float64):
        return f"it knows float32 and float64, and x is {str(x.dtype).removeprefix('torch.')}"
    if not x.shape[-1]:
        return "x has no features"
    if torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0:
        return "transforms of torch.func and forward-mode derivatives need each operation in PyTorch"
    found = assembled(cell, biased)
    return found if isinstance(found, str) else None


def run(call: Call) -> tuple[Tensor, tuple[Tensor, ...]]:
    from recur.scan import native_op

    text, given, extras = operands(call.cell, call.weights)
    batch_major = call.packing is None
    data = call.x.reshape(-1, call.x.shape[-1]) if batch_major else call.data
    xi = call.xi
    if xi is not None and batch_major:
        xi = xi.view(len(call.sizes), -1).t().contiguous()
    record = functools.partial(call.trace.keep, batch_major=batch_major) if call.trace.wanted else None
    options = (call.mask, xi, call.sizes, batch_major, call.bptt.clip or 0.0, text)
    outputs, *rest = native_op.scan_op(record, data, given, extras, list(call.state), *options)
    if batch_major:
        outputs = outputs.view(*call.x.shape[:2], -1)
    return outputs, tuple(rest[: len(call.state)])


def operands(cell: Cell, weights: Weights) -> tuple[str, list[Tensor], list[Tensor]]:
    """The programs of a cell that can run here, its gates' weights, and what its step makes of its own weights."""
    found = assembled(cell, "bias_ih" in weights)
    assert not isinstance(found, str)
    step, text = found
    own = {("w", k): weights[key] for k, key in enumerate(cell.extras)}
    extras = step.weights.evaluate(step.prepared, own) if step.prepared else []
    return text, [weights[key] for key in GATE_WEIGHTS if key in weights], extras


def assembled(cell: Cell, biased: bool) -> tuple[Step, str] | str:
    """A cell's programs as text, made once; or why there are none."""
    options = {key: value for key, value in vars(cell).items() if not key.startswith("_")}
    kept: dict[bool, Any] = vars(cell).setdefault("_assembled", {})
    if biased not in kept or kept[biased][0] != options:
        made: tuple[Step, str] | str
        try:
            step = read_step(cell)
            made = step, assemble(cell, step, biased).dumps()
        except NotPointwiseError as error:
            made = str(error)
        kept[biased] = options, made
    found: tuple[Step, str] | str = kept[biased][1]
    return found
