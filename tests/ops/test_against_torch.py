"""Every backend against torch.nn in double precision: outputs, final states and all gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from recur.nn import Recurrent
from tests.support import DOUBLE, HERE, TORCH_CELLS, all_close

THEIRS: dict[str, Any] = {
    "elman": nn.RNN,
    "elman-relu": lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k),
    "gru": nn.GRU,
    "lstm": nn.LSTM,
}
B, T, D, H = 4, 7, 5, 3


def theirs_and_ours(name: str, layers: int, both: bool, bias: bool, backend: str) -> tuple[nn.Module, Recurrent]:
    theirs = THEIRS[name](D, H, num_layers=layers, bidirectional=both, bias=bias, batch_first=True, **DOUBLE)
    with torch.no_grad():
        for p in theirs.parameters():
            p.mul_(2)  # torch's start is timid: let gates move
    direction = "both" if both else "forward"
    ours = Recurrent(name, D, H, num_layers=layers, direction=direction, bias=bias, backend=backend, **DOUBLE)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def run_theirs(
    layer: nn.Module, x: Tensor, start: list[Tensor], lengths: list[int] | None
) -> tuple[Tensor, list[Tensor]]:
    hx = tuple(start) if len(start) > 1 else start[0]
    packed = x if lengths is None else nn.utils.rnn.pack_padded_sequence(x, torch.tensor(lengths), True, False)
    out, final = layer(packed, hx)
    if lengths is not None:
        out, _ = nn.utils.rnn.pad_packed_sequence(out, batch_first=True, total_length=T)
    return out, list(final) if isinstance(final, tuple) else [final]


def run_ours(
    layer: Recurrent, x: Tensor, start: list[Tensor], lengths: list[int] | None
) -> tuple[Tensor, list[Tensor]]:
    out, final, _ = layer(x, list(zip(*(part.unbind() for part in start), strict=True)), lengths=lengths)
    return out, [torch.stack(parts) for parts in zip(*final, strict=True)]


def everything(run: Any, layer: nn.Module, states: int, lengths: list[int] | None) -> dict[str, Tensor]:
    """Both sides start from one seed, so they get the same inputs, states and weights of the loss."""
    torch.manual_seed(7)
    L = sum(name.startswith("weight_hh") for name, _ in layer.named_parameters())
    x = torch.randn(B, T, D, **DOUBLE).requires_grad_()
    start = [torch.randn(L, B, H, **DOUBLE).requires_grad_() for _ in range(states)]
    out, final = run(layer, x, start, lengths)
    loss = sum(
        ((f * torch.randn(f.shape, **DOUBLE)).sum() for f in final), (out * torch.randn(out.shape, **DOUBLE)).sum()
    )
    named = {"x": x, **{f"start {k}": s for k, s in enumerate(start)}, **dict(layer.named_parameters())}
    grads = torch.autograd.grad(loss, list(named.values()))
    found = {"outputs": out.detach(), **{f"final {k}": f.detach() for k, f in enumerate(final)}}
    return found | {f"grad {name}": grad for name, grad in zip(named, grads, strict=True)}


@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize("lengths", [None, [3, 7, 1, 5]], ids=["whole", "lengths"])
@pytest.mark.parametrize("both", [False, True], ids=["forward", "both ways"])
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("name", TORCH_CELLS)
def test_everything_agrees(name: str, layers: int, both: bool, lengths: list[int] | None, backend: str) -> None:
    theirs, ours = theirs_and_ours(name, layers, both, True, backend)
    states = len(ours.cell.states)
    all_close(everything(run_ours, ours, states, lengths), everything(run_theirs, theirs, states, lengths))


@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize("name", TORCH_CELLS)
def test_without_biases(name: str, backend: str) -> None:
    theirs, ours = theirs_and_ours(name, 1, True, False, backend)
    states = len(ours.cell.states)
    all_close(everything(run_ours, ours, states, None), everything(run_theirs, theirs, states, None))
