"""One step a launch without a GPU, against the loop in float64: kernels compiled by g++ and launched by the C++ core as
a GPU's are, products by PyTorch."""

from __future__ import annotations

import contextlib
import ctypes
import shutil
from collections.abc import Iterator
from ctypes import CFUNCTYPE, POINTER, c_int, c_size_t, c_uint64, c_void_p
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from recur.ops import operator
from recur.ops.bptt import BPTT
from recur.ops.cuda import blas, dispatch, launches, passes, per_step
from recur.ops.cuda.blas import Matmul, MatmulDescriptor
from recur.ops.cuda.config import override
from recur.ops.cuda.driver import Driver, PreparedKernel
from tests.cuda import host
from tests.support import Case, close, needs_core

pytestmark = [needs_core, pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")]

B, T, D, H = 5, 6, 4, 12
ENTRIES = """
struct Config { unsigned grid[3], block[3], shared; void *stream, *attributes; unsigned count; };
#define RUN(name, arguments, meets) extern "C" void run_##name(void** given, unsigned grid, unsigned threads) { \\
    launch([&] { name arguments; }, grid, threads, meets); }
RUN(forward_use, (*(const Forward*)given[0]), false)
RUN(forward_train, (*(const Forward*)given[0]), false)
RUN(backward_back, (*(const Backward*)given[0]), false)
RUN(backward_trace, (*(const Backward*)given[0]), false)
RUN(clip_carried, (*(const Backward*)given[0], *(const real*)given[1]), true)
extern "C" int launch_kernel(const Config* how, void* kernel, void** given, void**) {
    ((void (*)(void**, unsigned, unsigned))kernel)(given, how->grid[0], how->block[0]);
    return 0;
}
"""
"""A kernel's handle is the address of what runs it."""


class CPU:
    """In the driver's and cuBLAS' place."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.products = folder, list[Matmul]()
        pointers = [c_void_p] * 12
        kind = CFUNCTYPE(c_int, *pointers, POINTER(c_uint64), c_void_p, c_size_t, c_void_p)
        self.multiply = kind(self._multiply)
        self.launch: Any = None

    def loaded(self, text: str, architecture: str, index: int) -> Any:
        if " forward_use(" not in text:
            return host.loaded(self.folder, text, architecture, index)
        library = host.built(host.SHIM + text.replace("__shared__ real", "static real") + ENTRIES, self.folder)
        self.launch = library.launch_kernel
        driver = Driver(SimpleNamespace(cuLaunchKernelEx=self.launch))  # type: ignore[arg-type]

        def function(name: str) -> Any:
            handle = ctypes.cast(getattr(library, f"run_{name}"), c_void_p)
            return SimpleNamespace(prepare=lambda how: PreparedKernel(driver, handle, name, how))

        return SimpleNamespace(function=function)

    def library(self, index: int) -> Any:
        addresses = [ctypes.cast(function, c_void_p).value for function in (self.launch, self.multiply)]
        return launches._LaunchFunctions(*addresses, None)

    def prepared(self, product: Matmul) -> tuple[MatmulDescriptor, int]:
        """A product's descriptor is its number."""
        self.products.append(product)
        return MatmulDescriptor(how=len(self.products)), 64

    def _multiply(self, *given: Any) -> int:
        _, how, _, b, _, a, _, _, c = given[:9]
        host.multiply(self.products[how - 1], 0, 0, 0, a, b, c)
        return 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(params=[True, False], ids=["core", "Python"])
def by_steps(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CPU]:
    """Backend `native` takes one step a launch, by the core or by Python alone."""
    cpu = CPU(folder)
    host.forget()
    per_step.make_matmuls.cache_clear()
    for module in (per_step, launches):
        monkeypatch.setattr(module, "load_module", cpu.loaded)
        monkeypatch.setattr(module, "device_info", lambda index: host.SMALL)
    for module in (per_step, launches, passes):
        monkeypatch.setattr(module, "current_raw_stream", lambda index: 0)
    monkeypatch.setattr(per_step, "launch_functions", cpu.library)
    monkeypatch.setattr(launches, "core", lambda: None)  # kernels around the steps are launched otherwise
    if not request.param:
        monkeypatch.setattr(per_step, "core", lambda: None)
    monkeypatch.setattr(blas.Matmul, "_prepared", property(cpu.prepared))
    monkeypatch.setattr(blas.Matmul, "workspace", 64)
    monkeypatch.setattr(blas.Matmul, "__call__", host.multiply)
    monkeypatch.setattr(dispatch, "device_info", lambda index: host.SMALL)
    monkeypatch.setattr(dispatch, "on_device", lambda device: contextlib.nullcontext())
    monkeypatch.setitem(operator.KERNELS, "cpu", dispatch)
    with override(select=lambda shape, found: [None]):
        yield cpu
    host.forget()
    per_step.make_matmuls.cache_clear()
    used = [product for product in cpu.products if product.into == torch.float64]
    assert bool(used) == request.param, "the core multiplies, or Python does"


XI = torch.rand(B, T, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
LENGTHS = torch.tensor([6, 2, 5, 6, 1])
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "lengths": {"lengths": LENGTHS},
    "ξ": {"bptt": BPTT(xi=XI), "lengths": LENGTHS},
    "clip": {"bptt": "truncated:4,clip:0.3", "lengths": LENGTHS},
    "mask": {"mask": (torch.rand(B, H, generator=torch.Generator().manual_seed(2)) < 0.7).double()},
}


CASES = [
    ("lstm", "plain"),
    ("gru", "lengths"),
    ("peephole", "ξ"),
    ("lstm", "clip"),
    ("elman", "mask"),
    ("slstm", "lengths"),
]


@pytest.mark.parametrize(("name", "which"), CASES)
def test_against_the_loop(by_steps: CPU, name: str, which: str) -> None:
    case, options = Case(name, B, T, D, H), OPTIONS[which]
    found = []
    for backend in ("native", "loop"):
        result = case.scan(backend=backend, trace=True, **options)
        found.append(case.everything(lambda result=result: result))  # type: ignore[misc]
        found[-1] |= {f"norm {key}": norms for key, norms in result.trace.norms.items()}
    for key, value in found[1].items():
        close(found[0][key], value, f"{name}, {which}: {key}", 1e-11)
