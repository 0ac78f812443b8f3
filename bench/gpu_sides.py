"""The sides of the benchmark on a GPU: our scan and torch.nn's layer on cuDNN; gpu_flashrnn.py has a third.

All of them read the same memory, which goes step after step, as cuDNN has it: none has anything to transpose. A side is
called with whether gradients are wanted, does the whole job once and returns what it gave, by name, step after step.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn, sigmoid, tanh

from bench.side_by_side import Tensors
from recur import cells
from recur.cells import Cell, make_cell
from recur.ops import Trace, scan
from recur.ops.cuda.report import flatten_weights

Side = Callable[[bool], Tensors]

PEERS: dict[str, Callable[[int, int], nn.RNNBase]] = {"elman": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}


class OwnGRU(Cell):
    """A cell of a user's own. Its equations are the GRU's, written otherwise, so that there is something to compare:

    k = σ(−x_z − h_z)   m = x_n + σ(x_r + h_r) ⊙ h_n   h' = h + k ⊙ (tanh(m) − h)
    """

    gates = ("r", "z", "n")

    def step(self, x: cells.Tensors, h: cells.Tensors, s: cells.Tensors) -> cells.State:
        keep = sigmoid(-x.z - h.z)
        m = x.n + sigmoid(x.r + h.r) * h.n
        return (s.h + keep * (tanh(m) - s.h),)


def own_cells() -> dict[str, tuple[Cell, str]]:
    """Cells that torch.nn does not have, each with the built-in one that it equals; peepholes are zero."""
    return {"own GRU": (OwnGRU(), "gru"), "peephole": (make_cell("peephole"), "lstm")}


class Data:
    """One layer's weights, an input and the gradient of its outputs, in one dtype."""

    threads = False
    """Whether autograd runs backward passes of the GPU on a thread of its own. To wake it may take longer than all else
    that a short call does, for every side alike."""

    def __init__(self, name: str, B: int, T: int, H: int, dtype: torch.dtype, device: str = "cuda") -> None:
        torch.manual_seed(0)
        self.name, self.layer = name, PEERS[name](H, H).to(device, dtype)
        flatten_weights(self.layer)
        self.x = torch.randn(T, B, H, device=device).to(dtype).requires_grad_()
        self.arriving = torch.randn(T, B, H, device=device).to(dtype)

    @property
    def weights(self) -> Tensors:
        return {key.removesuffix("_l0"): value for key, value in self.layer.named_parameters()}

    def finish(self, outputs: Tensor, arriving: Tensor, weights: Tensors, backward: bool) -> Tensors:
        """With the gradients that are wanted, the leaves' names before them."""
        if not backward:
            return {"outputs": outputs}
        leaves = {"x": self.x, **weights}
        with torch.autograd.set_multithreading_enabled(self.threads):
            grads = torch.autograd.grad(outputs, list(leaves.values()), arriving)
        return {"outputs": outputs.detach(), **{f"grad {n}": g for n, g in zip(leaves, grads, strict=True)}}


class Ours:
    """A scan on a backend; afterwards `config` says how it ran."""

    def __init__(self, data: Data, backend: str, cell: Cell | None = None) -> None:
        self.data, self.backend = data, backend
        self.cell = make_cell(data.name) if cell is None else cell
        H, like = data.x.shape[-1], data.x
        own = {
            name: like.new_zeros(shape) for name, shape in self.cell.shapes(H, H).items() if name in self.cell.extras
        }
        # Leaves of its own: those of the peer lie in one buffer, as cuDNN wants them.
        self.weights = {name: w.detach().clone().requires_grad_() for name, w in {**data.weights, **own}.items()}
        self._trace: Trace | None = None

    @property
    def config(self) -> str:
        """How the last call ran."""
        return "" if self._trace is None else self._trace.kernels or self._trace.backend

    def __call__(self, backward: bool) -> Tensors:
        with torch.set_grad_enabled(backward):
            found = scan(self.cell, self.weights, self.data.x.transpose(0, 1), backend=self.backend)
            self._trace = found.trace
            outputs, arriving = found.outputs, self.data.arriving.transpose(0, 1)
            made = self.data.finish(outputs, arriving, self.weights, backward)
        return made | {"outputs": made["outputs"].transpose(0, 1)}


def cudnn(data: Data) -> Side:
    def run(backward: bool) -> Tensors:
        if data.layer.training != backward:  # without gradients it keeps nothing for them
            data.layer.train(backward)
        with torch.set_grad_enabled(backward):
            return data.finish(data.layer(data.x)[0], data.arriving, data.weights, backward)

    return run
