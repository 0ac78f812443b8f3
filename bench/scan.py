"""The backends of scan against what one would write, or call, without recur.

native  against torch.nn.RNN, GRU or LSTM called directly, batch first; cells that torch.nn does not have, against
        the one of its own that they are most like, on native too
torch   against the same
loop    against a loop over nn.RNNCell, nn.GRUCell or nn.LSTMCell, as PyTorch's own examples write it
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from bench.side_by_side import Contest, Tensors
from recur import cells
from recur.cells import GRU
from recur.nn import Recurrent

PEERS: dict[str, tuple[type[nn.Module], type[nn.Module]]] = {
    "elman": (nn.RNN, nn.RNNCell),
    "gru": (nn.GRU, nn.GRUCell),
    "lstm": (nn.LSTM, nn.LSTMCell),
}


GRID = [(32, 35, 32), (32, 35, 128), (32, 35, 256), (20, 35, 650), (64, 100, 512), (1, 100, 256)]
MIDDLE = (32, 35, 256)


def contests() -> Iterator[Contest]:
    for B, T, H in GRID:
        for name in PEERS:
            for backward in (False, True):
                for backend in ("native", "torch", "loop") if (B, T, H) == MIDDLE else ("native",):
                    yield contest(name, backend, B, T, H, backward)
    for backward in (False, True):
        yield own_cell("peephole", "lstm", *MIDDLE, backward)
        yield own_cell(LeakyGRU(), "gru", *MIDDLE, backward)
    for B, T, H in GRID:
        if H >= 256 and B >= 20:
            for name in ("gru", "lstm"):
                for backward in (False, True):
                    yield in_bfloat16(name, B, T, H, backward)


class LeakyGRU(GRU):
    """A cell of a user's own: half of the old state stays, whatever its gates are."""

    def step(self, x: cells.Tensors, h: cells.Tensors, s: cells.Tensors) -> cells.State:
        (new,) = super().step(x, h, s)
        return (0.5 * s.h + 0.5 * new,)


def own_cell(cell: cells.CellLike, like: str, B: int, T: int, H: int, backward: bool) -> Contest:
    """Ours and peer are different functions here, each checked elsewhere: it is their times that are compared."""
    torch.manual_seed(0)
    ours, peer = Recurrent(cell, H, H, backend="native"), Recurrent(like, H, H, backend="native")
    x = torch.randn(B, T, H, requires_grad=backward)

    def runner(module: Recurrent) -> Callable[[], Tensors]:
        def run() -> Tensors:
            with torch.set_grad_enabled(backward):
                outputs = module(x).outputs
                if backward:
                    torch.autograd.grad(outputs.sum(), [x, *module.parameters()])
            return {}

        return run

    direction = "forward + backward" if backward else "forward"
    return Contest(f"{ours.cell!r} / {like} on native, B {B} T {T} H {H}, {direction}", runner(ours), runner(peer))


def in_bfloat16(name: str, B: int, T: int, H: int, backward: bool) -> Contest:
    """The same network with products of bfloat16, beside its own float32: the peer's numbers up to that rounding."""
    torch.manual_seed(0)
    peer = Recurrent(name, H, H, backend="native")
    ours = Recurrent(name, H, H, backend="native")
    ours.load_state_dict(peer.state_dict())
    ours.matmul_dtype = "bfloat16"
    x, weight = torch.randn(B, T, H, requires_grad=backward), torch.randn(B, T, H)

    def runner(net: Recurrent) -> Callable[[], Tensors]:
        leaves = {"x": x, **dict(net.named_parameters())}

        def run() -> Tensors:
            with torch.set_grad_enabled(backward):
                outputs = net(x).outputs
                grads = torch.autograd.grad(outputs, list(leaves.values()), weight) if backward else ()
            return {"outputs": outputs.detach(), **dict(zip(leaves, grads, strict=False))}

        return run

    flops = 2 * B * T * H * H * len(ours.cell.gates) * (6 if backward else 2)
    direction = "forward + backward" if backward else "forward"
    what = f"{name} in bfloat16 / float32 on native, B {B} T {T} H {H}, {direction}"
    return Contest(what, runner(ours), runner(peer), tolerance=2e-2, flops=flops)


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
    weight = torch.randn(B, T, H)  # the gradient that comes back to the outputs

    names = ["outputs", "grad x", *(f"grad {key.removesuffix('_l0')}" for key, _ in ours.named_parameters())]
    leaves = {module: [x, *module.parameters()] for module in (ours, peer)}

    def finish(outputs: Tensor, module: nn.Module) -> Tensors:
        grads = torch.autograd.grad(outputs, leaves[module], weight) if backward else ()
        return dict(zip(names if backward else names[:1], (outputs.detach(), *grads), strict=True))

    def run_ours() -> Tensors:
        with torch.set_grad_enabled(backward):
            return finish(ours(x).outputs, ours)

    def run_peer() -> Tensors:
        with torch.set_grad_enabled(backward):
            return finish(by_hand(peer, x, H) if backend == "loop" else peer(x)[0], peer)

    direction = "forward + backward" if backward else "forward"
    peer_name = f"{single.__name__} loop" if backend == "loop" else f"nn.{whole.__name__}"
    # One input and one recurrent product forward; back, one for each of x, U, W and h.
    flops = 2 * B * T * H * H * len(ours.cell.gates) * (6 if backward else 2)
    what = f"{name} on {backend} / {peer_name}, B {B} T {T} H {H}, {direction}"
    return Contest(what, run_ours, run_peer, flops=flops)


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
