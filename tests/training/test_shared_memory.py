"""Sums by shared memory: those of NumPy, the same for all, and an error where somebody has gone."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from recur.training import shared_memory
from recur.training.shared_memory import SharedMemory

LENGTH = 1000


class Meeting:
    """A rank that is a thread."""

    def __init__(self, rank: int, said: list[Any], barrier: threading.Barrier) -> None:
        self.rank, self.size, self._said, self._barrier = rank, len(said), said, barrier

    def everyone(self, value: Any) -> list[Any]:
        self._said[self.rank] = value
        self._barrier.wait()
        found = list(self._said)
        self._barrier.wait()
        return found

    def first(self, work: Callable[[], Any]) -> Any:
        return self.everyone(work() if self.rank == 0 else None)[0]


def together(size: int, work: Callable[[Meeting], Any]) -> list[Any]:
    said, barrier = [None] * size, threading.Barrier(size, timeout=30)
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(lambda rank: work(Meeting(rank, said, barrier)), range(size)))


@pytest.mark.parametrize("size", [2, 3])
def test_sums_are_those_of_all_in_every_round(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that come late, each in its turn, some so late that the others sleep."""
    monkeypatch.setattr(shared_memory, "SPINNING", 1e-4)
    values = np.random.default_rng(0).standard_normal((20, size, LENGTH)).astype(np.float32)
    before = set(shared_memory.PLACE.iterdir()) if shared_memory.PLACE.is_dir() else set()

    def work(group: Meeting) -> list[torch.Tensor]:
        memory = SharedMemory.of(group, LENGTH, torch.float32)
        assert memory is not None
        found = []
        for k, row in enumerate(values):
            if k % size == group.rank:
                time.sleep(0.002)
            x = torch.from_numpy(row[group.rank].copy())
            memory.add_up(x)
            found.append(x)
        return found

    each = together(size, work)
    for k in range(len(values)):
        np.testing.assert_allclose(each[0][k].numpy(), values[k].sum(0), atol=1e-6)
        assert all(torch.equal(other[k], each[0][k]) for other in each[1:]), "to the last bit"
    if shared_memory.PLACE.is_dir():
        assert not [path for path in set(shared_memory.PLACE.iterdir()) - before if path.name.startswith("recur-")]


def test_who_waits_for_one_that_has_gone_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    while shared_memory._lives(child.pid):  # ended, and not yet asked for: its number is still there
        time.sleep(0.01)

    def work(group: Meeting) -> str:
        memory = SharedMemory.of(group, LENGTH, torch.float64)
        assert memory is not None
        memory._pids = [os.getppid(), child.pid]
        if group.rank == 1:
            return ""
        with pytest.raises(dist.DistError, match="rank 1 has ended"):
            memory.add_up(torch.ones(LENGTH, dtype=torch.float64))
        monkeypatch.setattr(shared_memory, "PATIENCE", 0.0)
        memory._pids[1] = os.getppid()
        with pytest.raises(dist.DistError, match="does not come"):
            memory.add_up(torch.ones(LENGTH, dtype=torch.float64))
        return "told"

    assert together(2, work) == ["told", ""]
    child.wait()


def test_ranks_that_do_not_see_the_same_memory_have_none(tmp_path: Path) -> None:
    other = tmp_path / "other"

    class Elsewhere(Meeting):
        def first(self, work: Callable[[], Any]) -> Any:
            path, mark = super().first(work)
            if self.rank == 1:
                other.write_bytes(b"\0" * Path(path).stat().st_size)
                return str(other), mark
            return path, mark

    said, barrier = [None, None], threading.Barrier(2, timeout=30)
    with ThreadPoolExecutor(2) as pool:
        ranks = [Elsewhere(rank, said, barrier) for rank in range(2)]
        assert list(pool.map(lambda rank: SharedMemory.of(rank, LENGTH, torch.float32), ranks)) == [None, None]


def test_without_room_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    assert together(2, lambda group: SharedMemory.of(group, LENGTH, torch.float32)) == [None, None]
