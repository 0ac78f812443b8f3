"""Cells compiled to program text, which the CPU and the CUDA backend both read, and the operands of a call."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

from recur.cells.cell import GATE_WEIGHTS, Cell, Weights
from recur.cells.found_out import FOUND, found_out
from recur.compiler.assembly import assemble
from recur.compiler.tracing import NotPointwiseError, TracedStep, trace_step

F = TypeVar("F", bound=Callable[..., Any])


def not_compiled(cell: Cell, x: Tensor, biased: bool) -> str | None:
    """Why there is no program that could run a cell on inputs such as x, on any device; or None if there is."""
    if not x.shape[-1]:
        return "x has no features"
    if transformed():
        return "transforms of torch.func and forward-mode derivatives need each operation in PyTorch"
    found = _known(cell, biased) if torch.compiler.is_compiling() else assembled(cell, biased)
    return found if isinstance(found, str) else None


def _known(cell: Cell, biased: bool) -> tuple[TracedStep, str] | str:
    """As `assembled`, of a cell that was assembled already, as torch.compile can trace it: before 2.12 it could not
    hand a cell to a function that is a constant to it."""
    if hasattr(cell, FOUND) and ("programs", biased) in getattr(cell, FOUND)[1]:
        found: tuple[TracedStep, str] | str = getattr(cell, FOUND)[1]["programs", biased]
        return found
    return assembled(cell, biased)


def operands(cell: Cell, weights: Weights) -> tuple[str, list[Tensor], list[Tensor]]:
    """The programs of a cell that was assembled, its gates' weights, and what its step makes of its own weights."""
    biased = "bias_ih" in weights
    step, text = programs_of(cell, biased)
    extras: list[Tensor] = []
    if step.prepared:
        own = {("w", k): weights[key] for k, key in enumerate(cell.extras)}
        extras = step.weights.evaluate(step.prepared, own)
    return text, [weights[key] for key in GATE_WEIGHTS if key in weights], extras


def programs_of(cell: Cell, biased: bool) -> tuple[TracedStep, str]:
    """Those of a cell that was assembled, as torch.compile can trace it."""
    found: tuple[TracedStep, str] = getattr(cell, FOUND)[1]["programs", biased]
    return found


def as_read(cell: Cell, weights: Weights) -> tuple[Cell, list[str]]:
    """The cell as the operator has it, and the names of its weights in the operator's order.

    The cell's own weights are what its step makes of those that it was given.
    """
    step, _ = programs_of(cell, "bias_ih" in weights)
    gates = [key for key in GATE_WEIGHTS if key in weights]
    if not step.prepared:
        return cell, gates
    names = [f"prepared_{k}" for k in range(len(step.prepared))]

    def evaluate(self: Cell, *given: Sequence[Tensor]) -> list[Tensor]:
        leaves = {(role, k): part for role, parts in zip("xhsw", given, strict=True) for k, part in enumerate(parts)}
        like, after = given[0][0], step.terms.evaluate(step.states, leaves)
        # Expanded, a state would be another node than the one that other states are made of.
        return [part if part.shape == like.shape else part.expand_as(like) for part in after]

    made = copy.copy(cell)
    changed = {"extras": dict.fromkeys(names, ("H",)), "step": evaluate}
    made.__class__ = type(type(cell).__name__, (type(cell),), changed)
    return made, [*gates, *names]


def constant_when_compiled(function: F) -> F:
    """torch.compile calls this once, when it compiles, and takes the result for a constant.

    As torch.compiler.assume_constant_result does, but without importing the whole compiler.
    """
    vars(function)["_dynamo_marked_constant"] = True
    return function


@constant_when_compiled
def transformed() -> bool:
    """Whether a transform of torch.func or a forward-mode derivative is under way, for which tensors have no memory."""
    return torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0


@constant_when_compiled
def assembled(cell: Cell, biased: bool) -> tuple[TracedStep, str] | str:
    """A cell's programs as text, made once; or why there are none."""
    known, key = found_out(cell), ("programs", biased)
    if key not in known:
        with ThreadPoolExecutor(1) as thread:  # the caller's modes are its thread's: compiling, exporting, inference
            known[key] = thread.submit(_assemble, cell, biased).result()
    found: tuple[TracedStep, str] | str = known[key]
    return found


@constant_when_compiled
def not_affine(cell: Cell, biased: bool) -> str | None:
    """Why a cell's steps cannot be put together before their states are known, or None if they can."""
    found = assembled(cell, biased)
    if isinstance(found, str):
        return found
    affine = found[0].affine
    return f"only a step that is affine in its states allows it, and {affine}" if isinstance(affine, str) else None


@constant_when_compiled
def text_of(cell: Cell, biased: bool) -> str:
    """The programs of a cell that has some."""
    found = assembled(cell, biased)
    assert not isinstance(found, str), found
    return found[1]


def _assemble(cell: Cell, biased: bool) -> tuple[TracedStep, str] | str:
    try:
        step = trace_step(cell)
        return step, assemble(cell, step, biased).dumps()
    except NotPointwiseError as error:
        return str(error)
