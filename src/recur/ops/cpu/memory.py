"""The memory of a scan: what it is given and returns, what it saves for its backward pass, and what it works in.

All that is saved lies in one tensor: a dozen take longer to make than a small scan takes. Sizes may be symbols of a
graph that leaves them open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from recur.compiler.signature import Signature
from recur.ops.cpu.plan import Where
from recur.ops.cpu.programs import load

ALIGNMENT = 64
"""Bytes: a line of the cache, and the widest vector."""


class Slab:
    """One tensor for several things, each from a multiple of 64 bytes on."""

    def __init__(self, tensor: int, item: int) -> None:
        self._tensor, self._item = tensor, item
        self.numbers = 0
        """How many there is room for."""
        self.gaps: list[tuple[int, int]] = []
        """Between the parts: where each begins, and the next part."""

    def take(self, numbers: int) -> Where:
        begin, whole = self.numbers, ALIGNMENT // self._item
        self.numbers = begin + (numbers + whole - 1) // whole * whole
        self.gaps.append((begin + numbers, self.numbers))
        return self._tensor, begin * self._item


class Saved(NamedTuple):
    """What a forward pass saves beside its outputs."""

    slab: Slab
    share: Where | None
    """What the gates' places hold."""
    tape: Where | None
    others: list[Where]
    """The history of all states that are no output; with a projection, of what it is made of too."""


class Sizes:
    """The letters of a signature, and the shapes of what is made of them."""

    def __init__(self, of: Signature) -> None:
        a = self.assembly = load(of.cell).assembly
        self.batch_major, self.item = len(of.shape) == 3, of.dtype.itemsize
        self.N, self.S = of.shape[0], of.shape[0] if self.batch_major else of.sizes[0]
        if self.batch_major:
            self.N *= of.shape[1]
        self.D, self.H = of.shape[-1], of.first_rows // a.gates
        self.weight_names = a.weight_names(of.weights)
        self.projection = P = of.last_rows if "weight_hr" in self.weight_names else 0
        columns = a.gates * self.H
        # Rows 2 KiB apart would compete for the same sets of the cache: they are padded.
        self.share_stride = columns + (ALIGNMENT // self.item if columns * self.item % 2048 == 0 else 0)
        matrices = [(columns, self.D), (a.products * self.H, (P or self.H) // a.heads)]
        self.matrices = matrices if a.products else matrices[:1]
        """The shapes of U and W."""
        widths = [P or self.H, *[self.H] * (a.states - 1)]
        self.outputs: list[Sequence[int]] = [(*of.shape[:-1], widths[j]) for j in a.outputs]
        self.finals: list[Sequence[int]] = [(self.S, width) for width in widths]
        self.recorded: list[Sequence[int]] = [(self.N, width) for width in (*widths, columns, a.products * self.H)]
        """What a trace records: the gradient of every state, of all gates' input shares, and of all products."""

    def results(self, train: bool) -> list[Sequence[int]]:
        """The shapes of outputs, final states, and what is saved, if anything is."""
        saved = self.saved(0)
        return [*self.outputs, *self.finals, *[(saved.slab.numbers,)] * (train and bool(saved.slab.gaps))]

    def saved(self, tensor: int) -> Saved:
        """In this tensor of a call."""
        a, slab = self.assembly, Slab(tensor, self.item)
        share = slab.take(self.N * self.share_stride) if a.reads_share else None
        tape = slab.take(self.N * a.saved * self.H) if a.saved else None
        kept = a.states - (0 if self.projection else len(a.outputs))
        return Saved(slab, share, tape, [slab.take(self.N * self.H) for _ in range(kept)])

    def histories(self, outputs: Sequence[Where | None], others: Sequence[Where]) -> list[Where | None]:
        """What the programs return of every state, in their order; None where it is not kept."""
        rest, given = iter(others), [] if self.projection else self.assembly.outputs
        return [outputs[given.index(j)] if j in given else next(rest, None) for j in range(self.assembly.states)]


def pads_rows(shape: Sequence[int]) -> bool:
    """Whether a few columns more would make a matrix's rows whole panels, of which the widest have 32 columns."""
    return shape[-1] >= 256 and shape[-1] % 32 != 0


def padded_like(weight: Tensor) -> Tensor:
    """Memory for a weight's gradient, enough for padded rows: until it is written, the packed weight lies there."""
    rows, columns = weight.shape
    return weight.new_empty(rows * (columns + -columns % 32))[: rows * columns].view(rows, columns)
