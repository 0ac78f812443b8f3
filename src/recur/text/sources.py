"""Where texts come from: files, folders, standard input, and two corpora that every Python carries."""

from __future__ import annotations

import functools
import gzip
import io
import os
import sys
import sysconfig
import tempfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from recur.errors import TextError, shown
from recur.files import ends, open_stream, too_long

RATIO, UNPACKED = 30, 1 << 24
"""A .gz unpacks to at most so many times its size and so many bytes more: text shrinks to a third or a tenth, and what
shrinks to a thousandth is made to fill a memory."""

SPOOLED = 1 << 32
"""Bytes that come through a pipe at most; they are kept, to be read again."""


@dataclass(frozen=True)
class Source:
    """One stream of bytes that can be opened again and again."""

    name: str
    open: Callable[[], BinaryIO]
    begin: int = 0
    """Of a file of which this is a part, the first byte; and the one behind the last."""
    end: int | None = None

    def read(self, stream: BinaryIO, size: int) -> bytes:
        """So many bytes of what was opened, or fewer at its end; damage is named with the source."""
        try:
            return stream.read(size)
        except (OSError, EOFError, zlib.error) as error:
            raise TextError(f"{self.name} cannot be read: {error}") from None

    def __reduce__(self) -> tuple[Callable[[str, int, int | None], Source], tuple[str, int, int | None]]:
        """For another process, which opens it by its name."""
        if self.name not in BUILT_IN and not Path(self.name).is_file():
            raise TextError(f"{self.name} is read by this process alone; for workers, write it to a file first")
        return part_of, (self.name, self.begin, self.end)


def part_of(name: str, begin: int = 0, end: int | None = None) -> Source:
    """A source by its name; of a file, a range of its bytes."""
    ((source,), _) = find_sources([name])
    if end is None:
        return source
    return Source(name, lambda: cast(BinaryIO, _Range(source.open(), begin, end)), begin, end)


class _Range(io.BufferedIOBase):
    def __init__(self, stream: BinaryIO, begin: int, end: int) -> None:
        self.stream, self.left = stream, end - begin
        stream.seek(begin)

    def read(self, size: int | None = -1, /) -> bytes:
        found = self.stream.read(self.left if size is None or size < 0 else min(size, self.left))
        self.left -= len(found)
        return found

    def close(self) -> None:
        self.stream.close()
        super().close()


def find_sources(names: Sequence[str]) -> tuple[list[Source], int]:
    """The sources behind what a user typed, and how many files were passed over as not text."""
    if not names:
        raise TextError("no text given; name a file, a folder, - for standard input, pydoc or stdlib")
    found: list[Source] = []
    skipped = 0
    for name in map(str, names):
        if too_long(name):
            raise TextError(f"no file {shown(name)}: its name is longer than any")
        if not name:
            raise TextError("a text's name is empty; name a file, a folder, - for standard input, pydoc or stdlib")
        if name in ("-", "/dev/stdin"):
            found.append(_standard_input())
        elif name in BUILT_IN and not Path(name).exists():
            found += BUILT_IN[name]()
        elif Path(name).is_dir():
            texts, others = _folder(Path(name))
            found += texts
            skipped += others
        else:
            found.append(_file(Path(name)))
    return found, skipped


def _file(path: Path) -> Source:
    if not path.exists():
        raise TextError(f"no file {str(path)!r}; built-in corpora: {', '.join(BUILT_IN)}")
    if not path.is_file():  # a pipe, such as <(command): it can be read once only
        return _pipe(path, path.stat().st_ino)

    def open_file() -> BinaryIO:
        try:
            return cast(BinaryIO, _Unpacked(path)) if path.suffix == ".gz" else path.open("rb")
        except OSError as error:
            raise TextError(f"{path} cannot be opened: {error.strerror}") from None

    return Source(str(path), open_file)


class _Unpacked(gzip.GzipFile):
    """A .gz that ends where it would fill a memory."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "rb")
        self.left = RATIO * os.path.getsize(path) + UNPACKED

    def read(self, size: int | None = -1) -> bytes:
        found = super().read(size)
        self.left -= len(found)
        if self.left < 0:
            raise OSError(f"it unpacks to more than {RATIO} times its size, as no text does; unpack it yourself")
        return found


def files_in(folder: Path) -> list[Path]:
    """All files below a folder, in the order of their paths, but for hidden ones and those of runs: a model does not
    learn from what it wrote."""
    try:
        files = [p for p in sorted(folder.rglob("*")) if p.is_file() and not _hidden(p.relative_to(folder))]
    except OSError as error:
        raise TextError(f"folder {str(folder)!r} cannot be read: {error}") from None
    runs = {p.parent for p in files if p.name == "manifest.json" and (p.parent / "resume").is_dir()}
    return [p for p in files if not runs & {*p.parents}]


def _folder(folder: Path) -> tuple[list[Source], int]:
    files = files_in(folder)
    texts = [p for p in files if _looks_like_text(p)]
    if not texts:
        raise TextError(f"folder {str(folder)!r} holds no text file")
    return [_file(p) for p in texts], len(files) - len(texts)


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _looks_like_text(path: Path) -> bool:
    """Not empty, and without a zero byte, which pictures and archives have at once and text never."""
    try:
        if not path.stat().st_size:  # or one of the system's own, whose reader may wait for ever
            return False
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            start = stream.read(8192)
    except (OSError, EOFError, zlib.error):
        return False
    return bool(start) and b"\0" not in start


@functools.cache
def _pipe(path: Path, inode: int) -> Source:
    """The same pipe is read once; another one may have its name later."""
    try:
        with open_stream(path) as stream:
            return _spooled(str(path), stream)
    except OSError as error:
        raise TextError(f"{path} cannot be read: {error.strerror or error}") from None


@functools.cache
def _standard_input() -> Source:
    if sys.stdin is None or not ends(sys.stdin.buffer):
        raise TextError("standard input is closed, or a device without an end")
    return _spooled("standard input", sys.stdin.buffer)


def _spooled(name: str, stream: BinaryIO) -> Source:
    """What can be read once, kept so that it can be read again; on disk if it is large."""
    spool = tempfile.SpooledTemporaryFile(max_size=1 << 28)  # noqa: SIM115  it lives as long as the process
    while data := stream.read(1 << 20):
        spool.write(data)
        if spool.tell() > SPOOLED:
            spool.close()
            raise TextError(f"{name} has more than {SPOOLED >> 30} GiB, all that is kept of a pipe: write a file first")

    class Again(io.BufferedIOBase):
        """Reads the spool from its start, each reader at its own pace; closing it keeps the spool."""

        def __init__(self) -> None:
            self.at = 0

        def read(self, size: int | None = -1, /) -> bytes:
            spool.seek(self.at)
            data = spool.read(-1 if size is None else size)
            self.at += len(data)
            return data

    return Source(name, lambda: cast(BinaryIO, Again()))


def _pydoc() -> list[Source]:
    def open_topics() -> BinaryIO:
        from pydoc_data.topics import topics

        return io.BytesIO("\n".join(topics[key] for key in sorted(topics)).encode())

    return [Source("pydoc", open_topics)]


def _stdlib() -> list[Source]:
    """The library's modules, without their tests, which are no more prose than data is."""
    root = Path(sysconfig.get_path("stdlib"))
    leave_out = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "pydoc_data", "lib2to3"}

    return [_file(path) for path in sorted(root.rglob("*.py")) if not leave_out & {*path.relative_to(root).parts}]


BUILT_IN: dict[str, Callable[[], list[Source]]] = {"pydoc": _pydoc, "stdlib": _stdlib}
