"""Cells without a recurrent product, without a GPU: kernels compiled by g++ against the loop, and by NVRTC for every
kind of GPU; printed maps; and plans on described devices."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from recur.cells import make_cell
from recur.cells.sru import SRU
from recur.compiler import programs
from recur.compiler.assembly import load_assembly
from recur.compiler.programs import make_signature
from recur.ops.bptt import BPTT
from recur.ops.cuda import nvrtc, persistent
from recur.ops.cuda.codegen import affine_states
from recur.ops.cuda.config import ElementwiseConfig, ElementwiseWork, override
from recur.ops.cuda.driver import A100, H200, DeviceInfo
from recur.ops.cuda.layout import ScanLayout
from tests.cuda import host
from tests.support import AFFINE_CELLS, NATIVE_CELLS, Case, close, needs_core

needs_gcc = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
needs_nvrtc = pytest.mark.skipif(nvrtc.load_compiler() is None, reason="no NVRTC")

CELLS = [name for name in NATIVE_CELLS if not make_cell(name).recurrent_gates]
SLICED = [*AFFINE_CELLS, "sru without peephole"]
KINDS = ["sm_80", "sm_86", "sm_89", "sm_90a", "newest"]
RTX = DeviceInfo("a small GPU", 8, 6, 46, 101376)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture
def kernels(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    host.on_cpu(monkeypatch, folder)
    with override(select=host.single_cta):
        yield monkeypatch
    host.forget()


def case_of(name: str, *sizes: int) -> Case:
    case = Case("sru" if name == "sru without peephole" else name, *sizes)
    if name == "sru without peephole":
        case.cell = SRU(peephole=False)
        case.weights = {key: w for key, w in case.weights.items() if not key.startswith("v_")}
    return case


def everything(case: Case, backend: str, **options: Any) -> dict[str, torch.Tensor]:
    result = case.scan(backend=backend, trace=True, **options)
    found = case.everything(lambda: result)
    return found | {f"norm {name}": norms for name, norms in result.trace.norms.items()}


def ragged(B: int, T: int) -> dict[str, Any]:
    numbers = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, T + 1, (B,), generator=numbers)
    lengths[B // 2] = T
    xi = torch.rand(B, T, generator=numbers, dtype=torch.float64) * 2
    xi[:, T // 2] = 0
    return {"lengths": lengths, "reset": torch.rand(B, T, generator=numbers) < 0.05, "bptt": BPTT(xi=xi)}


@needs_core
@needs_gcc
@pytest.mark.parametrize(
    ("name", "slices", "which"),
    [
        (name, slices, ("plain", "ragged")[k % 2])  # in turns; all of them on a GPU
        for k, (name, slices) in enumerate([*((name, 1) for name in CELLS), *((name, 4) for name in reversed(SLICED))])
    ],
)
def test_against_the_loop(kernels: pytest.MonkeyPatch, name: str, slices: int, which: str) -> None:
    vector = 1 + sum(map(ord, name)) % 2  # on a GPU, two for numbers of 16 bits
    kernels.setattr(persistent, "vector_width", lambda layout, aligned: vector)
    case, options = case_of(name, 3, 75, 4, 12 if vector == 2 else 13), ragged(3, 75) if which == "ragged" else {}
    with override(slices=slices):
        expected, got = (everything(case, backend, **options) for backend in ("loop", "native"))
    for key, value in expected.items():
        close(got[key], value, f"{name}, {slices} slices: {key}", 1e-11)


@needs_core
@needs_gcc
def test_without_gradients_and_what_xi_cuts_off(kernels: pytest.MonkeyPatch) -> None:
    case = case_of("mingru", 2, 100, 3, 16)
    with override(slices=4), torch.no_grad():
        close(case.scan(backend="native").outputs, case.scan(backend="loop").outputs, "outputs", 1e-12)
    case.on_outputs[:, 80] = torch.nan
    xi = torch.ones(2, 100, dtype=torch.float64)
    xi[:, 50] = 0
    with override(slices=4):
        got, expected = (everything(case, backend, bptt=BPTT(xi=xi)) for backend in ("native", "loop"))
    close(got["grad x"][:, :50], expected["grad x"][:, :50], "grad x", 1e-11)
    close(got["grad h0"], expected["grad h0"], "grad h0", 1e-11)


def layout_of(name: str, dtype: torch.dtype, **options: Any) -> ScanLayout:
    """Of a scan that is too large to run here."""
    case = case_of(name, 1, 1, 4, 64)
    biased = "bias_ih" in case.weights
    assert not isinstance(programs.assembled(case.cell, biased), str)
    text, given, extras = programs.operands(case.cell, case.weights)
    of, _ = make_signature(case.x.to(dtype), given, extras, (), None, None, None, 0.0, text, "")
    return ScanLayout(of._replace(shape=(4, 4096, 4), **options))


class Nothing:
    def function(self, name: str) -> Nothing:
        return self

    def prepare(self, how: object) -> None:
        pass


@needs_nvrtc
@pytest.mark.parametrize(
    ("name", "architecture"),
    [*(("mingru", kind) for kind in KINDS), *((name, KINDS[k % 5]) for k, name in enumerate([*CELLS, SLICED[-1]]))],
)
def test_kernels_compile(monkeypatch: pytest.MonkeyPatch, name: str, architecture: str) -> None:
    """A sample: one cell for every kind of GPU and every cell for one, dtypes and options in turns."""
    compiler = nvrtc.load_compiler()
    assert compiler is not None
    asked = f"sm_{compiler.architectures[-1]}" if architecture == "newest" else architecture
    found = []

    def keep(text: str, *_: object) -> Nothing:
        found.append(compiler.compile(text, asked).usage)
        return Nothing()

    turn = KINDS.index(architecture) + CELLS.index(name.split()[0])
    dtype = [torch.float32, torch.bfloat16, torch.float64, torch.float16][turn % 4]
    monkeypatch.setattr(persistent, "load_module", keep)
    monkeypatch.setattr(persistent, "device_info", lambda index: H200)
    layout = layout_of(name, dtype, weighted=turn % 2 == 0, sizes=())
    for backward in (False, True):
        persistent.prepare_elementwise.__wrapped__(layout, backward, bool(turn % 3), bool(turn % 2), 0, None)
    assert len(found) == 2
    assert all(usage.spilled <= 80 for kernel in found for usage in kernel.values()), found


@needs_gcc
@pytest.mark.parametrize("name", SLICED)
def test_printed_maps(folder: Path, name: str) -> None:
    """A s + b is the step itself, whatever s is; back, what a step before gets of what is known after it."""
    case = case_of(name, 1, 1, 3, 5)
    assert not isinstance(programs.assembled(case.cell, True), str)
    text, _, extras = programs.operands(case.cell, case.weights)
    a = load_assembly(text)
    states = affine_states(a.along_time["use"])
    library = host.printed(text, folder)
    numbers = torch.Generator().manual_seed(2)
    for _ in range(20):
        share, before = (torch.randn(n, generator=numbers, dtype=torch.float64) for n in (a.gates, a.states))
        extra = torch.stack([part.detach()[0] for part in extras]) if extras else torch.zeros(1, dtype=torch.float64)
        after, saved, scratch, back = (torch.zeros(n, dtype=torch.float64) for n in (a.states, 64, 64, 64))
        n = len(states)
        A, b = torch.zeros(n, n, dtype=torch.float64), torch.zeros(n, dtype=torch.float64)
        call(library.forward_map, share, extra, scratch, A, b)
        kept = share.clone()
        call(library.train_step, kept, scratch, before, extra, after, saved)
        close(A @ before[states] + b, after[states], name, 1e-14)
        states_back = affine_states(a.along_time["back"])
        A, b = (
            torch.zeros(len(states_back), len(states_back), dtype=torch.float64),
            torch.zeros(len(states_back)).double(),
        )
        g = torch.randn(a.states, generator=numbers, dtype=torch.float64)
        call(library.backward_map, kept, saved, before, after, extra, g, A, b)
        d_before = torch.zeros(a.states, dtype=torch.float64)
        call(library.back_step, kept, saved, before, after, extra, g, scratch, scratch, d_before, scratch, back)
        close(A @ g[states_back] + b, d_before[states_back], name, 1e-14)


def call(function: Any, *arrays: torch.Tensor) -> None:
    function(*(ctypes.c_void_p(array.data_ptr()) for array in arrays))


def test_plans() -> None:
    """Few columns: slices that keep the GPU busy; many: none. Shared memory always suffices."""
    assert ElementwiseConfig.of(ElementwiseWork(1 << 20, 1000, 2, 4, 1), H200).slices == 1
    assert ElementwiseConfig.of(ElementwiseWork(8192, 16384, 2, 4, 1), H200).slices == 16
    assert ElementwiseConfig.of(ElementwiseWork(8192, 16384, 2, 4, 0), H200).slices == 1
    assert ElementwiseConfig.of(ElementwiseWork(8192, 16, 2, 4, 1), H200).slices == 2
    assert ElementwiseConfig.of(ElementwiseWork(64, 16384, 2, 4, 1), H200).units == 8
    for on in (H200, A100, RTX):
        for columns in (1, 33, 512, 8192, 1 << 17, 1 << 22):
            for loads in (1, 2, 4, 9, 20, 40):
                for item in (2, 4, 8):
                    for states in (0, 1, 2, 8):
                        for forced in (None, 1, 2, 64):
                            todo = ElementwiseWork(columns, 5000, loads, item, states)
                            found = ElementwiseConfig.of(todo, on, forced)
                            assert found.threads % 32 == 0
                            assert 32 <= found.threads <= 512
                            assert found.shared(todo) <= on.shared, (todo, found)


def test_what_it_refuses() -> None:
    assert persistent.elementwise_unsupported(layout_of("mingru", torch.float32)) is None
    assert "clip" in str(persistent.elementwise_unsupported(layout_of("mingru", torch.float32, clip=1.0)))
    assert "W" in str(persistent.elementwise_unsupported(layout_of("gru", torch.float32)))
