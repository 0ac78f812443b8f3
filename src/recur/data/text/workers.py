"""Worker processes that apply a function to parts of a text.

Each worker is a new Python process that imports only the module of the function. Workers are started by name, not
forked: the caller may have threads, a GPU, or a script without `if __name__ == "__main__"`.
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
from recur.utils.processes import python_command, python_environment

JobT = TypeVar("JobT")
FoundT = TypeVar("FoundT")

MOST = 16
"""Largest number of processes: more would wait for the disk."""


def available_cores() -> int:
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(found, MOST)


def map_in_processes(
    work: Callable[[JobT], FoundT], jobs: Sequence[JobT], processes: int | None = None
) -> Iterator[FoundT]:
    """Yield the results of a module-level function for all jobs, in order. A single process is the current one."""
    count = min(processes or available_cores(), len(jobs))
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
        self.process = subprocess.Popen(
            python_command("recur.data.text.workers", "serve"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=python_environment(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1"),
        )

    def ask(self, work: Callable[[Any], Any], job: object) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            pickle.dump((work, job), self.process.stdin)
            self.process.stdin.flush()
            failed, found = pickle.load(self.process.stdout)
        except (OSError, EOFError):
            raise TextError(
                "a worker process that read a part of the text was killed, possibly by a lack of memory"
            ) from None
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
    """Answer jobs from standard input in a worker; output of print goes to standard error."""
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
