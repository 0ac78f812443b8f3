"""Lists of kernel launches and matmuls that the C++ core makes in one call (launches.cpp), scratch memory, CUDA graphs.

Without the core, Python makes the launches one by one.

**Graphs.** The driver needs longer to launch a short kernel than some GPUs need to run it. Training allocates the same
memory in every step, so nearly all passes are repeated. The second call with the same key is captured; from then on,
one launch replays the graph. These graphs are captured through the driver, in the middle of a pass: torch.cuda.graph
(see utils/cuda_graphs.py) would wait for the device and empty its memory cache.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_int32, c_int64, c_void_p
from typing import NamedTuple, TypeAlias

import torch

from recur.compat import current_raw_stream
from recur.errors import BackendError
from recur.ops.cuda import blas
from recur.ops.cuda.blas import Matmul, MatmulDescriptor, MatmulOperand
from recur.ops.cuda.codegen import PACK_FIELDS, ArgTemplate, kernel_source
from recur.ops.cuda.config import GRID, KernelConfig, ScanShape
from recur.ops.cuda.driver import Driver, LaunchConfig, LaunchSpec, PreparedKernel, device_info, load_driver
from recur.ops.cuda.layout import ScanLayout
from recur.ops.cuda.nvrtc import load_module
from recur.utils import core_library

AddressOffset: TypeAlias = tuple[int, int]
"""Index into a call's addresses, and an offset in bytes."""


class KernelLaunch(NamedTuple):
    prepared: PreparedKernel
    template: ArgTemplate


class MatmulLaunch(NamedTuple):
    """Matmul C = A B in a list of launches."""

    product: Matmul
    a: AddressOffset
    b: AddressOffset
    c: AddressOffset


class _AddressOffset(Structure):
    _fields_ = [("address", c_int64), ("offset", c_int64)]


class _Launch(Structure):
    """Struct `Launch` of launches.cpp."""

    _fields_ = [
        ("product", POINTER(MatmulDescriptor)),
        *((name, _AddressOffset) for name in "abc"),
        ("kernel", c_void_p),
        ("config", POINTER(LaunchConfig)),
        ("numbers", c_char_p),
        ("bytes", c_int64),
        ("pointers", POINTER(c_int32)),
        ("count", c_int64),
    ]


class _LaunchFunctions(Structure):
    _fields_ = [("launch", c_void_p), ("multiply", c_void_p), ("handle", c_void_p)]


class CoreFunctions:
    """Functions of the C++ core that make many launches in one call."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.launch, self.launch_steps = library.recur_launch, library.recur_launch_steps
        self.launch.argtypes = [c_void_p, c_void_p, c_int64, c_char_p, c_int64, c_int64, c_void_p, c_void_p]
        self.launch_steps.argtypes = [c_void_p] * 4


@functools.cache
def core() -> CoreFunctions | None:
    """Return the functions of the C++ core, or None if the core cannot be used."""
    library = core_library.load()
    return None if isinstance(library, str) else CoreFunctions(library)


@functools.cache
def launch_functions(index: int) -> _LaunchFunctions:
    """Return the functions that launch kernels and matmuls, with the cuBLASLt handle of a device."""
    found = load_driver()
    assert found is not None
    functions = (found.cuda.cuLaunchKernelEx, blas.function("cublasLtMatmul"))
    launch, multiply = (ctypes.cast(function, c_void_p).value for function in functions)
    return _LaunchFunctions(launch, multiply, blas.handle(index))


class LaunchList:
    """List of launches on one device. `workspace`: index of the matmuls' workspace among a call's addresses."""

    def __init__(self, index: int, all: Sequence[KernelLaunch | MatmulLaunch], workspace: int) -> None:
        self._index, self._workspace = index, workspace
        self._all = [one for one in all if isinstance(one, KernelLaunch) or not one.product.empty]
        self._bytes = max_workspace(one.product for one in self._all if isinstance(one, MatmulLaunch))

    def __call__(self, addresses: Sequence[int]) -> None:
        stream = current_raw_stream(self._index)
        native = core()
        if native is None:
            self._by_python(addresses, stream)
            return
        made, count, at = self._made, len(self._all), c_int64()
        given = struct.pack(f"{len(addresses)}q", *addresses)
        status = native.launch(
            byref(launch_functions(self._index)), made, count, given, self._workspace, self._bytes, stream, byref(at)
        )
        if status:
            self._fail(self._all[at.value], status)

    @functools.cached_property
    def _made(self) -> ctypes.Array[_Launch]:
        return (_Launch * len(self._all))(*map(_launch_struct, self._all))

    def _by_python(self, addresses: Sequence[int], stream: int) -> None:
        for one in self._all:
            if isinstance(one, KernelLaunch):
                one.prepared.launch_bytes(stream, one.template(addresses))
                continue
            where = [addresses[place] + offset for place, offset in (one.a, one.b, one.c)]
            one.product(self._index, stream, addresses[self._workspace], *where)

    def _fail(self, one: KernelLaunch | MatmulLaunch, status: int) -> None:
        if isinstance(one, KernelLaunch):
            one.prepared.check(status)
        else:
            blas.check(status)


def max_workspace(products: Iterable[Matmul]) -> int:
    """Return the largest workspace of the matmuls, in bytes."""
    return max((one.workspace for one in products if not one.empty), default=0)


def _launch_struct(one: KernelLaunch | MatmulLaunch) -> _Launch:
    if isinstance(one, MatmulLaunch):
        a, b, c = (_AddressOffset(*where) for where in one[1:])
        return _Launch(product=ctypes.pointer(one.product.described), a=a, b=b, c=c)
    chosen, numbers = one.template.chosen, one.template.numbers
    return _Launch(
        kernel=one.prepared.handle, config=ctypes.pointer(one.prepared.config), numbers=numbers, bytes=len(numbers),
        pointers=(c_int32 * len(chosen))(*chosen), count=len(chosen),
    )  # fmt: skip


TILE_BYTES = 32 * 33 * 8
TILE_SIDE, TILE_ROWS = 32, 8
REDUCE_COLUMNS, REDUCE_LANES = 32, 16
"""Columns of a CTA of reduce.cu, and threads per column."""
MIN_ROWS_PER_SPLIT = 64
"""Rows below which another part of the rows is not worth a CTA."""
CTAS_PER_MULTIPROCESSOR = 4


@functools.lru_cache(maxsize=256)
def pack_kernel(cell: str, dtype: torch.dtype, tiles: int, words: int, index: int) -> PreparedKernel:
    """Return the kernel that packs W in tiles and clears 16-byte words."""
    threads = TILE_SIDE * TILE_ROWS
    grid = max(1, min(max(tiles, -(-words // threads)), CTAS_PER_MULTIPROCESSOR * device_info(index).multiprocessors))
    module = load_module(kernel_source(cell, dtype, ("pack",)), device_info(index).architecture, index)
    return module.function("pack_weights").prepare(LaunchSpec(grid, threads, TILE_BYTES))


def count_tiles(layout: ScanLayout, width: int) -> int:
    """Return the number of tiles of W with rows of a width."""
    return layout.assembly.products * -(-width // TILE_SIDE) * -(-layout.H // TILE_SIDE)


def count_reduce_blocks(layout: ScanLayout) -> int:
    """Return the number of column blocks that are reduced."""
    a = layout.assembly
    return -(-(a.gates + a.own + a.extras) * layout.H // REDUCE_COLUMNS)


def count_row_splits(layout: ScanLayout, index: int) -> int:
    """Return the number of parts of the rows that fills the GPU with work."""
    wanted = CTAS_PER_MULTIPROCESSOR * device_info(index).multiprocessors // count_reduce_blocks(layout)
    return max(1, min(wanted, layout.N // MIN_ROWS_PER_SPLIT))


@functools.lru_cache(maxsize=256)
def reduce_kernel(cell: str, dtype: torch.dtype, grid: int, index: int) -> PreparedKernel:
    module = load_module(kernel_source(cell, dtype, ("reduce",)), device_info(index).architecture, index)
    return module.function("reduce_gradients").prepare(
        LaunchSpec(grid, REDUCE_COLUMNS * REDUCE_LANES, REDUCE_LANES * (REDUCE_COLUMNS + 1) * 8 + 16)
    )


ALIGNMENT = 256

ChosenKernel = tuple[ScanShape, KernelConfig, PreparedKernel]
"""Persistent kernel of a pass: the shape of the scan, the configuration, and the loaded kernel."""


class ArgSlots:
    """Index of each named tensor among a call's addresses, in the order of addition."""

    def __init__(self) -> None:
        self._of: dict[str, int] = {}

    def add(self, *names: str) -> None:
        for name in names:
            self._of[name] = len(self._of)

    def __getitem__(self, name: str) -> int:
        return self._of[name]

    def get(self, name: str) -> int:
        """Return the index, or -1 (a null pointer) if the name is missing."""
        return self._of.get(name, -1)

    def some(self, prefix: str, count: int) -> list[int]:
        return [self.get(f"{prefix}{k}") for k in range(count)]

    def __len__(self) -> int:
        return len(self._of)


class ScratchMemory:
    """Scratch memory of a pass, in one tensor with fixed offsets, and the launches that fill it.

    NAMES are the addresses that it adds to a call: `packed` is W in the layout of the kernel, exchange and arrived
    are those of kernels/arguments.cu, tickets and partial those of reduce.cu, and workspace is for matmuls. All
    memory that must be zero is contiguous, from `zeros` on.
    """

    NAMES = ("packed", "exchange", "arrived", "tickets", "partial", "workspace", "zeros")

    def __init__(
        self, layout: ScanLayout, index: int, chosen: ChosenKernel | None, slots: ArgSlots, workspace: int,
        splits: int = 1,
    ) -> None:  # fmt: skip
        """Compute sizes and offsets. `workspace`: bytes for matmuls. `splits`: parts of the rows in reduce.cu."""
        self._layout, self._index = layout, index
        a, size = layout.assembly, layout.of.dtype.itemsize
        self._width, self.packs, exchange, flags = layout.H, False, 0, 0
        transposed = chosen is not None and chosen[0].backward
        if chosen is not None:
            p, config, _ = chosen
            self._width = config.width(p)
            self.packs = transposed or self._width != layout.H or a.heads > 1
            if config.exchange == GRID:
                teams = -(-p.S // config.rows)
                exchange, flags = teams * 2 * config.v_bytes(p), teams * 128
        tickets, partial = 0, 0
        if splits > 1:
            columns = (a.gates + a.own + a.extras) * layout.H
            tickets, partial = 4 * count_reduce_blocks(layout), splits * columns * layout.real.itemsize
        self._cut = exchange, flags, tickets, partial, workspace
        self._packed_bytes = a.products * layout.H * self._width * size
        self.bytes, self._offsets, self._zeros = self._sizes(self.packs)
        zeros = {"zeros": slots["zeros"]}
        numbers = {"H": layout.H, "inner": layout.H // a.heads, "width": self._width, "words": self._zeros // 16}
        packing = {"W": slots.get("weight_hh"), "packed": slots["packed"], **zeros}
        self._zeroing, self._packing = (
            ArgTemplate(a, PACK_FIELDS, where, transposed=int(transposed), **numbers) for where in (zeros, packing)
        )

    def _sizes(self, packs: bool) -> tuple[int, list[int], int]:
        """Return the total size, the offset of each part, and the number of bytes to clear."""
        offsets, at = [], 0
        for part in (self._packed_bytes if packs else 0, *self._cut):
            offsets.append(at)
            at += -(-part // ALIGNMENT) * ALIGNMENT
        return at, offsets, offsets[4] - offsets[1]

    def take(self, like: torch.Tensor, W: int) -> tuple[torch.Tensor | None, list[int]]:
        """Allocate the memory and return it with the addresses of its parts."""
        packs, size, offsets = self.packs, self.bytes, self._offsets
        if W % 16:  # a parameter may be an unaligned view into a buffer
            packs = True
            size, offsets, _ = self._sizes(True)
        if not size:
            return None, [W, *[0] * (len(self.NAMES) - 1)]
        memory = like.new_empty(size, dtype=torch.uint8)
        first = memory.data_ptr()
        packed, *rest = (first + offset for offset in offsets)
        return memory, [packed if packs else W, *rest, first + offsets[1]]

    def fills(self, packs: bool) -> list[KernelLaunch]:
        """Return the launches that fill the memory. `packs`: pack W too."""
        layout = self._layout
        of = layout.of
        if not packs and not self._zeros:
            return []
        tiles = count_tiles(layout, self._width) if packs else 0
        run = pack_kernel(of.cell, of.dtype, tiles, self._zeros // 16, self._index)
        return [KernelLaunch(run, self._packing if packs else self._zeroing)]


def make_matmul(
    layout: ScanLayout, sizes: tuple[int, int, int], a: MatmulOperand, b: MatmulOperand, pitch: int, tf32: bool,
    adds: bool = False, into: torch.dtype | None = None,
) -> Matmul:  # fmt: skip
    """Return a matmul on the types of a scan."""
    dtype = layout.of.dtype
    return Matmul(dtype, into or dtype, sizes, a, b, pitch, adds, tf32 and dtype == torch.float32)


MAX_SEEN_KEYS = 256
"""Number of keys that are remembered after their first call."""
MAX_CACHED_STEPS = 32_768
"""Total steps of all cached graphs, whose memory PyTorch does not count. 0 disables graphs."""
EVICTION_AGE = 1000
"""Number of calls after which an unused graph may be evicted."""
MAX_FAILURES = 3
RELAXED, NON_BLOCKING = 2, 1
"""Capture mode: other threads may allocate memory meanwhile. Stream flag: no wait for the default stream."""


class _CachedGraph(NamedTuple):
    ready: c_void_p
    steps: int


class GraphCache:
    """Cache of captured graphs of one device."""

    def __init__(self, on: Driver) -> None:
        self._driver, self._lock = on, threading.Lock()
        self._seen: dict[Hashable, None] = {}
        self._graphs: dict[Hashable, _CachedGraph] = {}
        self._used: dict[Hashable, int] = {}
        """Number of the last call of each graph."""
        self._calls = self._failures = 0
        self._stream: c_void_p | None = None

    def __call__(self, key: Hashable, steps: int, stream: int, launch: Callable[[int], None]) -> None:
        """Run `launch` on a stream, or replay its graph. `key` must identify everything that changes the launches,
        with addresses.
        """
        if torch.cuda.is_current_stream_capturing() or not self._replay(key, steps, stream, launch):
            launch(stream)

    def _replay(self, key: Hashable, steps: int, stream: int, launch: Callable[[int], None]) -> bool:
        """Return True if a graph was replayed."""
        with self._lock:  # a graph must not be launched by two threads at once
            self._calls += 1
            graph = self._graphs.get(key)
            if graph is None and key in self._seen and self._has_room(steps):
                graph = self._record(key, steps, launch)
            if graph is None:
                if key not in self._seen and len(self._seen) == MAX_SEEN_KEYS:
                    del self._seen[next(iter(self._seen))]
                self._seen[key] = None
                return False
            self._used[key] = self._calls
            if self._driver.cuda.cuGraphLaunch(graph.ready, c_void_p(stream)):
                self._forget(key)  # for example, no memory; plain launches report errors of the GPU itself
                return False
            return True

    def _has_room(self, steps: int) -> bool:
        """Return True if a graph with so many steps fits, possibly after evicting old graphs."""
        if self._failures == MAX_FAILURES or steps > MAX_CACHED_STEPS:
            return False
        while steps + sum(graph.steps for graph in self._graphs.values()) > MAX_CACHED_STEPS:
            oldest = min(self._used, key=self._used.__getitem__)
            if self._calls - self._used[oldest] < EVICTION_AGE:
                return False  # more calls repeat than fit: evicting would only swap graphs back and forth
            self._forget(oldest)
        return True

    def _record(self, key: Hashable, steps: int, launch: Callable[[int], None]) -> _CachedGraph | None:
        try:
            made = _CachedGraph(self._recorded(launch), steps)
        except (BackendError, MemoryError):  # launch the kernels one by one, as before
            self._failures += 1
            return None
        del self._seen[key]
        self._graphs[key] = made
        return made

    def _recorded(self, launch: Callable[[int], None]) -> c_void_p:
        cuda, graph, ready = self._driver.cuda, c_void_p(), c_void_p()
        if self._stream is None:
            made = c_void_p()
            self._driver.check(cuda.cuStreamCreate(byref(made), NON_BLOCKING), "creating a stream for graph capture")
            self._stream = made
        self._driver.check(cuda.cuStreamBeginCapture_v2(self._stream, c_int(RELAXED)), "capturing a CUDA graph")
        try:
            try:
                launch(self._stream.value or 0)
            finally:
                status = cuda.cuStreamEndCapture(self._stream, byref(graph))
            self._driver.check(status, "capturing a CUDA graph")
            status = cuda.cuGraphInstantiateWithFlags(byref(ready), graph, ctypes.c_ulonglong(0))
            self._driver.check(status, "instantiating a CUDA graph")
        finally:
            if graph:
                cuda.cuGraphDestroy(graph)
        return ready

    def _forget(self, key: Hashable) -> None:
        """Destroy a graph. The driver frees a running graph when it has finished."""
        self._driver.cuda.cuGraphExecDestroy(self._graphs.pop(key).ready)
        del self._used[key]


@functools.cache
def graph_cache(index: int) -> GraphCache:
    found = load_driver()
    assert found is not None
    return GraphCache(found)
