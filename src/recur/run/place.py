"""The files inside one folder, by name, and nothing outside of it.

A run may come from anybody, with anything in it. Files are opened relative to their folder, without following links,
and only if they are files: not a pipe that would never end, nor a device.

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
from recur.files import sync_folder

NO_LINK = getattr(os, "O_NOFOLLOW", 0)
FOLDER = getattr(os, "O_DIRECTORY", 0)
NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # a pipe without a writer would be waited for
BINARY = getattr(os, "O_BINARY", 0)
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
        with self._opened(name, os.O_RDONLY) as handle:
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
        with self._opened(name, os.O_RDONLY) as handle:
            about = os.fstat(handle)
            os.lseek(handle, max(0, about.st_size + start) if start < 0 else start, os.SEEK_SET)
            return os.read(handle, most), about.st_size, about.st_ino

    def digest(self, name: str) -> str:
        """The SHA-256 of a file, however large."""
        with self._opened(name, os.O_RDONLY) as handle:
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
                    _write_all(handle, content)
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
        with self._opened(name, os.O_WRONLY | os.O_APPEND) as handle:
            if os.fstat(handle).st_nlink == 1:
                _write_all(handle, content)
                if flushed:
                    os.fsync(handle)
                return
        self.write(name, self.read(name) + content)  # a hard link: the other file is somebody else's

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
        """The folder that a file lies in, and the file's name in it. Errors name the file, not a part of its path."""
        *inner, last = Path(name).parts
        try:
            folder = _Folder(self.path, inner)
            try:
                yield folder, last
            finally:
                folder.close()
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENOTDIR):
                raise _is_link(self.path / name) from None
            raise OSError(error.errno, error.strerror, str(self.path / name)) from None

    @contextmanager
    def _opened(self, name: str, flags: int) -> Iterator[int]:
        """A file that is one: no link, pipe, device or folder."""
        with self._folder_of(name) as (folder, last):
            handle = folder.open(last, flags)
            try:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise RunError(f"{self.path / name} is no file")
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


def _write_all(handle: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(handle, rest) :]
