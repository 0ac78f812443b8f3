"""A cell compiled for the C++ core: its programs as text, made once, and the operands of a call."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

from recur.cells.cell import GATE_WEIGHTS, Cell, Weights
from recur.native import library
from recur.program.assembly import assemble
from recur.program.step import NotPointwiseError, Step, read_step

KEPT_AS = "_assembled"

F = TypeVar("F", bound=Callable[..., Any])


def unsupported_reason(cell: Cell, x: Tensor, biased: bool) -> str | None:
    """Why the core cannot run a cell on inputs such as x, or None if it can."""
    if missing := _missing():
        return f"its C++ core is missing: {missing} (recur doctor says more)"
    if x.device.type != "cpu":
        return f"it runs on the CPU, and x is on {x.device}"
    if x.dtype not in (torch.float32, torch.float64):
        return f"it knows float32 and float64, and x is {str(x.dtype).removeprefix('torch.')}"
    if not x.shape[-1]:
        return "x has no features"
    if _transformed():
        return "transforms of torch.func and forward-mode derivatives need each operation in PyTorch"
    found = assembled(cell, biased)
    return found if isinstance(found, str) else None


def operands(cell: Cell, weights: Weights) -> tuple[str, list[Tensor], list[Tensor]]:
    """The programs of a cell that can run here, its gates' weights, and what its step makes of its own weights."""
    biased = "bias_ih" in weights
    text = _text(cell, biased)
    step: Step = getattr(cell, KEPT_AS)[biased][1][0]  # by a way that torch.compile can follow
    own = {("w", k): weights[key] for k, key in enumerate(cell.extras)}
    extras = step.weights.evaluate(step.prepared, own) if step.prepared else []
    return text, [weights[key] for key in GATE_WEIGHTS if key in weights], extras


def _decided_once(function: F) -> F:
    """torch.compile calls this when it compiles, and takes what it returns for granted from then on.

    As torch.compiler.assume_constant_result, which imports the whole compiler to say so.
    """
    vars(function)["_dynamo_marked_constant"] = True
    return function


@_decided_once
def _missing() -> str | None:
    return library.missing()


@_decided_once
def _transformed() -> bool:
    return torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0


@_decided_once
def assembled(cell: Cell, biased: bool) -> tuple[Step, str] | str:
    """A cell's programs as text, made once; or why there are none."""
    options = {key: _as_it_is(value) for key, value in vars(cell).items() if not key.startswith("_")}
    kept: dict[bool, Any] = vars(cell).setdefault(KEPT_AS, {})
    if biased not in kept or kept[biased][0] != options:
        with ThreadPoolExecutor(1) as alone:  # where no mode of the caller's reaches: compiling, exporting, inference
            kept[biased] = options, alone.submit(_assemble, cell, biased).result()
    found: tuple[Step, str] | str = kept[biased][1]
    return found


@_decided_once
def _text(cell: Cell, biased: bool) -> str:
    found = assembled(cell, biased)
    assert not isinstance(found, str), found
    return found[1]


def _assemble(cell: Cell, biased: bool) -> tuple[Step, str] | str:
    try:
        step = read_step(cell)
        return step, assemble(cell, step, biased).dumps()
    except NotPointwiseError as error:
        return str(error)


def _as_it_is(option: Any) -> Any:
    """Something that differs from what it was before, once an option was changed in place."""
    if isinstance(option, Tensor):
        return id(option), option._version
    if isinstance(option, dict):
        return {key: _as_it_is(value) for key, value in option.items()}
    if isinstance(option, list | tuple):
        return [_as_it_is(value) for value in option]
    return option if isinstance(option, Hashable) else repr(option)
