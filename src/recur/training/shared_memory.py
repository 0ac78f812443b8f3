"""Sums over the ranks of one machine, by memory that all of them see.

By gloo a message between two processes goes through a socket and two more threads in each, and every time one of them
is woken it may wait for a core until the scheduler's next tick: 4 ms, where a step takes 12. Here a rank writes what it
has into a slot of its own, says so, and reads everybody's:

    slot[k mod 2][rank] ← x      at[rank] ← k      wait until at[r] ≥ k for all r      x ← Σ_r slot[k mod 2][r]

Slots are there twice: who writes sum k + 2 has seen that all have begun with k + 1, and so have read k. All ranks add
in the same order, so that sums are the same to the last bit.
"""

from __future__ import annotations

import os
import secrets
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

RANKS = 8
"""At most: each reads what all of them have written."""
PLACE = Path("/dev/shm")
"""Memory that has a name, on Linux; elsewhere a file is mapped."""
SPINNING = 0.002
"""Seconds in which a rank that waits keeps its core, before it sleeps in between."""
NAP, LOOK = 0.0002, 0.02
"""Seconds that it sleeps, and between two looks at whether the others live."""
HEAD = 64
"""Bytes that a core fetches together: the mark and each rank's count have their own."""
PATIENCE = 300.0
"""Seconds behind which a rank that does not come hangs."""


class Group(Protocol):
    """Ranks, as far as they are needed to find the same memory."""

    rank: int
    size: int

    def first(self, work: Callable[[], Any]) -> Any: ...

    def everyone(self, value: Any) -> list[Any]: ...


class SharedMemory:
    """Of ranks on one machine, for tensors of one length and type."""

    def __init__(self, memory: Tensor, rank: int, pids: list[int], length: int, dtype: torch.dtype) -> None:
        self.rank, self._pids, self._k = rank, pids, 0
        self._fence = threading.Lock()
        counts = HEAD * (1 + len(pids))
        self._at = memory[HEAD:counts].view(torch.int64).numpy()[:: HEAD // 8]
        """How many sums each rank has begun with."""
        self._slots = memory[counts:].view(dtype).view(2, len(pids), length)

    @classmethod
    def of(cls, group: Group, length: int, dtype: torch.dtype) -> SharedMemory | None:
        """Found by all ranks at the same time; None where there is no room, or they do not see the same one, or
        not each other, in containers of their own."""
        bytes_ = HEAD * (1 + group.size) + 2 * group.size * length * dtype.itemsize
        path, mark = group.first(lambda: _created(bytes_))
        memory = _mapped(Path(path), bytes_, mark)
        pids = group.everyone(0 if memory is None else os.getpid())
        if path and group.rank == 0:
            Path(path).unlink()  # it lasts as long as somebody has it, and no longer
        found = memory is not None and all(pid and _lives(pid) for pid in pids)
        if not all(group.everyone(found)) or memory is None:
            return None
        return cls(memory, group.rank, pids, length, dtype)

    def add_up(self, x: Tensor) -> None:
        """In its place, the sum over ranks."""
        self._k += 1
        slots = self._slots[self._k % 2]
        slots[self.rank].copy_(x)
        self._ordered()
        self._at[self.rank] = self._k
        self._wait()
        self._ordered()
        torch.add(slots[0], slots[1], out=x)
        for slot in slots[2:]:
            x.add_(slot)

    def _ordered(self) -> None:
        """What was written before is seen before what is written after, on any processor."""
        with self._fence:
            pass
        with self._fence:
            pass

    def _wait(self) -> None:
        begun = looked = time.perf_counter()
        while (self._at < self._k).any():
            now = time.perf_counter()
            if now - begun < SPINNING:
                continue
            time.sleep(NAP)
            if now - looked > LOOK:
                looked = now
                gone = [rank for rank, pid in enumerate(self._pids) if self._at[rank] < self._k and not _lives(pid)]
                if gone or now - begun > PATIENCE:
                    raise dist.DistError(f"rank {gone[0]} has ended" if gone else "a rank does not come")


def _created(size: int) -> tuple[str, str]:
    """A file of so many zeros behind a mark, by which it is known again; its path is empty where there is no room. That
    is asked for here: who writes where there is none is killed, and containers have little of this memory."""
    mark = secrets.token_hex(HEAD // 2)
    try:
        with tempfile.NamedTemporaryFile(prefix="recur-", dir=PLACE if PLACE.is_dir() else None, delete=False) as file:
            reserve = getattr(os, "posix_fallocate", None)  # not everywhere
            try:
                file.truncate(size) if reserve is None else reserve(file.fileno(), 0, size)
                file.write(mark.encode())
            except OSError:
                os.unlink(file.name)
                raise
    except OSError:
        return "", mark
    return file.name, mark


def _mapped(path: Path, size: int, mark: str) -> Tensor | None:
    """… where it is that one."""
    try:
        if path.stat().st_size != size:
            return None
        memory = torch.from_file(str(path), shared=True, size=size, dtype=torch.uint8)
    except (OSError, RuntimeError):
        return None
    return memory if memory[:HEAD].numpy().tobytes() == mark.encode() else None


def _lives(pid: int) -> bool:
    """Whether a process is there, and not only its number, until whoever started it has asked."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[-1].split()[0] not in "ZX"
    except FileNotFoundError:  # no /proc here, or it has just gone
        return not Path("/proc/self/stat").exists()
    except ProcessLookupError:
        return False
