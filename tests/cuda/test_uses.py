"""Backend `cuda` where it is used: graphs, torch.compile, autocast, streams, processes, and as torch.nn."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import Tensor

import recur.nn
from recur.nn import Recurrent, recurrent
from recur.ops import scan, scan_both
from tests.cuda.support import needs_gpu, on_gpu
from tests.support import Case, close

pytestmark = needs_gpu

SIZES = [(6, 20, 16, 40), (6, 20, 16, 96), (6, 20, 16, 300)]
"""Of layers that one CTA, a cluster and a grid carry."""


def network(D: int, H: int) -> recur.nn.LSTM:
    torch.manual_seed(0)
    return recur.nn.LSTM(D, H, batch_first=True, device="cuda")


@pytest.mark.filterwarnings("ignore")  # PyTorch's own, of streams that graphs are captured on
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_graphs(size: tuple[int, ...]) -> None:
    """A training step, captured once and replayed on other numbers."""
    B, T, D, H = size
    net = network(D, H)
    x = torch.randn(B, T, D, device="cuda")

    def step() -> Tensor:
        loss: Tensor = net(x)[0].square().sum()
        loss.backward()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            net.zero_grad(set_to_none=True)
            step()
    torch.cuda.current_stream().wait_stream(side)
    net.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    for seed in range(3):
        torch.manual_seed(seed)
        x.normal_()
        graph.replay()
        found = [captured.clone(), *(p.grad.clone() for p in net.parameters())]
        for p in net.parameters():
            p.grad.zero_()
        expected = [step(), *(p.grad.clone() for p in net.parameters())]
        for got, value in zip(found, expected, strict=True):
            assert torch.equal(got, value)


@pytest.mark.filterwarnings("ignore")  # of what PyTorch's own compiler imports
@pytest.mark.parametrize("size", SIZES[:2], ids=str)
def test_compile(size: tuple[int, ...]) -> None:
    B, T, D, H = size
    net = network(D, H)
    x = torch.randn(B, T, D, device="cuda", requires_grad=True)
    compiled = torch.compile(lambda x: net(x)[0].tanh() * 2, fullgraph=True)
    found = []
    for call in (lambda x: net(x)[0].tanh() * 2, compiled):
        y = call(x)
        found.append([y, *torch.autograd.grad(y.square().sum(), [x, *net.parameters()])])
    for got, value in zip(*found, strict=True):
        close(got, value)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast(dtype: torch.dtype) -> None:
    case = on_gpu("gru", 5, 7, 8, 64, dtype=torch.float32)
    exact = case.scan(backend="loop").outputs
    with torch.autocast("cuda", dtype):
        found = case.scan()
    assert found.outputs.dtype == dtype
    assert found.trace.backend == "cuda"
    close(found.outputs.float(), exact, tolerance=3e-2)
    found.outputs.float().sum().backward()
    assert case.weights["weight_hh"].grad.dtype == torch.float32


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_streams(size: tuple[int, ...]) -> None:
    """Two kernels at once, whose CTAs compete for the chip."""
    cases = [on_gpu("lstm", *size, dtype=torch.float32), on_gpu("gru", 90, 60, 16, size[3], dtype=torch.float32)]
    alone = [case.everything(lambda case=case: case.scan(backend="cuda")) for case in cases]
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    torch.cuda.synchronize()
    for _ in range(30):
        together = []
        for case, stream in zip(cases, streams, strict=True):
            with torch.cuda.stream(stream):
                together.append(case.everything(lambda case=case: case.scan(backend="cuda")))
        torch.cuda.synchronize()
        for got, expected in zip(together, alone, strict=True):
            for name, value in expected.items():
                assert torch.equal(got[name], value), name


def test_processes() -> None:
    """Two of them on one GPU, with grids that cannot both be there at once."""
    script = (
        "import torch, recur.nn\n"
        "torch.manual_seed(0)\n"
        "net = recur.nn.LSTM(64, 700, device='cuda')\n"
        "x = torch.randn(200, 40, 64, device='cuda')\n"
        "first = None\n"
        "for _ in range(20):\n"
        "    net.zero_grad()\n"
        "    net(x)[0].sum().backward()\n"
        "    found = net.weight_hh_l0.grad.clone()\n"
        "    assert first is None or torch.equal(first, found)\n"
        "    first = found\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE) for _ in range(2)]
    for process in running:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors.decode()


@pytest.mark.parametrize(("ours", "theirs"), [("RNN", "RNN"), ("GRU", "GRU"), ("LSTM", "LSTM")])
def test_as_torch(ours: str, theirs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.manual_seed(0)
    mine = getattr(recur.nn, ours)(12, 40, 2, bidirectional=True, device="cuda", dtype=torch.float64)
    peer = getattr(torch.nn, theirs)(12, 40, 2, bidirectional=True, device="cuda", dtype=torch.float64)
    mine.load_state_dict(peer.state_dict())
    x = torch.randn(9, 5, 12, device="cuda", dtype=torch.float64, requires_grad=True)
    found = []
    for net in (mine, peer):
        y, state = net(x)
        h = state if isinstance(state, Tensor) else state[0]
        found.append([y, h, *torch.autograd.grad(y.square().sum() + h.sum(), [x, *net.parameters()])])
    names = ["outputs", "h", "x", *(name for name, _ in peer.named_parameters())]
    for name, got, value in zip(names, *found, strict=True):
        close(got, value, name)


def test_auto_takes_it_and_says_how() -> None:
    case: Case = on_gpu("peephole", 4, 5, 6, 96, dtype=torch.float32)
    found = case.scan(trace=True)
    assert found.trace.backend == "cuda"
    assert found.trace.kernels.startswith("cluster: ")
    clipped = case.scan(bptt="clip:1")
    assert clipped.trace.kernels == "one launch per step (clip needs the norm of a whole row at every step)"
    plain = scan(case.cell, case.weights, case.x)
    assert scan(case.cell, case.weights, case.x).trace.kernels == plain.trace.kernels


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["gru", "lstm", "peephole"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_both_directions_in_one_launch(
    size: tuple[int, ...], name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against each direction's own launch, with states and without, to rounding of what is summed otherwise."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    B, T, D, H = size
    torch.manual_seed(0)
    net = Recurrent(name, D, H, num_layers=2, direction="both", backend="cuda").to("cuda", dtype)
    x = torch.randn(B, T, D, device="cuda").to(dtype).requires_grad_()
    state = None
    for _ in range(2):
        found = []
        for apart in (True, False, False):  # the first makes the form known
            monkeypatch.setattr(recurrent, "scan_both", (lambda *_: None) if apart else scan_both)
            y = net(x, state)
            ends = [part for one in y.state for part in one]
            loss = y.outputs.float().square().sum() + sum(part.float().sum() for part in ends)
            found.append([y.outputs, *ends, *torch.autograd.grad(loss, [x, *net.parameters()])])
        assert str(y.trace[0].kernels).startswith("both directions at once; ")
        for one, two, again in zip(*found, strict=True):
            close(two.float(), one.float(), tolerance=1e-4 if dtype == torch.float32 else 3e-2)
            assert torch.equal(two, again)
        state = tuple(tuple(part.detach() for part in one) for one in y.state)
