"""The backends of scan against what one would write, or call, without recur.

loop    against a loop over nn.RNNCell, nn.GRUCell or nn.LSTMCell, as PyTorch's own examples write it
torch   against torch.nn.RNN, GRU or LSTM called directly, batch first
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from bench.side_by_side import Contest, Tensors
from recur.layers import Recurrent

PEERS: dict[str, tuple[Any, Any]] = {
    "elman": (nn.RNN, nn.RNNCell),
    "gru": (nn.GRU, nn.GRUCell),
    "lstm": (nn.LSTM, nn.LSTMCell),
}


def contests(sizes: list[tuple[int, int, int]]) -> Iterator[Contest]:
    for B, T, H in sizes:
        for name in PEERS:
            for backward in (False, True):
                for backend in ("loop", "torch"):
                    yield contest(name, backend, B, T, H, backward)


def contest(name: str, backend: str, B: int, T: int, H: int, backward: bool) -> Contest:
    torch.manual_seed(0)
    whole, single = PEERS[name]
    layer: nn.Module = whole(H, H, batch_first=True)
    ours = Recurrent(name, H, H, backend=backend)
    ours.load_state_dict(layer.state_dict())
    peer = layer
    if backend == "loop":
        peer = single(H, H)
        peer.load_state_dict({key.removesuffix("_l0"): value for key, value in layer.state_dict().items()})
    x = torch.randn(B, T, H, requires_grad=backward)
    weight = torch.randn(B, T, H)

    def finish(outputs: Tensor, module: nn.Module) -> Tensors:
        if not backward:
            return {"outputs": outputs.detach()}
        names, leaves = zip(*[("x", x), *module.named_parameters()], strict=True)
        grads = torch.autograd.grad((outputs * weight).sum(), leaves)
        return {"outputs": outputs.detach()} | {
            f"grad {key.removesuffix('_l0')}": grad for key, grad in zip(names, grads, strict=True)
        }

    def run_ours() -> Tensors:
        with torch.set_grad_enabled(backward):
            return finish(ours(x).outputs, ours)

    def run_peer() -> Tensors:
        with torch.set_grad_enabled(backward):
            return finish(by_hand(peer, x, H) if backend == "loop" else peer(x)[0], peer)

    direction = "forward + backward" if backward else "forward"
    peer_name = f"{single.__name__} loop" if backend == "loop" else f"nn.{whole.__name__}"
    return Contest(f"{name} on {backend} / {peer_name}, B {B} T {T} H {H}, {direction}", run_ours, run_peer)


def by_hand(cell: nn.Module, x: Tensor, H: int) -> Tensor:
    """The loop that one would write."""
    h = c = x.new_zeros(x.shape[0], H)
    outputs = []
    for step in x.unbind(1):
        if isinstance(cell, nn.LSTMCell):
            h, c = cell(step, (h, c))
        else:
            h = cell(step, h)
        outputs.append(h)
    return torch.stack(outputs, dim=1)
