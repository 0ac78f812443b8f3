"""Cells compiled to program text, which the CPU and the CUDA backend read; operands and signature of a call."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch
from torch import Tensor

from recur.cells._cache import Guards, attribute_guards, cache_of, cell_of, is_known, known_cache, mark_known
from recur.cells.cell import GATE_WEIGHTS, Cell, Weights
from recur.compat import constant_when_compiled, in_transform
from recur.compiler.assembly import assemble
from recur.compiler.guards import UnguardableError, find_guards, watched_calls
from recur.compiler.tracing import NotPointwiseError, TracedStep, trace_step

IN_TRANSFORM = "transforms of torch.func and forward-mode derivatives need each operation in PyTorch"


def not_compiled(cell: Cell, x: Tensor, biased: bool, per_sample: bool = False) -> str | None:
    """Return why no program can run a cell on inputs such as x, on any device; None if there is one.

    per_sample  whether the caller computes gradients per sample, the one transform that programs can run
    """
    if not x.shape[-1]:
        return "x has no features"
    if in_transform() and not per_sample:
        return IN_TRANSFORM
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
        cache = known_cache(cell)
        cache.is_valid(cell)  # for the guards that torch.compile makes of what it reads
        found: tuple[TracedStep, str] | str = cache.programs[biased]
        return found
    return assembled(cell, biased)


@constant_when_compiled
def _assemble_known(identity: int, biased: bool) -> None:
    """Compile the cell with this identity, which has an entry."""
    assembled(cell_of(identity), biased)


@constant_when_compiled
def assembled(cell: Cell, biased: bool) -> tuple[TracedStep, str] | str:
    """Return the step and the program text of a cell, compiled once; or why there are none."""
    cache = cache_of(cell)
    if biased not in cache.programs:
        # Tracing must not see the modes of the caller's thread: compiling, exporting, inference mode.
        with ThreadPoolExecutor(1) as thread:
            cache.programs[biased], guards = thread.submit(_assemble, cell, biased).result()
        cache.watch(guards)
    found: tuple[TracedStep, str] | str = cache.programs[biased]
    return found


def _assemble(cell: Cell, biased: bool) -> tuple[tuple[TracedStep, str] | str, Guards]:
    """Return the step and its program, or why there is none, and the guards of what decided it."""
    found: tuple[TracedStep, str] | str
    with watched_calls() as calls:
        try:
            step = trace_step(cell)
            found = step, assemble(cell, step, biased).dumps()
        except NotPointwiseError as error:
            found = str(error)
        except Exception as error:  # whatever tracing cannot handle runs on the loop, which shows if it is wrong
            found = f"its step cannot be followed: {type(error).__name__}: {error}".splitlines()[0]
    try:
        return found, find_guards(cell, calls)
    except UnguardableError as error:
        return (found if isinstance(found, str) else str(error)), attribute_guards(cell)


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


class Signature(NamedTuple):
    """Everything that determines a call of a scan except the values of its tensors.

    The order of the tensors is: data, weights, extras, state, mask, ξ.
    """

    cell: str
    dtype: torch.dtype
    shape: Sequence[int]
    """The shape of the data: (B, T, D) if batch-major, else (N, D)."""
    sizes: Sequence[int]
    """The number of sequences that take each step; empty if batch-major, where all sequences take all steps."""
    first_rows: int
    """The number of rows of the first weight."""
    last_rows: int
    """The number of rows of the last weight."""
    weights: int
    extras: int
    states: int
    """The number of given states: 0 if sequences start from zero."""
    masked: bool
    weighted: bool
    """Whether ξ is given."""
    clip: float
    matmul_dtype: str
    """The dtype of matrix products, if not that of the data: bfloat16 or int8."""

    @property
    def differentiable(self) -> int:
        """The number of tensors that may have gradients."""
        return 1 + self.weights + self.extras + self.states

    @property
    def given(self) -> int:
        """The number of tensors."""
        return self.differentiable + self.masked + self.weighted


def make_signature(
    data: Tensor,
    weights: Sequence[Tensor],
    extras: Sequence[Tensor],
    state: Sequence[Tensor],
    mask: Tensor | None,
    xi: Tensor | None,
    sizes: Sequence[int] | None,
    clip: float,
    cell: str,
    matmul_dtype: str,
) -> tuple[Signature, list[Tensor]]:
    """Return the signature of a scan and the list of its tensors. `sizes` is None if the data are batch-major."""
    of = Signature(
        cell, data.dtype, data.shape, () if sizes is None else tuple(sizes), weights[0].shape[0], weights[-1].shape[0],
        len(weights), len(extras), len(state), mask is not None, xi is not None, clip, matmul_dtype,
    )  # fmt: skip
    given = [data, *weights, *extras, *state]
    if mask is not None:
        given.append(mask)
    if xi is not None:
        given.append(xi)
    return of, given
