"""One writer at a time: a lock on a run's folder, which the system takes back when its holder dies.

The file `lock` says who holds it, for whoever is refused; what locks is the system's own lock on that file. So a lock
that a killed process left behind is no obstacle. Where a file system has no locks (some of the network), the word of
the file counts: a holder on this machine that is gone is recognised, one elsewhere is not.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import time
from contextlib import suppress
from pathlib import Path

from recur.errors import RunError
from recur.run.place import BINARY, NO_LINK, NO_WAIT

NAME = "lock"
LOOKING = 0.2
"""Seconds after which a lock is somebody's: one who only looks whether it is held (`holder_of`) has it for a moment."""
HELD = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK)


class Lock:
    """The right to write into a folder, until it is released."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        while True:
            self._handle = self._open()
            try:
                about = os.fstat(self._handle)
                if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:  # a hard link: somebody else's file
                    raise RunError(f"{self.path} is in the way: a run has a file of its own there")
                self._take()
                # Its last holder may have removed the file that was opened: then the lock is on nothing.
                if self.path.exists() and os.path.samestat(os.fstat(self._handle), os.lstat(self.path)):
                    break
            except BaseException:
                os.close(self._handle)
                raise
            os.close(self._handle)
        holder = {"host": socket.gethostname(), "process": os.getpid(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        try:
            os.ftruncate(self._handle, 0)
            os.write(self._handle, json.dumps(holder).encode())
            os.fsync(self._handle)  # a folder that is no run yet is known by it
        except OSError as error:
            self.release(remove=False)
            raise OSError(error.errno, error.strerror, str(self.path)) from None

    def release(self, remove: bool = True) -> None:
        """Leave the folder to others; without the file, unless it has to stay."""
        if self._handle < 0:
            return
        if remove:
            with suppress(OSError):
                self.path.unlink()
        os.close(self._handle)
        self._handle = -1

    def __del__(self) -> None:
        if getattr(self, "_handle", -1) >= 0:
            with suppress(OSError):
                os.close(self._handle)

    def _open(self) -> int:
        try:
            return os.open(self.path, os.O_RDWR | os.O_CREAT | NO_LINK | NO_WAIT | BINARY, 0o666)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EMLINK):
                raise RunError(f"{self.path} is a link; a run holds its files itself") from None
            raise OSError(error.errno, error.strerror, str(self.path)) from None

    def _take(self) -> None:
        until = time.monotonic() + LOOKING
        while True:
            try:
                return _hold(self._handle)
            except OSError as error:
                if error.errno not in HELD and not self._said_to_be_held():
                    return None
                if time.monotonic() > until:
                    raise RunError(self._refusal()) from None
            time.sleep(LOOKING / 10)

    def _refusal(self) -> str:
        holder = self._holder()
        who = f"process {holder['process']} on {holder['host']} since {holder['since']}" if holder else "a process"
        then = f"wait for it, or stop it first; if it is gone, remove {self.path}"
        return f"{self.path.parent} is being trained by {who}; {then}"

    def _said_to_be_held(self) -> bool:
        return _is_alive(self._holder())

    def _holder(self) -> dict[str, str]:
        return _read_holder(self._handle)


def holder_of(folder: Path) -> dict[str, str] | None:
    """Who is writing into a folder now: the `host`, the `process` and `since` when, as far as the file says it; None
    where nobody is."""
    try:
        handle = os.open(f"{folder}/{NAME}", os.O_RDONLY | NO_LINK | NO_WAIT | BINARY)
    except OSError:
        return None
    try:
        holder = _read_holder(handle)
        try:
            _hold(handle, shared=True)
        except OSError as error:
            return holder if error.errno in HELD or _is_alive(holder) else None
        return None
    finally:
        os.close(handle)


def _read_holder(handle: int) -> dict[str, str]:
    try:
        os.lseek(handle, 0, os.SEEK_SET)
        found = json.loads(os.read(handle, 1 << 12))
        return {name: str(found[name])[:80] for name in ("host", "process", "since")}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _is_alive(holder: dict[str, str]) -> bool:
    """Whether a lock's word has to count: its process is there, or on another machine."""
    if not holder or holder["host"] != socket.gethostname():
        return bool(holder)
    try:
        os.kill(int(holder["process"]), 0)
    except ProcessLookupError:
        return False
    except (OSError, ValueError, OverflowError):
        return True
    return True


def is_ours(folder: Path) -> bool:
    """Whether a folder has a lock file that one of us wrote."""
    try:
        return {"host", "process", "since"} == {*json.loads((folder / NAME).read_bytes()[: 1 << 12])}
    except (OSError, ValueError, TypeError):
        return False


def _hold(handle: int, shared: bool = False) -> None:
    try:
        import fcntl
    except ImportError:  # pragma: no cover  Windows
        import msvcrt

        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
    else:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
