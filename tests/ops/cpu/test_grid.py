"""The operators recur::grid and recur::grid_backward: every instruction set, any threads, PyTorch's own tools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import recur.ops.cpu.grid as grid
from recur.compiler import programs
from recur.errors import BackendError
from recur.nn import Grid
from recur.nn.recursive import TreeLSTM, composition_cell
from tests.support import ISAS, close, core, needs_core

pytestmark = needs_core


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    threads, isa = torch.get_num_threads(), core.isa
    yield
    torch.set_num_threads(threads)
    core.isa = isa


def found(net: Grid, x: Tensor, weight: Tensor, run: Any = None) -> list[Tensor]:
    out = (net if run is None else run)(x)
    return [out.detach(), *torch.autograd.grad((out * weight).sum(), [x, *net.parameters()])]


def case(corners: int, B: int, R: int, C: int, H: int, dtype: Any = torch.float64) -> tuple[Grid, Tensor, Tensor]:
    net = Grid("lstm", 3, H, corners=corners, backend="native", dtype=dtype)
    x = torch.randn(B, R, C, 3, dtype=dtype, requires_grad=True)
    return net, x, torch.randn(B, R, C, corners * H, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("isa", ISAS)
def test_every_instruction_set_is_the_double_loop(isa: str, dtype: Any) -> None:
    core.use(isa)
    for size in (
        (1, 40, 3, 5, 17),
        (2, 3, 9, 2, 33),
        (1, 2, 40, 40, 5),
    ):  # lanes that end within a panel, and many of them
        net, x, weight = case(*size, dtype=dtype)
        for got, expected in zip(found(net, x, weight), found(net, x, weight, net.plain), strict=True):
            close(got, expected)


@pytest.mark.parametrize("size", [(4, 1, 5, 6, 8), (1, 600, 2, 3, 7), (2, 150, 4, 3, 4)])  # corners, parts, and both
def test_the_numbers_do_not_depend_on_the_threads(size: tuple[int, int, int, int, int]) -> None:
    net, x, weight = case(*size)
    torch.set_num_threads(1)
    alone = found(net, x, weight)
    for threads in (2, 3, 7):
        torch.set_num_threads(threads)
        for got, expected in zip(found(net, x, weight), alone, strict=True):
            assert torch.equal(got, expected)


def test_a_backward_pass_on_other_threads_and_instructions_reads_the_same_tape() -> None:
    """Its layout is one for all."""
    net, x, weight = case(2, 90, 6, 5, 9)
    expected = found(net, x, weight)
    core.use(ISAS[0])
    torch.set_num_threads(3)
    out = net(x)
    core.use(ISAS[-1])
    torch.set_num_threads(1)
    for got, grad in zip(torch.autograd.grad((out * weight).sum(), [x, *net.parameters()]), expected[1:], strict=True):
        close(got, grad)


def test_the_operators_keep_their_promises() -> None:
    text = programs.text_of(composition_cell(TreeLSTM), False)
    x = torch.randn(2, 3, 4, 2, dtype=torch.float64, requires_grad=True)
    M = torch.randn(2, 15, 9, dtype=torch.float64, requires_grad=True)
    for train in (True, False):
        given = (x, M) if train else (x.detach(), M.detach())
        torch.library.opcheck(torch.ops.recur.grid.default, (*given, [0, 3], text, train))
    h, tape = grid.forward(x.detach(), M.detach(), [0, 3], text, True)
    assert tape.isfinite().all()  # all of it was written
    for for_x in (True, False):
        given = torch.randn_like(h), x.detach(), M.detach(), tape, [0, 3], text, for_x
        torch.library.opcheck(torch.ops.recur.grid_backward.default, given)


def test_the_operator_has_one_derivative_and_says_so() -> None:
    text = programs.text_of(composition_cell(TreeLSTM), False)
    x = torch.randn(1, 2, 2, 1, dtype=torch.float64, requires_grad=True)
    h, _ = torch.ops.recur.grid(x, torch.randn(1, 15, 8, dtype=torch.float64), [0], text, True)
    (first,) = torch.autograd.grad(h.square().sum(), x, create_graph=True)
    with pytest.raises(BackendError, match="no second derivatives"):
        first.sum().backward()


def test_torch_compile_takes_the_network_whole() -> None:
    net, x, weight = case(2, 3, 4, 5, 6)
    compiled_net = torch.compile(net, backend="aot_eager", fullgraph=True)
    for got, expected in zip(found(net, x, weight, compiled_net), found(net, x, weight), strict=True):
        assert torch.equal(got, expected)


def test_torch_export_holds_the_composition_for_any_batch() -> None:
    net, x, _ = case(2, 3, 4, 5, 6)
    batch = torch.export.Dim("B", min=2, max=1000)
    exported = torch.export.export(net, (x.detach(),), dynamic_shapes=({0: batch},))
    assert sum(node.target == torch.ops.recur.grid.default for node in exported.graph.nodes) == 1
    for B in (2, 130):
        other = torch.randn(B, 4, 5, 3, dtype=torch.float64)
        assert torch.equal(exported.module()(other), net(other))
