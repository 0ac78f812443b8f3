"""The memory of a scan on the GPU: all in packed order, step after step, also where the caller has row after row.

So what a step multiplies lies side by side with that of the step before, and ∂L/∂W is one product of two matrices.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recur.compiler.signature import Signature
from recur.ops.cuda.source import load

Shape = tuple[int, ...]


class Layout:
    """The letters of a signature, and the shapes of what is made of them."""

    def __init__(self, of: Signature) -> None:
        self.of, a = of, load(of.cell)
        self.assembly = a
        self.batch_major = len(of.shape) == 3
        if self.batch_major:
            self.S, self.steps = of.shape[:2]
            self.N, self.sizes = self.S * self.steps, None
        else:
            self.S, self.steps, self.N, self.sizes = of.sizes[0], len(of.sizes), of.shape[0], tuple(of.sizes)
        self.uniform = self.sizes is None or self.sizes[-1] == self.S
        self.D, self.H = of.shape[-1], of.first_rows // a.gates
        self.names = a.weight_names(of.weights)
        self.P = of.last_rows if "weight_hr" in self.names else 0
        """The width of a first state that is projected; 0 where it is not."""
        self.widths = [self.P or self.H, *[self.H] * (a.states - 1)]
        self.plans: dict[tuple[int, bool, bool, bool, int], Any] = {}
        """What was chosen for its passes; see run.plan."""
        self.real = torch.float64 if of.dtype == torch.float64 else torch.float32
        """In which sums and states are kept."""

    @functools.cached_property
    def outputs(self) -> list[Shape]:
        return [(self.N, self.widths[j]) for j in self.assembly.outputs]

    @functools.cached_property
    def finals(self) -> list[Shape]:
        return [(self.S, width) for width in self.widths]

    @functools.cached_property
    def saved(self) -> dict[str, Shape]:
        """What the backward pass needs beside the outputs, by name; states by their index."""
        a = self.assembly
        shapes: dict[str, Shape] = {"share": (self.N, a.gates * self.H)} if a.reads_share else {}
        if a.saved:
            shapes["tape"] = self.N, a.saved * self.H
        for j in range(a.states):
            if self.P or j not in a.outputs:
                shapes[str(j)] = self.N, self.H
        return shapes

    @functools.cached_property
    def sources(self) -> list[int | str]:
        """Where each state after every step lies: which of the outputs, or what is saved under a name."""
        a = self.assembly
        given = [] if self.P else a.outputs
        return [given.index(j) if j in given else str(j) for j in range(a.states)]

    @functools.cached_property
    def recorded(self) -> list[Shape]:
        """What a trace records: the gradient of every state, of all gates' input shares, and of all products."""
        a = self.assembly
        return [(self.N, width) for width in (*self.widths, a.gates * self.H, a.products * self.H)]

    def empty_results(self, like: Tensor, train: bool) -> list[Tensor]:
        """Memory for outputs, final states and what is saved."""
        shapes = [*self.outputs, *self.finals, *(self.saved.values() if train else ())]
        return [like.new_empty(shape) for shape in shapes]

    def shown(self, results: Sequence[Tensor]) -> list[Tensor]:
        """The same, outputs as the caller has them: (B, T, …) over memory that goes step after step."""
        count = len(self.assembly.outputs)
        return [*map(self.by_row, results[:count]), *results[count:]]

    def by_row(self, packed: Tensor) -> Tensor:
        return packed.view(self.steps, self.S, -1).transpose(0, 1) if self.batch_major else packed

    def by_step(self, rows: Tensor) -> Tensor:
        """(B, T, …) or (N, …) → (N, …) in packed order, copied only where it lies otherwise."""
        # reshape may leave rows apart: those of one of two directions, side by side with the other's.
        return (rows.transpose(0, 1).reshape(self.N, -1) if self.batch_major else rows).contiguous()

    def packed(self, rows: Tensor) -> Tensor:
        """As by_step, of any width, in whatever shape: its memory is what matters."""
        if self.batch_major:
            width = rows.shape[2]
            return rows if rows.stride() == (width, self.S * width, 1) else self.by_step(rows)
        return rows.contiguous()

    @functools.cached_property
    def not_persistent(self) -> str | None:
        """Why its steps cannot be carried in one launch, whatever fits on the GPU."""
        if not self.assembly.products:
            return "the cell has no product with W"
        if self.of.dtype == torch.float64:
            return "float64 has no way of its own"
        if self.P:
            return "a projected state takes two exchanges a step"
        return "clip needs the norm of a whole row at every step" if self.of.clip else None

    def order(self, on: torch.device) -> tuple[Tensor | None, Tensor | None]:
        """Of segments that are not equally long, each step's first row and each segment's steps."""
        if self.uniform:
            return None, None
        assert self.sizes is not None
        offset, length, _ = order(self.sizes, on)
        if on.type == "cuda":  # they may be forgotten while a kernel of this stream still reads them
            stream = torch.cuda.current_stream(on)
            offset.record_stream(stream)
            length.record_stream(stream)
        return offset, length

    @functools.cached_property
    def counts(self) -> list[int]:
        """How many segments take each step."""
        return [self.S] * self.steps if self.sizes is None else list(self.sizes)


@functools.lru_cache(maxsize=64)
def order(sizes: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Of segments that are not equally long: each step's first row, each segment's steps, and for every row but those
    of the first step, the row of the step before."""
    count = np.array(sizes)
    length = len(count) - np.searchsorted(count[::-1], np.arange(sizes[0]), side="right")
    earlier = np.arange(sizes[0], count.sum()) - np.repeat(count[:-1], count[1:])
    made = (np.cumsum(count) - count).astype(np.int32), length.astype(np.int32), earlier
    offset, steps, before = (torch.from_numpy(part).to(device) for part in made)
    return offset, steps, before


layout = functools.lru_cache(maxsize=256)(Layout)
