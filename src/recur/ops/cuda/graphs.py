"""Launches that come again, of tensors that lie where they lay: from the second time on one graph, and one launch.

A step of one launch each takes the driver longer to launch than some GPUs take to run it. Training allocates the same
memory in every step, so that nearly all of its passes come again.
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
"""Calls that are remembered for having come once."""
MAX_CACHED_STEPS = 32_768
"""Of all graphs together: they lie in memory that torch does not count. 0 for no graphs."""
EVICTION_AGE = 1000
"""Calls after which a graph that was not among them may make room for another."""
MAX_FAILURES = 3
RELAXED, NON_BLOCKING = 2, 1
"""Of a recording: what other threads allocate meanwhile is allowed. Of its stream: it waits for no other."""


class _CachedGraph(NamedTuple):
    ready: c_void_p
    steps: int


class GraphCache:
    """Of one device."""

    def __init__(self, on: Driver) -> None:
        self._driver, self._lock = on, threading.Lock()
        self._seen: dict[Hashable, None] = {}
        self._graphs: dict[Hashable, _CachedGraph] = {}
        self._used: dict[Hashable, int] = {}
        """When each was launched last, in calls."""
        self._calls = self._failures = 0
        self._stream: c_void_p | None = None

    def __call__(self, key: Hashable, steps: int, stream: int, launch: Callable[[int], None]) -> None:
        """`launch` so many steps on a stream. The key tells apart all that may change what it launches, addresses
        too."""
        if torch.cuda.is_current_stream_capturing() or not self._replay(key, steps, stream, launch):
            launch(stream)

    def _replay(self, key: Hashable, steps: int, stream: int, launch: Callable[[int], None]) -> bool:
        """Whether a graph was launched in their place."""
        with self._lock:  # a graph is not for several threads at once
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
                self._forget(key)  # no memory for it, say: what is wrong with the GPU itself, the launches will tell
                return False
            return True

    def _has_room(self, steps: int) -> bool:
        """As it is, or without graphs that were not used for long."""
        if self._failures == MAX_FAILURES or steps > MAX_CACHED_STEPS:
            return False
        while steps + sum(graph.steps for graph in self._graphs.values()) > MAX_CACHED_STEPS:
            oldest = min(self._used, key=self._used.__getitem__)
            if self._calls - self._used[oldest] < EVICTION_AGE:
                return False  # more of them come again than there is room for: those that have one keep it
            self._forget(oldest)
        return True

    def _record(self, key: Hashable, steps: int, launch: Callable[[int], None]) -> _CachedGraph | None:
        try:
            made = _CachedGraph(self._recorded(launch), steps)
        except (BackendError, MemoryError):  # they are launched one by one as before
            self._failures += 1
            return None
        del self._seen[key]
        self._graphs[key] = made
        return made

    def _recorded(self, launch: Callable[[int], None]) -> c_void_p:
        cuda, graph, ready = self._driver.cuda, c_void_p(), c_void_p()
        if self._stream is None:
            made = c_void_p()
            self._check(cuda.cuStreamCreate(byref(made), NON_BLOCKING), "a stream to record on")
            self._stream = made
        self._check(cuda.cuStreamBeginCapture_v2(self._stream, c_int(RELAXED)), "recording launches")
        try:
            try:
                launch(self._stream.value or 0)
            finally:
                status = cuda.cuStreamEndCapture(self._stream, byref(graph))
            self._check(status, "recording launches")
            status = cuda.cuGraphInstantiateWithFlags(byref(ready), graph, ctypes.c_ulonglong(0))
            self._check(status, "making a graph of launches")
        finally:
            if graph:
                cuda.cuGraphDestroy(graph)
        return ready

    def _forget(self, key: Hashable) -> None:
        """The driver frees a graph that still runs once it has ended."""
        self._driver.cuda.cuGraphExecDestroy(self._graphs.pop(key).ready)
        del self._used[key]

    def _check(self, status: int, what: str) -> None:
        self._driver.check(status, what)


@functools.cache
def graph_cache(index: int) -> GraphCache:
    found = load_driver()
    assert found is not None
    return GraphCache(found)
