"""Steps of many sessions without a GPU: kernels compiled by g++ against the loop, and by NVRTC for every kind of GPU;
tiles on described devices."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from recur.cells import make_cell
from recur.cells.cell import Cell
from recur.compiler.assembly import load_assembly
from recur.compiler.programs import text_of
from recur.errors import BackendError, DtypeError, OptionError, ShapeError
from recur.nn import Init, Recurrent
from recur.nn import streaming as nn_streaming
from recur.ops import scan
from recur.ops.cuda import config, nvrtc, streaming
from recur.ops.cuda.config import LargeBatchTile, SmallBatchTile, StreamStep, StreamTile
from recur.ops.cuda.driver import A100, H200
from recur.ops.cuda.streaming import SessionSlots
from tests.cuda import host
from tests.support import close, random_weights

needs_gcc = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
needs_nvrtc = pytest.mark.skipif(nvrtc.load_compiler() is None, reason="no NVRTC")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(autouse=True)
def kernels(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    host.streams_on_cpu(monkeypatch, folder)
    yield monkeypatch
    streaming.prepare_kernel.cache_clear()


def layers_of(cell: Cell, count: int, D: int, H: int, dtype: torch.dtype) -> list[dict[str, Tensor]]:
    width = len(cell.output_states) * H
    made = [random_weights(cell, width if k else D, H) for k in range(count)]
    return [{name: w.detach().to(dtype) for name, w in layer.items()} for layer in made]


def by_loop(cell: Cell, layers: list[dict[str, Tensor]], x: Tensor) -> tuple[Tensor, list[tuple[Tensor, ...]]]:
    """Whole sequences, (B, T, D)."""
    states: list[tuple[Tensor, ...]] = []
    for weights in layers:
        found = scan(cell, weights, x, backend="loop")
        x = found.outputs
        states.append(tuple(found.state))
    return x, states


def follows(
    name: str, count: int, D: int, H: int, n: int, *, dtype: torch.dtype = torch.float64, tolerance: float | None = None
) -> None:
    """Sessions in slots of a random order, some of which sit out every step, against whole sequences."""
    torch.manual_seed(3)
    cell, steps, slots = make_cell(name), 3, n + 2
    layers = layers_of(cell, count, D, H, dtype)
    x = torch.randn(slots, steps, D, dtype=dtype)
    expected, finals = by_loop(cell, layers, x)
    pool, taken = SessionSlots(cell, layers, slots), torch.zeros(slots, dtype=torch.int64)
    while (taken < steps).any():
        ready = torch.nonzero(taken < steps)[:, 0]
        which = ready[torch.randperm(len(ready))[:n]]
        got = pool.step(x[which, taken[which]], which if n % 2 else which.tolist())
        close(got, expected[which, taken[which]], f"{name}: outputs", tolerance)
        taken[which] += 1
    for found, want in zip(pool.state(range(slots)), finals, strict=True):
        for part, true in zip(found, want, strict=True):
            close(part, true, f"{name}: states", tolerance)


@needs_gcc
@pytest.mark.parametrize("name", ["lstm", "slstm", "peephole", "lru", "mingru"])  # all of them on a GPU
def test_cells(name: str) -> None:
    follows(name, 2, 5, 12, 5)


@needs_gcc
@pytest.mark.parametrize(
    "tile", [SmallBatchTile(1, 1), SmallBatchTile(2, 2), SmallBatchTile(4, 4), SmallBatchTile(8, 4)], ids=str
)
def test_few_rows(kernels: pytest.MonkeyPatch, tile: StreamTile) -> None:
    kernels.setattr(streaming, "choose_tile", lambda p, on: tile)
    follows("gru", 1, 6, 13, 6)


MANY = [
    LargeBatchTile(1, 1, 8, 1, 1, 8, 2),
    LargeBatchTile(1, 2, 4, 1, 2, 4, 3),
    LargeBatchTile(2, 2, 2, 1, 1, 2, 4),
    LargeBatchTile(4, 2, 1, 2, 1, 2, 3),
    LargeBatchTile(1, 4, 2, 2, 2, 6, 2),
]


@needs_gcc
@pytest.mark.parametrize(
    ("name", "tile", "exact"),
    [(("lstm", "gru", "mingru")[k % 3], tile, bool(k % 2)) for k, tile in enumerate([*MANY, MANY[0]])],
)
def test_many_rows(kernels: pytest.MonkeyPatch, name: str, tile: LargeBatchTile, exact: bool) -> None:
    """In float32, by products of the tensor cores' form: rows, units and K that no tile divides."""
    kernels.setattr(streaming, "choose_tile", lambda p, on: tile)
    kernels.setattr(streaming, "uses_tf32", lambda: not exact)
    D = 36 if tile.blocks == 1 else 35
    follows(name, 2, D, 35, tile.rows + 3, dtype=torch.float32, tolerance=2e-5 if exact else 1e-2)


@needs_gcc
def test_states_are_read_set_and_begun_anew() -> None:
    torch.manual_seed(0)
    cell = make_cell("slstm")  # whose m starts at −∞
    layers = layers_of(cell, 2, 3, 8, torch.float64)
    pool, other, x = (
        SessionSlots(cell, layers, 5),
        SessionSlots(cell, layers, 7),
        torch.randn(4, 3, 3, dtype=torch.float64),
    )
    which = [4, 0, 2]
    first = pool.step(x[0], which)
    pool.step(x[1], which)
    other.set_state([6, 1, 3], pool.state(which))
    close(other.step(x[2], [6, 1, 3]), pool.step(x[2], which), "carried over")
    pool.reset([4, 2])
    close(pool.step(x[0, [0, 2]], [4, 2]), first[[0, 2]], "begun anew")
    again = SessionSlots(cell, layers, 3)
    again.set_state([0, 1, 2], [[part[:1] for part in layer] for layer in other.state([6])])
    assert all(torch.equal(part[0], part[2]) for layer in again.state([0, 1, 2]) for part in layer)


@needs_gcc
def test_idle_rows_leave_slots_as_they_are() -> None:
    torch.manual_seed(0)
    cell = make_cell("lstm")
    layers = layers_of(cell, 1, 3, 8, torch.float64)
    pool, alone, x = (
        SessionSlots(cell, layers, 4),
        SessionSlots(cell, layers, 4),
        torch.randn(4, 3, dtype=torch.float64),
    )
    for _ in range(2):
        got = pool.launch(x, torch.tensor([-1, 3, 4, 1]))
        close(got[[1, 3]], alone.step(x[[1, 3]], [3, 1]), "outputs")
        assert not got[[0, 2]].any()
    assert not any(part.any() for layer in pool.state([0, 2]) for part in layer)


@needs_gcc
def test_networks_stream_by_it(kernels: pytest.MonkeyPatch) -> None:
    """step and stream, with weights that change on the way, and options that make it another path's."""
    kernels.setattr(nn_streaming, "is_on_gpu", lambda x: True)
    kernels.setattr(streaming, "unsupported_reason", lambda *_: None)
    launched: list[int] = []
    launch = SessionSlots.launch
    kernels.setattr(SessionSlots, "launch", lambda self, x, where: (launched.append(len(x)), launch(self, x, where))[1])
    torch.manual_seed(0)
    net = Recurrent("gru", 3, 9, num_layers=2, init=Init(state="learned"), dtype=torch.float64).eval()
    with torch.no_grad():
        net.h0_l1.fill_(0.3)
    x = torch.randn(2, 6, 3, dtype=torch.float64)
    running, carried = net.stream(2), None
    for t in range(6):
        if t == 2:
            with torch.no_grad():
                net.weight_hh_l1.mul_(0.5)
        if t == 3:
            running.state = running.state
        if t == 4:
            net.backend = "loop"
        before = carried
        one, carried = net.step(x[:, t], before)
        expected = net(x[:, t : t + 1], before)
        close(one, expected.outputs[:, 0].detach())
        close(running.step(x[:, t]), one)
        for got, other, true in zip(carried, running.state, expected.state, strict=True):
            close(got.h, true.h.detach())
            close(other.h, true.h.detach())
    assert launched == [2] * 8
    assert net.step(x[:0, 0])[0].shape == (0, 9)


def test_what_is_refused() -> None:
    cell = make_cell("lstm")
    layers = layers_of(cell, 1, 3, 4, torch.float64)
    pool, x = SessionSlots(cell, layers, 4), torch.zeros(2, 3, dtype=torch.float64)
    for index in ([0, 4], [-1, 0], [1, 1]):
        with pytest.raises(OptionError, match="slot"):
            pool.step(x, index)
    with pytest.raises(OptionError, match="whole number"):
        SessionSlots(cell, layers, 0)
    with pytest.raises(ShapeError, match="takes x of"):
        pool.step(x[:, :2], [0, 1])
    with pytest.raises(ShapeError, match=r"\(n,\)"):
        pool.step(x, [[0, 1]])  # type: ignore[list-item]
    with pytest.raises(DtypeError, match="float64"):
        pool.step(x.float(), [0, 1])
    with pytest.raises(ShapeError, match="a layer reads"):
        SessionSlots(cell, layers * 2, 4)
    with pytest.raises(BackendError, match="projected"):
        SessionSlots(cell, [random_weights(cell, 3, 4, 2)], 4)
    with pytest.raises(BackendError, match="no step on the GPU"):
        SessionSlots(make_cell("lnlstm"), [random_weights(make_cell("lnlstm"), 3, 4)], 4)
    assert pool.step(x[:0], []).shape == (0, 4)
    assert "cpu" in str(streaming.unsupported_reason(cell, x, True))


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    ("name", "dtype"),
    [("lstm", torch.bfloat16), ("gru", torch.float32), ("slstm", torch.float16), ("indrnn", torch.float64)],
)
def test_kernels_compile(name: str, dtype: torch.dtype, architecture: str) -> None:
    compiler, cell = nvrtc.load_compiler(), text_of(make_cell(name), True)
    assert compiler is not None
    device = A100 if architecture == "sm_80" else H200
    for n in (1, 16, 4096):
        p = StreamStep.of(load_assembly(cell), n, 512, 512, dtype, exact=n == 16 and dtype == torch.float32)
        used = compiler.compile(
            streaming.kernel_text(cell, dtype, config.choose_tile(p, device), p, n > 1), architecture
        ).usage
        assert used["stream_step"].spilled <= 64, (n, used)


def test_tiles() -> None:
    """All that fit do fit; one row is read by the whole GPU; there is one for the largest cells too."""
    for gates, products in ((1, 1), (3, 3), (4, 4), (4, 0), (8, 8), (16, 16)):
        for size in (2, 4):
            for on in (H200, A100, host.SMALL._replace(shared=101376)):
                for n in (1, 5, 64, 4096):
                    for H in (1, 33, 256, 4096):
                        p = StreamStep(gates, products, n, 100, H, size, size == 4)
                        assert config.choose_tile(p, on).shared_bytes(p) <= on.shared
                        assert isinstance(config.choose_tile(p, on), SmallBatchTile) == (n <= config.SMALL_BATCH_ROWS)
    one = StreamStep(4, 4, 1, 256, 256, 4, False)
    assert config.choose_tile(one, H200).ctas(one) >= 100
