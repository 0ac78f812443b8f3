"""torch.compile and torch.export of whole networks: one graph for every batch and length."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.export import Dim
from torch.utils._pytree import tree_leaves

from recur.errors import OptionError
from recur.nn import GRU, LSTM, RNN, Recurrent
from tests.support import needs_core

SIZES = [(2, 3), (5, 4), (3, 7), (4, 2)]


@needs_core
@pytest.mark.parametrize(
    "net",
    [Recurrent("lstm", 3, 4), Recurrent("leaky", 3, 4, num_layers=2, direction="both")],
    ids=["lstm", "leaky in both directions"],
)
def test_one_compiled_graph_for_every_batch_and_length(net: nn.Module) -> None:
    """Forward and back, with what it returns whole: states by their names, and the trace."""
    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    for B, T in SIZES:
        x = torch.randn(B, T, 3, requires_grad=True)
        torch._dynamo.mark_dynamic(x, 0)
        torch._dynamo.mark_dynamic(x, 1)
        leaves = [x, *net.parameters()]
        found = []
        for run in (compiled, net):
            result = run(x)
            assert result.trace[0].backend == "native"
            grads = torch.autograd.grad(result.outputs.square().sum() + result.state[-1].h.sum(), leaves)
            found.append([result.outputs, *result.state[-1], *grads])
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(*found, strict=True))
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]


@needs_core
@pytest.mark.parametrize(
    "net",
    [
        Recurrent("gru", 3, 4, num_layers=2),
        Recurrent("peephole", 3, 4, direction="both"),
        RNN(3, 4, batch_first=True),
        GRU(3, 4, batch_first=True),
        LSTM(3, 4, 2, batch_first=True, bidirectional=True),
    ],
    ids=["gru", "peephole in both directions", "nn.RNN", "nn.GRU", "nn.LSTM"],
)
def test_an_exported_network_is_saved_and_runs_at_every_size(net: Any) -> None:
    open_sizes = ({0: Dim("B", min=1), 1: Dim("T", min=1)},)
    exported = torch.export.export(net.eval(), (torch.randn(2, 3, 3),), dynamic_shapes=open_sizes)
    assert any(node.target == torch.ops.recur.scan.default for node in exported.graph.nodes)
    saved = io.BytesIO()
    torch.export.save(exported, saved)
    saved.seek(0)
    loaded = torch.export.load(saved).module()
    for B, T in [(1, 1), (1, 6), *SIZES]:
        x = torch.randn(B, T, 3)
        ours, theirs = loaded(x), net(x)
        assert type(ours) is type(theirs)
        assert all(torch.equal(a, b) for a, b in zip(tree_leaves(ours), tree_leaves(theirs), strict=True))


@needs_core
def test_a_recording_trace_is_not_saved() -> None:
    exported = torch.export.export(Recurrent("gru", 3, 4).eval(), (torch.randn(2, 3, 3),), {"trace": True})
    with pytest.raises(OptionError, match="export with trace=False"):
        torch.export.save(exported, io.BytesIO())


def test_lengths_break_a_graph_and_say_so() -> None:
    net, x = Recurrent("lstm", 4, 5), torch.randn(3, 7, 4)
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    with pytest.raises(Exception, match="lengths and resets decide the shapes inside a scan: compile it without"):
        compiled(x, lengths=[7, 3, 5])
