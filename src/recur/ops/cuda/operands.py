"""What a scan on the GPU is given, by name, and the products that cuBLAS makes of it."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from recur.ops.cuda.memory import Layout, order


class Operands:
    """The tensors of a call."""

    def __init__(self, lay: Layout, given: Sequence[Tensor]) -> None:
        of, self.lay, self._data = lay.of, lay, given[0]
        self.device = given[0].device
        first = 1 + of.weights
        named = dict(zip(lay.names, given[1:first], strict=True))
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
        """(N, D), in packed order."""
        return self.lay.by_step(self._data)

    @functools.cached_property
    def xi(self) -> Tensor | None:
        """ξ of every step in packed order, on the GPU."""
        if self._xi is None:
            return None
        packed = self._xi.t().reshape(-1) if self.lay.batch_major else self._xi
        return packed.to(self.device, self.lay.real)

    @functools.cached_property
    def W(self) -> Tensor:  # noqa: N802  # the book's letter
        """(products · H, H or P): with heads, blocks of it are zero."""
        assert self._W is not None
        heads = self.lay.assembly.heads
        if heads == 1:
            return self._W
        products, width = self.lay.assembly.products, self.lay.H // heads
        blocks = self._W.view(products, heads, width, -1)
        whole = blocks.new_zeros(products, heads, width, heads, blocks.shape[-1])
        index = torch.arange(heads, device=whole.device)
        whole[:, index, :, index] = blocks.transpose(0, 1)
        return whole.view(products * self.lay.H, -1)

    def of_heads(self, d_W: Tensor) -> Tensor:
        """The gradient of W as it was given, of that of the whole."""
        heads = self.lay.assembly.heads
        if heads == 1:
            return d_W
        index = torch.arange(heads, device=d_W.device)
        blocks = d_W.view(self.lay.assembly.products, heads, self.lay.H // heads, heads, -1)[:, index, :, index]
        return blocks.transpose(0, 1).reshape(self.lay.assembly.products * self.lay.H, -1)

    def before(self, first: Tensor) -> Tensor:
        """(N, width): what W multiplies at every step, of the first state after every step."""
        lay = self.lay
        S = lay.S
        start = self.initial[0] if self.initial else first.new_zeros(S, first.shape[1])
        if lay.uniform:
            whole = torch.cat([start, first[: lay.N - S]])
        else:
            assert lay.sizes is not None
            whole = torch.cat([start, first[order(lay.sizes, first.device)[2]]])
        if self.mask is not None:
            whole *= self.mask.repeat(lay.steps, 1) if lay.uniform else torch.cat([self.mask[:n] for n in lay.counts])
        return whole


def aligned(W: Tensor) -> Tensor:
    """As kernels read it, 16 bytes at a time: a parameter may be a part of a buffer, from any number on."""
    W = W.contiguous()
    return W if W.data_ptr() % 16 == 0 else W.clone()


def multiply(a: Tensor, b: Tensor, real: torch.dtype) -> Tensor:
    """a b with its sums as they are, of numbers of 16 bits too."""
    if a.dtype == real:
        return torch.mm(a, b)
    return torch.mm(a, b, out_dtype=real)


class _Switch:
    """torch's switch for products of float32, which is the whole process's: turned by the first that needs it
    otherwise, and turned back by the last."""

    def __init__(self) -> None:
        self._lock, self._users, self._was = threading.Lock(), 0, ""

    def turn(self, to: str) -> None:
        with self._lock:
            if not self._users:
                self._was = torch._C._get_fp32_precision_getter("cuda", "matmul")
                if self._was != to and (self._was, to) != ("none", "ieee"):
                    torch._C._set_fp32_precision_setter("cuda", "matmul", to)
            self._users += 1

    def turn_back(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users and torch._C._get_fp32_precision_getter("cuda", "matmul") != self._was:
                torch._C._set_fp32_precision_setter("cuda", "matmul", self._was)


_SWITCH = _Switch()


@contextmanager
def precision(dtype: torch.dtype) -> Iterator[None]:
    """float32 products as torch's switch for recurrent layers says, which is that of cuDNN: TF32, or exact.

    Products that other threads make meanwhile follow it too.
    """
    if dtype != torch.float32:
        yield
        return
    _SWITCH.turn("tf32" if uses_tf32() else "ieee")
    try:
        yield
    finally:
        _SWITCH.turn_back()


def uses_tf32() -> bool:
    return bool(torch._C._get_fp32_precision_getter("cuda", "rnn") == "tf32")
