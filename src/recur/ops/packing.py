"""Packing of sequences: lengths, resets and direction decide which steps follow each other.

A batch of rows is split into *segments*, runs of steps without a reset. Segments are ordered like PyTorch's packed
sequences: sorted by length, longest first, and stored step by step, so that step k is a block of the segments with more
than k steps. Backends see this order only. Padding is never computed, and a reset costs nothing: the two sides of
a reset are two segments that run in parallel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recur.cells.cell import State


@dataclass(frozen=True, eq=False)
class Packing:
    """Order of the N steps of a (B, T) batch in S segments."""

    B: int
    T: int
    sizes: list[int]
    """The number of segments that take step k."""
    flat: Tensor
    """(N,): the index row · T + t of every step in the flattened batch."""
    in_row: Tensor
    """(N,), on the CPU: the index of every step in a (B, T) table that numbers the steps of a row in scan order."""
    in_sequence: Tensor
    """(N,), on the CPU: the number of earlier steps in the same segment."""
    row: Tensor
    """(S,): the row that a segment belongs to."""
    fresh: Tensor
    """(S,): whether a segment starts a new sequence, not from the given state of its row."""
    last: Tensor
    """(B,): the segment that ends a row."""

    @staticmethod
    def of(
        B: int, T: int, lengths: Tensor | None, reset: Tensor | None, reverse: bool, device: torch.device
    ) -> Packing:
        length = np.full(B, T) if lengths is None else lengths.cpu().numpy()
        starts = np.zeros((B, T), bool) if reset is None else reset.cpu().numpy().copy()
        first_is_fresh = starts[:, 0].copy()
        starts[:, 0] = True
        starts &= np.arange(T) < length[:, None]

        row, start = np.nonzero(starts)
        ends_row = np.append(row[1:] != row[:-1], True)
        steps = np.where(ends_row, length[row], np.append(start[1:], 0)) - start
        begins_row = start == 0
        if reverse:  # the last segment of a row runs first and starts from the state of the row
            begins_row, ends_row, fresh = ends_row, begins_row, ~ends_row
        else:
            fresh = ~begins_row | first_is_fresh[row]

        order = np.argsort(-steps, kind="stable")
        row, start, steps, fresh, ends_row = row[order], start[order], steps[order], fresh[order], ends_row[order]
        sizes = len(steps) - np.searchsorted(steps[::-1], np.arange(steps[0]), side="right")
        k = np.repeat(np.arange(len(sizes)), sizes)
        segment = np.arange(len(k)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        time = start[segment] + (steps[segment] - 1 - k if reverse else k)
        in_row = length[row[segment]] - 1 - time if reverse else time
        last = np.empty(B, np.int64)
        last[row[ends_row]] = np.nonzero(ends_row)[0]

        def tensor(array: NDArray[np.generic]) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(array)).to(device)

        return Packing(
            B=B,
            T=T,
            sizes=sizes.tolist(),
            flat=tensor(row[segment] * T + time),
            in_row=torch.from_numpy(row[segment] * T + in_row),
            in_sequence=torch.from_numpy(k),
            row=tensor(row),
            fresh=tensor(fresh),
            last=tensor(last),
        )

    def xi(self, table: Tensor, by_sequence: bool) -> Tensor:
        """Pack ξ, (B, T) → (N,). It is 1 at the start of a new sequence, where no gradient is carried."""
        if by_sequence:
            row = torch.div(self.in_row, self.T, rounding_mode="floor")
            return table[row, self.in_sequence]
        packed = table.reshape(-1)[self.in_row]
        first = packed[: self.sizes[0]]
        first[self.fresh.cpu()] = 1
        return packed

    @property
    def position(self) -> Tensor:
        """(B, T): the number of earlier steps in the same sequence; 0 for padding."""
        table = self.in_sequence.new_zeros(self.B * self.T).to(self.flat.device)
        return table.index_copy(0, self.flat, self.in_sequence.to(self.flat.device)).view(self.B, self.T)

    @property
    def steps(self) -> Tensor:
        """(S,): the number of steps of each segment."""
        sizes = np.array(self.sizes)
        return torch.from_numpy(np.searchsorted(-sizes, -np.arange(sizes[0]), side="left")).to(self.flat.device)

    def start(self, new: State | None, old: State) -> State:
        """Return the start of each segment, (B, H) → (S, H): `new` (None: zero) or the `old` state of its row."""
        fresh, went_on = self.fresh[:, None], [part[self.row] for part in old]
        if new is None:
            return tuple(part.masked_fill(fresh, 0) for part in went_on)
        return tuple(torch.where(fresh, part[self.row], was) for part, was in zip(new, went_on, strict=True))

    def pack(self, x: Tensor) -> Tensor:
        """Pack x, (B, T, D) → (N, D)."""
        packed: Tensor = GatherRows.apply(x.reshape(self.B * self.T, -1), self.flat)
        return packed

    def unpack(self, packed: Tensor) -> Tensor:
        """Unpack, (N, D) → (B, T, D), with zeros as padding."""
        padded: Tensor = ScatterRows.apply(packed, self.flat, self.B * self.T)
        return padded.view(self.B, self.T, -1)


class GatherRows(torch.autograd.Function):
    """`rows[index]` for distinct indices. The gradient is a copy, faster than the additions of index_select."""

    generate_vmap_rule = True

    @staticmethod
    def forward(rows: Tensor, index: Tensor) -> Tensor:
        return rows.index_select(0, index)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])
        ctx.save_for_forward(inputs[1])
        ctx.rows = inputs[0].shape[0]

    @staticmethod
    def jvp(ctx: Any, rows: Tensor, _index: None) -> Tensor:
        packed: Tensor = GatherRows.apply(rows, ctx.saved_tensors[0])
        return packed

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return ScatterRows.apply(grad, ctx.saved_tensors[0], ctx.rows), None


class ScatterRows(torch.autograd.Function):
    """The transpose of `GatherRows`: each its own place among zeros."""

    generate_vmap_rule = True

    @staticmethod
    def forward(packed: Tensor, index: Tensor, rows: int) -> Tensor:
        return packed.new_zeros(rows, packed.shape[1]).index_copy(0, index, packed)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, int], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])
        ctx.save_for_forward(inputs[1])
        ctx.rows = inputs[2]

    @staticmethod
    def jvp(ctx: Any, packed: Tensor, _index: None, _rows: None) -> Tensor:
        padded: Tensor = ScatterRows.apply(packed, ctx.saved_tensors[0], ctx.rows)
        return padded

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return GatherRows.apply(grad, ctx.saved_tensors[0]), None, None
