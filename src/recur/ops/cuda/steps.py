"""One step a launch: cuBLAS makes the product with W, a kernel of the cell does the rest. For every cell, option and
GPU; what the other ways are tested against."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_double, c_float

import torch
from torch import Tensor

from recur.ops.cuda.arguments import Arguments
from recur.ops.cuda.cache import loaded
from recur.ops.cuda.device import device
from recur.ops.cuda.driver import Launch, Prepared, current_stream
from recur.ops.cuda.launches import core
from recur.ops.cuda.memory import Layout
from recur.ops.cuda.operands import Operands, multiply, precision, uses_tf32
from recur.ops.cuda.results import Gradients, Results
from recur.ops.cuda.source import source
from recur.ops.cuda.stepping import Stepping

THREADS = 256


class Kernels:
    """A cell's kernels of one step, for as many rows as asked for."""

    def __init__(self, lay: Layout, index: int) -> None:
        self._lay, self._index = lay, index
        text = source(lay.of.cell, lay.of.dtype, ("step",))
        self._module = loaded(text, device(index).architecture, index)
        self._stream = current_stream(index)
        self._prepared: dict[tuple[str, int], Prepared] = {}

    def __call__(self, name: str, arguments: Arguments, rows: int) -> None:
        """A thread for each unit of so many rows."""
        self._launch(name, -(-rows * self._lay.H // THREADS))(self._stream, arguments.struct)

    def clip(self, arguments: Arguments, rows: int, bound: float) -> None:
        """A CTA for each row."""
        number = c_double(bound) if self._lay.real == torch.float64 else c_float(bound)
        self._launch("clip_carried", rows)(self._stream, arguments.struct, number)

    def stepping(self, name: str, backward: bool, arguments: Arguments) -> Stepping | None:
        """All steps by the C++ core, whose grids follow from their rows; None where Python takes them one by one."""
        if self._lay.P or core() is None:
            return None
        return Stepping(self._lay, self._index, backward, self._launch(name, 1), arguments)

    @property
    def clipping(self) -> Prepared:
        return self._launch("clip_carried", 1)

    def _launch(self, name: str, grid: int) -> Prepared:
        key = name, grid
        if key not in self._prepared:
            self._prepared[key] = self._module.function(name).prepare(Launch(grid, THREADS))
        return self._prepared[key]


def forward(ops: Operands, results: Results, train: bool) -> None:
    lay, a = ops.lay, ops.lay.assembly
    run = Kernels(lay, ops.device.index)
    offset, length = lay.order(ops.device)
    new = ops.U.new_empty
    carry = [part.to(lay.real, copy=True) for part in ops.initial]
    carry = carry or [new(lay.S, width, dtype=lay.real).zero_() for width in lay.widths]
    inside = [new(lay.S, lay.H, dtype=lay.real), *carry[1:]] if lay.P else carry  # what the program returns
    started = bool(ops.initial and a.products)
    multiplied = ops.initial[0] * (1 if ops.mask is None else ops.mask) if started else None
    following = new(lay.S, lay.H) if a.products else None
    states = list(results.states)
    if lay.P and states[0] is None:
        states[0] = new(lay.N, lay.H)
    arguments = Arguments(a, False, steps=lay.steps, S=lay.S, H=lay.H).put(
        offset=offset, length=length, share=results.share,
        tape=results.tape, state=states, bias=ops.bias_hh, extra=ops.extras, mask=None if lay.P else ops.mask,
        exchange=None if lay.P else following, carry=inside,
    )  # fmt: skip
    name = "forward_train" if train else "forward_use"
    if (stepping := run.stepping(name, False, arguments)) is not None:
        if following is not None:
            if multiplied is not None:
                following.copy_(multiplied)
            stepping.multiply(following, ops.W.contiguous(), _in_tf32(lay), started)
        stepping()
    else:
        with precision(lay.of.dtype):
            _by_python(ops, results, run, name, arguments, carry, states, multiplied, following)
    for into, part in zip(results.finals, carry, strict=True):
        into.copy_(part)


def _by_python(
    ops: Operands, results: Results, run: Kernels, name: str, arguments: Arguments, carry: list[Tensor],
    states: list[Tensor | None], multiplied: Tensor | None, following: Tensor | None,
) -> None:  # fmt: skip
    lay = ops.lay
    first = 0
    for k, rows in enumerate(lay.counts):
        product = None
        if multiplied is not None:
            product = multiply(multiplied[:rows], ops.W.t(), lay.real)
        arguments.number("step", k)
        arguments.number("rows", rows)
        arguments.put(product=product)
        run(name, arguments, rows)
        multiplied = following
        if lay.P:
            assert ops.R is not None
            assert states[0] is not None
            carry[0][:rows] = multiply(states[0][first : first + rows], ops.R.t(), lay.real)
            results.first[first : first + rows] = carry[0][:rows]
            multiplied = carry[0].to(lay.of.dtype) * (1 if ops.mask is None else ops.mask)
        first += rows


def _in_tf32(lay: Layout) -> bool:
    return lay.of.dtype == torch.float32 and uses_tf32()


def backward(ops: Operands, results: Results, found: Gradients, traced: bool) -> None:
    lay, a = ops.lay, ops.lay.assembly
    run = Kernels(lay, ops.device.index)
    offset, length = lay.order(ops.device)
    new = ops.U.new_empty
    carry = [
        new(lay.S, width, dtype=lay.real).zero_() if part is None else part.to(lay.real, copy=True)
        for width, part in zip(lay.widths, found.d_final, strict=True)
    ]
    inside = [new(lay.S, lay.H, dtype=lay.real), *carry[1:]] if lay.P else carry
    exchange = new(lay.S, a.products * lay.H)
    arguments = Arguments(a, True, steps=lay.steps, S=lay.S, H=lay.H).put(
        offset=offset, length=length, share=results.share,
        tape=results.tape, state=results.states, initial=ops.initial, extra=ops.extras,
        mask=None if lay.P else ops.mask, d_outputs=[None] * a.states if lay.P else found.d_outputs,
        xi=None if lay.P else ops.xi, d_share=found.d_share, d_own=found.d_own, d_state=found.d_state,
        sums=found.sums, carry=inside, exchange=exchange,
    )  # fmt: skip
    name, later = "backward_trace" if traced else "backward_back", lay.counts[0]
    if (stepping := run.stepping(name, True, arguments)) is not None:
        if a.products:
            stepping.multiply(exchange, ops.W.contiguous(), _in_tf32(lay), False)
        if lay.of.clip:
            stepping.clip(run.clipping, lay.of.clip)
        stepping()
    with precision(lay.of.dtype):
        if stepping is None:
            _back_by_python(ops, found, run, name, arguments, carry, inside, exchange)
        product = multiply(exchange, ops.W, lay.real) if a.products else None
        carry_back(ops, carry, product, later, 0)
    found.carried = carry


def _back_by_python(
    ops: Operands, found: Gradients, run: Kernels, name: str, arguments: Arguments, carry: list[Tensor],
    inside: list[Tensor], exchange: Tensor,
) -> None:  # fmt: skip
    lay, a = ops.lay, ops.lay.assembly
    bound, later, end = lay.of.clip, 0, lay.N
    for k, rows in reversed(list(enumerate(lay.counts))):
        end -= rows
        product = multiply(exchange[:later], ops.W, lay.real) if a.products and later else None
        if lay.P:
            carry_back(ops, carry, product, later, end + rows)
            assert ops.R is not None
            assert found.d_projected is not None
            whole = found.d_projected[end : end + rows]
            whole.copy_(carry[0][:rows])
            if found.d_outputs[0] is not None:
                whole += found.d_outputs[0][end : end + rows]
            inside[0][:rows] = multiply(whole, ops.R, lay.real)
            product, later = None, 0
        arguments.number("step", k)
        arguments.number("rows", rows)
        arguments.number("later", later)
        arguments.put(product=product)
        if bound and later:
            run.clip(arguments, later, bound)
            arguments.number("later", 0)
            arguments.put(product=None)
        run(name, arguments, rows)
        later = rows


def carry_back(ops: Operands, carry: Sequence[Tensor], product: Tensor | None, later: int, first: int) -> None:
    """What a step of `later` rows, which begin at `first`, carries back to the step before: by operations of PyTorch,
    for states of different widths and for the state before the first step."""
    lay = ops.lay
    if not later:
        return
    parts = [part[:later] for part in carry]
    if product is not None:
        through = product if ops.mask is None else product * ops.mask[:later]
        # A projected state reaches the next step through W alone.
        parts[0].copy_(through if lay.P else parts[0] + through)
    if ops.xi is not None:
        xi = ops.xi[first : first + later, None]
        for part in parts:
            part.copy_(torch.where(xi == 0, 0, part * xi))
    if lay.of.clip:
        norm = torch.cat(parts, dim=-1).norm(dim=-1, keepdim=True)
        for part in parts:
            part.mul_((lay.of.clip / norm).clamp(max=1))
