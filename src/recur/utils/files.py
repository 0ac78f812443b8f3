"""Atomic writes, and reads in bounded time and memory.

A file is written under a temporary name, flushed to disk and renamed. So a process that is killed, or a power failure,
leaves the old file or the new one, never a part of one.

A name that is read may be anything: a device without an end, a pipe that nobody writes to, a folder. All of these raise
OSError.

Figures of matplotlib are created without pyplot, and no backend is chosen, so that figures of a notebook or a program
are not affected.
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
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, cast

from recur.errors import OptionError, RecurError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NO_WAIT = getattr(os, "O_NONBLOCK", 0)
"""Flag that makes opening a pipe without a writer return at once."""
BINARY = getattr(os, "O_BINARY", 0)

PATIENCE = 5.0
"""Seconds to wait for a writer of a pipe."""


def write_atomically(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Replace a file by this content; mode: the permissions of the new file, less the umask."""
    with replacing(path, mode) as out:
        out.write(content)


@contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Yield a stream whose content replaces the file at `path` when the block ends without an error.

    A link is followed: its target is replaced. A device or a pipe is written to directly.
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file() and not path.is_dir():
        with path.open("wb") as out:
            yield out
        return
    # tempfile would create a file that only its owner can read.
    part = path.with_name(f".{path.name[:40]}.{secrets.token_hex(4)}.part")
    try:
        with _naming(path):
            # Set the permissions on creation: later, another user may have opened the file already.
            out = open(part, "xb", opener=lambda name, flags: os.open(name, flags, mode))  # noqa: SIM115
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
    """Make errors name the file, not its temporary one."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def sync_folder(folder: Path) -> None:
    """Flush the entries of a folder to disk, renames among them, if the system can."""
    with suppress(OSError):  # Windows opens no folder, and some file systems sync none
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def cache_folder() -> Path:
    """Return $RECUR_CACHE, or recur in the user's cache folder; its files can be created again."""
    if chosen := os.environ.get("RECUR_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "recur"


# Reading --------------------------------------------------------------------------------------------------------


def open_stream(path: Path | str) -> BinaryIO:
    """Open a regular file, a pipe or a terminal for reading, without waiting for data in `open` itself."""
    name = os.fspath(path)
    if "\0" in name:
        raise OSError(errno.EINVAL, "its name holds a zero byte", name)
    try:
        handle = os.open(name, os.O_RDONLY | NO_WAIT | BINARY)
    except UnicodeEncodeError:
        raise OSError(errno.EILSEQ, "its name is not Unicode", name) from None
    mode = os.fstat(handle).st_mode
    if stat.S_ISFIFO(mode):
        return _open_pipe(name, handle)
    try:
        if stat.S_ISDIR(mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        stream = cast(BinaryIO, io.BufferedReader(_File(handle, "rb")))
    except BaseException:
        os.close(handle)
        raise
    if not ends(stream):
        stream.close()
        raise OSError(errno.EINVAL, "it is a device, which has no end", name)
    if not stat.S_ISREG(mode):
        os.set_blocking(handle, True)  # a terminal, whose user may take any time
    return stream


class _File(io.FileIO):
    """File that is read without waiting. Some files of the system, such as /proc/kmsg, are regular and have no end."""

    def readinto(self, buffer: Any) -> int:
        found: int | None = super().readinto(buffer)
        return found if found is not None else self._refuse()

    def readall(self) -> bytes:
        found: bytes | None = super().readall()
        return found if found is not None else self._refuse()

    def _refuse(self) -> NoReturn:
        raise OSError(errno.EINVAL, "it is no file with an end: reading it waits for more", self.name)


def too_long(name: str) -> bool:
    """Return True if a name is too long for a file; it is probably a text."""
    return len(name) > 4096 or any(len(part.encode(errors="replace")) > 255 for part in name.split("/"))


def ends(stream: BinaryIO) -> bool:
    """Return True if a stream has an end, or is a terminal; a device such as /dev/zero has no end."""
    try:
        found = os.fstat(stream.fileno())
    except io.UnsupportedOperation:  # in memory
        return True
    if not (stat.S_ISCHR(found.st_mode) or stat.S_ISBLK(found.st_mode)):
        return True
    return stream.isatty() or found.st_rdev == os.stat(os.devnull).st_rdev


def read_bounded(path: Path | str, most: int) -> bytes:
    """Return the content of a file of at most `most` bytes."""
    with open_stream(path) as stream:
        found = stream.read(most + 1)
    if len(found) > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes", os.fspath(path))
    return found


def _open_pipe(name: str, handle: int) -> BinaryIO:
    """Open a pipe once it has a writer, who may then take any time."""
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
    """Pipe whose first bytes are read already."""

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
    """Return the bytes of memory of this machine; 2⁶³ if the system does not say."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 2.0**63


def memory_taken() -> float:
    """Return the bytes of memory that this process uses; 0 if the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as stream:
            return float(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return 0.0


def new_figure(
    rows: int = 1, columns: int = 1, *, width: float = 6.4, height: float = 3.2
) -> tuple[Figure, list[Axes]]:
    """Return a new figure, with width and height in inches, and its axes, row by row."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise RecurError("matplotlib is not installed: pip install 'recur[plot]'") from None
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def save_figure(figure: Figure, path: Path | str) -> None:
    """Save a figure in the format of the file name's ending, such as .png, .svg or .pdf."""
    path = Path(path)
    ending = path.suffix.removeprefix(".").lower()
    known = figure.canvas.get_supported_filetypes()
    if ending not in known:
        raise OptionError(f"{path}: a figure's name ends in its format, one of {', '.join(sorted(known))}")
    content = io.BytesIO()
    figure.savefig(content, format=ending, dpi=150)
    write_atomically(path, content.getvalue())
