"""Memory layout of a scan on the GPU: operands, results and gradients, in packed order (step after step).

In packed order, the states that consecutive steps multiply are adjacent, so that ∂L/∂W is one matmul.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recur import compat
from recur.compiler.assembly import load_assembly
from recur.compiler.programs import Signature

Shape = tuple[int, ...]


class ScanLayout:
    """Sizes of a scan with a given signature, and the shapes of its tensors."""

    def __init__(self, of: Signature) -> None:
        self.of, a = of, load_assembly(of.cell)
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
        """Width of a projected first state; 0 without a projection."""
        self.widths = [self.P or self.H, *[self.H] * (a.states - 1)]
        self.plans: dict[tuple[int, bool, bool, bool, int], Any] = {}
        """Cache of chosen kernels; see dispatch.choose_kernel."""
        self.real = torch.float64 if of.dtype == torch.float64 else torch.float32
        """Type of sums and states."""

    @functools.cached_property
    def outputs(self) -> list[Shape]:
        return [(self.N, self.widths[j]) for j in self.assembly.outputs]

    @functools.cached_property
    def finals(self) -> list[Shape]:
        return [(self.S, width) for width in self.widths]

    @functools.cached_property
    def saved(self) -> dict[str, Shape]:
        """Shapes of the tensors that the backward pass needs besides the outputs, by name; states by their index."""
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
        """Location of the history of each state: the index of an output, or the name of a saved tensor."""
        a = self.assembly
        given = [] if self.P else a.outputs
        return [given.index(j) if j in given else str(j) for j in range(a.states)]

    @functools.cached_property
    def recorded(self) -> list[Shape]:
        """Shapes that a trace records: gradients of every state, of the input projections, and of the products."""
        a = self.assembly
        return [(self.N, width) for width in (*self.widths, a.gates * self.H, a.products * self.H)]

    def empty_results(self, like: Tensor, train: bool) -> list[Tensor]:
        """Allocate outputs, final states and saved tensors."""
        shapes = [*self.outputs, *self.finals, *(self.saved.values() if train else ())]
        return [like.new_empty(shape) for shape in shapes]

    def shown(self, results: Sequence[Tensor]) -> list[Tensor]:
        """Return the results with outputs as views in the caller's order, (B, T, …)."""
        count = len(self.assembly.outputs)
        return [*map(self.by_row, results[:count]), *results[count:]]

    def by_row(self, packed: Tensor) -> Tensor:
        return packed.view(self.steps, self.S, -1).transpose(0, 1) if self.batch_major else packed

    def by_step(self, rows: Tensor) -> Tensor:
        """Return (B, T, …) or (N, …) as (N, …) in packed order; copy only if necessary."""
        # reshape may return a view with gaps, such as one of two concatenated directions.
        return (rows.transpose(0, 1).reshape(self.N, -1) if self.batch_major else rows).contiguous()

    def packed(self, rows: Tensor) -> Tensor:
        """Return a tensor whose memory is in packed order, in any shape."""
        if self.batch_major:
            width = rows.shape[2]
            return rows if rows.stride() == (width, self.S * width, 1) else self.by_step(rows)
        return rows.contiguous()

    @functools.cached_property
    def not_persistent(self) -> str | None:
        """Reason why a persistent kernel cannot run the scan on any GPU, or None."""
        if not self.assembly.products:
            return "the cell has no product with W"
        if self.of.dtype == torch.float64:
            return "float64 has no persistent kernel"
        if self.P:
            return "a projected state needs two exchanges per step"
        return "clip needs the norm of a whole row at every step" if self.of.clip else None

    def order(self, on: torch.device) -> tuple[Tensor | None, Tensor | None]:
        """Return the first row of each step and the length of each segment; None for both if all lengths are equal."""
        if self.uniform:
            return None, None
        assert self.sizes is not None
        offset, length, _ = row_order(self.sizes, on)
        if on.type == "cuda":  # the cache may drop them while a kernel of this stream still reads them
            stream = torch.cuda.current_stream(on)
            offset.record_stream(stream)
            length.record_stream(stream)
        return offset, length

    @functools.cached_property
    def counts(self) -> list[int]:
        """Number of segments at each step."""
        return [self.S] * self.steps if self.sizes is None else list(self.sizes)


@functools.lru_cache(maxsize=64)
def row_order(sizes: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return the row order of segments of different lengths.

    Returns:
        The first row of each step, the number of steps of each segment, and for every row after the first step, the row
        of the same segment one step earlier.
    """
    count = np.array(sizes)
    length = len(count) - np.searchsorted(count[::-1], np.arange(sizes[0]), side="right")
    earlier = np.arange(sizes[0], count.sum()) - np.repeat(count[:-1], count[1:])
    made = (np.cumsum(count) - count).astype(np.int32), length.astype(np.int32), earlier
    offset, steps, before = (torch.from_numpy(part).to(device) for part in made)
    return offset, steps, before


scan_layout = functools.lru_cache(maxsize=256)(ScanLayout)


class ScanOperands:
    """Tensors of a call, by name."""

    def __init__(self, layout: ScanLayout, given: Sequence[Tensor]) -> None:
        of, self.layout, self._data = layout.of, layout, given[0]
        self.device = given[0].device
        first = 1 + of.weights
        named = dict(zip(layout.names, given[1:first], strict=True))
        self.U = named["weight_ih"]
        self._W, self.R = named.get("weight_hh"), named.get("weight_hr")
        biases = named.get("bias_ih"), named.get("bias_hh")
        self.bias_ih, self.bias_hh = (None if bias is None else bias.contiguous() for bias in biases)
        self.extras = [part.contiguous() for part in given[first : first + of.extras]]
        states = given[first + of.extras : of.differentiable]
        self.initial: list[Tensor] = [part.contiguous() for part in states]
        rest = iter(given[of.differentiable :])
        self.mask = next(rest).contiguous() if of.masked else None
        self._xi = next(rest) if of.weighted else None

    @functools.cached_property
    def data(self) -> Tensor:
        """Inputs, (N, D), in packed order."""
        return self.layout.by_step(self._data)

    @functools.cached_property
    def xi(self) -> Tensor | None:
        """ξ of every step, in packed order on the GPU."""
        if self._xi is None:
            return None
        packed = self._xi.t().reshape(-1) if self.layout.batch_major else self._xi
        return packed.to(self.device, self.layout.real)

    @functools.cached_property
    def W(self) -> Tensor:  # noqa: N802  # the book's letter
        """Dense W, (products · H, H or P); block-diagonal with several heads."""
        assert self._W is not None
        return dense_weights(self._W, self.layout.assembly.products, self.layout.assembly.heads)

    def of_heads(self, d_W: Tensor) -> Tensor:
        """Extract the blocks of the heads from the gradient of the dense W."""
        heads = self.layout.assembly.heads
        if heads == 1:
            return d_W
        index = torch.arange(heads, device=d_W.device)
        blocks = d_W.view(self.layout.assembly.products, heads, self.layout.H // heads, heads, -1)[:, index, :, index]
        return blocks.transpose(0, 1).reshape(self.layout.assembly.products * self.layout.H, -1)

    def before(self, first: Tensor) -> Tensor:
        """Return the operand of W at every step, (N, width), from the first state after every step."""
        layout = self.layout
        S = layout.S
        start = self.initial[0] if self.initial else first.new_zeros(S, first.shape[1])
        if layout.uniform:
            whole = torch.cat([start, first[: layout.N - S]])
        else:
            assert layout.sizes is not None
            whole = torch.cat([start, first[row_order(layout.sizes, first.device)[2]]])
        if self.mask is not None:
            whole *= (
                self.mask.repeat(layout.steps, 1)
                if layout.uniform
                else torch.cat([self.mask[:n] for n in layout.counts])
            )
        return whole


def dense_weights(W: Tensor, products: int, heads: int) -> Tensor:
    """Return W with zeros outside the diagonal blocks of its heads."""
    if heads == 1:
        return W
    blocks = W.unflatten(0, (products, heads, -1))
    whole: Tensor = blocks.new_zeros(*blocks.shape[:3], heads, blocks.shape[-1])
    index = torch.arange(heads, device=whole.device)
    whole[:, index, :, index] = blocks.transpose(0, 1)
    return whole.view(len(W), -1)


def align_rows(W: Tensor) -> Tensor:
    """Return W aligned to 16 bytes, as kernels read it; a parameter may be a view into a buffer."""
    W = W.contiguous()
    return W if W.data_ptr() % 16 == 0 else W.clone()


def multiply(a: Tensor, b: Tensor, real: torch.dtype) -> Tensor:
    """Return a @ b in the accumulation type, also for 16-bit operands."""
    if a.dtype == real:
        return torch.mm(a, b)
    return torch.mm(a, b, out_dtype=real)


class _PrecisionSwitch:
    """Reference-counted use of PyTorch's process-wide switch for the precision of float32 matmuls."""

    def __init__(self) -> None:
        self._lock, self._users, self._was = threading.Lock(), 0, ""

    def turn(self, to: str) -> None:
        with self._lock:
            if not self._users:
                self._was = compat.float32_precision("matmul")
                if self._was != to and (self._was, to) != ("none", "ieee"):
                    compat.set_float32_precision("matmul", to)
            self._users += 1

    def turn_back(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users and compat.float32_precision("matmul") != self._was:
                compat.set_float32_precision("matmul", self._was)


_PRECISION_SWITCH = _PrecisionSwitch()


@contextmanager
def float32_precision(dtype: torch.dtype) -> Iterator[None]:
    """Compute float32 matmuls as PyTorch's switch for recurrent layers (cuDNN) requests: TF32 or exact.

    Matmuls of other threads follow the switch too while the block runs.
    """
    if dtype != torch.float32:
        yield
        return
    _PRECISION_SWITCH.turn("tf32" if uses_tf32() else "ieee")
    try:
        yield
    finally:
        _PRECISION_SWITCH.turn_back()


def uses_tf32() -> bool:
    return compat.float32_precision("rnn") == "tf32"


class ScanResults:
    """Outputs, final states and saved tensors: written by the forward pass, read by the backward pass."""

    def __init__(
        self, layout: ScanLayout, outputs: Sequence[Tensor], finals: Sequence[Tensor], saved: Sequence[Tensor]
    ) -> None:
        named = dict(zip(layout.saved, saved, strict=True)) if saved else {}
        self.finals = finals
        self.share: Tensor | None = named.get("share")
        self.tape: Tensor | None = named.get("tape")
        self.first = outputs[0]
        """First state after every step if it is an output; with a projection, the projected state."""
        self.states: list[Tensor | None] = [
            named.get(source) if isinstance(source, str) else outputs[source] for source in layout.sources
        ]
        """Histories of the states that the program returns, (N, H) each; None if not kept."""


class ScanGradients:
    """Incoming gradients of a backward pass, and memory for the gradients that it computes."""

    def __init__(
        self, layout: ScanLayout, arriving: Sequence[Tensor | None], d_share: Tensor, found: Mapping[str, Tensor]
    ) -> None:
        a, outputs = layout.assembly, len(layout.assembly.outputs)
        came = [None if part is None else layout.by_step(part) for part in arriving[:outputs]]
        self.d_outputs = [came[a.outputs.index(j)] if j in a.outputs else None for j in range(a.states)]
        self.d_final = [None if part is None else part.contiguous() for part in arriving[outputs:]]
        self.d_share, self.d_own, self.d_projected = d_share, found.get("own"), found.get("projected")
        self.sums = found["sums"].zero_() if a.extras else None
        self.d_state = [found.get(f"state{j}") for j in range(a.states)]
        self.carried: Sequence[Tensor] = ()
        """Gradients of the initial states, (S, …) each."""
