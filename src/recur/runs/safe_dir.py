"""The files inside one folder, by name, and nothing outside of it.

A run may come from anybody, with anything in it. Every file of a run, a sweep or the studio is opened by `Place.open`:
relative to its folder, without following symbolic links, and only if it is a regular file with exactly one hard link. A
pipe is never waited for, and no file outside of the folder is read or changed.

What is written is written beside its place, flushed to disk and renamed, so that a process killed at any moment, or a
machine that loses its power, leaves the old file or the new one, never half of one. What is appended can be torn; who
reads it knows from elsewhere how much of it is whole.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from recur.errors import RunError
from recur.i18n import Message
from recur.utils.files import BINARY, NO_WAIT, sync_folder

NO_LINK = getattr(os, "O_NOFOLLOW", 0)
FOLDER = getattr(os, "O_DIRECTORY", 0)
RELATIVE = os.open in os.supports_dir_fd
"""Whether the system opens files relative to a folder; where it does not, links are looked for before."""

PART = re.compile(r"\..+\.[0-9a-f]{8}\.part")
"""A file that was being written when its writer ended."""


class Place:
    """A folder; names are relative to it, with at most one folder in them: `resume/a.safetensors`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, name: str, most: int | None = None) -> bytes:
        """The content of a file; one of more bytes than `most` is refused."""
        with self.opened(name, os.O_RDONLY) as handle:
            size = os.fstat(handle).st_size
            if most is not None and size > most:
                raise RunError(f"{self.path / name} is damaged: it has {size:,} bytes")
            parts = []
            while part := os.read(handle, 1 << 24):
                parts.append(part)
            return b"".join(parts)

    def read_from(self, name: str, start: int, most: int) -> tuple[bytes, int, int]:
        """So many bytes of a file that grows, from a place in it; a negative one is counted from its end. And how long
        it is, and its number on disk, which is another one when it was written anew."""
        with self.opened(name, os.O_RDONLY) as handle:
            about = os.fstat(handle)
            os.lseek(handle, max(0, about.st_size + start) if start < 0 else start, os.SEEK_SET)
            return os.read(handle, most), about.st_size, about.st_ino

    def digest(self, name: str) -> str:
        """The SHA-256 of a file, however large."""
        with self.opened(name, os.O_RDONLY) as handle:
            sha = hashlib.sha256()
            while part := os.read(handle, 1 << 22):
                sha.update(part)
            return sha.hexdigest()

    def write(self, name: str, content: bytes) -> None:
        """Replace a file, or a link in its place, by this content."""
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
        """Add to the end of a file that is there; brought to disk at once, unless it is no loss."""
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
            raise RunError(f"{path} is in the way: a run has a folder there")

    def sweep(self, *folders: str) -> None:
        """Remove what writers that were killed left half-written."""
        for inner in ("", *folders):
            with suppress(OSError, RunError), self._folder_of(os.path.join(inner, "any")) as (folder, _):
                for name in folder.names():
                    if PART.fullmatch(name):
                        folder.unlink(name)

    @contextmanager
    def _folder_of(self, name: str) -> Iterator[tuple[_Folder, str]]:
        """The folder that a file lies in, and the file's name in it."""
        *inner, last = Path(name).parts
        with self._naming(name):
            folder = _Folder(self.path, inner)
            try:
                yield folder, last
            finally:
                folder.close()

    @contextmanager
    def _naming(self, name: str) -> Iterator[None]:
        """Have errors name the file, not a part of its path."""
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENOTDIR):
                raise _is_link(self.path / name) from None
            if error.errno in (errno.ENXIO, errno.EISDIR):  # a socket, a pipe without a reader; a folder
                raise _not_regular(self.path / name) from None
            raise OSError(error.errno, error.strerror, str(self.path / name)) from None

    def open(self, name: str, flags: int) -> int:
        """Return a handle of a regular file with exactly one hard link, which the caller closes. Refuse a symbolic
        link, a pipe, a socket, a device and a folder."""
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
    """A folder that is open, and stays the same one whatever is moved or linked in its place meanwhile."""

    def __init__(self, path: Path, inner: Sequence[str]) -> None:
        self._base = path.joinpath(*inner)
        self._at: dict[str, int] = {}
        if not RELATIVE:  # Windows: names are whole paths there, and links are looked for before
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
        """Bring names to disk, renames among them, where the system has a way to."""
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
    return RunError(f"{path} is a link, or behind one; a run holds its files itself")


def _not_regular(path: Path) -> RunError:
    return RunError(Message("{name} is not a regular file; remove it, or put the run's own file back", name=path))


def _check_regular(handle: int, path: Path) -> None:
    """Refuse an open file that is not regular, or that has another name outside of the run (a hard link)."""
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
