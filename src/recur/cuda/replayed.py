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

import torch

from recur.cuda.driver import Driver, driver
from recur.errors import BackendError

MOST_SEEN, MOST_GRAPHS = 64, 16
RELAXED, NON_BLOCKING = 2, 1
"""Of a recording: what other threads do meanwhile is not looked at. Of its stream: it waits for no other."""


class Replayed:
    """Of one device."""

    def __init__(self, on: Driver) -> None:
        self._driver, self._lock = on, threading.Lock()
        self._seen: dict[Hashable, None] = {}
        self._graphs: dict[Hashable, c_void_p] = {}
        self._stream: c_void_p | None = None
        self._refused = False

    def __call__(self, key: Hashable, stream: int, launch: Callable[[int], None]) -> None:
        """`launch` on a stream. The key tells apart all that may change what it launches, addresses too."""
        if self._refused or torch.cuda.is_current_stream_capturing():
            launch(stream)
            return
        with self._lock:  # a graph is not for several threads at once
            graph = self._graphs.get(key)
            if graph is None and key in self._seen:
                graph = self._record(key, launch)
            if graph is not None:
                self._check(self._driver.cuda.cuGraphLaunch(graph, c_void_p(stream)), "launching a graph")
                return
            _make_room(self._seen, MOST_SEEN)
            self._seen[key] = None
        launch(stream)

    def _record(self, key: Hashable, launch: Callable[[int], None]) -> c_void_p | None:
        cuda, graph, ready = self._driver.cuda, c_void_p(), c_void_p()
        if len(self._graphs) == MOST_GRAPHS:
            self._forget()
        try:
            if self._stream is None:
                made = c_void_p()
                self._check(cuda.cuStreamCreate(byref(made), NON_BLOCKING), "a stream to record on")
                self._stream = made
            self._check(cuda.cuStreamBeginCapture_v2(self._stream, c_int(RELAXED)), "recording launches")
            try:
                launch(self._stream.value or 0)
            finally:
                status = cuda.cuStreamEndCapture(self._stream, byref(graph))
            self._check(status, "recording launches")
            status = cuda.cuGraphInstantiateWithFlags(byref(ready), graph, ctypes.c_ulonglong(0))
            cuda.cuGraphDestroy(graph)
            self._check(status, "making a graph of launches")
        except BackendError:
            self._refused = True  # they are launched one by one as before
            return None
        del self._seen[key]
        self._graphs[key] = ready
        return ready

    def _forget(self) -> None:
        """All graphs, once none of them runs."""
        self._check(self._driver.cuda.cuCtxSynchronize(), "waiting for graphs to end")
        for graph in self._graphs.values():
            self._driver.cuda.cuGraphExecDestroy(graph)
        self._graphs.clear()

    def _check(self, status: int, what: str) -> None:
        self._driver.check(status, what)


def _make_room(kept: dict[Hashable, None], most: int) -> None:
    if len(kept) == most:
        del kept[next(iter(kept))]


@functools.cache
def replayed(index: int) -> Replayed:
    found = driver()
    assert found is not None
    return Replayed(found)
