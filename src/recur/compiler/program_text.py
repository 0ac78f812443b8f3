"""Cells compiled to program text, which the CPU and the CUDA backend both read, and the operands of a call."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from recur.cells._cache import cache_of, cell_of, is_known, known_cache, mark_known
from recur.cells.cell import GATE_WEIGHTS, Cell, Weights
from recur.compat import constant_when_compiled, in_transform
from recur.compiler.assembly import assemble
from recur.compiler.tracing import NotPointwiseError, TracedStep, trace_step


def not_compiled(cell: Cell, x: Tensor, biased: bool) -> str | None:
    """Return why no program can run a cell on inputs such as x, on any device; None if there is one."""
    if not x.shape[-1]:
        return "x has no features"
    if in_transform():
        return "transforms of torch.func and forward-mode derivatives need each operation in PyTorch"
    found = find_programs(cell, biased)
    return found if isinstance(found, str) else None


def find_programs(cell: Cell, biased: bool) -> tuple[TracedStep, str] | str:
    """Return the step and the program text of a cell, or why there are none; torch.compile can trace this.

    torch.compile cannot use the step as a constant, so it reads the step where the cache has it.
    """
    if torch.compiler.is_compiling():
        if not is_known(id(cell)):
            mark_known(cell)
        _assemble_known(id(cell), biased)
        found: tuple[TracedStep, str] | str = known_cache(cell).programs[biased]
        return found
    return assembled(cell, biased)


@constant_when_compiled
def _assemble_known(identity: int, biased: bool) -> None:
    """Compile the cell with this identity, which has an entry."""
    assembled(cell_of(identity), biased)


@constant_when_compiled
def assembled(cell: Cell, biased: bool) -> tuple[TracedStep, str] | str:
    """Return the step and the program text of a cell, compiled once; or why there are none."""
    programs = cache_of(cell).programs
    if biased not in programs:
        # Tracing must not see the modes of the caller's thread: compiling, exporting, inference mode.
        with ThreadPoolExecutor(1) as thread:
            programs[biased] = thread.submit(_assemble, cell, biased).result()
    found: tuple[TracedStep, str] | str = programs[biased]
    return found


def _assemble(cell: Cell, biased: bool) -> tuple[TracedStep, str] | str:
    try:
        step = trace_step(cell)
        return step, assemble(cell, step, biased).dumps()
    except NotPointwiseError as error:
        return str(error)


def programs_of(cell: Cell, biased: bool) -> tuple[TracedStep, str]:
    """Return the programs of a cell that has some."""
    found = find_programs(cell, biased)
    assert not isinstance(found, str), found
    return found


def operands(cell: Cell, weights: Weights) -> tuple[str, list[Tensor], list[Tensor]]:
    """Return the program text of a cell, the weights of its gates, and its prepared extra weights."""
    biased = "bias_ih" in weights
    step, text = programs_of(cell, biased)
    extras: list[Tensor] = []
    if step.prepared:
        own = {("w", k): weights[key] for k, key in enumerate(cell.extras)}
        extras = step.weights.evaluate(step.prepared, own)
    return text, [weights[key] for key in GATE_WEIGHTS if key in weights], extras


def prepared_cell(cell: Cell, weights: Weights) -> tuple[Cell, list[str]]:
    """Return the cell as the operator sees it, and the names of its weights in the order of the operator.

    The operator receives what the step computes from the extra weights alone, instead of the extra weights.
    """
    step, _ = programs_of(cell, "bias_ih" in weights)
    gates = [key for key in GATE_WEIGHTS if key in weights]
    if not step.prepared:
        return cell, gates
    names = [f"prepared_{k}" for k in range(len(step.prepared))]

    def evaluate(self: Cell, *given: Sequence[Tensor]) -> list[Tensor]:
        leaves = {(role, k): part for role, parts in zip("xhsw", given, strict=True) for k, part in enumerate(parts)}
        like, after = given[0][0], step.terms.evaluate(step.states, leaves)
        # Expand only where necessary: an expanded state is another autograd node than the one other states depend on.
        return [part if part.shape == like.shape else part.expand_as(like) for part in after]

    made = copy.copy(cell)
    changed = {"extras": dict.fromkeys(names, ("H",)), "step": evaluate}
    made.__class__ = type(type(cell).__name__, (type(cell),), changed)
    return made, [*gates, *names]


@constant_when_compiled
def not_affine(cell: Cell, biased: bool) -> str | None:
    """Return why the steps of a cell cannot be combined in parallel over time; None if they can."""
    found = assembled(cell, biased)
    if isinstance(found, str):
        return found
    affine = found[0].affine
    return f"only a step that is affine in its states allows it, and {affine}" if isinstance(affine, str) else None


@constant_when_compiled
def text_of(cell: Cell, biased: bool) -> str:
    """Return the program text of a cell that has one."""
    return programs_of(cell, biased)[1]
