"""Kernels on the CPU: their text compiled by g++ behind shim.h, so that their logic is tested without a GPU."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import re
import subprocess
from ctypes import Structure
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch

from recur.compiler.assembly import load_assembly
from recur.ops import operator
from recur.ops.cuda import blas, dispatch, launches, passes, persistent, streaming
from recur.ops.cuda.codegen import KERNELS, print_affine_maps, print_programs
from recur.ops.cuda.config import SINGLE_CTA, KernelConfig, ScanShape
from recur.ops.cuda.driver import DeviceInfo, LaunchSpec

SHIM = (Path(__file__).parent / "shim.h").read_text()
FETCH = """
template <int bytes> FUNCTION void fetch_bytes(void* to, const void* from) { std::memcpy(to, from, bytes); }
FUNCTION void end_group() {}
template <int later> FUNCTION void arrived() {}
FUNCTION void fetch_or_zero(byte* to, const void* from, bool there) {
    if (there) std::memcpy(to, from, 16); else std::memset(to, 0, 16);
}
"""
MMA = """
FUNCTION void mma(float (&c)[4], bits32 a0, bits32 a1, bits32 a2, bits32 a3, bits32 b0, bits32 b1) {
    static float a[32][16][8], b[32][8][8];
    const int warp = threadIdx.x / 32, row = threadIdx.x % 32 / 4, k = threadIdx.x % 4;
    a[warp][row][k] = __uint_as_float(a0), a[warp][row + 8][k] = __uint_as_float(a1);
    a[warp][row][k + 4] = __uint_as_float(a2), a[warp][row + 8][k + 4] = __uint_as_float(a3);
    b[warp][k][row] = __uint_as_float(b0), b[warp][k + 4][row] = __uint_as_float(b1);
    __syncthreads();
    for (int q = 0; q < 4; ++q)
        for (int i = 0; i < 8; ++i) c[q] += a[warp][row + q / 2 * 8][i] * b[warp][i][k * 2 + q % 2];
    __syncthreads();
}
FUNCTION bits32 tf32(bits32 x) { return (x + 0x1000) & ~0x1fffu; }
"""
"""What mma.cu has of the chip, for float32: places as the instruction m16n8k8 has them."""
ENTRY = """
extern "C" void launch_{name}(const {struct}* a, unsigned grid, unsigned threads) {{
    launch([&] {{ {name}(*a); }}, grid, threads, {meets});
}}
"""
KERNEL_NAMES = (
    ("elementwise_backward", "Backward", "SLICES > 1"),
    ("elementwise_forward", "Forward", "SLICES > 1"),
    ("stream_step", "Step", "true"),
    ("carry_forward", "Directions<Forward>", "true"),
    ("carry_backward", "Directions<Backward>", "true"),
    ("pack_weights", "PackArgs", "true"),
    ("reduce_gradients", "ReduceArgs", "true"),
)
"""What they are given, and whether their threads wait for each other."""
SMALL = DeviceInfo("a small one", 9, 0, 2, 232448)


@dataclass(eq=False)
class Prepared:
    """A launch, which is a call."""

    entry: Any
    how: LaunchSpec

    def __call__(self, stream: int, arguments: Structure) -> None:
        self.launch_bytes(stream, bytes(arguments))

    def resident(self) -> int:
        return SMALL.multiprocessors

    def launch_bytes(self, stream: int, arguments: bytes) -> None:
        assert self.how.shared <= SMALL.shared
        self.entry(arguments, self.how.grid, self.how.threads)


class Function(NamedTuple):
    entry: Any

    def prepare(self, how: LaunchSpec) -> Prepared:
        return Prepared(self.entry, how)


class Module(NamedTuple):
    library: ctypes.CDLL

    def function(self, name: str) -> Function:
        return Function(getattr(self.library, f"launch_{name}"))


def built(text: str, folder: Path) -> ctypes.CDLL:
    """A kernel's text, or any other, as a library of the CPU."""
    path = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.so"
    if not path.exists():
        path.with_suffix(".cpp").write_text(text)
        command = ["g++", "-std=c++20", "-O0", "-shared", "-fPIC", "-Wl,-Bsymbolic", "-w", "-pthread"]
        subprocess.run([*command, str(path.with_suffix(".cpp")), "-o", str(path)], check=True)
    return ctypes.CDLL(str(path))


def loaded(folder: Path, text: str, architecture: str, index: int) -> Module:
    name, struct, meets = next(found for found in KERNEL_NAMES if f" {found[0]}(" in text)
    mma = (KERNELS / "mma.cu").read_text()
    end = mma.index("FUNCTION uint4 tf32")
    text = text.replace((KERNELS / "fetch.cu").read_text(), FETCH).replace(mma[:end], MMA)
    if "struct Exchange" in text:  # of one CTA, which has nothing to say to others
        text = re.sub(r"asm volatile\(.*?\);", ";", text, flags=re.DOTALL)
    return Module(built(SHIM + text + ENTRY.format(name=name, struct=struct, meets=meets), folder))


def printed(cell: str, folder: Path) -> ctypes.CDLL:
    """A cell's printed functions, in float64, as they are."""
    a = load_assembly(cell)
    defined = '#define FUNCTION extern "C"\n#define NUM 1\n'
    whole = (KERNELS / "prelude.cu").read_text().replace("#define FUNCTION __device__ __forceinline__\n", "")
    return built(defined + "#include <cmath>\n" + whole + print_programs(a) + "\n" + print_affine_maps(a), folder)


def on_cpu(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Have backend `native` run the kernels of this one."""
    forget()
    for module in (persistent, launches, persistent):
        patch.setattr(module, "load_module", functools.partial(loaded, folder))
        patch.setattr(module, "device_info", lambda index: SMALL)
    for launching in (passes, launches):
        patch.setattr(launching, "current_raw_stream", lambda index: 0)
    patch.setattr(launches, "core", lambda: None)  # which would launch on a GPU
    patch.setattr(blas.Matmul, "workspace", 0)
    patch.setattr(blas.Matmul, "__call__", multiply)
    patch.setattr(persistent, "compile_cached", lambda text, architecture: SimpleNamespace(usage={}))
    patch.setattr(dispatch, "device_info", lambda index: SMALL)
    patch.setattr(dispatch, "on_device", lambda device: contextlib.nullcontext())
    patch.setitem(operator.KERNELS, "cpu", dispatch)


def single_cta(shape: ScanShape, found: list[KernelConfig]) -> list[KernelConfig]:
    """Select the first configuration of one CTA."""
    return [config for config in found if config.exchange == SINGLE_CTA][:1]


def forget() -> None:
    """What was prepared for another device."""
    for kept in (
        persistent.prepare_elementwise,
        launches.pack_kernel,
        launches.reduce_kernel,
        persistent.prepare_persistent,
        dispatch._forward_pass,
        dispatch._backward_pass,
        dispatch._forward_passes,
        dispatch._backward_passes,
        dispatch._choose_kernel,
    ):
        kept.cache_clear()


def multiply(self: blas.Matmul, index: int, stream: int, workspace: int, a: int, b: int, c: int) -> None:
    """What cuBLAS does, of memory that is named by its address alone."""
    if self.empty:
        return
    rows, columns, inner = self.sizes
    A = _matrix(a, self.dtype, (inner, rows) if self.a.transposed else (rows, inner), self.a.pitch)
    B = _matrix(b, self.dtype, (columns, inner) if self.b.transposed else (inner, columns), self.b.pitch)
    C = _matrix(c, self.into, (rows, columns), self.pitch)
    found = (A.t() if self.a.transposed else A).to(self.into) @ (B.t() if self.b.transposed else B).to(self.into)
    C.copy_(C + found if self.adds else found)


def _matrix(address: int, dtype: torch.dtype, shape: tuple[int, int], pitch: int) -> torch.Tensor:
    size = (shape[0] - 1) * pitch + shape[1]
    memory = (ctypes.c_char * (size * dtype.itemsize)).from_address(address)
    return torch.frombuffer(memory, dtype=dtype).as_strided(shape, (pitch, 1))


def streams_on_cpu(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Have slots on the CPU."""
    streaming.prepare_kernel.cache_clear()
    patch.setattr(streaming, "load_module", functools.partial(loaded, folder))
    patch.setattr(streaming, "device_info", lambda index: SMALL)
    patch.setattr(streaming, "on_device", lambda device: contextlib.nullcontext())
