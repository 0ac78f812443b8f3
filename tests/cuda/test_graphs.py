"""Launches as graphs where they come again, with functions of our own in the driver's place."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from recur.ops.cuda import launches
from recur.ops.cuda.driver import Driver
from recur.ops.cuda.launches import MAX_FAILURES, MAX_SEEN_KEYS, GraphCache


class CUDA:
    """Keeps the names of what is called; one of them may fail."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fails, self.status = "", 1
        self.cuLaunchKernelEx = SimpleNamespace()
        self.made = 0

    def __getattr__(self, name: str) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            self.calls.append(name.removeprefix("cu"))
            if name in ("cuStreamCreate", "cuGraphInstantiateWithFlags"):
                self.made += 1
                arguments[0]._obj.value = 100 + self.made
            if name == "cuStreamEndCapture" != self.fails:
                arguments[1]._obj.value = 7
            return self.status if name == self.fails else 0

        return call


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> CUDA:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return CUDA()


def on(cuda: CUDA) -> GraphCache:
    return GraphCache(Driver(cuda))  # type: ignore[arg-type]


MADE = ["StreamBeginCapture_v2", "StreamEndCapture", "GraphInstantiateWithFlags", "GraphDestroy"]


def test_from_the_second_time_on(cuda: CUDA, monkeypatch: pytest.MonkeyPatch) -> None:
    run, streams = on(cuda), list[int]()
    run("a", 9, 5, streams.append)
    assert (cuda.calls, streams) == ([], [5])
    run("a", 9, 5, streams.append)
    assert cuda.calls == ["StreamCreate", *MADE, "GraphLaunch"]
    assert streams == [5, 101]  # recorded on a stream of its own
    run("a", 9, 5, streams.append)
    assert (cuda.calls[5:], streams) == (["GraphLaunch", "GraphLaunch"], [5, 101])
    run("b", 9, 5, streams.append)
    assert streams == [5, 101, 5]
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    run("a", 9, 5, streams.append)  # a recording of the user's own takes the launches themselves
    assert streams == [5, 101, 5, 5]


@pytest.mark.parametrize("status", [1, 2])
@pytest.mark.parametrize("fails", ["StreamCreate", *MADE[:3]])
def test_where_nothing_can_be_recorded_they_are_launched(cuda: CUDA, fails: str, status: int) -> None:
    """For want of memory too, which is status 2; some times it is tried."""
    run, streams = on(cuda), list[int]()
    cuda.fails, cuda.status = f"cu{fails}", status
    for _ in range(8):
        run("a", 9, 5, streams.append)
    assert [stream for stream in streams if stream == 5] == [5] * 8
    assert cuda.calls.count(fails) == MAX_FAILURES
    assert cuda.calls.count("GraphDestroy") == cuda.calls.count("GraphInstantiateWithFlags")


def test_a_graph_that_cannot_be_launched(cuda: CUDA) -> None:
    run, streams = on(cuda), list[int]()
    run("a", 9, 5, streams.append)
    cuda.fails = "cuGraphLaunch"
    run("a", 9, 5, streams.append)
    assert streams == [5, 101, 5]
    assert cuda.calls[-1] == "GraphExecDestroy"


def test_no_more_are_kept_than_there_is_room_for(cuda: CUDA, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launches, "MAX_CACHED_STEPS", 40)
    monkeypatch.setattr(launches, "EVICTION_AGE", 30)
    run, streams = on(cuda), list[int]()
    for _ in range(5):
        for key in range(6):  # of which four fit: these are replayed each time, and none is made anew
            run(key, 10, 5, streams.append)
    assert cuda.calls.count("GraphInstantiateWithFlags") == 4
    assert cuda.calls.count("GraphLaunch") == 4 * 4
    assert "GraphExecDestroy" not in cuda.calls
    run("too large", 41, 5, streams.append)
    run("too large", 41, 5, streams.append)
    assert cuda.calls.count("GraphInstantiateWithFlags") == 4
    for _ in range(20):
        run("new", 10, 5, streams.append)
        run(0, 10, 5, streams.append)
    assert cuda.calls.count("GraphExecDestroy") == 1  # of one that was not used for long
    assert cuda.calls.count("GraphInstantiateWithFlags") == 5
    streams.clear()
    run("new", 10, 5, streams.append)
    run(0, 10, 5, streams.append)
    assert not streams


def test_what_comes_once_is_forgotten(cuda: CUDA) -> None:
    run, streams = on(cuda), list[int]()
    for key in range(MAX_SEEN_KEYS + 1):
        run(key, 9, 5, streams.append)
    run(0, 9, 5, streams.append)
    assert "GraphLaunch" not in cuda.calls
    run(MAX_SEEN_KEYS, 9, 5, streams.append)
    assert "GraphLaunch" in cuda.calls


def test_a_failure_while_recording_is_that_of_the_launches(cuda: CUDA) -> None:
    run = on(cuda)

    def fail(stream: int) -> None:
        raise MemoryError

    run("a", 9, 5, lambda stream: None)
    with pytest.raises(MemoryError):
        run("a", 9, 5, fail)
    assert cuda.calls[-2:] == ["StreamEndCapture", "GraphDestroy"]


def test_one_for_each_device(cuda: CUDA, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launches, "load_driver", lambda: Driver(cuda))  # type: ignore[arg-type]
    launches.graph_cache.cache_clear()
    assert launches.graph_cache(0) is launches.graph_cache(0) is not launches.graph_cache(1)
    launches.graph_cache.cache_clear()
