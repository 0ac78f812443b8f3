"""Any pointwise cell on the CPU at the speed of a hand-written kernel: the C++ core."""

from __future__ import annotations

from collections.abc import Hashable
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
    if call.mask is not None and call.mask.requires_grad and torch.is_grad_enabled():
        return "it gives no gradient to the mask, which asks for one"
    return cannot(call.cell, call.data, "bias_ih" in call.weights)


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
    record = call.trace.keep if call.trace.wanted else None
    options = (call.mask, call.xi, call.sizes, call.bptt.clip or 0.0, text)
    results = native_op.scan_op(record, call.data, given, extras, list(call.state), *options)
    return results[0], tuple(results[1 : 1 + len(call.state)])


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
    options = {key: _as_it_is(value) for key, value in vars(cell).items() if not key.startswith("_")}
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


def _as_it_is(option: Any) -> Any:
    """Something that differs from what it was before, once an option was changed in place."""
    if isinstance(option, Tensor):
        return id(option), option._version
    if isinstance(option, dict):
        return {key: _as_it_is(value) for key, value in option.items()}
    if isinstance(option, list | tuple):
        return [_as_it_is(value) for value in option]
    return option if isinstance(option, Hashable) else repr(option)
