"""recur.nn on PyTorch's own test inputs for its recurrent modules: forward, backward, state dicts, mistakes."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from recur import nn as rnn
from recur.errors import RecurError
from tests.support import close

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what importing PyTorch's test suite warns of
    from torch.testing._internal.common_modules import module_db

KINDS = ("RNN", "GRU", "LSTM", "RNNCell", "GRUCell", "LSTMCell")
INFOS = {info.name: info for info in module_db if info.name in [f"nn.{kind}" for kind in KINDS]}


def inputs(kind: str, dtype: torch.dtype, training: bool) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """What PyTorch constructs its module with, and what it calls it with; packed sequences too, where it has them."""
    options = {"with_packed_sequence": True} if kind in ("RNN", "GRU") else {}
    for one in INFOS[f"nn.{kind}"].module_inputs_func(
        INFOS[f"nn.{kind}"], device="cpu", dtype=dtype, requires_grad=True, training=training, **options
    ):
        yield one.constructor_input, one.forward_input.args


def leaves(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, PackedSequence):
        return [value.data]
    return [leaf for part in value for leaf in leaves(part)]


def gradients(module: nn.Module, given: tuple[Any, ...]) -> tuple[list[Tensor], dict[str, Tensor]]:
    """The outputs, and the gradients of weights and inputs where every output counts differently."""
    outputs = leaves(module(*given))
    loss = sum((torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out) * out).sum() for out in outputs)
    assert isinstance(loss, Tensor)
    wanted = dict(module.named_parameters()) | {f"input {k}": leaf for k, leaf in enumerate(leaves(given))}
    return outputs, dict(zip(wanted, torch.autograd.grad(loss, list(wanted.values())), strict=True))


def agree(kind: str, constructor: Any, given: tuple[Any, ...], dtype: torch.dtype, training: bool) -> None:
    made = []
    for room in (nn, rnn):
        torch.manual_seed(3)
        made.append(getattr(room, kind)(*constructor.args, **constructor.kwargs, dtype=dtype).train(training))
    theirs, ours = made
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for name, weight in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], weight), f"the same seed draws another {name}"
    for source, target in ((ours, theirs), (theirs, ours)):
        with torch.no_grad():
            for weight in source.parameters():
                weight.mul_(1.3).add_(0.1)
        target.load_state_dict(source.state_dict())
        assert all(torch.equal(*both) for both in zip(ours.parameters(), theirs.parameters(), strict=True))
    (expected, slopes), (got, found) = gradients(theirs, given), gradients(ours, given)
    for a, b in zip(got, expected, strict=True):
        close(a, b)
    assert found.keys() == slopes.keys()
    for name, slope in slopes.items():
        close(found[name], slope, name)


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")  # which torch.nn warns of too
@pytest.mark.parametrize(
    ("kind", "count"),
    [("RNN", 64), ("GRU", 32), ("LSTM", 32), ("RNNCell", 3), ("GRUCell", 2), ("LSTMCell", 2)],
)
def test_pytorchs_own_inputs(kind: str, count: int) -> None:
    """In two dtypes, training and not: 320 of the layers, 192 of them with packed sequences, 28 of the cells."""
    for dtype, training in itertools.product((torch.float32, torch.float64), (True, False)):
        seen = 0
        for constructor, given in inputs(kind, dtype, training):
            agree(kind, constructor, given, dtype, training)
            seen += 1
        assert seen == count, "PyTorch has other inputs than it had"


@pytest.mark.parametrize("kind", KINDS)
def test_pytorchs_own_mistakes_are_refused_by_our_errors(kind: str) -> None:
    info = INFOS[f"nn.{kind}"]
    refused = 0
    for error in info.module_error_inputs_func(
        info, device="cpu", dtype=torch.float32, requires_grad=False, training=True
    ):
        given = error.module_error_input
        theirs, ours = getattr(nn, kind), getattr(rnn, kind)
        with pytest.raises(error.error_type, match=error.error_regex):
            theirs(*given.constructor_input.args, **given.constructor_input.kwargs)(*given.forward_input.args)
        with pytest.raises(RecurError) as caught:
            ours(*given.constructor_input.args, **given.constructor_input.kwargs)(*given.forward_input.args)
        assert "got" in str(caught.value) or "and weight_ih" in str(caught.value)
        refused += 1
    assert refused == {"LSTMCell": 4, "RNNCell": 6, "GRUCell": 6}.get(kind, 14)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_of_no_sequence(kind: str) -> None:
    torch.manual_seed(0)
    theirs, ours = getattr(nn, kind)(4, 3), getattr(rnn, kind)(4, 3)
    cell = kind.endswith("Cell")
    x = torch.randn(*(() if cell else (5,)), 0, 4, requires_grad=True)
    hx: Any = [torch.randn(*(() if cell else (1,)), 0, 3, requires_grad=True) for _ in range(2)]
    for given in ((x,), (x, tuple(hx) if "LSTM" in kind else hx[0])):
        (expected, slopes), (got, found) = gradients(theirs, given), gradients(ours, given)
        assert [a.shape for a in got] == [b.shape for b in expected]
        for name, slope in slopes.items():
            assert found[name].shape == slope.shape
            assert not slope.any()
            assert not found[name].any()


@pytest.mark.parametrize("kind", ["RNNCell", "GRUCell", "LSTMCell"])
@pytest.mark.parametrize("bias", [True, False])
def test_cells_along_a_sequence(kind: str, bias: bool) -> None:
    """A loop over a cell, as code written for torch.nn has it, with the state going in again."""
    torch.manual_seed(1)
    theirs = getattr(nn, kind)(4, 3, bias, dtype=torch.float64)
    torch.manual_seed(1)
    ours = getattr(rnn, kind)(4, 3, bias, dtype=torch.float64, backend="loop")
    x = torch.randn(6, 2, 4, dtype=torch.float64, requires_grad=True)
    found = []
    for cell in (theirs, ours):
        hx, seen = None, []
        for step in x:
            hx = cell(step, hx)
            seen.append(hx[0] if isinstance(hx, tuple) else hx)
        outputs = torch.stack(seen)
        found.append((outputs, *torch.autograd.grad(outputs.square().sum(), [x, *cell.parameters()])))
    for a, b in zip(*found, strict=True):
        close(a, b)
    assert str(ours) == str(theirs)
    assert (ours.bias_ih is None) == (theirs.bias_ih is None)


@pytest.mark.parametrize("kind", KINDS)
def test_a_backend_can_be_asked_for(kind: str) -> None:
    x = torch.randn(2, 4) if kind.endswith("Cell") else torch.randn(2, 3, 4)
    torch.manual_seed(1)
    module = getattr(rnn, kind)(4, 3, backend="loop")
    assert module.backend == "loop"
    torch.manual_seed(1)
    for a, b in zip(leaves(module(x)), leaves(getattr(rnn, kind)(4, 3, backend="torch")(x)), strict=True):
        close(a, b)
    with pytest.raises(RecurError, match="unknown backend 'loops'; did you mean 'loop'"):
        getattr(rnn, kind)(4, 3, backend="loops")


def test_what_a_cell_refuses() -> None:
    cell = rnn.LSTMCell(4, 3)
    with pytest.raises(RecurError, match=r"LSTMCell: input must be \(B, D=4\) or \(D=4,\), got \(2, 5, 4\)"):
        cell(torch.randn(2, 5, 4))
    with pytest.raises(RecurError, match=r"LSTMCell: input must be .*, got list"):
        cell([1.0])
    with pytest.raises(RecurError, match=r"hx must be 2 of \[\(2, 3\), \(2, 3\)\], got \[\(2, 3\)\]"):
        cell(torch.randn(2, 4), torch.zeros(2, 3))
    with pytest.raises(RecurError, match="x is float64 and weight_ih float32"):
        cell(torch.randn(2, 4, dtype=torch.float64))
    with pytest.raises(RecurError, match="unknown activation 'cube'"):
        rnn.RNNCell(4, 3, nonlinearity="cube")
