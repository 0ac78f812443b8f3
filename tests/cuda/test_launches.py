"""LaunchList by the C++ core, and by Python, with functions of our own in the driver's and cuBLAS' place."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from ctypes import CFUNCTYPE, POINTER, c_int, c_size_t, c_uint64, c_void_p
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from recur.compiler.assembly import load_assembly
from recur.compiler.programs import Signature, text_of
from recur.errors import BackendError
from recur.ops.cuda import blas, launches, per_step
from recur.ops.cuda.blas import Matmul, MatmulDescriptor, MatmulOperand
from recur.ops.cuda.codegen import BACKWARD_FIELDS, FORWARD_FIELDS, ArgTemplate, KernelArguments
from recur.ops.cuda.driver import Driver, LaunchConfig, LaunchSpec, PreparedKernel
from recur.ops.cuda.launches import KernelLaunch, LaunchList, MatmulLaunch
from recur.ops.cuda.layout import ScanLayout
from recur.utils import core_library
from tests.support import make_cell, needs_core

pytestmark = needs_core
STREAM, HANDLE, WORKSPACE = 5, 6, 4096
CELL = text_of(make_cell("lstm"), True)


class GPU:
    """Keeps what was launched: a kernel's grid and bytes, a product's addresses and algorithm."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.status, self.bytes = 0, 0
        self.launch = CFUNCTYPE(c_int, POINTER(LaunchConfig), c_void_p, POINTER(c_void_p), c_void_p)(self._launch)
        pointers, algorithm = [c_void_p] * 12, POINTER(c_uint64)
        self.multiply = CFUNCTYPE(c_int, *pointers, algorithm, c_void_p, c_size_t, c_void_p)(self._multiply)

    def _launch(self, config: Any, kernel: int, arguments: Any, extra: int | None) -> int:
        given = ctypes.string_at(arguments[0], self.bytes)
        self.calls.append(("kernel", kernel, config[0].grid_x, config[0].stream, given))
        return self.status

    def _multiply(self, *given: Any) -> int:
        handle, how, _, b, left, a, right, _, c, out, to, _, algorithm, workspace, size, stream = given
        chosen = algorithm[0] if algorithm else None
        self.calls.append(("product", handle, how, left, right, out, a, b, c, to, chosen, workspace, size, stream))
        return self.status and 3


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[GPU]:
    made = GPU()
    addresses = [ctypes.cast(function, c_void_p).value for function in (made.launch, made.multiply)]
    for module in (launches, per_step):
        monkeypatch.setattr(module, "launch_functions", lambda index: launches._LaunchFunctions(*addresses, HANDLE))
        monkeypatch.setattr(module, "current_raw_stream", lambda index: STREAM)
    monkeypatch.setattr(blas, "function", lambda name: made.multiply if name == "cublasLtMatmul" else lambda *_: 0)
    monkeypatch.setattr(blas, "handle", lambda index: c_void_p(HANDLE))
    return made


def kernel(gpu: GPU, handle: int, grid: int = 7) -> PreparedKernel:
    driver = Driver(SimpleNamespace(cuLaunchKernelEx=SimpleNamespace(), cuGetErrorName=lambda *_: 0))  # type: ignore[arg-type]
    driver.launch = ctypes.cast(gpu.launch, CFUNCTYPE(c_int, *[c_void_p] * 4))  # type: ignore[assignment]
    return PreparedKernel(driver, c_void_p(handle), "of a test", LaunchSpec(grid, 256))


def product(sizes: tuple[int, int, int] = (2, 3, 4)) -> Matmul:
    made = Matmul(torch.float32, torch.float32, sizes, MatmulOperand(4), MatmulOperand(3), 3, False, False)
    described = MatmulDescriptor(how=11, left=12, right=13, out=14)
    described.algorithms[0][0], described.algorithms[1][0] = 100, 101
    made.__dict__["_prepared"] = described, 64
    return made


@pytest.mark.parametrize("native", [True, False])
def test_one_after_the_other(gpu: GPU, native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not native:
        monkeypatch.setattr(launches, "core", lambda: None)
    template = ArgTemplate(load_assembly(CELL), FORWARD_FIELDS, {"share": 1, "W": 2}, steps=3, S=4, H=5)
    addresses = [WORKSPACE, 1600, 3200, 0]
    gpu.bytes = len(template(addresses))
    multiplied = MatmulLaunch(product(), (1, 0), (2, 16), (2, 32))
    odd = MatmulLaunch(product(), (1, 4), (2, 0), (2, 0))
    nothing = MatmulLaunch(product((2, 0, 4)), (1, 0), (2, 0), (2, 0))
    run = LaunchList(0, [multiplied, nothing, KernelLaunch(kernel(gpu, 21), template), odd], 0)
    for _ in range(2):
        gpu.calls.clear()
        run(addresses)
        parts = HANDLE, 11, 12, 13, 14
        assert gpu.calls == [
            ("product", *parts, 1600, 3216, 3232, 3232, 100, WORKSPACE, 64, STREAM),
            ("kernel", 21, 7, STREAM, template(addresses)),
            ("product", *parts, 1604, 3200, 3200, 3200, 101, WORKSPACE, 64, STREAM),
        ]
    gpu.status = 1
    with pytest.raises(MemoryError, match="in a cuBLAS matrix product"):
        run(addresses)
    with pytest.raises(BackendError, match="launching of a test"):
        LaunchList(0, [KernelLaunch(kernel(gpu, 21), template)], 0)(addresses)


def make_layout(sizes: tuple[int, ...], clip: float) -> ScanLayout:
    return ScanLayout(Signature(CELL, torch.float32, (sum(sizes), 2), sizes, 32, 8, 4, 0, 0, False, False, clip, ""))


def by_steps(gpu: GPU, backward: bool, started: bool, clip: float = 0.0) -> list[tuple[Any, ...]]:
    """What is launched of four steps of 5, 5, 2 and 1 rows: products by their rows, kernels by what changes."""
    layout = make_layout((5, 5, 2, 1), clip)
    arguments = KernelArguments(layout.assembly, backward, S=5, H=8)
    gpu.bytes = ctypes.sizeof(arguments.struct)
    run = per_step.StepLauncher(layout, 0, backward, kernel(gpu, 21), arguments)
    run.multiply(torch.zeros(5, 8), torch.zeros(32, 8), False, started)
    if clip:
        run.clip(kernel(gpu, 22), clip)
    run()
    into, found = run._all.c, list[tuple[Any, ...]]()
    names = ("step", "rows", *(["later"] if backward else []))
    for call in gpu.calls:
        if call[0] == "product":
            found.append(("product", call[10] - 1))
            continue
        assert call[3] == STREAM
        numbers = [struct.unpack_from("i", call[4], arguments.at(name))[0] for name in names]
        (pointer,) = struct.unpack_from("Q", call[4], arguments.at("product"))
        assert pointer in (0, into)
        found.append((call[1], call[2], *numbers, pointer == into))
    return found


@pytest.fixture
def rows_as_algorithms(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A product's algorithm is named by its rows, and one."""

    def prepared(self: Matmul) -> tuple[MatmulDescriptor, int]:
        made = MatmulDescriptor()
        for place in made.algorithms:
            place[0] = self.sizes[0] + 1
        return made, 64

    monkeypatch.setattr(Matmul, "_prepared", property(prepared))
    per_step.make_matmuls.cache_clear()
    yield
    per_step.make_matmuls.cache_clear()


def test_steps_of_rows_that_end(gpu: GPU, rows_as_algorithms: None) -> None:
    """Forward, each step multiplies what those that go on left; of products there are those of 5, 3, 2 and 1 rows."""
    steps = [(21, 1, 0, 5, True), (21, 1, 1, 5, True), (21, 1, 2, 2, True), (21, 1, 3, 1, True)]
    with_products = [part for step, rows in zip(steps, (5, 5, 2, 1), strict=True) for part in (("product", rows), step)]
    assert by_steps(gpu, False, True) == with_products
    gpu.calls.clear()
    assert by_steps(gpu, False, False) == [(21, 1, 0, 5, False), *with_products[2:]]


@pytest.mark.parametrize("clip", [0.0, 0.5])
def test_steps_back(gpu: GPU, rows_as_algorithms: None, clip: float) -> None:
    """What a step carries back is that of the rows that went on; a bound on it comes between."""
    found = [(21, 1, 3, 1, 0, False)]
    for k, rows, later in ((2, 2, 1), (1, 5, 2), (0, 5, 5)):
        found.append(("product", later))
        if clip:
            found += [(22, later, k, rows, later, True), (21, 1, k, rows, 0, False)]
        else:
            found.append((21, 1, k, rows, later, True))
    assert by_steps(gpu, True, False, clip) == found


def test_what_tells_steps_apart(gpu: GPU, rows_as_algorithms: None) -> None:
    """All that their launches depend on is in the key of their graph."""

    def key(
        tf32: bool = False, started: bool = False, bound: float = 0.5, sizes: tuple[int, ...] = (5, 2), S: int = 5
    ) -> object:
        layout = layouts.setdefault(sizes, make_layout(sizes, bound))
        made = per_step.StepLauncher(layout, 0, True, kernel(gpu, 21), KernelArguments(layout.assembly, True, S=S, H=8))
        made.multiply(exchange, W, tf32, started)
        made._all.c = made._all.workspace = 0  # which are allocated anew
        made.clip(kernel(gpu, 22), bound)
        return made._key()

    layouts: dict[tuple[int, ...], ScanLayout] = {}
    exchange, W = torch.zeros(5, 32), torch.zeros(32, 8)
    same = key()
    assert key() == same
    others = [key(tf32=True), key(started=True), key(bound=0.6), key(sizes=(5, 3)), key(S=4)]
    exchange = torch.zeros(5, 32)
    assert same not in [*others, key()]


def test_structs_are_as_in_the_core() -> None:
    built = ctypes.CDLL(str(core_library.built()))
    assert built.recur_launch_bytes() == ctypes.sizeof(launches._Launch)
    assert built.recur_steps_bytes() == ctypes.sizeof(per_step._Steps)


def test_fields_of_both_passes() -> None:
    a = load_assembly(CELL)
    for backward, fields in ((False, FORWARD_FIELDS), (True, BACKWARD_FIELDS)):
        arguments = KernelArguments(a, backward, step=3, rows=9)
        arguments.number("step", 77)
        assert struct.unpack_from("i", bytes(arguments.struct), arguments.at("step"))[0] == 77
        last = fields[1][-1].split()[-1]
        assert arguments.at(last) == ctypes.sizeof(arguments.struct) - 8
