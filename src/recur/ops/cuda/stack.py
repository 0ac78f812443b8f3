"""A stack of layers as kernels that take one step read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from recur.cells.cell import Cell
from recur.compiler import program_text
from recur.errors import BackendError, DtypeError, ShapeError
from recur.ops.cuda.operands import aligned
from recur.ops.cuda.source import NUMBERS, load


class Layer:
    """The weights of one layer as kernels read them: rows of whole 16 bytes, W of heads as one matrix."""

    def __init__(self, cell: Cell, weights: Mapping[str, Tensor]) -> None:
        made = program_text.assembled(cell, "bias_ih" in weights)
        if isinstance(made, str):
            raise BackendError(f"{type(cell).__name__} has no step on the GPU: {made}")
        if "weight_hr" in weights:
            raise BackendError("a projected state takes two products a step; take net.step, which has them")
        self.text, _, extras = program_text.operands(cell, weights)
        self.assembly = a = load(self.text)
        U = weights["weight_ih"]
        self.D, self.H = U.shape[1], U.shape[0] // a.gates
        self.tensors: dict[str, Tensor | Sequence[Tensor] | None] = {
            "U": _padded(U),
            "W": _padded(_whole(weights["weight_hh"], a.products, a.heads)) if a.products else None,
            "extra": [part.contiguous() for part in extras],
        }
        for name in ("bias_ih", "bias_hh"):
            self.tensors[name] = weights[name].contiguous() if name in weights else None


def _padded(matrix: Tensor) -> Tensor:
    rest = -matrix.shape[1] % (16 // matrix.dtype.itemsize)
    return aligned(pad(matrix, (0, rest)) if rest else matrix)


def _whole(W: Tensor, products: int, heads: int) -> Tensor:
    if heads == 1:
        return W
    return torch.cat([torch.block_diag(*blocks) for blocks in W.unflatten(0, (products, heads, -1))])


class Layers:
    """A stack of one cell's layers, each reading the outputs of the one below."""

    def __init__(
        self,
        cell: Cell,
        weights: Sequence[Mapping[str, Tensor]],
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        with torch.inference_mode(False), torch.no_grad():
            moved = [{k: w.detach().to(device, dtype) for k, w in layer.items()} for layer in weights]
            self.cell, self.layers = cell, [Layer(cell, layer) for layer in moved]
        first = moved[0]["weight_ih"]
        self.dtype, self.device = first.dtype, first.device
        if self.dtype not in NUMBERS:
            raise DtypeError(f"a step on the GPU knows float32, float64, bfloat16 and float16, got {self.dtype}")
        self.real = torch.float64 if self.dtype == torch.float64 else torch.float32
        a = self.layers[0].assembly
        self.D, self.H, self.width = self.layers[0].D, self.layers[0].H, self.layers[0].H * len(a.outputs)
        for layer in self.layers[1:]:
            if (self.width, self.H) != (layer.D, layer.H):
                raise ShapeError(f"a layer reads {self.width} numbers and has H={self.H}, got {layer.D} and {layer.H}")
