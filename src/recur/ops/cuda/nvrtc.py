"""NVRTC, the compiler that torch's own wheels carry: text in, machine code of one architecture out."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import re
from collections.abc import Iterator
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from pathlib import Path
from typing import NamedTuple

from recur.errors import BackendError

OPTIONS = ("--std=c++17", "--ptxas-options=-v", "--extra-device-vectorization", "--no-cache")
"""The last: what it keeps itself comes without the report of ptxas, and cache.py keeps kernels anyway."""


class Compiled(NamedTuple):
    cubin: bytes
    usage: dict[str, Usage]
    """What each kernel takes, by its name."""


class Usage(NamedTuple):
    """What ptxas reports of a kernel."""

    registers: int
    shared: int
    """Bytes of shared memory that the kernel itself declares."""
    stack: int
    """Bytes of local memory a thread: an array that could not stay in registers, and spills."""
    spilled: int
    """Bytes stored and loaded because registers were too few."""


class Compiler:
    def __init__(self, library: ctypes.CDLL) -> None:
        self._nvrtc, self.path = library, str(library._name)
        library.nvrtcGetErrorString.restype = c_char_p
        major, minor = c_int(), c_int()
        self._check(library.nvrtcVersion(byref(major), byref(minor)))
        self.version = f"{major.value}.{minor.value}"

    @functools.cached_property
    def architectures(self) -> list[int]:
        """Those it compiles for: 80, 90, …"""
        count = c_int()
        self._check(self._nvrtc.nvrtcGetNumSupportedArchs(byref(count)))
        found = (c_int * count.value)()
        self._check(self._nvrtc.nvrtcGetSupportedArchs(found))
        return sorted(found)

    def compile(self, source: str, architecture: str) -> Compiled:
        """For `sm_90a` and the like."""
        program = c_void_p()
        self._check(self._nvrtc.nvrtcCreateProgram(byref(program), source.encode(), b"recur.cu", 0, None, None))
        try:
            options = [f"--gpu-architecture={architecture}", *OPTIONS]
            given = (c_char_p * len(options))(*(option.encode() for option in options))
            failed = self._nvrtc.nvrtcCompileProgram(program, len(options), given)
            log = self._read(program, "ProgramLog").decode(errors="replace")
            if failed:
                raise BackendError(f"NVRTC {self.version} cannot compile a kernel for {architecture}: {log.strip()}")
            return Compiled(self._read(program, "CUBIN"), usage_in(log))
        finally:
            self._nvrtc.nvrtcDestroyProgram(byref(program))

    def _read(self, program: c_void_p, what: str) -> bytes:
        size = c_size_t()
        self._check(getattr(self._nvrtc, f"nvrtcGet{what}Size")(program, byref(size)))
        content = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._nvrtc, f"nvrtcGet{what}")(program, content))
        return content.raw if what == "CUBIN" else content.value

    def _check(self, status: int) -> None:
        if status:
            raise BackendError(f"NVRTC failed: {self._nvrtc.nvrtcGetErrorString(status).decode()}")


def usage_in(log: str) -> dict[str, Usage]:
    """What ptxas -v says of every kernel."""
    found: dict[str, Usage] = {}
    for part in re.split(r"Compiling entry function ", log)[1:]:
        name = re.match(r"'(\w+)'", part)
        registers, shared = re.search(r"Used (\d+) registers", part), re.search(r"(\d+) bytes smem", part)
        frame = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", part)
        assert name is not None
        stack, stores, loads = (int(n) for n in frame.groups()) if frame else (0, 0, 0)
        found[name[1]] = Usage(
            int(registers[1]) if registers else 0, int(shared[1]) if shared else 0, stack, stores + loads
        )
    return found


def _candidates() -> Iterator[str]:
    """Beside torch's other CUDA libraries, in torch itself, and wherever the system looks."""
    for package in ("nvidia", "torch"):
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            paths = Path(folder).glob("**/lib/libnvrtc.so.*" if package == "nvidia" else "lib/libnvrtc*.so*")
            yield from sorted((str(p) for p in paths if "alt" not in p.name and "builtins" not in p.name), reverse=True)
    yield from ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "/usr/local/cuda/lib64/libnvrtc.so")


@functools.cache
def _load() -> Compiler | str:
    for path in _candidates():
        try:
            for part in Path(path).parent.glob("libnvrtc-builtins.so*"):  # which it looks for by its name alone
                ctypes.CDLL(str(part), mode=ctypes.RTLD_GLOBAL)
            return Compiler(ctypes.CDLL(path))
        except OSError:  # not there, or not for this machine
            continue
    return "libnvrtc was not found: torch's CUDA wheels carry it, and so does pip install nvidia-cuda-nvrtc"


def compiler() -> Compiler | None:
    found = _load()
    return None if isinstance(found, str) else found


def missing() -> str | None:
    """Why there is no compiler, if there is none."""
    found = _load()
    return found if isinstance(found, str) else None
