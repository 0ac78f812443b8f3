"""Files written whole or not at all, and read in bounded time and memory.

A file is written beside its place, flushed to disk and renamed. A process that is killed at any moment, or a machine
that loses its power, leaves the old file or the new one, never half of one.

What is read may be anything that has a name: a device without an end, a pipe that nobody writes to, a folder. All that
is wrong with it is an OSError.
"""

from __future__ import annotations

import errno
import io
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

PATIENCE = 5.0
"""Seconds to wait for somebody to write to a pipe."""


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file by this content."""
    with replacing(path) as out:
        out.write(content)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A stream for what shall stand at `path`; it stands there once the block has ended without an error.

    A link is followed: the file it points to is replaced. A device or a pipe cannot be, and is written to.
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file() and not path.is_dir():
        with path.open("wb") as out:
            yield out
        return
    # Not from tempfile: its files are for their owner's eyes only, and these are as readable as any other.
    part = path.with_name(f".{path.name[:40]}.{secrets.token_hex(4)}.part")
    try:
        with _naming(path):
            out = part.open("xb")
        with out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        with _naming(path):
            os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    sync_folder(path.parent)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Errors name the file that was asked for: nobody knows the part."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def sync_folder(folder: Path) -> None:
    """Bring the names of a folder to disk, renames among them, where the system has a way to."""
    with suppress(OSError):  # Windows opens no folder, and some file systems sync none
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def cache_folder() -> Path:
    """For what can be made again: $RECUR_CACHE, or recur in the user's cache."""
    if chosen := os.environ.get("RECUR_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "recur"


# Reading --------------------------------------------------------------------------------------------------------


def open_stream(path: Path | str) -> BinaryIO:
    """A file or a pipe, to be read."""
    name = os.fspath(path)
    if "\0" in name:
        raise OSError(errno.EINVAL, "its name holds a zero byte", name)
    try:
        mode = os.stat(name).st_mode
    except UnicodeEncodeError:
        raise OSError(errno.EILSEQ, "its name is not Unicode", name) from None
    if stat.S_ISFIFO(mode):
        return _open_pipe(name)
    stream = open(name, "rb")  # noqa: SIM115  the caller closes it
    if not ends(stream):
        stream.close()
        raise OSError(errno.EINVAL, "it is a device, which has no end", name)
    return stream


def too_long(name: str) -> bool:
    """Whether no file has such a name: a text that was taken for one, most likely."""
    return len(name) > 4096 or any(len(part.encode(errors="replace")) > 255 for part in name.split("/"))


def ends(stream: BinaryIO) -> bool:
    """Whether a stream can be read to its end, or is somebody at a terminal: a device such as /dev/zero has none."""
    try:
        found = os.fstat(stream.fileno())
    except io.UnsupportedOperation:  # in memory
        return True
    if not (stat.S_ISCHR(found.st_mode) or stat.S_ISBLK(found.st_mode)):
        return True
    return stream.isatty() or found.st_rdev == os.stat(os.devnull).st_rdev


def read_bounded(path: Path | str, most: int) -> bytes:
    """All of a file that has so many bytes at most."""
    with open_stream(path) as stream:
        found = stream.read(most + 1)
    if len(found) > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes", os.fspath(path))
    return found


def _open_pipe(name: str) -> BinaryIO:
    """A pipe whose writer may take any time; that there is one is waited for."""
    handle = os.open(name, os.O_RDONLY | os.O_NONBLOCK)
    until, first = time.monotonic() + PATIENCE, b""
    with suppress(BlockingIOError):  # it has a writer, who has written nothing yet
        while not (first := os.read(handle, 1 << 16)):  # it has none
            if time.monotonic() > until:
                os.close(handle)
                raise OSError(errno.EPIPE, "nobody writes to this pipe", name)
            time.sleep(0.01)
    os.set_blocking(handle, True)
    return cast(BinaryIO, io.BufferedReader(_Pipe(first, handle)))


class _Pipe(io.RawIOBase):
    """What was read of a pipe, and the rest."""

    def __init__(self, first: bytes, handle: int) -> None:
        self.first, self.handle = first, handle

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self.first[: len(buffer)] or os.read(self.handle, len(buffer))
        self.first = self.first[len(data) :]
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            os.close(self.handle)
        super().close()


# Memory ---------------------------------------------------------------------------------------------------------


def memory() -> float:
    """Bytes of this machine; more than any has, where the system does not say."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 2.0**63


def memory_taken() -> float:
    """Bytes that this process has in memory now; 0, where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as stream:
            return float(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return 0.0
