"""Scans of staged steps (compiler/stages.py) by the C++ core.

The operator runs the loop over time. Products over all steps are matrix products of PyTorch: the input projections
before it, the gradients of all matrices after it, of what the stages have written.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from recur.cells.cell import State
from recur.compat import in_transform
from recur.compiler.assembly import Code
from recur.compiler.stage_tracing import stage_programs, weight_matrices, weight_rows
from recur.compiler.stages import Ref, Size, StagedPrograms, StageProgram, WeightGradient, load_stages
from recur.ops.call import ScanCall
from recur.ops.cpu import library
from recur.ops.torch_backend import run_with_double_backward

STAGES = ("pointwise", "product", "total", "mean", "largest")
STEP, SEGMENT, VECTOR, TEMP, STATE, SUM = range(6)
PLACES = {"vector": VECTOR, "sum": SUM, "mask": SEGMENT, "carried": SEGMENT, "next": SEGMENT}
PANEL = 32
"""Rows of saved values are padded to whole blocks, which has at most so many numbers."""


def unsupported_reason(call: ScanCall) -> str | None:
    """Return why the core cannot run the stages of a call; None if it can."""
    if missing := library.missing_reason():
        return f"its C++ core is missing: {missing} (recur doctor says more)"
    if call.x.device.type != "cpu":
        return f"it runs on the CPU, and x is on {call.x.device}"
    if in_transform():
        return "transforms of torch.func and forward-mode derivatives need each operation in PyTorch"
    if torch.compiler.is_compiling():
        return "a compiled graph needs each operation of a step with stages in PyTorch"
    if call.matmul_dtype:
        return f"a step with stages has no products of {call.matmul_dtype}"
    if "weight_hr" in call.weights:
        return "a step with stages has no projection"
    found = stage_programs(call.cell, "bias_hh" in call.weights, call.mask is not None)
    return found if isinstance(found, str) else None


def run(call: ScanCall) -> tuple[Tensor, State]:
    """Run a call; its second derivatives are those of the loop."""
    return run_with_double_backward(call, _run)


def _run(call: ScanCall) -> tuple[Tensor, State]:
    cell, weights = call.cell, call.weights
    found = stage_programs(cell, "bias_hh" in weights, call.mask is not None)
    assert not isinstance(found, str), found
    step, text = found
    H = weights["weight_ih"].shape[0] // len(cell.gates)
    if cell.multiplies_inside:
        share = call.x.new_empty(0, 0)
    else:
        share = linear(call.data, weights["weight_ih"], weights.get("bias_ih"))
    training = call.x.new_full((H,), float(call.training))
    leaves = {("w", k): part for k, part in enumerate(weight_rows(weights, step.rows, training))}
    vectors = step.weights.evaluate(step.prepared, leaves) if step.prepared else []
    programs = load_stages(text)
    widths = [_number(size, H, call.x.shape[-1]) for size in programs.vectors]
    vectors = [part.expand(width) for part, width in zip(vectors, widths, strict=True)]
    inputs = [
        part.expand(part.shape[0], H) if size == "H" else part
        for part, size in zip(call.step_inputs, programs.inputs, strict=True)
    ]
    matrices = weight_matrices(cell, weights, programs.matrices)
    mask = () if call.mask is None else (call.mask,)
    given = [share, *inputs, *vectors, *matrices, *mask, *(call.start or ())]
    run = _Run(text, tuple(call.sizes), call.x.shape[-1], H, call.xi, call.bptt.clip or 0.0, call.start is not None)
    run.record = functools.partial(_record, call) if call.trace.wanted else None
    if torch.is_grad_enabled() and any(part.requires_grad for part in given):
        states: Sequence[Tensor] = StagedScanFunction.apply(run, *given)
    else:
        states = run.forward(given, False)[0]
    outputs = cell.output(states)
    if call.packing is None:
        return outputs, tuple(state[-call.sizes[-1] :] for state in states)
    last = _last_rows(tuple(call.sizes)).to(outputs.device)
    return outputs, tuple(state.index_select(0, last) for state in states)


def _record(
    call: ScanCall, states: Sequence[Tensor], share: Tensor, products: dict[str, tuple[Tensor, Tensor]]
) -> None:
    """Hand what a backward pass recorded to the trace: gradients of states, U x and W m, and what matrices multiply."""
    slopes, factors = {"weight_ih": share}, {"weight_ih": call.data}
    for name, (factor, slope) in products.items():
        slopes[name], factors[name] = slope, factor
    call.trace.record_pass(dict(zip(call.cell.states, states, strict=True)), slopes)
    call.trace.record_factors(factors)


def _number(size: Size, H: int, D: int) -> int:
    return {"H": H, "D": D}[size] if isinstance(size, str) else size


@functools.lru_cache(maxsize=64)
def _last_rows(sizes: tuple[int, ...]) -> Tensor:
    """Return the last row of every segment."""
    offsets = [0, *itertools.accumulate(sizes)]
    last = [0] * sizes[0]
    for k, n in enumerate(sizes):
        last[:n] = range(offsets[k], offsets[k] + n)
    return torch.tensor(last)


@functools.lru_cache(maxsize=64)
def _previous_rows(sizes: tuple[int, ...]) -> Tensor | None:
    """Return for every row that of the previous step, after the rows of the start; None if they are in order."""
    if sizes[0] == sizes[-1]:
        return None
    offsets = [0, *itertools.accumulate(sizes)]
    rows = [*range(sizes[0])]
    for k, n in enumerate(sizes[1:]):
        rows += range(sizes[0] + offsets[k], sizes[0] + offsets[k] + n)
    return torch.tensor(rows)


class StagedScanFunction(torch.autograd.Function):
    """The loop of a staged step, as autograd sees it."""

    @staticmethod
    def forward(ctx: Any, run: _Run, *given: Tensor) -> tuple[Tensor, ...]:
        states, saved = run.forward(given, True)
        ctx.run, ctx.count = run, len(given)
        ctx.save_for_backward(*given, *states, *saved)
        ctx.set_materialize_grads(False)
        return tuple(states)

    @staticmethod
    def backward(ctx: Any, *arriving: Tensor | None) -> tuple[Tensor | None, ...]:
        kept = ctx.saved_tensors
        return None, *ctx.run.backward(kept[: ctx.count], kept[ctx.count :], arriving, ctx.needs_input_grad[1:])


class _Run:
    """One scan: its program, its sizes, and how gradients are carried."""

    def __init__(
        self, text: str, sizes: tuple[int, ...], D: int, H: int, xi: Tensor | None, clip: float, started: bool
    ) -> None:
        self.text, self.sizes, self.D, self.H = text, sizes, D, H
        self.xi, self.clip, self.started = xi, clip, started
        self.record: Callable[..., None] | None = None
        self.programs: StagedPrograms = load_stages(text)
        self.N, self.S = sum(sizes), sizes[0]

    def width(self, size: Size) -> int:
        return _number(size, self.H, self.D)

    def _split(self, given: Sequence[Tensor]) -> dict[str, list[Tensor]]:
        """Return the tensors of a call by kind."""
        p, parts = self.programs, iter(given)
        counts = {"share": 1, "input": len(p.inputs), "vector": len(p.vectors), "matrix": len(p.matrices)}
        counts |= {"mask": int(p.masked), "start": len(p.states) if self.started else 0}
        return {kind: list(itertools.islice(parts, count)) for kind, count in counts.items()}

    def forward(self, given: Sequence[Tensor], train: bool) -> tuple[list[Tensor], list[Tensor]]:
        """Return all states of all steps, (N, width) each, and the saved values."""
        p, like = self.programs, given[0]
        memory = self._split([part.contiguous() for part in given])
        memory["after"] = [like.new_empty(self.N, self.width(size)) for size in p.states]
        memory["saved"] = [like.new_empty(self.N, _padded(self.width(size))) for size in p.saved] if train else []
        self._call("forward", memory)
        return memory["after"], memory["saved"]

    def backward(
        self,
        given: Sequence[Tensor],
        kept: Sequence[Tensor],
        arriving: Sequence[Tensor | None],
        wanted: Sequence[bool],
    ) -> list[Tensor | None]:
        """Return the gradients of all given tensors."""
        p, like = self.programs, given[0]
        memory = self._split([part.contiguous() for part in given])
        states = len(p.states)
        memory |= {"after": list(kept[:states]), "saved": list(kept[states:])}
        memory["d_share"] = [torch.empty_like(like)]
        memory["d_input"] = [torch.empty_like(part) for part in memory["input"]]
        memory["record"] = [like.new_empty(self.N, _padded(self.width(size))) for size in p.recorded]
        memory["sum"] = [torch.zeros_like(part) for part in memory["vector"]]
        for kind in ("carried", "next"):
            memory[kind] = [like.new_zeros(self.S, self.width(size)) for size in p.states]
        d_outputs = [None if part is None else part.contiguous() for part in arriving]
        if self.record is not None:
            memory["d_state"] = [like.new_empty(self.N, self.width(size)) for size in p.states]
        self._call("backward" if self.record is None else "trace", memory, d_outputs)
        of_matrices: list[Tensor | None] = [None] * len(p.matrices)
        before: dict[int, Tensor] = {}
        for together in _side_by_side(p.gradients):
            first = together[0]
            a, dy = self._rows(first.a, memory, before), self._rows(first.dy, memory, before, len(together))
            product = a.mT @ dy if first.transposed else dy.mT @ a
            parts = product.chunk(len(together)) if len(together) > 1 else (product,)
            for gradient, part in zip(together, parts, strict=True):
                earlier = of_matrices[gradient.matrix]
                of_matrices[gradient.matrix] = part if earlier is None else earlier + part
        if self.record is not None:
            self.record(memory["d_state"], memory["d_share"][0], self._gate_products(memory, before))
        found: list[Tensor | None] = [*memory["d_share"], *memory["d_input"], *memory["sum"], *of_matrices]
        found += [None] * len(memory["mask"])
        found += memory["carried"] if self.started else []
        return [part if want else None for part, want in zip(found, wanted, strict=True)]

    def _gate_products(
        self, memory: dict[str, list[Tensor]], before: dict[int, Tensor]
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """Return for U and W, as far as they are stages: what they multiply, and the gradients of the products."""
        p, found = self.programs, dict[str, tuple[Tensor, Tensor]]()
        for name in ("weight_ih", "weight_hh"):
            of = {p.matrices[g.matrix].block: g for g in p.gradients if p.matrices[g.matrix].name == name}
            if of:
                slopes = [self._rows(of[block].dy, memory, before) for block in sorted(of)]
                found[name] = self._rows(of[0].a, memory, before), torch.cat(slopes, dim=-1)
        return found

    def _rows(self, ref: Ref, memory: dict[str, list[Tensor]], before: dict[int, Tensor], gates: int = 1) -> Tensor:
        """Return a value of all steps, (N, width); of several gates side by side."""
        kind, index, size = ref
        width = self.width(size)
        if kind in ("share", "d_share"):
            return memory[kind][0][:, index * self.H : (index + gates) * self.H]
        if kind == "before":
            if index not in before:
                after = memory["after"][index]
                start = memory["start"][index] if self.started else after.new_zeros(self.S, width)
                order = _previous_rows(self.sizes)
                joined = torch.cat([start, after[: self.N - self.sizes[-1]]]) if order is None else None
                before[index] = torch.cat([start, after])[order] if joined is None else joined
            return before[index]
        if kind == "mask":
            raise AssertionError("a mask is no factor of a product")
        if kind == "vector":
            return memory[kind][index].expand(self.N, width)
        return memory[kind][index][:, :width]

    def _call(
        self,
        which: str,
        memory: dict[str, list[Tensor]],
        d_outputs: Sequence[Tensor | None] = (),
    ) -> None:
        core = library.core()
        assert core is not None
        p, H, backward = self.programs, self.H, which != "forward"
        program: StageProgram = getattr(p, which)
        encoded = _encoded(self.text, which)
        item = memory["share"][0].element_size()
        values = (library.StagedValueStruct * max(1, len(program.values)))()
        for at, (kind, index, size) in enumerate(program.values):
            width = self.width(size)
            where, base, stride, room, first = STEP, 0, width, width, None
            if kind == "temp" or (kind == "saved" and not memory["saved"]):
                where = TEMP
            elif kind in ("share", "d_share"):
                part = memory[kind][0]
                base, stride = part.data_ptr() + index * H * item, part.stride(0)
            elif kind == "before":
                where, base = STATE, memory["after"][index].data_ptr()
                first = memory["start"][index].data_ptr() if self.started else None
            else:
                part = memory[kind][index]
                base = part.data_ptr()
                stride = room = part.shape[-1]
                where = PLACES.get(kind, STEP)
            values[at] = library.StagedValueStruct(where, width, room, stride, base, first)
        stages = (library.StageStruct * max(1, len(program.stages)))()
        for at, (stage, (code, constants)) in enumerate(zip(program.stages, encoded, strict=True)):
            stages[at] = library.StageStruct(
                STAGES.index(stage.kind), stage.to, stage.a, stage.onto, stage.matrix, stage.groups,
                self.width(stage.size), code, ctypes.cast(constants, ctypes.c_void_p), len(constants),
            )  # fmt: skip
        matrices = (library.StagedMatrixStruct * max(1, len(program.matrices)))()
        for at, (index, transposed) in enumerate(program.matrices):
            part = memory["matrix"][index]
            matrices[at] = library.StagedMatrixStruct(part.data_ptr(), *part.shape, part.stride(0), transposed)
        sizes = (ctypes.c_int64 * len(self.sizes))(*self.sizes)
        states = len(p.states) if backward else 0
        widths = (ctypes.c_int64 * max(1, states))(*[self.width(size) for size in p.states][:states])
        carried, following = (_pointers(memory.get(kind, [])) for kind in ("carried", "next"))
        outputs = _pointers(d_outputs)
        threads = torch.get_num_threads()
        xi = self.xi.contiguous() if self.xi is not None and backward else None
        scan = library.StagedStruct(
            len(self.sizes), self.N, self.S, ctypes.addressof(sizes), backward, threads, core.parallel, values,
            len(program.values), stages, len(program.stages), matrices, len(program.matrices), states,
            ctypes.addressof(widths), ctypes.addressof(carried), ctypes.addressof(following),
            ctypes.addressof(outputs), None if xi is None else xi.data_ptr(), self.clip if backward else 0.0,
        )  # fmt: skip
        if status := core.staged(ctypes.byref(scan), core.isa, int(item == 8)):
            core.fail(status)


def _side_by_side(gradients: Sequence[WeightGradient]) -> list[list[WeightGradient]]:
    """Group the gradients of gates that are next to each other in memory: one product computes them."""
    groups: list[list[WeightGradient]] = []
    for gradient in gradients:
        last = groups[-1][-1] if groups else None
        if last is not None and gradient.a == last.a and not (gradient.transposed or last.transposed):
            here, there = gradient.dy, last.dy
            if here.kind == there.kind == "d_share" and here.at == there.at + 1:
                groups[-1].append(gradient)
                continue
        groups.append([gradient])
    return groups


def _padded(width: int) -> int:
    return (width + PANEL - 1) // PANEL * PANEL


def _pointers(parts: Sequence[Tensor | None]) -> Any:
    return (ctypes.c_void_p * max(1, len(parts)))(*[None if part is None else part.data_ptr() for part in parts])


@functools.lru_cache(maxsize=256)
def _encoded(text: str, which: str) -> list[library.EncodedProgram]:
    """Return the pointwise programs of one pass in the format of the core; empty ones for other stages."""
    stages = getattr(load_stages(text), which).stages
    return [library.encode(Code(**stage.code) if stage.code else Code()) for stage in stages]


__all__ = ["WeightGradient", "run", "unsupported_reason"]
