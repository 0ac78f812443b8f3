"""Kernels on the CPU: their text compiled by g++ behind shim.h, so that their logic is tested without a GPU."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import subprocess
from collections.abc import Callable
from ctypes import Structure
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from recur.cuda import along, run, stream
from recur.cuda.device import Device
from recur.cuda.driver import Launch
from recur.cuda.source import KERNELS, load, maps, programs
from recur.native import operators

SHIM = (Path(__file__).parent / "shim.h").read_text()
FETCH = """
typedef std::conditional_t<sizeof(num) == 8, bits64, bits32> slot;
extern "C" { slot ring[1 << 20]; }
FUNCTION void fetch_bytes(slot* to, const void* from) { std::memcpy(to, from, sizeof(slot)); }
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
    ("along_backward", "Backward", "SLICES > 1"),
    ("along_forward", "Forward", "SLICES > 1"),
    ("stream_step", "Step", "true"),
)
"""What they are given, and whether their threads wait for each other."""
SMALL = Device("a small one", 9, 0, 2, 232448)


class Function(NamedTuple):
    entry: Any

    def prepare(self, how: Launch) -> Callable[..., None]:
        def launch(stream: int, arguments: Structure) -> None:
            assert how.shared <= SMALL.shared
            self.entry(ctypes.byref(arguments), how.grid, how.threads)

        return launch


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
    return Module(built(SHIM + text + ENTRY.format(name=name, struct=struct, meets=meets), folder))


def printed(cell: str, folder: Path) -> ctypes.CDLL:
    """A cell's printed functions, in float64, as they are."""
    a = load(cell)
    defined = '#define FUNCTION extern "C"\n#define NUM 1\n'
    whole = (KERNELS / "prelude.cu").read_text().replace("#define FUNCTION __device__ __forceinline__\n", "")
    return built(defined + "#include <cmath>\n" + whole + programs(a) + "\n" + maps(a), folder)


def on_cpu(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Have backend `native` run the kernels of this one."""
    along.prepared.cache_clear()
    patch.setattr(along, "loaded", functools.partial(loaded, folder))
    patch.setattr(along, "device", lambda index: SMALL)
    patch.setattr(along, "current_stream", lambda index: 0)
    patch.setattr(run, "on_device", lambda device: contextlib.nullcontext())
    patch.setitem(operators.IMPLEMENTATIONS, "cpu", run)


def streams_on_cpu(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Have slots on the CPU."""
    stream.kernel.cache_clear()
    patch.setattr(stream, "loaded", functools.partial(loaded, folder))
    patch.setattr(stream, "device", lambda index: SMALL)
    patch.setattr(stream, "on_device", lambda device: contextlib.nullcontext())
