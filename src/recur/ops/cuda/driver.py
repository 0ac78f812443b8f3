"""CUDA driver API through ctypes: load cubins, query occupancy, launch kernels; and the properties of a GPU."""

from __future__ import annotations

import ctypes
import functools
import threading
from ctypes import POINTER, Structure, byref, c_char, c_char_p, c_int, c_uint, c_void_p
from typing import NamedTuple, TypeAlias

import torch

from recur.errors import BackendError

OUT_OF_MEMORY = 2
COOPERATIVE, CLUSTER_DIMENSION = 2, 4
MAX_STREAMS = 64
"""Streams for which a kernel keeps its launch configuration."""
DYNAMIC_SHARED, NON_PORTABLE_CLUSTER = 8, 14


class _Attribute(Structure):
    _fields_ = [("id", c_int), ("pad", c_char * 4), ("value", c_uint * 16)]


class LaunchConfig(Structure):
    """CUlaunchConfig of the driver API."""

    _fields_ = [
        *((name, c_uint) for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared")),
        ("stream", c_void_p),
        ("attributes", POINTER(_Attribute)),
        ("count", c_uint),
    ]


Argument: TypeAlias = "Structure | ctypes._SimpleCData[float]"


class LaunchSpec(NamedTuple):
    """Grid, block, shared memory and cluster of a launch."""

    grid: int
    threads: int
    shared: int = 0
    """Bytes of dynamic shared memory."""
    cluster: int = 1
    cooperative: bool = False


class Driver:
    def __init__(self, library: ctypes.CDLL) -> None:
        self.cuda = library
        self.launch = library.cuLaunchKernelEx
        self.launch.argtypes = [c_void_p, c_void_p, c_void_p, c_void_p]

    def check(self, status: int, what: str) -> None:
        if status == OUT_OF_MEMORY:
            raise MemoryError(f"the GPU ran out of memory: {what}")
        if status:
            name = c_char_p()
            self.cuda.cuGetErrorName(status, byref(name))
            raise BackendError(f"the CUDA driver failed: {what}: {(name.value or b'?').decode()}")


class Function:
    """Kernel of a loaded cubin, in the context that was current."""

    def __init__(self, driver: Driver, module: c_void_p, name: str) -> None:
        self._driver, self._module, self.name = driver, module, name
        self._handle = c_void_p()
        driver.check(driver.cuda.cuModuleGetFunction(byref(self._handle), module, name.encode()), name)

    def prepare(self, how: LaunchSpec) -> PreparedKernel:
        return PreparedKernel(self._driver, self._handle, self.name, how)


class PreparedKernel:
    """Kernel with a fixed launch shape. Its argument is one struct, passed by value."""

    def __init__(self, driver: Driver, handle: c_void_p, name: str, how: LaunchSpec) -> None:
        self._driver, self.handle, self._name, self.how = driver, handle, name, how
        settings = {DYNAMIC_SHARED: how.shared} if how.shared > 48 << 10 else {}
        settings |= {NON_PORTABLE_CLUSTER: 1} if how.cluster > 8 else {}
        for which, value in settings.items():
            driver.check(driver.cuda.cuFuncSetAttribute(handle, which, value), f"{name} with {how}")
        self._attributes = (_Attribute * 2)()
        count = 0
        if how.cluster > 1:
            self._attributes[count].id = CLUSTER_DIMENSION
            self._attributes[count].value[0:3] = [how.cluster, 1, 1]
            count += 1
        if how.cooperative:
            self._attributes[count].id = COOPERATIVE
            self._attributes[count].value[0] = 1
            count += 1
        self.config = LaunchConfig(how.grid, 1, 1, how.threads, 1, 1, how.shared, None, self._attributes, count)
        self._on: dict[int, LaunchConfig] = {}

    def resident(self) -> int:
        """Return the number of CTAs that fit on an otherwise idle GPU at once, in whole clusters; 0 if the query
        fails.
        """
        cuda, found = self._driver.cuda, c_int()
        if self.how.cluster > 1:
            status = cuda.cuOccupancyMaxActiveClusters(byref(found), self.handle, byref(self.config))
            return 0 if status else found.value * self.how.cluster
        status = cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            byref(found), self.handle, self.how.threads, ctypes.c_size_t(self.how.shared)
        )
        return 0 if status else found.value * _count_multiprocessors(self._driver)

    def __call__(self, stream: int, *arguments: Argument) -> None:
        """Launch the kernel on a stream, given by its handle (torch.cuda.Stream.cuda_stream)."""
        self._launch(stream, (c_void_p * len(arguments))(*map(ctypes.addressof, arguments)))

    def launch_bytes(self, stream: int, arguments: bytes) -> None:
        """Launch the kernel with the bytes of its argument struct."""
        self._launch(stream, _OnePointer(arguments))

    def _launch(self, stream: int, pointers: ctypes.Array[c_void_p] | ctypes.Array[c_char_p]) -> None:
        config = self._on.get(stream)
        if config is None:
            config = LaunchConfig.from_buffer_copy(self.config)  # each thread launches on its own stream
            config.stream = stream
            if len(self._on) == MAX_STREAMS:
                self._on.clear()
            self._on[stream] = config
        status = self._driver.launch(byref(config), self.handle, pointers, None)
        if status:
            self.check(status)

    def check(self, status: int) -> None:
        self._driver.check(status, f"launching {self._name} with {self.how}")


_OnePointer = c_char_p * 1


class _BoundContexts(threading.local):
    """Devices whose context was made current on this thread."""

    def __init__(self) -> None:
        self.devices: set[int] = set()


_bound_contexts = _BoundContexts()


def bind_context(index: int) -> None:
    """Make the device's primary context current on this thread, for calls of the driver API.

    PyTorch does so at its first CUDA call on a thread; a thread of autograd may launch our kernels before that.
    """
    if index in _bound_contexts.devices:
        return
    found = load_driver()
    assert found is not None
    device, context = c_int(), c_void_p()
    found.check(found.cuda.cuDeviceGet(byref(device), index), f"no device {index}")
    found.check(found.cuda.cuDevicePrimaryCtxRetain(byref(context), device), f"the context of device {index}")
    found.check(found.cuda.cuCtxSetCurrent(context), f"the context of device {index}")
    _bound_contexts.devices.add(index)


def _count_multiprocessors(driver: Driver) -> int:
    device, count = c_int(), c_int()
    driver.check(driver.cuda.cuCtxGetDevice(byref(device)), "no device is current")
    driver.check(driver.cuda.cuDeviceGetAttribute(byref(count), 16, device), "counting multiprocessors")
    return count.value


class Module:
    """Loaded cubin."""

    def __init__(self, cubin: bytes) -> None:
        found = load_driver()
        assert found is not None
        self._driver, self._handle = found, c_void_p()
        self._functions: dict[str, Function] = {}
        found.check(found.cuda.cuModuleLoadData(byref(self._handle), cubin), "loading a kernel")

    def function(self, name: str) -> Function:
        if name not in self._functions:
            self._functions[name] = Function(self._driver, self._handle, name)
        return self._functions[name]


@functools.cache
def load_driver() -> Driver | None:
    for name in ("libcuda.so.1", "libcuda.so", "nvcuda.dll"):
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        if hasattr(library, "cuLaunchKernelEx"):
            return Driver(library)
    return None


class DeviceInfo(NamedTuple):
    name: str
    major: int
    minor: int
    multiprocessors: int
    shared: int
    """Bytes of shared memory that a CTA can use."""

    @property
    def architecture(self) -> str:
        """Target name for NVRTC, with the chip-specific features (suffix a) where they exist."""
        return f"sm_{self.major}{self.minor}" + ("a" if self.major >= 9 else "")

    @property
    def clusters(self) -> bool:
        """Whether CTAs can form clusters, which share their memory."""
        return self.major >= 9

    @property
    def largest_cluster(self) -> int:
        return 16 if self.major in (9, 10) else 8 if self.clusters else 1


H200 = DeviceInfo("NVIDIA H200", 9, 0, 132, 232448)
A100 = DeviceInfo("NVIDIA A100-SXM4-80GB", 8, 0, 108, 166912)


@functools.cache
def device_info(index: int) -> DeviceInfo:
    """Return the properties of a device that PyTorch sees."""
    found = torch.cuda.get_device_properties(index)
    shared = int(getattr(found, "shared_memory_per_block_optin", 101376))
    return DeviceInfo(found.name, found.major, found.minor, found.multi_processor_count, shared)
