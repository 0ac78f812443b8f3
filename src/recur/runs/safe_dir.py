"""Safe access to the files inside one folder, which may come from a stranger; and the lock on a run's folder.

`SafeDir.open` opens every file of a run, a sweep or the studio: relative to its folder, without following symbolic
links, and only if it is a regular file with exactly one hard link. It never waits for a pipe, and no file outside of
the folder is read or changed.

A file is written under a temporary name, flushed to disk and renamed. So a process that is killed, or a power failure,
leaves the old file or the new one, never a part of one. An append can be torn; the reader knows from the manifest how
many bytes are complete.

One process at a time writes into a run; the system releases the lock when its holder dies. The file `lock` names the
holder, for the message of a refusal; the lock itself is the system's lock on that file. So the file of a killed process
does no harm. On a file system without locks (some network file systems), the content of the file counts: a holder on
this machine that is gone is recognised, one on another machine is not.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import socket
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from recur.errors import RunError
from recur.i18n import Message
from recur.utils.files import BINARY, NO_WAIT, sync_folder

NO_LINK = getattr(os, "O_NOFOLLOW", 0)
FOLDER = getattr(os, "O_DIRECTORY", 0)
RELATIVE = os.open in os.supports_dir_fd
"""Whether the system opens files relative to a folder; elsewhere, links are checked before opening."""

PART = re.compile(r"\..+\.[0-9a-f]{8}\.part")
"""Name of a temporary file; one that remains was being written when its writer was killed."""


class SafeDir:
    """Folder whose files are opened safely; names are relative to it, such as `resume/a.safetensors`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, name: str, most: int | None = None) -> bytes:
        """Return the content of a file; refuse one of more than `most` bytes."""
        with self.opened(name, os.O_RDONLY) as handle:
            size = os.fstat(handle).st_size
            if most is not None and size > most:
                raise RunError(f"{self.path / name} is damaged: it has {size:,} bytes")
            parts = []
            while part := os.read(handle, 1 << 24):
                parts.append(part)
            return b"".join(parts)

    def read_from(self, name: str, start: int, most: int) -> tuple[bytes, int, int]:
        """Return up to `most` bytes from the offset `start` (negative: from the end), the size of the file, and its
        inode number, which changes when the file is replaced."""
        with self.opened(name, os.O_RDONLY) as handle:
            about = os.fstat(handle)
            os.lseek(handle, max(0, about.st_size + start) if start < 0 else start, os.SEEK_SET)
            return os.read(handle, most), about.st_size, about.st_ino

    def digest(self, name: str) -> str:
        """Return the SHA-256 of a file of any size."""
        with self.opened(name, os.O_RDONLY) as handle:
            sha = hashlib.sha256()
            while part := os.read(handle, 1 << 22):
                sha.update(part)
            return sha.hexdigest()

    def write(self, name: str, content: bytes) -> None:
        """Replace a file, or a link of that name, by a file with this content."""
        with self._folder_of(name) as (folder, last):
            part = f".{last}.{secrets.token_hex(4)}.part"
            try:
                handle = folder.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
                try:
                    write_all(handle, content)
                    os.fsync(handle)
                finally:
                    os.close(handle)
                folder.rename(part, last)
            except BaseException:
                with suppress(OSError):
                    folder.unlink(part)
                raise
            folder.sync()

    def append(self, name: str, content: bytes, flushed: bool = True) -> None:
        """Append to an existing file; with `flushed`, wait until the disk has it."""
        with self.opened(name, os.O_WRONLY | os.O_APPEND) as handle:
            write_all(handle, content)
            if flushed:
                os.fsync(handle)

    def make_folder(self, name: str) -> None:
        path = self.path / name
        with suppress(FileExistsError):
            path.mkdir()
            sync_folder(self.path)
        if path.is_symlink() or not path.is_dir():
            raise RunError(f"{path} is not a folder, and a run needs one of that name; move it away")

    def sweep(self, *folders: str) -> None:
        """Remove the temporary files that killed writers left."""
        for inner in ("", *folders):
            with suppress(OSError, RunError), self._folder_of(os.path.join(inner, "any")) as (folder, _):
                for name in folder.names():
                    if PART.fullmatch(name):
                        folder.unlink(name)

    @contextmanager
    def _folder_of(self, name: str) -> Iterator[tuple[_Folder, str]]:
        """Yield the folder that contains a file, open, and the file's name in it."""
        *inner, last = Path(name).parts
        with self._naming(name):
            folder = _Folder(self.path, inner)
            try:
                yield folder, last
            finally:
                folder.close()

    @contextmanager
    def _naming(self, name: str) -> Iterator[None]:
        """Make errors name the file, not a part of its path."""
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENOTDIR):
                raise _is_link(self.path / name) from None
            if error.errno in (errno.ENXIO, errno.EISDIR):  # a socket, a pipe without a reader; a folder
                raise _not_regular(self.path / name) from None
            raise OSError(error.errno, error.strerror, str(self.path / name)) from None

    def open(self, name: str, flags: int) -> int:
        """Return a descriptor of a regular file with exactly one hard link; the caller closes it.

        Refuse a symbolic link, a pipe, a socket, a device and a folder.
        """
        with self._folder_of(name) as (folder, last):
            handle = folder.open(last, flags)
            try:
                _check_regular(handle, self.path / name)
            except BaseException:
                os.close(handle)
                raise
            return handle

    @contextmanager
    def opened(self, name: str, flags: int) -> Iterator[int]:
        """Open a file as `open` does, and close it when the block ends."""
        handle = self.open(name, flags)
        try:
            with self._naming(name):
                yield handle
        finally:
            os.close(handle)


class _Folder:
    """Open folder, which stays the same one even if its path is moved or replaced by a link."""

    def __init__(self, path: Path, inner: Sequence[str]) -> None:
        self._base = path.joinpath(*inner)
        self._at: dict[str, int] = {}
        if not RELATIVE:  # Windows: names are full paths, and links are checked before opening
            for k in range(len(inner)):
                self._refuse_link(path.joinpath(*inner[: k + 1]))
            return
        handle = os.open(path, os.O_RDONLY | FOLDER)
        for name in inner:
            try:
                deeper = os.open(name, os.O_RDONLY | FOLDER | NO_LINK, dir_fd=handle)
            finally:
                os.close(handle)
            handle = deeper
        self._at = {"dir_fd": handle}

    def open(self, name: str, flags: int) -> int:
        if not self._at:
            self._refuse_link(self._base / name)
        return os.open(self._name(name), flags | NO_LINK | NO_WAIT | BINARY, 0o666, **self._at)

    def rename(self, name: str, to: str) -> None:
        at = self._at.get("dir_fd")
        os.replace(self._name(name), self._name(to), src_dir_fd=at, dst_dir_fd=at)

    def unlink(self, name: str) -> None:
        os.unlink(self._name(name), **self._at)

    def names(self) -> list[str]:
        return os.listdir(self._at.get("dir_fd", self._base))

    def sync(self) -> None:
        """Flush the folder's entries to disk, renames among them, if the system can."""
        if self._at:
            with suppress(OSError):  # some file systems sync no folder
                os.fsync(self._at["dir_fd"])

    def close(self) -> None:
        if self._at:
            os.close(self._at["dir_fd"])

    def _name(self, name: str) -> str:
        return name if self._at else str(self._base / name)

    def _refuse_link(self, path: Path) -> None:
        if path.is_symlink():
            raise _is_link(path)


def _is_link(path: Path) -> RunError:
    return RunError(f"{path} is a link, or behind one; a run must contain its files")


def _not_regular(path: Path) -> RunError:
    return RunError(Message("{name} is not a regular file; remove it, or put the run's own file back", name=path))


def _check_regular(handle: int, path: Path) -> None:
    """Refuse an open file that is not regular, or that has another name (a hard link), maybe outside of the run."""
    about = os.fstat(handle)
    if not stat.S_ISREG(about.st_mode):
        raise _not_regular(path)
    if about.st_nlink > 1:
        raise RunError(
            Message(
                "{name} has {n} hard links, and a run needs files of its own; copy it: cp -r",
                name=path,
                n=about.st_nlink,
            )
        )


def write_all(handle: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(handle, rest) :]


LOCK_FILE = "lock"
LOOKING = 0.2
"""Seconds to retry: `holder_of` in another process holds the lock for a moment."""
HELD = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK)


class Lock:
    """Exclusive right to write into a folder, until it is released."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / LOCK_FILE
        while True:
            self._handle = SafeDir(folder).open(LOCK_FILE, os.O_RDWR | os.O_CREAT)
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
                if error.errno not in HELD and not _is_alive(_read_holder(self._handle)):
                    return None
                if time.monotonic() > until:
                    raise RunError(self._refusal()) from None
            time.sleep(LOOKING / 10)

    def _refusal(self) -> str:
        holder = _read_holder(self._handle)
        who = f"process {holder['process']} on {holder['host']} since {holder['since']}" if holder else "a process"
        then = f"wait for it, or stop it; if it is gone, remove {self.path}"
        return f"{self.path.parent} is being trained by {who}; {then}"


def holder_of(folder: Path) -> dict[str, str] | None:
    """Return who is writing into a folder: `host`, `process` and `since`, as the lock file says; None if nobody is."""
    try:
        handle = SafeDir(folder).open(LOCK_FILE, os.O_RDONLY)
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
        return {"host", "process", "since"} == {*json.loads(SafeDir(folder).read(LOCK_FILE, 1 << 12))}
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
