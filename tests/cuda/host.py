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

from recur.cuda import along, run
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
"""
ENTRY = """
extern "C" void launch_{name}(const {struct}* a, unsigned grid, unsigned threads) {{
    launch([&] {{ {name}(*a); }}, grid, threads, SLICES > 1);
}}
"""
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
    name, struct = ("along_backward", "Backward") if " along_backward(" in text else ("along_forward", "Forward")
    whole = SHIM + text.replace((KERNELS / "fetch.cu").read_text(), FETCH) + ENTRY.format(name=name, struct=struct)
    return Module(built(whole, folder))


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
