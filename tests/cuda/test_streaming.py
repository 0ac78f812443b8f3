"""Steps of many sessions on a GPU, against whole sequences by the loop in float64."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from recur.cells import make_cell
from recur.cells.cell import Cell
from recur.compiler.assembly import load_assembly
from recur.compiler.programs import text_of
from recur.nn import Recurrent
from recur.ops import scan
from recur.ops.cuda import streaming
from recur.ops.cuda.config import SmallBatchTile, StreamStep, StreamTile, list_tiles
from recur.ops.cuda.driver import device_info
from recur.ops.cuda.streaming import SessionSlots
from tests.cuda.support import ROUNDING, TF32, TOLERANCE, needs_gpu
from tests.support import NATIVE_CELLS, close, random_weights

pytestmark = needs_gpu

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
Weights = dict[str, Tensor]


@contextlib.contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    was = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = was


def layers_of(cell: Cell, count: int, D: int, H: int, dtype: torch.dtype) -> list[Weights]:
    """Smaller weights in large layers, so that gates do not all saturate."""
    width, factor = len(cell.output_states) * H, min(1.0, 4 / H**0.5)
    made = [random_weights(cell, width if k else D, H) for k in range(count)]
    return [
        {key: (w.detach() * (factor if key.startswith("weight") else 1)).to("cuda", dtype) for key, w in layer.items()}
        for layer in made
    ]


def truth(cell: Cell, layers: list[Weights], x: Tensor) -> tuple[Tensor, list[tuple[Tensor, ...]]]:
    """The same numbers in float64, by the loop."""
    states: list[tuple[Tensor, ...]] = []
    x = x.double()
    for weights in layers:
        found = scan(cell, {name: w.double() for name, w in weights.items()}, x, backend="loop")
        x = found.outputs
        states.append(tuple(found.state))
    return x, states


def allowed(dtype: torch.dtype, exact: bool, H: int = 256) -> float:
    """What rounding leaves of a sum grows with the root of its terms."""
    if dtype in ROUNDING:
        return 16 * ROUNDING[dtype]
    return TOLERANCE[dtype] * max(1.0, (H / 128) ** 0.5) if exact else TF32


def follows(
    name: str, n: int, D: int, H: int, dtype: torch.dtype, count: int = 1, exact: bool = True, steps: int = 4
) -> None:
    """Sessions in slots of a random order, some of which sit out every step."""
    torch.manual_seed(n + D + H)
    cell, slots = make_cell(name), n + n // 3 + 1
    layers = layers_of(cell, count, D, H, dtype)
    x = torch.randn(slots, steps, D, device="cuda").to(dtype)
    expected, finals = truth(cell, layers, x)
    pool, taken = SessionSlots(cell, layers, slots), torch.zeros(slots, dtype=torch.int64)
    bound = allowed(dtype, exact, H)
    with tf32(not exact):
        while (taken < steps).any():
            ready = torch.nonzero(taken < steps)[:, 0]
            which = ready[torch.randperm(len(ready))[:n]]
            at = which.cuda(), taken[which].cuda()
            got = pool.step(x[at], at[0] if n % 2 else which)
            assert got.dtype == dtype
            close(got.double(), expected[at], f"{name}: outputs", bound)
            taken[which] += 1
    for found, want in zip(pool.state(range(slots)), finals, strict=True):
        for part, true in zip(found, want, strict=True):
            finite = true.isfinite()
            close(part.double()[finite], true[finite], f"{name}: states", 2 * bound)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [1, 3, 20])
@pytest.mark.parametrize("name", NATIVE_CELLS)
def test_every_cell(name: str, n: int, dtype: torch.dtype) -> None:
    follows(name, n, 24, 40, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [1, 2, 3, 7, 64, 300, 4096])
@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_sessions(name: str, n: int, dtype: torch.dtype) -> None:
    follows(name, n, 128, 256, dtype, steps=3)


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "TF32"])
@pytest.mark.parametrize("size", [(5, 1, 1), (9, 3, 33), (70, 50, 650), (200, 7, 1150)], ids=str)
@pytest.mark.parametrize("name", ["lstm", "elman", "mingru"])
def test_odd_sizes(name: str, size: tuple[int, int, int], exact: bool) -> None:
    follows(name, *size, torch.float32, exact=exact)
    follows(name, *size, torch.bfloat16)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [1, 33])
@pytest.mark.parametrize("name", ["lstm", "slstm", "sru"])
def test_several_layers(name: str, n: int, dtype: torch.dtype) -> None:
    follows(name, n, 20, 64, dtype, count=3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["lstm", "gru", "indrnn"])
def test_every_tile(name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[tuple[int, ...], StreamTile] = {}
    for n in (5, 64, 300):
        p = StreamStep.of(load_assembly(text_of(make_cell(name), True)), n, 48, 96, dtype, exact=False)
        seen |= {tuple(tile): tile for tile in list_tiles(p, device_info(0))}
    for chosen in [*seen.values(), SmallBatchTile(1, 1), SmallBatchTile(2, 2), SmallBatchTile(8, 4)]:
        monkeypatch.setattr(streaming, "choose_tile", lambda p, on, chosen=chosen: chosen)
        streaming.prepare_kernel.cache_clear()
        follows(name, 75, 48, 96, dtype, exact=False, steps=3)
    streaming.prepare_kernel.cache_clear()


def test_reset_and_set_state() -> None:
    cell = make_cell("lstm")
    layers = layers_of(cell, 2, 16, 64, torch.float32)
    pool, x = SessionSlots(cell, layers, 100), torch.randn(3, 50, 16, device="cuda")
    which = torch.randperm(100)[:50]
    first = pool.step(x[0], which)
    pool.step(x[1], which)
    other = SessionSlots(cell, layers, 60)
    other.set_state(range(50), pool.state(which))
    assert torch.equal(other.step(x[2], torch.arange(50).cuda()), pool.step(x[2], which))
    pool.reset(which[:20])
    close(pool.step(x[0, :20], which[:20]), first[:20], "begun anew", TF32)


@pytest.mark.parametrize("n", [1, 40])
def test_a_graph_is_replayed(n: int) -> None:
    """With indices changed in place and idle rows."""
    cell = make_cell("lstm")
    layers = layers_of(cell, 2, 32, 64, torch.bfloat16)
    pool, other = SessionSlots(cell, layers, 2 * n), SessionSlots(cell, layers, 2 * n)
    x, index = torch.zeros(n, 32, device="cuda", dtype=torch.bfloat16), torch.full((n,), -1, device="cuda")
    pool.step(x, index)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = pool.step(x, index)
    for _ in range(6):
        which = torch.randperm(2 * n, device="cuda")[:n]
        which[torch.rand(n, device="cuda") < 0.3] = -1
        x.normal_()
        index.copy_(which)
        graph.replay()
        assert torch.equal(outputs, other.step(x, which))
    for mine, theirs in zip(pool.state(range(2 * n)), other.state(range(2 * n)), strict=True):
        assert all(torch.equal(part, true) for part, true in zip(mine, theirs, strict=True))


@pytest.mark.parametrize("n", [3, 64, 4096])
def test_twice_the_same(n: int) -> None:
    cell = make_cell("gru")
    layers = layers_of(cell, 1, 64, 256, torch.float32)
    found = []
    x = torch.randn(10, n, 64, device="cuda")
    for _ in range(3):
        pool = SessionSlots(cell, layers, n)
        order = torch.arange(n - 1, -1, -1).cuda()
        found.append(torch.stack([pool.step(x[t], order) for t in range(10)]))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["lstm", "slstm", "mingru"])
def test_networks_stream_by_it(name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """step and stream against forward, with weights that change on the way."""
    torch.manual_seed(0)
    net = Recurrent(name, 16, 32, num_layers=2, device="cuda", dtype=dtype).eval()
    x = torch.randn(5, 8, 16, device="cuda").to(dtype)
    bound = allowed(dtype, False) if dtype != torch.float64 else TOLERANCE[dtype]
    launched: list[int] = []
    launch = SessionSlots.launch
    monkeypatch.setattr(SessionSlots, "launch", lambda self, x, where: (launched.append(1), launch(self, x, where))[1])
    for _ in range(2):
        expected, running, carried = net(x), net.stream(5), None
        for t in range(8):
            one, carried = net.step(x[:, t], carried)
            close(one, expected.outputs[:, t].detach(), "step", bound)
            close(running.step(x[:, t]), expected.outputs[:, t].detach(), "stream", bound)
        for mine, other, true in zip(running.state, carried or (), expected.state, strict=True):
            for a, b, c in zip(mine, other, true, strict=True):
                close(a, c.detach(), "state of the stream", 2 * bound)
                close(b, c.detach(), "state", 2 * bound)
        with torch.no_grad():
            net.weight_ih_l1.mul_(0.7)
    assert len(launched) == 32
