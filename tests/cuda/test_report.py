"""What `recur doctor` says of a GPU, for GPUs that are described; and of this machine's, where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from recur.errors import BackendError
from recur.ops.cuda import report, tuning
from recur.ops.cuda.config import CLUSTER, GRID, SINGLE_CTA
from recur.ops.cuda.driver import A100, H200, DeviceInfo
from recur.ops.cuda.tuning import TuningKey
from tests.cuda.support import needs_gpu


class Described:
    """In a layer's place: forward gives ones, back gives twos, plus the error of the exchange."""

    now: Any = None
    wrong: dict[Any, float] = {}
    without: list[int] = []
    error: Exception | None = None

    def __init__(self, cell: str, S: int, H: int, dtype: torch.dtype, index: int, steps: int) -> None:
        if self.error is not None:
            raise self.error

    def configs(self, backward: bool) -> list[Any]:
        kept = [exchange for exchange in (SINGLE_CTA, CLUSTER, GRID) if exchange not in self.without]
        return [SimpleNamespace(exchange=exchange, backward=backward) for exchange in kept]

    def has(self, config: Any, backward: bool) -> bool:
        return True

    def forward(self) -> list[torch.Tensor]:
        return [torch.full((3,), 1.0 + self._off(False))]

    def backward(self, results: Any) -> list[torch.Tensor]:
        return [torch.full((3,), 2.0 + self._off(True))]

    def _off(self, backward: bool) -> float:
        exchange = None if self.now is None else self.now.exchange
        return self.wrong.get((exchange, backward), 0.0)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SimpleNamespace]:
    @contextmanager
    def by(config: Any) -> Iterator[None]:
        Described.now = config
        yield
        Described.now = None

    has = SimpleNamespace(device=H200, missing=None, layer=Described)
    monkeypatch.setattr(report, "TimedLayer", Described)
    monkeypatch.setattr(report, "force_config", by)
    monkeypatch.setattr(report, "device_info", lambda index: has.device)
    monkeypatch.setattr(report, "missing_reason", lambda index: has.missing)
    monkeypatch.setattr(report, "no_gpu", lambda: None)
    monkeypatch.setenv("RECUR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(Described, "wrong", {})
    monkeypatch.setattr(Described, "without", [])
    monkeypatch.setattr(Described, "error", None)
    monkeypatch.setattr(tuning, "SHIPPED_TABLES", tmp_path)
    return has


def test_all_that_works(machine: SimpleNamespace) -> None:
    found = report.gpu_report()
    assert found["exchanges"] == dict.fromkeys(("one launch per step", "cta", "cluster", "grid"), "works")
    assert (found["name"], found["capability"], found["multiprocessors"]) == ("NVIDIA H200", "9.0", 132)
    assert "none for this GPU: kernels are chosen by an estimate; recur doctor --tune" in found["table"]
    assert found["cache"].endswith("cache: 0 kernels")
    assert "missing" not in found


def test_what_a_gpu_lacks(machine: SimpleNamespace) -> None:
    machine.device = A100
    assert report.check_exchanges(0)["cluster"] == "needs compute capability 9.0, and this is 8.0"
    assert report.check_exchanges(0)["grid"] == "works"
    machine.missing = "it is too old"
    found = report.gpu_report()
    assert found["missing"] == "it is too old"
    assert "exchanges" not in found
    assert report.exchange_unsupported_reason(DeviceInfo("one", 12, 0, 170, 101376), CLUSTER) is None


@pytest.mark.parametrize(("backward", "says"), [(False, "forward"), (True, "backward")])
def test_wrong_numbers_are_said(machine: SimpleNamespace, backward: bool, says: str) -> None:
    machine.layer.wrong = {(GRID, backward): 0.1}
    assert report.check_exchanges(0) == {
        "one launch per step": "works", "cta": "works", "cluster": "works", "grid": f"gives wrong numbers {says}"
    }  # fmt: skip
    machine.layer.wrong = {(None, False): float("nan")}
    assert report.check_per_step(0) == "gives NaN or infinity"


def test_what_does_not_fit_and_what_fails(machine: SimpleNamespace) -> None:
    machine.layer.without = [CLUSTER]
    assert report.check_exchanges(0)["cluster"].startswith("does not fit forward: registers")
    machine.layer.error = BackendError("the CUDA driver failed: a launch\nand more")
    assert set(report.check_exchanges(0).values()) == {"does not work: the CUDA driver failed: a launch"}


def test_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    found = report.gpu_report()
    assert found["missing"] == "this torch is built for the CPU alone"
    assert {"compiler", "cache"} <= set(found)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert report.gpu_report()["missing"] == "torch sees no GPU"


def test_where_kernels_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.cubin").write_bytes(b"")
    monkeypatch.setenv("RECUR_CACHE", str(tmp_path))
    assert report.describe_cache() == f"{tmp_path}: 1 kernels"
    monkeypatch.setenv("RECUR_CACHE", str(tmp_path / "a.cubin" / "inside"))
    assert "cannot be written; set RECUR_CACHE" in report.describe_cache()


def test_versions_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "load_driver", lambda: None)
    assert report.driver_version() == "not found"

    def version(into: Any) -> int:
        into._obj.value = 13020
        return 0

    found = SimpleNamespace(cuda=SimpleNamespace(cuDriverGetVersion=version))
    monkeypatch.setattr(report, "load_driver", lambda: found)
    assert report.driver_version() == "CUDA 13.2"
    monkeypatch.setattr(report.nvrtc, "_load", lambda: "libnvrtc was not found")
    assert report.describe_compiler() == "libnvrtc was not found"


@pytest.mark.parametrize("mark", [pytest.param(None, marks=needs_gpu)])
def test_the_gpu_of_this_machine(mark: None) -> None:
    found = report.gpu_report()
    clusters = torch.cuda.get_device_properties(0).major >= 9
    assert found["exchanges"].pop("cluster") == "works" or not clusters
    assert set(found["exchanges"].values()) == {"works"}


@pytest.mark.parametrize("direction", [pytest.param(direction, marks=needs_gpu) for direction in tuning.DIRECTIONS])
def test_a_problem_is_measured(direction: str) -> None:
    bench = report.GpuTuningTarget()
    kind = TuningKey(3, 3, 64, 8, "bfloat16", direction)
    found = tuning.tune(lambda *progress: None, _Only(bench, kind))
    (measured,) = found.entries.values()
    assert 0 < measured.us < 100
    assert measured.whole_us is not None
    assert measured.cudnn_us is not None
    assert set(bench.tuning_keys()) > {kind._replace(H=512, S=64)}


class _Only:
    """One problem of all."""

    def __init__(self, bench: report.GpuTuningTarget, kind: TuningKey) -> None:
        self.device, self.candidates, self.measure = bench.device, bench.candidates, bench.measure
        self.measure_pass, self.measure_cudnn = bench.measure_pass, bench.measure_cudnn
        self.tuning_keys = lambda: [kind]
