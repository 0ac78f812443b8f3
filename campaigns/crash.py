"""A run ends, or its disk is full, at every single write, flush, rename and removal of every task.

The process leaves at the call (before it, or in the middle of what it writes) without any word, or the call says that
no space is left. Then the run goes on, or begins again where it had not become one, with one command each, and must end
as the undisturbed run does, to the last bit.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from campaigns.campaign import Attempt
from campaigns.small import Undisturbed, arguments_of, difference, finish, forked, result, set_up
from recur.cli.app import run as command
from recur.tasks import task_names

TRIES = 100_000
"""More than there are: the campaign ends when every call of every task was tried in every way."""

CALLS = ("write", "fsync", "replace", "unlink", "mkdir", "open", "ftruncate")
WAYS = ("leaves", "leaves in the middle", "finds no space")


def attempts(seed: int, numbers: Iterable[int]) -> Iterator[Attempt]:
    home = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="recur-crash-") as folder:
        set_up(Path(folder))
        try:
            undisturbed, wanted = Undisturbed(), set(numbers)
            last = max(wanted, default=0)
            for number, point in enumerate(_points(undisturbed)):
                if number in wanted:
                    yield _attempt(number, *point, undisturbed)
                if number >= last:
                    break
        finally:
            os.chdir(home)


def _points(undisturbed: Undisturbed) -> Iterator[tuple[str, int, str]]:
    """Every call of every task, in every way."""
    for task in sorted(task_names(), key=lambda name: name != "language"):  # which has a cell of its own
        undisturbed.result(task)
        count = Path(f"count-{task}")

        def counted(task: str = task, count: Path = count) -> int:
            calls = 0

            def increment(*_: Any) -> None:
                nonlocal calls
                calls += 1

            _watch(increment)
            code = command(arguments_of(task, f"counted-{task}"))
            total = calls
            count.write_text(str(total))
            return code

        ended = forked(counted)
        assert ended.code == 0, ended.err
        for call in range(int(count.read_text())):
            for way in WAYS:
                yield task, call, way


def _attempt(number: int, task: str, call: int, way: str, undisturbed: Undisturbed) -> Attempt:
    wanted, out = undisturbed.result(task), f"run-{number}"
    ended = forked(lambda: _disturbed(task, out, call, way))
    what = f"{task}: the process {way} at call {call}"
    failure = None
    if way == "finds no space":
        failure = ended.fault
        if ended.code == 2 and not any(way_on in ended.err for way_on in (f"recur resume {out}", "train again")):
            failure = f"no way on is said: {ended.err}"
    failure = failure or finish(task, out) or difference(result(out), wanted)
    shutil.rmtree(out, ignore_errors=True)
    return Attempt(number, what, failure)


def _disturbed(task: str, out: str, at: int, way: str) -> int:
    calls = 0

    def disturb(name: str, original: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        nonlocal calls
        calls += 1
        if calls - 1 != at:
            return
        if way == "finds no space":
            named = [str(arguments[0])] if name in ("mkdir", "open") else []  # as the system itself does
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *named)
        if way == "leaves in the middle" and name == "write":
            handle, content = arguments
            original(handle, bytes(content)[: len(content) // 2])
        os._exit(99)

    _watch(disturb)
    return command(arguments_of(task, out))


def _watch(before: Callable[[str, Callable[..., Any], tuple[Any, ...]], None]) -> None:
    """Have this called before every call that changes the disk."""
    for name in CALLS:
        original = getattr(os, name)

        def watched(*arguments: Any, name: str = name, original: Any = original, **options: Any) -> Any:
            if name != "open" or arguments[1] & (os.O_CREAT | os.O_WRONLY):
                before(name, original, arguments)
            return original(*arguments, **options)

        setattr(os, name, watched)
