"""Lock on a run's folder: one writer at a time. The system releases it when the holder dies.

The file `lock` names the holder, for the message of a refusal; the lock itself is the system's lock on that file. So
the file of a killed process does no harm. On a file system without locks (some network file systems), the content of
the file counts: a holder on this machine that is gone is recognised, one on another machine is not.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import time
from contextlib import suppress
from pathlib import Path

from recur.errors import RunError
from recur.runs.safe_dir import SafeDir

NAME = "lock"
LOOKING = 0.2
"""Seconds to retry: `holder_of` in another process holds the lock for a moment."""
HELD = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK)


class Lock:
    """Exclusive right to write into a folder, until it is released."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        while True:
            self._handle = SafeDir(folder).open(NAME, os.O_RDWR | os.O_CREAT)
            try:
                self._take()
                # The last holder may have removed the file after it was opened here: then try again.
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
            os.fsync(self._handle)  # it marks a folder that is not a run yet
        except OSError as error:
            self.release(remove=False)
            raise OSError(error.errno, error.strerror, str(self.path)) from None

    def release(self, remove: bool = True) -> None:
        """Release the lock; `remove` its file too."""
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
        then = f"wait for it, or stop it; if it is gone, remove {self.path}"
        return f"{self.path.parent} is being trained by {who}; {then}"

    def _said_to_be_held(self) -> bool:
        return _is_alive(self._holder())

    def _holder(self) -> dict[str, str]:
        return _read_holder(self._handle)


def holder_of(folder: Path) -> dict[str, str] | None:
    """Return who is writing into a folder: `host`, `process` and `since`, as the lock file says; None if nobody is."""
    try:
        handle = SafeDir(folder).open(NAME, os.O_RDONLY)
    except (OSError, RunError):
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
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}


def _is_alive(holder: dict[str, str]) -> bool:
    """Return True if the holder's process is alive, or on another machine."""
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
    """Return True if a folder has a lock file that recur wrote."""
    try:
        return {"host", "process", "since"} == {*json.loads(SafeDir(folder).read(NAME, 1 << 12))}
    except (OSError, RunError, ValueError, TypeError, RecursionError):
        return False


def _hold(handle: int, shared: bool = False) -> None:
    try:
        import fcntl
    except ImportError:  # pragma: no cover  Windows
        import msvcrt

        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
    else:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
