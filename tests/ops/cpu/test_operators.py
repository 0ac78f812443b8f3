"""The operators recur::scan and recur::scan_backward, as PyTorch's own tools check and use them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import recur.ops.operator  # noqa: F401  registers the operators
from recur.compiler.programs import assembled, operands
from recur.nn import Recurrent
from tests.support import Case, all_close, needs_core

pytestmark = needs_core


class Watch(TorchDispatchMode):
    """What the operators are called with by PyTorch's dispatcher."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, list[Any]] = {"scan": [], "scan_backward": []}

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if op.namespace == "recur":
            self.calls[op._schema.name.split("::")[1]].append(args)
        return op(*args, **(kwargs or {}))


def copied(args: Any, differentiable: bool) -> Any:
    """The same call on tensors of its own, which want gradients where they did."""
    if isinstance(args, Tensor):
        return args.detach().clone().requires_grad_(args.requires_grad and differentiable)
    return type(args)(copied(arg, differentiable) for arg in args) if isinstance(args, list | tuple) else args


@pytest.mark.parametrize("train", [True, False], ids=["for training", "for use"])
@pytest.mark.parametrize(("name", "H"), [("elman", 3), ("gru", 3), ("peephole", 3), ("lstm", 64)])  # padded
def test_the_operators_keep_their_promises(name: str, H: int, train: bool) -> None:
    case = Case(name, B=2, T=3, H=H)
    mask = torch.rand(2, H, dtype=torch.float64)
    with Watch() as watch, torch.set_grad_enabled(train):
        result = case.scan(backend="native", lengths=[3, 2], mask=mask) if train else case.scan(backend="native")
        if train:
            case.loss(result).backward()
    assert [len(made) for made in watch.calls.values()] == [1, int(train)]
    for op, made in watch.calls.items():
        for args in made:
            given = copied(args, differentiable=op == "scan")  # its derivative has none
            torch.library.opcheck(getattr(torch.ops.recur, op).default, given)


@pytest.mark.parametrize("lengths", [None, [3, 2]])
@pytest.mark.parametrize(
    ("cell", "options"), [("lstm", {"projection": 2}), ("lru", {}), ("slstm", {}), ("gru", {"bias": False})]
)
def test_the_operators_keep_their_promises_of_every_contract(cell: str, options: Any, lengths: Any) -> None:
    """A projection, several outputs, states that start elsewhere than at zero, no biases; and what a trace records."""
    net, x = Recurrent(cell, 3, 4, dtype=torch.float64, **options), torch.randn(2, 3, 3, dtype=torch.float64)
    with Watch() as watch:
        net(x, lengths=lengths, trace=True).outputs.square().sum().backward()
    for op, made in watch.calls.items():
        assert len(made) == 1
        torch.library.opcheck(getattr(torch.ops.recur, op).default, copied(made[0], differentiable=op == "scan"))


def test_the_operator_is_differentiated_by_itself() -> None:
    """As a graph that holds it would call it: by its registered derivative alone."""
    case = Case("peephole", B=2, T=3)
    assembled(case.cell, True)
    text, weights, extras = operands(case.cell, case.weights)

    def through_the_operator() -> Any:
        given = case.x, weights, extras, list(case.state)
        outputs, h, c, *_ = torch.ops.recur.scan(*given, None, None, [2, 3], True, 0.0, text, "", True)
        return outputs, (h, c)

    all_close(case.everything(through_the_operator), case.everything(lambda: case.scan(backend="loop")))


class Two(nn.Module):
    """Outputs and a final state as plain tensors, which is what graphs give back."""

    def __init__(self, cell: str, **options: Any) -> None:
        super().__init__()
        self.net = Recurrent(cell, 3, 5, num_layers=2, backend="native", **options)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        outputs, state, _ = self.net(x)
        return outputs, state[-1].h


@pytest.mark.parametrize("cell", ["lstm", "leaky"])
def test_torch_compile_takes_the_network_whole(cell: str) -> None:
    """In one graph, as it is differentiated; `leaky` makes something of weights of its own on the way."""
    net = Two(cell)
    x = torch.randn(2, 3, 3, requires_grad=True)
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    leaves = [x, *net.parameters()]

    def found(run: Any) -> list[Tensor]:
        outputs, final = run(x)
        return [outputs, final, *torch.autograd.grad(outputs.square().sum() + final.sum(), leaves)]

    for ours, theirs in zip(found(compiled), found(net), strict=True):
        assert torch.equal(ours, theirs)


def test_torch_export_holds_the_cell() -> None:
    net = Two("gru").eval()
    exported = torch.export.export(net, (torch.randn(2, 3, 3),))
    assert sum(node.target == torch.ops.recur.scan.default for node in exported.graph.nodes) == 2
    x = torch.randn(2, 3, 3)
    for ours, theirs in zip(exported.module()(x), net(x), strict=True):
        assert torch.equal(ours, theirs)
