"""NVRTC, the compiler in PyTorch's CUDA wheels: source to cubin, with a cache of compiled kernels in memory and on
disk.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import json
import os
import re
import tempfile
import warnings
from collections.abc import Iterator
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from pathlib import Path
from typing import NamedTuple

from recur.errors import BackendError
from recur.ops.cuda.driver import Module
from recur.utils.files import write_atomically

OPTIONS = ("--std=c++17", "--ptxas-options=-v", "--extra-device-vectorization", "--no-cache")
"""`--no-cache`: cubins from NVRTC's own cache come without the report of ptxas, and kernels are cached here anyway."""


class CompiledKernel(NamedTuple):
    cubin: bytes
    usage: dict[str, ResourceUsage]
    """Resource usage by kernel name."""


class ResourceUsage(NamedTuple):
    """Resource usage of a kernel, as ptxas reports it."""

    registers: int
    shared: int
    """Bytes of static shared memory."""
    stack: int
    """Bytes of local memory per thread: spilled registers and arrays that are not in registers."""
    spilled: int
    """Bytes of spill stores and loads."""


class Compiler:
    def __init__(self, library: ctypes.CDLL) -> None:
        self._nvrtc, self.path = library, str(library._name)
        library.nvrtcGetErrorString.restype = c_char_p
        major, minor = c_int(), c_int()
        self._check(library.nvrtcVersion(byref(major), byref(minor)))
        self.version = f"{major.value}.{minor.value}"

    @functools.cached_property
    def architectures(self) -> list[int]:
        """Supported architectures: 80, 90, …"""
        count = c_int()
        self._check(self._nvrtc.nvrtcGetNumSupportedArchs(byref(count)))
        found = (c_int * count.value)()
        self._check(self._nvrtc.nvrtcGetSupportedArchs(found))
        return sorted(found)

    def compile(self, source: str, architecture: str) -> CompiledKernel:
        """Compile a source for an architecture such as `sm_90a`."""
        program = c_void_p()
        self._check(self._nvrtc.nvrtcCreateProgram(byref(program), source.encode(), b"recur.cu", 0, None, None))
        try:
            options = [f"--gpu-architecture={architecture}", *OPTIONS]
            given = (c_char_p * len(options))(*(option.encode() for option in options))
            failed = self._nvrtc.nvrtcCompileProgram(program, len(options), given)
            log = self._read(program, "ProgramLog").decode(errors="replace")
            if failed:
                raise BackendError(f"NVRTC {self.version} cannot compile a kernel for {architecture}: {log.strip()}")
            return CompiledKernel(self._read(program, "CUBIN"), parse_usage(log))
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


def parse_usage(log: str) -> dict[str, ResourceUsage]:
    """Parse the output of `ptxas -v` into the usage of every kernel."""
    found: dict[str, ResourceUsage] = {}
    for part in re.split(r"Compiling entry function ", log)[1:]:
        name = re.match(r"'(\w+)'", part)
        registers, shared = re.search(r"Used (\d+) registers", part), re.search(r"(\d+) bytes smem", part)
        frame = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", part)
        assert name is not None
        stack, stores, loads = (int(n) for n in frame.groups()) if frame else (0, 0, 0)
        found[name[1]] = ResourceUsage(
            int(registers[1]) if registers else 0, int(shared[1]) if shared else 0, stack, stores + loads
        )
    return found


def _candidate_paths() -> Iterator[str]:
    """Yield paths of libnvrtc: next to PyTorch's CUDA libraries, inside torch, and on the system's search path."""
    for package in ("nvidia", "torch"):
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            paths = Path(folder).glob("**/lib/libnvrtc.so.*" if package == "nvidia" else "lib/libnvrtc*.so*")
            yield from sorted((str(p) for p in paths if "alt" not in p.name and "builtins" not in p.name), reverse=True)
    yield from ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "/usr/local/cuda/lib64/libnvrtc.so")


@functools.cache
def _load() -> Compiler | str:
    for path in _candidate_paths():
        try:
            for part in Path(path).parent.glob("libnvrtc-builtins.so*"):  # NVRTC looks for it by name only
                ctypes.CDLL(str(part), mode=ctypes.RTLD_GLOBAL)
            return Compiler(ctypes.CDLL(path))
        except OSError:  # not there, or not for this machine
            continue
    return "libnvrtc was not found: torch's CUDA wheels carry it, and so does pip install nvidia-cuda-nvrtc"


def load_compiler() -> Compiler | None:
    found = _load()
    return None if isinstance(found, str) else found


def compiler_missing_reason() -> str | None:
    """Return the reason why NVRTC cannot be used, or None."""
    found = _load()
    return found if isinstance(found, str) else None


CACHE_HEADER = b"recur-cubin-1\n"


def cache_folder() -> Path:
    """Return the folder of cached kernels: RECUR_CACHE, or a folder in the user's cache directory."""
    asked = os.environ.get("RECUR_CACHE")
    if asked:
        return Path(asked)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "recur" / "cuda"
    except RuntimeError:  # the user has no home directory
        return Path(tempfile.gettempdir()) / f"recur-{os.getuid()}" / "cuda"


def compile_cached(source: str, architecture: str) -> CompiledKernel:
    """Return a compiled kernel from the disk cache; compile and store it if it is not there."""
    compiler = load_compiler()
    if compiler is None:
        raise BackendError(f"backend 'cuda' has no compiler: {compiler_missing_reason()}")
    made_of = "\n".join([compiler.version, architecture, *OPTIONS, source])
    path = cache_folder() / f"{hashlib.sha256(made_of.encode()).hexdigest()}.cubin"
    found = _read_cached(path)
    if found is None:
        found = compiler.compile(source, architecture)
        _write_cached(path, found)
    return found


def _read_cached(path: Path) -> CompiledKernel | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, _, rest = content.removeprefix(CACHE_HEADER).partition(b"\n")
    if not content.startswith(CACHE_HEADER) or hashlib.sha256(rest).hexdigest().encode() != digest:
        return None
    usage, _, cubin = rest.partition(b"\n")
    return CompiledKernel(cubin, {name: ResourceUsage(*numbers) for name, numbers in json.loads(usage).items()})


def _write_cached(path: Path, made: CompiledKernel) -> None:
    rest = json.dumps(made.usage).encode() + b"\n" + made.cubin
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(path, CACHE_HEADER + hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest)
    except OSError as error:
        _warn_once(str(path.parent), error.strerror or str(error))


@functools.cache
def _warn_once(where: str, why: str) -> None:
    warnings.warn(
        f"compiled kernels cannot be kept in {where}: {why}; set RECUR_CACHE to a folder with room", stacklevel=2
    )


@functools.cache
def load_module(source: str, architecture: str, index: int) -> Module:
    """Compile and load a source on a device, which must be the current one."""
    return Module(compile_cached(source, architecture).cubin)
