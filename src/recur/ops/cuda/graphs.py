"""Cache of CUDA graphs for repeated calls with the same tensor addresses.

The driver needs longer to launch a short kernel than some GPUs need to run it. Training allocates the same memory in
every step, so nearly all passes are repeated. The second call with the same key is captured; from then on, one launch
replays the graph. These graphs are captured through the driver, in the middle of a pass: torch.cuda.graph (see
utils/cuda_graphs.py) would wait for the device and empty its memory cache.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Hashable
from ctypes import byref, c_int, c_void_p
from typing import NamedTuple

import torch

from recur.errors import BackendError
from recur.ops.cuda.driver import Driver, load_driver

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
            self._check(cuda.cuStreamCreate(byref(made), NON_BLOCKING), "creating a stream for graph capture")
            self._stream = made
        self._check(cuda.cuStreamBeginCapture_v2(self._stream, c_int(RELAXED)), "capturing a CUDA graph")
        try:
            try:
                launch(self._stream.value or 0)
            finally:
                status = cuda.cuStreamEndCapture(self._stream, byref(graph))
            self._check(status, "capturing a CUDA graph")
            status = cuda.cuGraphInstantiateWithFlags(byref(ready), graph, ctypes.c_ulonglong(0))
            self._check(status, "instantiating a CUDA graph")
        finally:
            if graph:
                cuda.cuGraphDestroy(graph)
        return ready

    def _forget(self, key: Hashable) -> None:
        """Destroy a graph. The driver frees a running graph when it has finished."""
        self._driver.cuda.cuGraphExecDestroy(self._graphs.pop(key).ready)
        del self._used[key]

    def _check(self, status: int, what: str) -> None:
        self._driver.check(status, what)


@functools.cache
def graph_cache(index: int) -> GraphCache:
    found = load_driver()
    assert found is not None
    return GraphCache(found)
