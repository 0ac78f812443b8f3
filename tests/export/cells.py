"""Many cells in one module, so that a target translates them in one go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn, sigmoid, tanh

from recur.cells import Cell
from recur.export.graphs import Graph, TensorSpec, capture
from recur.nn import Connections, Recurrent

D, H = 3, 4


class Swapped(Cell):
    """An LSTM with its gates in another order, those of W in a third, as a user may write it."""

    gates, state_gates, states = ("o", "g", "f", "i"), ("f", "i", "g", "o"), ("h", "c")

    def step(self, x: Any, h: Any, s: Any) -> tuple[Tensor, Tensor]:
        c = tanh(h.g + x.g) * sigmoid(h.i + x.i) + s.c * sigmoid(x.f + h.f)
        return tanh(c) * sigmoid(x.o + h.o), c


class Leaning(Cell):
    """Nothing that any library has: constants, a select, no state gate for one gate, a weight of its own."""

    gates, state_gates, states, extras = ("z", "n"), ("n",), ("h", "m"), {"a": ("H",)}

    def step(self, x: Any, h: Any, s: Any, w: Any) -> tuple[Tensor, Tensor]:
        m = torch.maximum(s.m * 0.5, x.z) + w.a.exp()
        n = torch.where(x.n > 0.1, tanh(x.n + h.n), -0.25 * s.h)
        return n / (1 + m.abs()), m


class Curved(Cell):
    """Functions that are rare in cells, and operations in place."""

    gates, states = ("a", "b"), ("h", "m")

    def step(self, x: Any, h: Any, s: Any) -> tuple[Tensor, Tensor]:
        v = torch.atan(x.a + h.a)
        v += nn.functional.mish(x.b + h.b)
        v.mul_(0.5)
        m = torch.remainder(s.m + v, 0.7) - torch.floor(3 * x.a) * 0.1 + torch.round(2 * x.b) * 0.1
        return nn.functional.hardsigmoid(4 * v) - (0.5 + sigmoid(x.a)) ** torch.tanh(m), m


@dataclass
class Blocks(Cell):
    """W in two blocks."""

    gates = ("r", "n")
    heads = 2

    def step(self, x: Any, h: Any, s: Any) -> tuple[Tensor]:
        r = sigmoid(x.r + h.r)
        return (r * s.h + (1 - r) * tanh(x.n + h.n),)


def samples() -> list[Recurrent]:
    """By what becomes of them: ONNX's own operators; its Scan."""
    summed = Connections(merge="sum")
    return [
        Recurrent("lstm", D, H, direction="both"),
        Recurrent("gru", D, H, direction="backward", bias=False),
        Recurrent(Swapped(), D, H, direction="both", connections=summed),
        Recurrent("elman-relu", D, H),
        Recurrent("peephole", D, H, direction="both"),
        Recurrent("slstm", D, H),
        Recurrent("lru", D, H, direction="backward"),
        Recurrent("lstm", D, H, projection=2),
        Recurrent(Leaning(), D, H),
        Recurrent(Curved(), D, H),
        Recurrent(Blocks(), D, H, bias=False),
    ]


class Side(nn.Module):
    """Networks beside each other, each with all that it returns; those that read forward start from what is given."""

    def __init__(self, networks: list[Recurrent]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        found: list[Tensor] = []
        for network in self.networks:
            assert isinstance(network, Recurrent)
            state = None
            if network.direction == "forward" and network.cell.name != "slstm":
                state = (tuple(h[:, :width] + k for k, width in enumerate(network.state_widths)),)
            outputs, finals, _ = network(x, state)
            found += [outputs, *(part for layer in finals for part in layer)]
        return tuple(found)


def graph_of(networks: list[Recurrent]) -> Graph:
    torch.manual_seed(0)
    for network in networks:
        for weight in network.parameters():
            nn.init.uniform_(weight, -0.8, 0.8)
    module = Side(networks).eval().requires_grad_(False)
    letters = {11: "B", 13: "T"}
    shapes = [part.shape for part in module(torch.zeros(11, 13, D), torch.zeros(11, H))]
    outputs = [
        TensorSpec(f"y_{k:02d}", tuple(letters.get(size, size) for size in shape)) for k, shape in enumerate(shapes)
    ]
    return capture("cells", module, [TensorSpec("x", ("B", "T", D)), TensorSpec("h", ("B", H))], outputs)
