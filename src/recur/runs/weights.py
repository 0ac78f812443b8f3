"""Weights of a run: safetensors files and their checks; and the precision, device and
CUDA graphs that models compute with.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from recur.compat import float32_precision, has_bfloat16_instructions, set_float32_precision
from recur.errors import OptionError, RunError, TextError
from recur.options import Natural, check_device, checked
from recur.runs.manifest import parse_json
from recur.runs.safe_dir import SafeDir
from recur.utils.limits import TENSOR_HEADER, check_count
from recur.utils.types import JsonObject

T = TypeVar("T")


def to_bytes(tensors: Mapping[str, Tensor], about: Mapping[str, object]) -> bytes:
    """Return a safetensors file of tensors, with `about` as JSON metadata; equal contents give equal bytes."""
    packed = {name: tensors[name].contiguous() for name in sorted(tensors)}
    return save(packed, {"about": json.dumps(about)})  # one entry: several would be written in any order


def from_bytes(content: bytes, path: Path) -> tuple[dict[str, Tensor], JsonObject]:
    """Return the tensors and the metadata of a safetensors file that `to_bytes` wrote."""
    try:
        about = _about(content, str(path))
        tensors = load(content)
    except TextError as error:
        raise RunError(str(error)) from None
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunError(f"{path} is damaged: {error}") from None
    return tensors, about


def read_about(folder: SafeDir, name: str) -> JsonObject:
    """Return the metadata of a safetensors file, from its header alone; empty if it cannot be read."""
    try:
        return _about(folder.read_from(name, 0, 8 + TENSOR_HEADER)[0], name)
    except (OSError, RunError, TextError, ValueError, KeyError, TypeError, RecursionError):
        return {}


def _about(content: bytes, name: str) -> JsonObject:
    length = int.from_bytes(content[:8], "little")
    check_count(name, "bytes of a header", length, TENSOR_HEADER, "check that it is the file that recur wrote")
    about = parse_json(parse_json(content[8 : 8 + length], name)["__metadata__"]["about"])
    if not isinstance(about, dict):
        raise ValueError("its metadata is not an object")
    return about


def check_weights(expected: Mapping[str, Tensor], got: Mapping[str, Tensor], complaint: str) -> None:
    """Refuse tensors whose names, shapes or dtypes are not the expected ones, and values that are not finite."""
    wanted = {name: (tuple(value.shape), value.dtype) for name, value in expected.items()}
    found = {name: (tuple(value.shape), value.dtype) for name, value in got.items()}
    if wanted != found:
        first = next(name for name in sorted({*wanted, *found}) if wanted.get(name) != found.get(name))
        raise RunError(f"{complaint}: {first}: expected {_describe(wanted, first)}, got {_describe(found, first)}")
    for name, value in got.items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise RunError(f"{complaint}: {name} holds numbers that are not finite")


def _describe(forms: Mapping[str, tuple[tuple[int, ...], torch.dtype]], name: str) -> str:
    if name not in forms:
        return "nothing"
    shape, dtype = forms[name]
    return f"{shape} of {str(dtype).removeprefix('torch.')}"


Precision = Literal["float32", "tf32", "bfloat16", "float16"]

SWITCHES = ("matmul", "rnn")
"""PyTorch's switches for the format of float32 products on a GPU."""

AMPERE = (8, 0)
"""Lowest compute capability of GPUs that multiply tf32 and bfloat16."""


def check_precision(precision: Precision, device: torch.device) -> None:
    """Raise OptionError if a device does not support a precision."""
    if device.type == "cpu" and precision == "tf32":
        raise OptionError("precision tf32 is a format of NVIDIA GPUs; on the CPU take float32 or bfloat16")
    if device.type == "cuda" and precision in ("tf32", "bfloat16") and not _has_wide_units(device):
        name = torch.cuda.get_device_name(device)
        raise OptionError(f"precision {precision} needs compute capability 8.0, and {name} has less; take float16")


def pick_precision(device: torch.device, in_16_bits: bool) -> Precision:
    """Return the fastest precision of a device; a 16-bit one only if the task keeps its quality with it."""
    if device.type == "cuda":
        wide = _has_wide_units(device)
        return ("bfloat16" if in_16_bits else "tf32") if wide else "float32"
    return "bfloat16" if in_16_bits and device.type == "cpu" and has_bfloat16_instructions() else "float32"


def _has_wide_units(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device) >= AMPERE


@contextmanager
def matmul_precision(precision: Precision, device: torch.device) -> Iterator[None]:
    """Set the format of float32 products on a GPU, and restore PyTorch's switches when the block ends."""
    number = "ieee" if precision == "float32" else "tf32"
    before = {op: float32_precision(op) for op in SWITCHES if device.type == "cuda"}
    try:
        for op in before:
            set_float32_precision(op, number)
        yield
    finally:
        for op, value in before.items():
            set_float32_precision(op, value)


@contextmanager
def autocast_in(precision: Precision, device: torch.device) -> Iterator[None]:
    """Compute with a precision: `matmul_precision`, and autocast for 16-bit formats.

    The backward pass needs `matmul_precision` alone: autograd uses the dtypes of the forward pass.
    """
    with matmul_precision(precision, device):
        if precision in ("bfloat16", "float16"):
            with torch.autocast(device.type, getattr(torch, precision)):
                yield
        else:
            yield


def use_threads(threads: int, of_run: int = 0) -> None:
    """Set the number of CPU threads: as requested, else as the run was trained with.

    Training measures which number is fastest. Torch's own default, all cores, is many times slower for small networks
    on a busy machine.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if chosen := checked("threads", threads, Natural) or min(of_run, cores):
        torch.set_num_threads(chosen)


def pick_device(name: str) -> torch.device:
    """Return the device of a name; `auto` is the GPU if there is one."""
    check_device(name)
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise OptionError(f"device {name!r} was requested, but torch sees no GPU; run recur doctor for details")
    if device.index is not None and device.index >= torch.cuda.device_count():
        raise OptionError(f"device {name!r} was requested, but torch sees {torch.cuda.device_count()} GPU(s)")
    return device


class GraphCapture:
    """Side stream and memory pool for captures of code that is repeated with the same shapes.

    PyTorch sets three rules for a capture. The code runs on a side stream a few times before it is captured, so that
    compilation and allocation happen outside the graph. The captured code reads its inputs from tensors that stay at
    the same addresses; the caller copies new values there before each replay. The captured code must not wait for the
    device.
    """

    def __init__(self, device: torch.device | None = None) -> None:
        self._stream = torch.cuda.Stream(device)
        # Graphs of one pool share their memory: only one of them runs at a time.
        self._pool = torch.cuda.graph_pool_handle()

    @contextmanager
    def warm_up(self) -> Iterator[None]:
        """Run a block on the side stream, ordered after the current stream and before what follows on that stream."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            yield
        torch.cuda.current_stream().wait_stream(self._stream)

    def capture(self, function: Callable[[], T]) -> tuple[torch.cuda.CUDAGraph, T]:
        """Capture a call of `function`, which is not run, and return the graph with the tensors that replays write."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            result = function()
        return graph, result
