"""Child processes that run Python, worker processes, and the position of this process in a distributed launch.

No child imports a module from the current folder. The current folder may hold a stranger's files. Python puts it on
`sys.path` for `-c` and `-m`, and for an empty entry of PYTHONPATH, so that a file `numpy.py` beside the data would be
executed in place of NumPy.

A worker is a new Python process that applies functions to jobs. Workers are started by name, not forked: the caller may
have threads, a GPU, or a script without `if __name__ == "__main__"`.

Rank and size of a launch come from the environment of torchrun or Slurm:

    torchrun    RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
    srun        SLURM_PROCID SLURM_NTASKS SLURM_LOCALID, if torchrun's are absent; processes connect to the first node
                of the list, at a port made of the job's number, unless MASTER_ADDR and MASTER_PORT are set

A script of sbatch has Slurm's variables too, but is one process: only srun starts several.
"""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

from recur.errors import OptionError, RecurError, TextError
from recur.utils.imports import is_current

_ROOT = str(Path(__file__).resolve().parents[2])
"""Folder that holds the package recur, which the child must find though it is not installed."""

_START = """import os, sys
root = {root!r}
if root not in sys.path:
    # In the current folder, the package comes behind the standard library and what is installed.
    sys.path.insert(len(sys.path) if root == os.path.realpath(os.getcwd()) else 0, root)
from {module} import {function}
{function}()
"""


def python_command(module: str, function: str, *arguments: str) -> list[str]:
    """Return the command that calls a function of this package in a new Python, with `sys.argv[1:]` as given.

    Start it with `python_environment()`.
    """
    code = _START.format(root=_ROOT, module=module, function=function)
    return [sys.executable, "-P", "-c", code, *arguments]


def python_environment(**more: str) -> dict[str, str]:
    """Return this process's environment without a way to the current folder, for children and their children."""
    kept = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = os.pathsep.join(os.path.abspath(path) for path in kept if path and not is_current(path))
    return {**os.environ, "PYTHONPATH": paths, "PYTHONSAFEPATH": "1", **more}


class Launch(NamedTuple):
    """Position of this process among those that train together."""

    rank: int = 0
    size: int = 1
    local: int = 0
    """Rank on this machine."""
    locals: int = 1
    """Number of processes on this machine."""
    address: str = ""
    """Address of rank 0."""
    port: int = 0
    restarts: int = 0
    """Number of restarts: by torchrun --max-restarts, or by Slurm, which requeues a job."""


def launch(given: Mapping[str, str] | None = None) -> Launch:
    """Return the launch that the environment describes."""
    given = os.environ if given is None else given
    if all(name in given for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")):
        rank, size = _number(given, "RANK"), _number(given, "WORLD_SIZE")
        local, locals_ = _number(given, "LOCAL_RANK", rank), _number(given, "LOCAL_WORLD_SIZE", size)
        address, port = given["MASTER_ADDR"], _number(given, "MASTER_PORT")
        restarts = _number(given, "TORCHELASTIC_RESTART_COUNT", 0)
        return _checked(Launch(rank, size, local, locals_, address, port, restarts))
    restarts = _number(given, "SLURM_RESTART_COUNT", 0)
    size = _number(given, "SLURM_STEP_NUM_TASKS", _number(given, "SLURM_NTASKS", 1))
    started = any(name in given for name in ("SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID", "MASTER_ADDR"))
    if size < 2 or not started or "SLURM_PROCID" not in given:
        return Launch(restarts=restarts)
    nodes = given.get("SLURM_STEP_NODELIST") or given.get("SLURM_JOB_NODELIST") or given.get("SLURM_NODELIST", "")
    address = given.get("MASTER_ADDR") or first_node(nodes) or "localhost"
    port = _number(given, "MASTER_PORT", 20_000 + _number(given, "SLURM_JOB_ID", 0) % 20_000)
    each = given.get("SLURM_STEP_TASKS_PER_NODE") or given.get("SLURM_TASKS_PER_NODE") or str(size)
    rank, local = _number(given, "SLURM_PROCID"), _number(given, "SLURM_LOCALID", 0)
    return _checked(
        Launch(rank, size, local, _of_node(each, _number(given, "SLURM_NODEID", 0)), address, port, restarts)
    )


def hush(at: Launch) -> None:
    """Silence the warning of DDP that all parameters were used; call it before torch is imported."""
    if at.size > 1:
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


def first_node(nodes: str) -> str:
    """Return the first node of a Slurm list: gpu07 of gpu[07-09,12],other1."""
    found = re.match(r"([^\[,]+)(?:\[(\d+)[^\]]*\]([^,]*))?", nodes)
    return "".join(part or "" for part in found.groups()) if found else ""


def _of_node(each: str, node: int) -> int:
    """Return the number of tasks of a node, from a Slurm list: 4(x2),3 is 4, 4 and 3."""
    counts: list[int] = []
    for part in re.finditer(r"(\d+)(?:\(x(\d+)\))?", each):
        counts += [int(part[1])] * int(part[2] or 1)
    return counts[min(node, len(counts) - 1)] if counts else 1


def _number(given: Mapping[str, str], name: str, default: int | None = None) -> int:
    value = given.get(name, "")
    if not value and default is not None:
        return default
    if not re.fullmatch(r"\d{1,9}", value):
        raise OptionError(f"the environment's {name} must be a whole number, got {value!r}")
    return int(value)


def _checked(found: Launch) -> Launch:
    if not (found.rank < found.size and found.local < found.locals <= found.size):
        raise OptionError(
            f"the environment says process {found.rank} of {found.size}, {found.local} of {found.locals} on this "
            "machine: start all of them by torchrun or srun"
        )
    return found


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
    free = deque(workers)  # whose pop and append are safe in threads

    def ask(job: JobT) -> Any:
        worker = free.pop()
        try:
            return worker.ask(work, job)
        finally:
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
            python_command("recur.utils.processes", "serve"),
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
