"""The machine loses its power: what was written and not flushed since is lost, or half of it is there.

A run is watched while it trains, every write, flush, rename and removal of it. For a moment of it, a disk is made that
a machine could find after losing its power then: of each file what was flushed, and behind that nothing, a part, or
zeros; of each folder the names that were flushed, and of later changes to them the first few. On that disk the run goes
on, or begins again where it had not become one, and must end as the undisturbed run does, to the last bit.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from campaigns.campaign import Attempt, dice
from campaigns.small import Undisturbed, arguments_of, difference, finish, forked, result, set_up, task_of
from recur.cli.app import run as command
from recur.runs import is_run

TRIES = 2200

Event = list[Any]
"""[what, path, …]: made, written (content in hexadecimal), flushed, renamed (to), removed, folder."""


def attempts(seed: int, numbers: Iterable[int]) -> Iterator[Attempt]:
    home = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="recur-power-") as folder:
        set_up(Path(folder))
        try:
            undisturbed, watched = Undisturbed(), dict[str, list[Event]]()
            for number in numbers:
                task, rng, out = task_of(number), dice(seed, number), "run"
                wanted = undisturbed.result(task)
                if task not in watched:
                    watched[task] = _watched(task, out)
                at = rng.randrange(len(watched[task]) + 1)
                _Disk(watched[task][:at]).lose_power(rng)
                failure = None if is_run(Path(out)) or not _committed(watched[task][:at]) else "the run is gone"
                failure = failure or finish(task, out) or difference(result(out), wanted)
                yield Attempt(number, f"{task}: power lost after event {at} of {len(watched[task])}", failure)
                shutil.rmtree(out, ignore_errors=True)
        finally:
            os.chdir(home)


def _watched(task: str, out: str) -> list[Event]:
    """What a run of a task does to the disk."""
    ended = forked(lambda: _record(arguments_of(task, out), Path(out).absolute(), Path("events.json")))
    assert ended.code == 0, ended.err
    events: list[Event] = json.loads(Path("events.json").read_text())
    shutil.rmtree(out)
    return events


def _committed(events: list[Event]) -> bool:
    """Whether it was a run: its manifest had been put in place, and that brought to disk."""
    placed = [k for k, event in enumerate(events) if event[0] == "renamed" and event[2].endswith("/manifest.json")]
    return bool(placed) and any(event[0] == "flushed" for event in events[placed[0] :])


def _record(arguments: list[str], inside: Path, to: Path) -> int:
    """Run a command, and write down what it does inside of a folder."""
    events: list[Event] = []
    open_, write, fsync, replace, unlink, mkdir = os.open, os.write, os.fsync, os.replace, os.unlink, os.mkdir

    def path_of(name: Any, dir_fd: int | None = None) -> str:
        return os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}") if dir_fd is not None else "", os.fspath(name))

    def note(what: str, path: str, *rest: Any) -> None:
        full = Path(path).absolute()
        if full in (inside, inside.parent) or inside in full.parents:
            events.append([what, str(full), *rest])

    def opened(name: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        path = path_of(name, dir_fd)
        new = flags & os.O_CREAT and not os.path.lexists(path)
        handle = open_(name, flags, mode, dir_fd=dir_fd)
        if new:
            note("made", path)
        return handle

    def written(handle: int, content: Any) -> int:
        done = write(handle, content)
        note("written", os.readlink(f"/proc/self/fd/{handle}"), bytes(content)[:done].hex())
        return done

    def flushed(handle: int) -> None:
        fsync(handle)
        note("flushed", os.readlink(f"/proc/self/fd/{handle}"))

    def renamed(a: Any, b: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        paths = path_of(a, src_dir_fd), path_of(b, dst_dir_fd)
        replace(a, b, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        note("renamed", paths[0], str(Path(paths[1]).absolute()))

    def removed(name: Any, *, dir_fd: int | None = None) -> None:
        path = path_of(name, dir_fd)
        unlink(name, dir_fd=dir_fd)
        note("removed", path)

    def folder(name: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        mkdir(name, mode, dir_fd=dir_fd)
        note("folder", path_of(name, dir_fd))

    watched = {
        "open": opened,
        "write": written,
        "fsync": flushed,
        "replace": renamed,
        "unlink": removed,
        "mkdir": folder,
    }
    for name, function in watched.items():
        setattr(os, name, function)
    code = command(arguments)
    os.open, os.write = open_, write
    to.write_text(json.dumps(events))
    return code


class _File:
    """What was flushed of a file, and what was written since."""

    def __init__(self) -> None:
        self.safe, self.since = b"", b""

    def after_power_loss(self, rng: random.Random) -> bytes:
        part = self.since[: rng.randrange(len(self.since) + 1)]
        return self.safe + rng.choice([b"", part, bytes(len(part)), self.since])


class _Disk:
    """Names and what they name, as the events make them; and which changes of names were flushed."""

    def __init__(self, events: list[Event]) -> None:
        self._names: dict[str, _File | None] = {}  # None is a folder
        self._flushed: dict[str, _File | None] = {}
        self._pending: list[tuple[str, str, str, _File | None]] = []  # folder, what, name, file
        for what, path, *rest in events:
            self._happens(what, path, *rest)

    def _happens(self, what: str, path: str, *rest: str) -> None:
        if what in ("made", "folder"):
            self._change("named", path, _File() if what == "made" else None)
        elif what == "written":
            file = self._names[path]
            assert file is not None
            file.since += bytes.fromhex(rest[0])
        elif what == "renamed":
            file = self._names.pop(path)
            self._pending.append((os.path.dirname(path), "removed", path, None))
            self._change("named", rest[0], file)
        elif what == "removed":
            self._names.pop(path)
            self._pending.append((os.path.dirname(path), "removed", path, None))
        elif what == "flushed" and path in self._names and (file := self._names[path]) is not None:
            file.safe, file.since = file.safe + file.since, b""
        elif what == "flushed":
            kept = []
            for change in self._pending:
                if change[0] == path:
                    _apply(self._flushed, change)
                else:
                    kept.append(change)
            self._pending = kept

    def _change(self, what: str, path: str, file: _File | None) -> None:
        self._names[path] = file
        self._pending.append((os.path.dirname(path), what, path, file))

    def lose_power(self, rng: random.Random) -> None:
        """Make the folder as it could be found then."""
        names = dict(self._flushed)
        for change in self._pending[: rng.randrange(len(self._pending) + 1)]:  # a journal keeps their order
            _apply(names, change)
        for path in sorted(names):
            if (file := names[path]) is None:
                Path(path).mkdir(parents=True, exist_ok=True)
        for path, file in names.items():
            if file is not None and Path(path).parent.is_dir():
                Path(path).write_bytes(file.after_power_loss(rng))


def _apply(names: dict[str, _File | None], change: tuple[str, str, str, _File | None]) -> None:
    _, what, path, file = change
    if what == "named":
        names[path] = file
    else:
        names.pop(path, None)
