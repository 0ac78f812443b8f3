"""Capture of PyTorch code as CUDA graphs.

PyTorch sets three rules for a capture. The code runs on a side stream a few times before it is captured, so that
compilation and allocation happen outside the graph. The captured code reads its inputs from tensors that stay at the
same addresses; the caller copies new values there before each replay. The captured code must not wait for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

T = TypeVar("T")


class GraphCapture:
    """Side stream and memory pool for captures of code that is repeated with the same shapes."""

    def __init__(self, device: torch.device | None = None) -> None:
        self._stream = torch.cuda.Stream(device)
        # Graphs of one pool share their memory: only one of them runs at a time.
        self._pool = torch.cuda.graph_pool_handle()

    @contextmanager
    def warm_up(self) -> Iterator[None]:
        """Run a block on the side stream, ordered after the current stream and before what follows on that stream."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            yield
        torch.cuda.current_stream().wait_stream(self._stream)

    def capture(self, function: Callable[[], T]) -> tuple[torch.cuda.CUDAGraph, T]:
        """Capture a call of `function`, which is not run, and return the graph with the tensors that replays write."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            result = function()
        return graph, result
