"""PyTorch's operations as loops, in C beside PyTorch: those that few models use, all in one graph."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from recur.export.graphs import TensorSpec, capture
from tests.export import c_library
from tests.export.c_library import needs_gcc

D = 3


class Operations(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.kernel, self.bias = nn.Parameter(torch.randn(4, D, 3)), nn.Parameter(torch.randn(4))
        self.weight = nn.Parameter(torch.randn(D, D))

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        turned = x.transpose(1, 2)
        return (
            x.cumsum(1),
            x.cumsum(2),
            x.sort(-1).values,
            functional.conv1d(turned, self.kernel, self.bias, padding=1),
            functional.conv1d(turned, self.kernel, padding=1),
            torch.bmm(x, turned),
            torch.mm(h.t(), h),
            torch.addmm(h, h, self.weight),
            (x > 0).sum(1).float(),
            x.sum().reshape(1, 1) + x.amin((0, 1, 2)),
            x.logsumexp(1) - x.log_softmax(1).amax(1),
            x.atan() + (3 * x).floor() + (3 * x).round(),
            torch.remainder(x, 0.3 + x * x) - torch.remainder(-x, -0.3 - x * x) + x.abs() ** x,
        )


@needs_gcc
def test_operations_in_c_are_pytorchs(tmp_path: Path) -> None:
    module = Operations().eval().requires_grad_(False)
    letters = {2: "B", 7: "T"}  # with which graphs are followed
    shapes = [part.shape for part in module(torch.zeros(2, 7, D), torch.zeros(2, D))]
    outputs = [
        TensorSpec(f"y_{k:02d}", tuple(letters.get(size, size) for size in shape)) for k, shape in enumerate(shapes)
    ]
    graph = capture("operations", module, [TensorSpec("x", ("B", "T", D)), TensorSpec("h", ("B", D))], outputs)
    assert c_library.difference(graph, (1, 2, 9), tmp_path) < 2e-6
