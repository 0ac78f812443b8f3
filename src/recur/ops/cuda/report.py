"""Measurement of kernels on a GPU for tuning tables, and the report of `recur doctor`: which kernels work."""

from __future__ import annotations

import functools
import itertools
import os
import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from ctypes import byref, c_int
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from recur.cells import make_cell
from recur.compiler.assembly import load_assembly
from recur.compiler.programs import Signature, make_signature, text_of
from recur.errors import BackendError, RecurError
from recur.ops.cuda import dispatch, nvrtc, persistent, tuning
from recur.ops.cuda.config import CLUSTER, EXCHANGE_NAMES, GRID, SINGLE_CTA, KernelConfig, ScanShape, override
from recur.ops.cuda.dispatch import missing_reason
from recur.ops.cuda.driver import DeviceInfo, device_info, load_driver
from recur.ops.cuda.heuristics import list_configs
from recur.ops.cuda.launches import ChosenKernel
from recur.ops.cuda.layout import ScanLayout, scan_layout, uses_tf32
from recur.ops.cuda.nvrtc import compile_cached
from recur.ops.cuda.passes import PACK, STEPS, BackwardPass, BackwardRequest, ForwardPass
from recur.ops.cuda.tuning import DIRECTIONS, TuningKey

ConfigRequest = tuple[ScanShape, KernelConfig]


def _layout(cell: str, dtype: torch.dtype, S: int, T: int, H: int) -> ScanLayout:
    a = load_assembly(cell)
    weights = 4 if a.products else 2
    return scan_layout(
        Signature(cell, dtype, (S, T, 1), (), a.gates * H, H, weights, a.extras, 0, False, False, 0.0, "")
    )


def compile_all(cell: str, dtype: torch.dtype, wanted: list[ConfigRequest]) -> None:
    """Compile kernels into the cache, several at a time: NVRTC releases the GIL."""
    architecture = device_info(torch.cuda.current_device()).architecture
    texts = {persistent.kernel_text(cell, dtype, p, config, not p.backward) for p, config in wanted}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda text: compile_cached(text, architecture), texts))


class KernelTimer:
    """Scan of random numbers whose kernels are timed alone."""

    def __init__(self, cell: str, dtype: torch.dtype, S: int, T: int, H: int) -> None:
        self.layout = layout = _layout(cell, dtype, S, T, H)
        a, index = layout.assembly, torch.cuda.current_device()
        numbers = torch.Generator(f"cuda:{index}").manual_seed(0)

        def random(*shape: int) -> torch.Tensor:
            return torch.randn(shape, device=f"cuda:{index}", generator=numbers).to(dtype)

        shapes: dict[str, tuple[int, ...]] = {
            "weight_ih": (a.gates * H, 1),
            "weight_hh": (a.products * H, H // a.heads),
        }
        shapes |= {"bias_ih": (a.gates * H,), "bias_hh": (a.products * H,)}
        weights = [random(*shapes[name]) * H**-0.5 for name in layout.names]
        given = [random(S, T, 1), *weights, *(random(H) for _ in range(a.extras))]
        self.given = given
        self.arriving = [random(S, T, H) for _ in layout.outputs]
        self.results = layout.empty_results(given[0], True)
        for part in self.results:
            part.copy_(random(*part.shape))

    def microseconds(self, p: ScanShape, config: KernelConfig | None) -> float | None:
        """Return microseconds per step; None if the configuration does not fit."""
        layout, index = self.layout, torch.cuda.current_device()
        chosen = None
        if config is not None:
            prepared = persistent.prepare_persistent(layout.of.cell, layout.of.dtype, p, config, index, not p.backward)
            if prepared is None:
                return None
            chosen = p, *prepared
        run = self._backward(chosen) if p.backward else self._forward(chosen)
        return time_microseconds(run, in_a_row=1) / layout.steps

    def _forward(self, chosen: ChosenKernel | None) -> Callable[[], object]:
        made = ForwardPass(self.layout, True, torch.cuda.current_device(), uses_tf32(), chosen)
        bound = made.bind(self.given)
        if chosen is None:
            return lambda: made.step_by_step(self.given, bound.made)
        return lambda: made.launches(bound.addresses, PACK, STEPS)(bound.addresses)

    def _backward(self, chosen: ChosenKernel | None) -> Callable[[], object]:
        layout, n = self.layout, len(self.layout.outputs)
        asked = BackwardRequest((True,) * n + (False,) * layout.assembly.states, False, False, False, False)
        made = BackwardPass(layout, asked, torch.cuda.current_device(), uses_tf32(), chosen)
        outputs = [layout.by_row(part) for part in self.results[:n]]
        kept = [*self.given, *outputs, *self.results[n + layout.assembly.states :]]
        gradients = [*self.arriving, *[None] * layout.assembly.states]
        bound = made.bind(kept, gradients)
        if chosen is None:
            return lambda: made.step_by_step(kept, gradients, bound)
        return lambda: made.launches(bound.addresses, PACK, STEPS)(bound.addresses)


TIMED_STEPS = 100
TUNED_WIDTHS, TUNED_ROWS = (512, 256, 1024, 128, 768, 1536), (64, 16, 256, 1)
TUNED_CELLS: dict[str, Callable[[int, int], nn.RNNBase]] = {"lstm": nn.LSTM, "gru": nn.GRU, "elman": nn.RNN}
MAX_TIMED_CONFIGS = 8
"""Number of configurations that are measured per key, the best by estimate."""
ROUNDS, IN_A_ROW = 5, 5


class TimedLayer:
    """Layer with random weights, as wide as its input, whose passes are run or timed."""

    def __init__(self, cell: str, S: int, H: int, dtype: torch.dtype, index: int, steps: int = TIMED_STEPS) -> None:
        made, on = make_cell(cell), torch.device("cuda", index)
        numbers = torch.Generator(on).manual_seed(0)

        def drawn(*shape: int) -> Tensor:
            return torch.randn(shape, generator=numbers, device=on)

        self.data = drawn(steps, S, H).to(dtype).transpose(0, 1)
        weights = [(drawn(*shape) / H**0.5).to(dtype) for shape in made.shapes(H, H).values()]
        self.arriving = drawn(steps, S, H).to(dtype).transpose(0, 1)
        self.of, self.given = make_signature(self.data, weights, [], [], None, None, None, 0.0, text_of(made, True), "")
        self.layout, self.index, self.cell = scan_layout(self.of), index, cell

    @functools.cached_property
    def kernel_timer(self) -> KernelTimer:
        """Timer of the kernel without the matmuls before and after it."""
        return KernelTimer(self.of.cell, self.of.dtype, self.layout.S, self.layout.steps, self.layout.H)

    def configs(self, backward: bool) -> list[KernelConfig]:
        """Return the configurations that fit, the most promising first."""
        return list_configs(persistent.scan_shape(self.layout, backward), device_info(self.index))

    def forward(self) -> list[Tensor]:
        return dispatch.forward(self.of, self.given, True)

    def backward(self, results: Sequence[Tensor]) -> list[Tensor]:
        found, _ = dispatch.backward(self.of, self._kept(results), [self.arriving], True, False, False)
        return [part for part in found if part is not None]

    def _kept(self, results: Sequence[Tensor]) -> list[Tensor]:
        n = len(self.layout.outputs)
        return [*self.given, *results[:n], *results[n + len(self.layout.finals) :]]

    def prepared(self, results: Sequence[Tensor] | None) -> Callable[[], object]:
        """Return a prepared pass with the forced configuration: backward from `results`, or forward if None."""
        index, tf32 = self.index, uses_tf32()
        with dispatch.on_device(torch.device("cuda", index)):
            chosen = dispatch.choose_kernel(self.layout, index, results is not None, results is None)
            if results is None:
                return functools.partial(ForwardPass(self.layout, True, index, tf32, chosen), self.given)
            kept, gradients = self._kept(results), [self.arriving, *[None] * len(self.layout.finals)]
            asked = BackwardRequest(tuple(part is not None for part in gradients), True, False, False, False)
            return functools.partial(BackwardPass(self.layout, asked, index, tf32, chosen), kept, gradients)

    def has(self, config: KernelConfig | None, backward: bool) -> bool:
        """Return True if the configuration fits and would run."""
        with force_config(config), dispatch.on_device(torch.device("cuda", self.index)):
            found = dispatch.choose_kernel(self.layout, self.index, backward, not backward)
        return (found is None) == (config is None)


def force_config(config: KernelConfig | None) -> AbstractContextManager[None]:
    """Force one configuration inside a `with` block; None is one launch per step."""
    return override(select=lambda shape, found: [config])


def time_microseconds(call: Callable[[], object], in_a_row: int = IN_A_ROW) -> float:
    """Return the median time of several measurements, each of several calls between two events."""
    call()
    times: list[float] = []
    for _ in range(ROUNDS):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        first.record()
        for _ in range(in_a_row):
            call()
        last.record()
        torch.cuda.synchronize()
        times.append(first.elapsed_time(last) * 1e3 / in_a_row)
    return statistics.median(times)


def flatten_weights(layer: nn.RNNBase) -> nn.RNNBase:
    """Move the weights into one buffer, as cuDNN needs; PyTorch does not do so for bfloat16."""
    weights = list(layer.parameters())
    buffer = torch.cat([weight.detach().reshape(-1) for weight in weights])
    for weight, part in zip(weights, buffer.split([weight.numel() for weight in weights]), strict=True):
        weight.data = part.view_as(weight)
    return layer


class GpuTuningTarget:
    """Kernels of a GPU, measured for `tuning.tune`: times are in microseconds per step, None where it cannot run."""

    def __init__(self, index: int = 0) -> None:
        self.index, self.device = index, device_info(index).name

    def tuning_keys(self) -> list[TuningKey]:
        """Return all keys to measure, the most important first."""
        dtypes = ["bfloat16", "tf32" if uses_tf32() else "exact", "float16"]
        sizes = itertools.product(TUNED_WIDTHS, TUNED_ROWS, dtypes, TUNED_CELLS, DIRECTIONS)
        return [
            TuningKey(_count_gates(cell), _count_gates(cell), H, S, kind, config) for H, S, kind, cell, config in sizes
        ]

    def candidates(self, key: TuningKey) -> list[tuning.ConfigValues]:
        """Return the most promising configurations, after compiling them in parallel."""
        layer, backward = self._layer(key._replace(direction="")), key.direction == "backward"
        found, p = layer.configs(backward)[:MAX_TIMED_CONFIGS], persistent.scan_shape(layer.layout, backward)
        compile_all(layer.of.cell, layer.of.dtype, [(p, config) for config in found])
        return [*(asdict(config) for config in found), {}]

    def measure(self, key: TuningKey, config: tuning.ConfigValues) -> float | None:
        """Return the time of the kernel."""
        layer, backward = self._layer(key._replace(direction="")), key.direction == "backward"
        try:
            return layer.kernel_timer.microseconds(
                persistent.scan_shape(layer.kernel_timer.layout, backward), _parse_config(config)
            )
        except (BackendError, MemoryError, torch.OutOfMemoryError):
            return None

    def measure_pass(self, key: TuningKey, config: tuning.ConfigValues) -> float | None:
        """Return the time of the whole pass."""
        layer, backward = self._layer(key._replace(direction="")), key.direction == "backward"
        results = layer.forward()
        with force_config(_parse_config(config)):
            call = layer.prepared(results if backward else None)
        return time_microseconds(call) / TIMED_STEPS

    def measure_cudnn(self, key: TuningKey) -> float | None:
        """Return the time of cuDNN."""
        layer = self._layer(key._replace(direction=""))
        x = layer.data.transpose(0, 1).detach().requires_grad_()
        arriving = layer.arriving.transpose(0, 1)
        peer = flatten_weights(TUNED_CELLS[layer.cell](key.H, key.H).to(x.device, x.dtype))
        leaves = [x, *peer.parameters()]
        forward = time_microseconds(lambda: peer(x)) / TIMED_STEPS
        if key.direction == "forward":
            return forward
        both = time_microseconds(lambda: torch.autograd.grad(peer(x)[0], leaves, arriving)) / TIMED_STEPS
        return max(both - forward, 1e-3)

    @functools.lru_cache(maxsize=1)  # noqa: B019  # one of them lives
    def _layer(self, key: TuningKey) -> TimedLayer:
        cell = next(cell for cell in TUNED_CELLS if _count_gates(cell) == key.gates)
        dtype = getattr(torch, key.matmul_dtype if "float" in key.matmul_dtype else "float32")
        return TimedLayer(cell, key.S, key.H, dtype, self.index)


def _parse_config(values: tuning.ConfigValues) -> KernelConfig | None:
    return KernelConfig(**{name: int(value) for name, value in values.items()}) if values else None


def _count_gates(cell: str) -> int:
    return len(make_cell(cell).gates)


PER_STEP = "one launch per step"
SIZES = {SINGLE_CTA: (5, 32), CLUSTER: (5, 128), GRID: (5, 512)}
"""Rows and units of the small layer that tests each exchange."""
TOLERANCE = 2e-2
"""Relative tolerance of bfloat16 products that are summed in another order."""


def gpu_report(index: int = 0) -> dict[str, Any]:
    """Return the full report; without a GPU, what is installed for one."""
    found: dict[str, Any] = {"compiler": describe_compiler(), "cache": describe_cache()}
    reason = no_gpu()
    if reason is None:
        here = device_info(index)
        found |= {
            "name": here.name,
            "capability": f"{here.major}.{here.minor}",
            "multiprocessors": here.multiprocessors,
            "shared_kib": here.shared // 1024,
            "driver": driver_version(),
            "table": describe_table(here.name),
        }
        reason = missing_reason(index)
    if reason is not None:
        return found | {"missing": reason}
    return found | {"exchanges": check_exchanges(index)}


def no_gpu() -> str | None:
    if torch.cuda.is_available():
        return None
    return "torch sees no GPU" if torch.version.cuda else "this torch is built for the CPU alone"


def describe_compiler() -> str:
    found = nvrtc.load_compiler()
    return str(nvrtc.compiler_missing_reason()) if found is None else f"NVRTC {found.version}, {found.path}"


def driver_version() -> str:
    """Return the newest CUDA version that the driver supports."""
    found, version = load_driver(), c_int()
    if found is None or found.cuda.cuDriverGetVersion(byref(version)):
        return "not found"
    return f"CUDA {version.value // 1000}.{version.value % 1000 // 10}"


def describe_cache() -> str:
    """Return the folder of cached kernels, and whether it can be written."""
    folder = nvrtc.cache_folder()
    there = next((part for part in (folder, *folder.parents) if part.exists()), folder)
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return f"{folder}: cannot be written; set RECUR_CACHE to a folder that can"
    return f"{folder}: {len(list(folder.glob('*.cubin')))} kernels"


def describe_table(name: str) -> str:
    found = tuning.load_table(name)
    if found is None:
        return "none for this GPU: kernels are chosen by an estimate; recur doctor --tune measures them"
    own = tuning.user_file(name)
    return f"{len(found.entries)} problems, {own if own.exists() else 'shipped'}"


def check_exchanges(index: int) -> dict[str, str]:
    """Check one launch per step and every exchange of persistent kernels: "works", or the reason why not."""
    return {PER_STEP: check_per_step(index)} | {
        EXCHANGE_NAMES[exchange]: check_persistent(index, exchange) for exchange in SIZES
    }


def check_per_step(index: int) -> str:
    """Check that one launch per step runs and gives finite numbers; the other kernels are compared with it."""
    try:
        layer = TimedLayer("lstm", 5, 32, torch.bfloat16, index, steps=4)
        with force_config(None):
            results = layer.forward()
            finite = all(bool(part.isfinite().all()) for part in [results[0], *layer.backward(results)])
        return "works" if finite else "gives NaN or infinity"
    except (RecurError, RuntimeError, MemoryError) as error:
        return _describe_failure(error)


def check_persistent(index: int, exchange: int) -> str:
    """Compare the forward and backward pass of a small layer with one launch per step."""
    reason = exchange_unsupported_reason(device_info(index), exchange)
    if reason is not None:
        return reason
    S, H = SIZES[exchange]
    try:
        layer = TimedLayer("lstm", S, H, torch.bfloat16, index, steps=20)
        with force_config(None):
            expected = layer.forward()
            slopes = layer.backward(expected)
        for backward in (False, True):
            fits = (
                config
                for config in layer.configs(backward)
                if config.exchange == exchange and layer.has(config, backward)
            )
            config = next(fits, None)
            if config is None:
                return f"does not fit {'backward' if backward else 'forward'}: registers, shared memory or CTAs at once"
            with force_config(config):
                got = layer.backward(expected) if backward else layer.forward()[:1]
            for a, b in zip(got, slopes if backward else expected, strict=False):
                if not _near(a, b):
                    return f"gives wrong numbers {'backward' if backward else 'forward'}"
        return "works"
    except (RecurError, RuntimeError, MemoryError) as error:
        return _describe_failure(error)


def exchange_unsupported_reason(here: DeviceInfo, exchange: int) -> str | None:
    """Return the reason why a GPU cannot use an exchange, or None."""
    if exchange == CLUSTER and not here.clusters:
        return f"needs compute capability 9.0, and this is {here.major}.{here.minor}"
    return None


def _near(a: torch.Tensor, b: torch.Tensor) -> bool:
    a, b = a.double(), b.double()
    return bool((a - b).norm() <= TOLERANCE * b.norm())


def _describe_failure(error: BaseException) -> str:
    return f"does not work: {(str(error).splitlines() or [type(error).__name__])[0]}"
