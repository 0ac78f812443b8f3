"""Why there are no kernels: what is said on machines that lack something, without a GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from recur.cells import make_cell
from recur.compiler.programs import text_of
from recur.errors import BackendError
from recur.ops import scan
from recur.ops.cuda import blas, dispatch, driver, nvrtc
from recur.ops.cuda.driver import A100, H200, DeviceInfo
from tests.support import random_weights


class Library:
    """In libcuda's place: functions that all return one status."""

    def __init__(self, status: int = 0, *without: str) -> None:
        self._status, self._without = status, without

    def __getattr__(self, name: str) -> Any:
        if name in self._without or name.startswith("__"):
            raise AttributeError(name)

        def function(*arguments: Any) -> int:
            if name == "cuGetErrorName":
                arguments[1]._obj.value = b"CUDA_ERROR_OF_SOME_KIND"
                return 0
            return self._status

        setattr(self, name, function)
        return function


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """One that has all: an H200, a driver, and a compiler that knows it."""
    has = SimpleNamespace(
        device=H200, driver=object(), blas=object(), compiler=SimpleNamespace(version="13.0", architectures=[80, 90])
    )
    monkeypatch.setattr(dispatch, "device_info", lambda index: has.device)
    monkeypatch.setattr(dispatch, "load_driver", lambda: has.driver)
    monkeypatch.setattr(blas, "library", lambda: has.blas)
    monkeypatch.setattr(nvrtc, "load_compiler", lambda: has.compiler)
    monkeypatch.setattr(nvrtc, "compiler_missing_reason", lambda: "libnvrtc was not found: nowhere")
    dispatch.missing_reason.cache_clear()
    yield has
    dispatch.missing_reason.cache_clear()


def test_nothing_is_missing(machine: SimpleNamespace) -> None:
    assert dispatch.missing_reason(0) is None


@pytest.mark.parametrize(
    ("lacks", "said"),
    [
        (
            {"device": DeviceInfo("NVIDIA T4", 7, 5, 40, 65536)},
            "NVIDIA T4 has compute capability 7.5, and kernels need 8.0",
        ),
        ({"driver": None}, "the CUDA driver (libcuda) was not found, or is older than CUDA 12"),
        (
            {"blas": None},
            f"cuBLAS, which torch's CUDA wheels carry, was not found: {' nor '.join(blas.library_names())}",
        ),
        ({"compiler": None}, "libnvrtc was not found: nowhere"),
        ({"device": DeviceInfo("NVIDIA B200", 10, 0, 148, 232448)}, "NVRTC 13.0 does not know sm_100a of NVIDIA B200"),
    ],
)
def test_what_is_missing(machine: SimpleNamespace, lacks: dict[str, Any], said: str) -> None:
    for name, value in lacks.items():
        setattr(machine, name, value)
    assert dispatch.missing_reason(0) == said


def test_a_machine_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(name: str) -> None:
        raise OSError(name)

    driver.load_driver.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", nowhere)
    assert driver.load_driver() is None
    driver.load_driver.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library(0, "cuLaunchKernelEx"))
    assert driver.load_driver() is None, "one of before CUDA 12"
    driver.load_driver.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library())
    assert isinstance(driver.load_driver(), driver.Driver)
    driver.load_driver.cache_clear()


def test_errors_of_the_driver() -> None:
    made: Any = driver.Driver(Library())  # type: ignore[arg-type]
    made.check(0, "nothing")
    with pytest.raises(MemoryError, match="the GPU ran out of memory: loading a kernel"):
        made.check(2, "loading a kernel")
    with pytest.raises(BackendError, match="the CUDA driver failed: a launch: CUDA_ERROR_OF_SOME_KIND"):
        made.check(700, "a launch")


def test_a_launch_says_what_it_was() -> None:
    made: Any = driver.Driver(Library(1))  # type: ignore[arg-type]
    how = driver.LaunchSpec(grid=4, threads=256, cluster=4, cooperative=True)
    prepared = driver.PreparedKernel(made, ctypes.c_void_p(), "forward", how)
    assert prepared.resident() == 0, "what cannot be asked for does not fit"
    with pytest.raises(BackendError, match=r"launching forward with LaunchSpec\(grid=4, .*CUDA_ERROR_OF_SOME_KIND"):
        prepared(0, ctypes.c_int(3))


def test_no_compiler_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "_candidate_paths", lambda: iter(["/nowhere/libnvrtc.so"]))
    nvrtc._load.cache_clear()
    try:
        assert nvrtc.load_compiler() is None
        assert "torch's CUDA wheels carry it" in str(nvrtc.compiler_missing_reason())
    finally:
        nvrtc._load.cache_clear()


def test_a_scan_says_why_it_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = make_cell("lstm")
    with pytest.raises(BackendError, match="'cuda' cannot run this: it runs on a GPU, and x is on cpu; take backend="):
        scan(cell, random_weights(cell, 2, 3), torch.randn(1, 2, 2, dtype=torch.float64), backend="cuda")
    passed = scan(cell, random_weights(cell, 2, 3), torch.randn(1, 2, 2, dtype=torch.float64), trace=True)
    assert (
        passed.trace.passed_over.get("cuda", "it runs on a GPU, and x is on cpu") == "it runs on a GPU, and x is on cpu"
    )


def test_what_a_device_has(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (H200.architecture, H200.clusters, H200.largest_cluster) == ("sm_90a", True, 16)
    assert (A100.architecture, A100.clusters, A100.largest_cluster) == ("sm_80", False, 1)
    assert DeviceInfo("a Spark", 12, 1, 48, 101376).largest_cluster == 8
    seen = SimpleNamespace(name="one", major=8, minor=9, multi_processor_count=58, shared_memory_per_block_optin=101376)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: seen)
    driver.device_info.cache_clear()
    try:
        assert driver.device_info(0) == DeviceInfo("one", 8, 9, 58, 101376)
    finally:
        driver.device_info.cache_clear()


def test_shapes_of_a_graph_that_leaves_them_open() -> None:
    """The operator on tensors without numbers, whose sizes are symbols."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    from recur.compiler.programs import Signature
    from recur.ops.cuda import dispatch

    of = Signature(text_of(make_cell("lstm"), True), torch.float32, (), (), 20, 5, 4, 0, 0, False, False, 0.0, "")
    env = ShapeEnv()
    with FakeTensorMode(shape_env=env) as mode:
        data = mode.from_tensor(torch.zeros(6, 7, 3), static_shapes=False)
        weights = [torch.zeros(20, 3), torch.zeros(20, 5), torch.zeros(20), torch.zeros(20)]
        open_of = of._replace(shape=data.shape)
        outputs, h, c, *saved = dispatch.shapes(open_of, data, True)
        found = dispatch.gradient_shapes(open_of, [data, *weights], False)
    assert tuple(outputs.shape) == (*data.shape[:2], 5)
    assert outputs.stride()[0] == 5  # step after step
    assert h.shape == c.shape == (data.shape[0], 5)
    assert len(saved) == 2
    assert found[0].shape == data.shape


def test_meta_tensors_are_scanned() -> None:
    cell = make_cell("gru")
    weights = {name: torch.empty(shape, device="meta") for name, shape in cell.shapes(3, 5).items()}
    assert scan(cell, weights, torch.empty(2, 4, 3, device="meta")).outputs.shape == (2, 4, 5)
