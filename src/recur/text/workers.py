"""Work on parts of a text, on several processes: each is a Python of its own that imports this room and no more.

Started by name, not forked: whoever calls may have threads, a GPU, or a script without `if __name__ == "__main__"`.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, BinaryIO, TypeVar

from recur.errors import RecurError, TextError

JobT = TypeVar("JobT")
FoundT = TypeVar("FoundT")

MOST = 16
"""Processes at most: beyond that a disk is what they wait for."""


def cores() -> int:
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(found, MOST)


def each(work: Callable[[JobT], FoundT], jobs: Sequence[JobT], processes: int | None = None) -> Iterator[FoundT]:
    """What a function of a module makes of every job, in their order. One process is this one."""
    count = min(processes or cores(), len(jobs))
    if count <= 1:
        yield from map(work, jobs)
        return
    workers = [_Worker() for _ in range(count)]
    free = workers.copy()
    turn = threading.Lock()

    def ask(job: JobT) -> Any:
        with turn:
            worker = free.pop()
        try:
            return worker.ask(work, job)
        finally:
            with turn:
                free.append(worker)

    try:
        with ThreadPoolExecutor(count) as threads:
            # Few at a time: what was found is held by nobody but whoever asks, however many jobs there are.
            left = iter(jobs)
            waiting = deque(threads.submit(ask, job) for job in islice(left, 2 * count))
            try:
                while waiting:
                    found = waiting.popleft().result()
                    waiting.extend(threads.submit(ask, job) for job in islice(left, 1))
                    yield found
            finally:
                for one in waiting:
                    one.cancel()
    finally:
        for worker in workers:
            worker.end()


class _Worker:
    def __init__(self) -> None:
        paths = os.pathsep.join(path for path in (*sys.path, os.environ.get("PYTHONPATH", "")) if path)
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from recur.text.workers import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )

    def ask(self, work: Callable[[Any], Any], job: object) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            pickle.dump((work, job), self.process.stdin)
            self.process.stdin.flush()
            failed, found = pickle.load(self.process.stdout)
        except (OSError, EOFError):
            raise TextError("a process that read a part of the text was ended, by a lack of memory maybe") from None
        if failed:
            raise found
        return found

    def end(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        for stream in (self.process.stdin, self.process.stdout):
            stream.close()
        self.process.wait()


def serve() -> None:
    """In such a process: jobs from standard input until it ends; what is printed goes to standard error."""
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)
        answer(sys.stdin.buffer, out)


def answer(jobs: BinaryIO, out: BinaryIO) -> None:
    while True:
        try:
            work, job = pickle.load(jobs)
        except EOFError:
            return
        try:
            found = False, work(job)
        except (RecurError, OSError) as error:
            found = True, error
        pickle.dump(found, out)
        out.flush()
