"""What comes from elsewhere: parametrizations, pruning, another default device, objects that a cell holds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn, tanh
from torch.nn.utils import parametrizations, prune

from recur.cells import Cell
from recur.nn import Conditioned, Grid, GRUCell, Recurrent
from recur.ops import scan
from tests.support import DOUBLE, HERE, Case, all_close, close


def same_as_forward(net: Recurrent) -> None:
    x = torch.randn(2, 3, 3)
    expected, state = net(x).outputs.detach(), None
    for t in range(3):
        got, state = net.step(x[:, t], state)
        close(got, expected[:, t])


def test_a_step_reads_what_pruning_and_parametrizations_make_of_a_weight() -> None:
    net = Recurrent("gru", 3, 4)
    for _ in range(2):
        prune.random_unstructured(net, "weight_hh_l0", 0.4)
        same_as_forward(net)
    other = Recurrent("gru", 3, 4)
    parametrizations.weight_norm(other, "weight_hh_l0")
    same_as_forward(other)


def test_a_drop_in_cell_takes_parametrizations() -> None:
    ours, theirs = GRUCell(3, 4), nn.GRUCell(3, 4)
    theirs.load_state_dict(ours.state_dict())
    for cell in (ours, theirs):
        parametrizations.weight_norm(cell, "weight_hh")
    x = torch.randn(2, 3)
    close(ours(x), theirs(x))


@pytest.mark.parametrize("bptt", ["truncated:2", "sliding:2"])
def test_another_default_device_changes_nothing(bptt: str) -> None:
    case = Case("gru")
    expected = case.everything(lambda: case.scan(bptt=bptt))
    grid, image = Grid("lstm", 3, 4), torch.randn(2, 3, 3, 3)
    of_grid = grid(image)
    with torch.device("meta"):
        got, grid_again = case.everything(lambda: case.scan(bptt=bptt)), grid(image)
    all_close(got, expected)
    close(grid_again, of_grid)


def test_an_input_that_is_a_parameter_has_second_derivatives() -> None:
    net = Recurrent("gru", 3, 4)
    x = nn.Parameter(torch.randn(2, 5, 3))
    (first,) = torch.autograd.grad(net(x).outputs.square().sum(), x, create_graph=True)
    first.square().sum().backward()
    assert x.grad is not None
    assert x.grad.abs().sum() > 0


@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize("again", [False, True])
def test_a_gradient_that_was_cut_off_is_none_or_zero(backend: str, again: bool) -> None:
    case = Case("gru")
    weights = {name: weight.detach() for name, weight in case.weights.items()}
    h0 = torch.randn(3, 3, requires_grad=True, **DOUBLE)
    final = scan(case.cell, weights, case.x.detach(), h0, bptt="truncated:2", backend=backend).state.h
    if not final.requires_grad:
        return
    (grad,) = torch.autograd.grad(final.sum(), h0, create_graph=again, allow_unused=True)
    assert grad is None or not grad.any()


class Scaled(Cell):
    """h' = tanh(g (x_h + h_h)), g in an attribute that may change."""

    gates = ("h",)

    def __init__(self) -> None:
        self._g, self.held = 0.5, SimpleNamespace(g=1.0)

    def step(self, x: Any, h: Any, s: Any) -> Any:
        return (tanh(self._g * self.held.g * (x.h + h.h)),)


def test_what_a_cell_holds_may_change() -> None:
    cell = Scaled()
    weights = {name: torch.randn(shape, **DOUBLE) for name, shape in cell.shapes(2, 3).items()}
    x = torch.randn(2, 4, 2, **DOUBLE)
    for change in (lambda: None, lambda: setattr(cell, "_g", 0.9), lambda: setattr(cell.held, "g", 2.0)):
        change()
        close(scan(cell, weights, x).outputs, scan(cell, weights, x, backend="loop").outputs)


def test_a_stream_in_operations_of_pytorch_keeps_its_dtype_under_autocast() -> None:
    stream = Recurrent("lstm", 3, 4, projection=2).stream(1)
    with torch.autocast("cpu", torch.bfloat16):
        for _ in range(2):
            assert stream.step(torch.randn(1, 3)).dtype == torch.float32


def test_a_condition_has_the_networks_dtype() -> None:
    net = Conditioned("gru", 3, 4, 2, way="both", **DOUBLE)
    assert net(torch.randn(2, 5, 3, **DOUBLE), torch.randn(2, 2, **DOUBLE)).outputs.dtype == torch.float64
