"""The operator `recur::grid`, a recurrence over 2-D grids, with its derivative `recur::grid_backward`.

One call of the C++ core runs all anti-diagonals, forward or backward. As in `recur::scan`, the cell is passed as the
text of its programs. For every gate, a step reads a = W_1 h_1 + W_2 h_2 + U x + b, where h_1 and h_2 are the states of
the two neighbours that are nearer to the corner where the scan starts.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, cast

import torch
from torch import Tensor

from recur.compat import is_eager
from recur.compiler.assembly import Assembly
from recur.errors import BackendError
from recur.ops.cpu import library
from recur.ops.cpu.library import load_programs

LIBRARY = torch.library.Library("recur", "FRAGMENT")
LIBRARY.define("grid(Tensor x, Tensor M, int[] turns, str composition, bool train) -> (Tensor, Tensor)")
LIBRARY.define(
    "grid_backward(Tensor d_h, Tensor x, Tensor M, Tensor tape, int[] turns, str composition, bool for_x) "
    "-> (Tensor, Tensor)"
)

Recompute = Callable[[Tensor, Tensor], Tensor]
"""Function that computes h from x and M by PyTorch operations, which are differentiable any number of times."""

TARGET_ROWS, ENOUGH_PARTS = 512, 4
"""Target number of rows of the longest diagonal of a part; half as many while there are fewer than ENOUGH_PARTS."""


def _hidden_size(x: Tensor, M: Tensor) -> int:
    return (M.shape[2] - x.shape[3] - 1) // 2


def _rows_per_part(x: Tensor, H: int) -> int:
    """Return the number of batch rows per part.

    A part must fill panels of vector registers. Large weights need larger parts, because every part has its own sums of
    their gradient. The number of threads plays no role, so results do not depend on it.
    """
    B, R, C, _ = x.shape
    whole, half = (-(-B // -(-max(fill, H) // min(R, C))) for fill in (TARGET_ROWS, TARGET_ROWS // 2))
    parts = max(whole, min(half, ENOUGH_PARTS))
    return -(-B // parts)


def _tape_numbers(a: Assembly, x: Tensor, M: Tensor) -> int:
    """Return the size of the tape: per corner and part, all values of all units on every diagonal and one more.

    diagonal_size in grid.h computes the same row length.
    """
    (B, R, C, _), H = x.shape, _hidden_size(x, M)
    if any(isinstance(size, torch.SymInt) for size in x.shape):  # the formula is too complex for a guard
        return cast(int, torch.library.get_ctx().new_dynamic_size(min=2))
    rows, values = _rows_per_part(x, H), a.states + (a.gates if a.reads_share else 0) + a.saved
    points = [0, *(min(d, R - 1) - max(0, d - C + 1) + 1 for d in range(R + C - 1))]
    lengths = [((n + 1) * rows + max(rows, 32) + 47) // 32 * 32 - 16 for n in points]
    return M.shape[0] * ((B + rows - 1) // rows) * sum(values * H * length + 32 for length in lengths)


class GridCall:
    """Call of the C++ core: its argument struct, and the objects that must stay alive during the call."""

    def __init__(self, x: Tensor, M: Tensor, turns: Sequence[int], composition: str, program: str) -> None:
        core = library.core()
        assert core is not None
        self.core, self.isa, self.double = core, core.isa, int(x.dtype == torch.float64)
        loaded, H = load_programs(composition), _hidden_size(x, M)
        code, numbers = loaded.encoded[program]
        a, corners = loaded.assembly, (ctypes.c_int64 * len(turns))(*turns)
        self.assembly, self.x, self.M, self._alive = a, x, M, (loaded, corners)
        self.grid = library.GridStruct(
            Q=len(turns), **dict(zip("BRCD", x.shape, strict=True)), H=H, gates=a.gates, states=a.states,
            constants=len(numbers), saved=a.saved, reads_share=a.reads_share, rows=_rows_per_part(x, H),
            threads=torch.get_num_threads(), parallel=core.parallel, turns=ctypes.addressof(corners),
            x=x.data_ptr(), M=M.data_ptr(), constant=ctypes.addressof(numbers), program=code,
        )  # fmt: skip

    def run(self, backward: bool) -> None:
        g, how = self.grid, (self.isa, self.double)
        size = self.core.grid_workspace_bytes(g, *how, backward)
        workspace = torch.empty(size, dtype=torch.uint8, device="cpu")
        g.workspace = workspace.data_ptr()
        run = self.core.grid_backward if backward else self.core.grid_forward
        if status := run(ctypes.byref(g), *how):
            self.core.fail(status)


def forward(x: Tensor, M: Tensor, turns: Sequence[int], composition: str, train: bool) -> tuple[Tensor, Tensor]:
    x, M = x.contiguous(), M.contiguous()
    h, tape = forward_shapes(x, M, turns, composition, train)
    call = GridCall(x, M, turns, composition, "train" if train else "use")
    call.grid.h = h.data_ptr()
    if train:
        call.grid.tape = tape.data_ptr()
    call.run(backward=False)
    return h, tape


def forward_shapes(x: Tensor, M: Tensor, turns: Sequence[int], composition: str, train: bool) -> tuple[Tensor, Tensor]:
    """Return empty h (B, R, C, Q·H) and tape; the tape is empty without training."""
    B, R, C, _ = x.shape
    h = x.new_empty(B, R, C, len(turns) * _hidden_size(x, M))
    return h, x.new_empty(_tape_numbers(load_programs(composition).assembly, x, M) if train else 0)


def backward(
    d_h: Tensor, x: Tensor, M: Tensor, tape: Tensor, turns: Sequence[int], composition: str, for_x: bool
) -> tuple[Tensor, Tensor]:
    d_h, x, M = d_h.contiguous(), x.contiguous(), M.contiguous()
    d_M, by_corner = torch.empty_like(M), x.new_empty(len(turns), *x.shape) if for_x else None
    call = GridCall(x, M, turns, composition, "back")
    g = call.grid
    g.d_h, g.tape, g.d_M = d_h.data_ptr(), tape.data_ptr(), d_M.data_ptr()
    g.d_x = None if by_corner is None else by_corner.data_ptr()
    call.run(backward=True)
    if by_corner is None:
        return x.new_empty(0), d_M
    return by_corner[0] if len(turns) == 1 else by_corner.sum(0), d_M


def backward_shapes(
    d_h: Tensor, x: Tensor, M: Tensor, tape: Tensor, turns: Sequence[int], composition: str, for_x: bool
) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape if for_x else 0), M.new_empty(M.shape)


class _Differentiable(torch.autograd.Function):
    """The operator for eager mode. Second derivatives are computed by operations of PyTorch."""

    @staticmethod
    def forward(ctx: Any, again: Recompute, x: Tensor, M: Tensor, turns: Sequence[int], composition: str) -> Tensor:
        h, tape = forward(x, M, turns, composition, True)
        ctx.save_for_backward(x, M, tape)
        ctx.again, ctx.options = again, (turns, composition)
        return h

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, M, tape = ctx.saved_tensors
        _, for_x, for_M, _, _ = ctx.needs_input_grad
        if torch.is_grad_enabled():
            wanted = [t for t, needed in ((x, for_x), (M, for_M)) if needed]
            found = iter(torch.autograd.grad(ctx.again(x, M), wanted, gradients, create_graph=True))
            return None, next(found) if for_x else None, next(found) if for_M else None, None, None
        turns, composition = ctx.options
        d_x, d_M = backward(gradients[0], x, M, tape, turns, composition, for_x)
        return None, d_x if for_x else None, d_M, None, None


def grid_op(again: Recompute, x: Tensor, M: Tensor, turns: Sequence[int], composition: str) -> Tensor:
    """Return h (B, R, C, Q·H) for x (B, R, C, D) and M (Q, gates·H, 2H + D + 1)."""
    train = torch.is_grad_enabled() and (x.requires_grad or M.requires_grad)
    if not is_eager(M) or not is_eager(x):
        found: Tensor = torch.ops.recur.grid(x, M, turns, composition, train)[0]
        return found
    if train:
        h: Tensor = _Differentiable.apply(again, x, M, turns, composition)
        return h
    return forward(x, M, turns, composition, False)[0]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, M, *ctx.options, _ = inputs
    ctx.save_for_backward(x, M, output[1])
    ctx.mark_non_differentiable(output[1])


def _backward(ctx: Any, d_h: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    for_x = ctx.needs_input_grad[0]
    d_x, d_M = torch.ops.recur.grid_backward(d_h, *ctx.saved_tensors, *ctx.options, for_x)
    return d_x if for_x else None, d_M, None, None, None


def _refuse_second_derivative(ctx: Any, *gradients: Tensor) -> NoReturn:
    raise BackendError("no second derivatives of a grid under torch.compile; call the network without torch.compile")


LIBRARY.impl("grid", forward, "CPU")
LIBRARY.impl("grid_backward", backward, "CPU")
torch.library.register_fake("recur::grid", forward_shapes, lib=LIBRARY)
torch.library.register_fake("recur::grid_backward", backward_shapes, lib=LIBRARY)
torch.library.register_autograd("recur::grid", _backward, setup_context=_save, lib=LIBRARY)
torch.library.register_autograd("recur::grid_backward", _refuse_second_derivative, lib=LIBRARY)
