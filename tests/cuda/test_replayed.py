"""Launches as graphs where they come again, with functions of our own in the driver's place."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from recur.cuda import replayed
from recur.cuda.driver import Driver
from recur.cuda.replayed import MOST_GRAPHS, MOST_SEEN, Replayed


class CUDA:
    """Keeps the names of what is called; one of them may fail."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fails = ""
        self.cuLaunchKernelEx = SimpleNamespace()
        self.made = 0

    def __getattr__(self, name: str) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            self.calls.append(name.removeprefix("cu"))
            if name in ("cuStreamCreate", "cuGraphInstantiateWithFlags"):
                self.made += 1
                arguments[0]._obj.value = 100 + self.made
            return int(name == self.fails)

        return call


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> CUDA:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return CUDA()


def on(cuda: CUDA) -> Replayed:
    return Replayed(Driver(cuda))  # type: ignore[arg-type]


def test_from_the_second_time_on(cuda: CUDA, monkeypatch: pytest.MonkeyPatch) -> None:
    run, streams = on(cuda), list[int]()
    run("a", 5, streams.append)
    assert (cuda.calls, streams) == ([], [5])
    run("a", 5, streams.append)
    made = ["StreamCreate", "StreamBeginCapture_v2", "StreamEndCapture", "GraphInstantiateWithFlags", "GraphDestroy"]
    assert cuda.calls == [*made, "GraphLaunch"]
    assert streams == [5, 101]  # recorded on a stream of its own
    run("a", 5, streams.append)
    assert (cuda.calls[len(made) :], streams) == (["GraphLaunch", "GraphLaunch"], [5, 101])
    run("b", 5, streams.append)
    assert streams == [5, 101, 5]
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    run("a", 5, streams.append)  # a recording of the user's own takes the launches themselves
    assert streams == [5, 101, 5, 5]


@pytest.mark.parametrize(
    "fails", ["cuStreamCreate", "cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags"]
)
def test_where_nothing_can_be_recorded_they_are_launched(cuda: CUDA, fails: str) -> None:
    run, streams = on(cuda), list[int]()
    cuda.fails = fails
    for _ in range(4):
        run("a", 5, streams.append)
    assert [stream for stream in streams if stream == 5] == [5] * 4
    assert cuda.calls.count(fails.removeprefix("cu")) == 1


def test_no_more_than_some_are_kept(cuda: CUDA) -> None:
    run, streams = on(cuda), list[int]()
    for key in range(MOST_SEEN + 1):
        run(key, 5, streams.append)
    run(0, 5, streams.append)  # forgotten: it comes for the first time
    assert "GraphLaunch" not in cuda.calls
    for key in range(MOST_GRAPHS + 1):
        run(-key - 1, 5, streams.append)
        run(-key - 1, 5, streams.append)
    assert cuda.calls.count("GraphExecDestroy") == MOST_GRAPHS
    assert cuda.calls.index("CtxSynchronize") < cuda.calls.index("GraphExecDestroy")
    assert cuda.calls.count("GraphLaunch") == MOST_GRAPHS + 1


def test_a_failure_while_recording_is_the_callers(cuda: CUDA) -> None:
    run = on(cuda)

    def fail(stream: int) -> None:
        raise MemoryError

    run("a", 5, lambda stream: None)
    with pytest.raises(MemoryError):
        run("a", 5, fail)
    assert cuda.calls[-1] == "StreamEndCapture"


def test_one_for_each_device(cuda: CUDA, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replayed, "driver", lambda: Driver(cuda))  # type: ignore[arg-type]
    replayed.replayed.cache_clear()
    assert replayed.replayed(0) is replayed.replayed(0) is not replayed.replayed(1)
    replayed.replayed.cache_clear()
